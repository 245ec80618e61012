"""Whole models on a gfx1201 in software: numpy's logits, states, drafts and texts, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from model_runs import TOKENS, dflash_blocks, error, mtp_drafts, worked
from simulated import gfx1201
from typer.testing import CliRunner

from graphrun import backends, doctor
from graphrun.backends.abi import HEADER, RECORD_BYTES
from graphrun.backends.gpu import GpuBackend, GpuRunner
from graphrun.cli import app
from graphrun.core.errors import BackendError
from graphrun.core.gguf import ModelFile
from graphrun.model import Activations, Model, graph_of
from graphrun.session import Session

A = np.ndarray[Any, Any]
FOLDER = GOLDEN / "models"
DENSE = [  # with those of test_resident.py every layout of weights; both architectures, rope with factors
    *(f"llama-{name}" for name in ("s.Q4_0", "k.Q2_K", "linear.F32")),
    *("qwen2-s.Q8_0", "qwen2-k.Q4_K_M"),
]
HYBRIDS = ["qwen35-mtp.Q4_0", "qwen35-k.Q4_K_M"]
DRAFTER = "dflash.Q4_0"
VERIFIED = ((5, 3), (16, 16), (9, 1))
EXACT = 2e-5  # numpy sums dequantised weights in an order of its own: relative
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def gpu() -> Iterator[GpuBackend]:
    with gfx1201() as found:
        yield found


def opened(path: Path, backend: backends.Backend, activations: Activations = "q8", context: int = 128) -> Model:
    file = ModelFile.open(path)
    return Model(file, graph_of(file, None), backend, activations=activations, context=context)


def both(name: str, gpu: GpuBackend, activations: Activations = "q8") -> tuple[Model, Model]:
    return tuple(  # type: ignore[return-value]
        opened(FOLDER / f"{name}.gguf", backend, activations) for backend in (gpu, backends.open("numpy", threads=1))
    )


def seen(session: Session, name: str) -> bytes:
    """What later steps can read of a state."""
    runner: Any = session.model.runner
    state = next(s for s in session.model.program("decode").states if s.name == name)
    memory = runner.states[name]
    if state.discipline == "append":
        rows = list(range(session.pos))
    elif state.discipline == "ring":
        rows = [p % len(memory) for p in range(max(0, session.pos - 3), session.pos)]
    else:
        rows = [session.slot]
    found: bytes = memory[rows].tobytes()
    return found


@pytest.mark.parametrize("name", [*DENSE, *HYBRIDS])
def test_decoding_verifying_and_rollback(name: str, gpu: GpuBackend) -> None:
    """Bit for bit, and so are the states at the end; then a long chunk, which has the bits of single tokens."""
    (found, session), (wanted, other) = (worked(m, VERIFIED) for m in both(name, gpu))
    assert found.tobytes() == wanted.tobytes()
    for state in session.model.program("decode").states:
        assert seen(session, state.name) == seen(other, state.name), state.name
    more = TOKENS[session.pos : session.pos + 34]
    assert np.stack(list(session.score(more))).tobytes() == np.stack([other.decode(t) for t in more]).tobytes()


@pytest.mark.parametrize("name", ["llama-s.Q4_0", "qwen35-mtp.Q4_0"])
def test_exact_activations(name: str, gpu: GpuBackend) -> None:
    (found, _), (wanted, _) = (worked(m, VERIFIED) for m in both(name, gpu, "exact"))
    assert error(found, wanted) < EXACT


def test_mtp_drafts(gpu: GpuBackend) -> None:
    """The chain of guesses and the logits of the last, also after drafts that were wrong."""
    results = [mtp_drafts(model, 3, 4) for model in both("qwen35-mtp.Q4_0", gpu)]
    assert results[0] == results[1] and all(len(guesses) == 4 for guesses, _ in results[0])


def test_dflash_blocks(gpu: GpuBackend) -> None:
    """Features, candidates, their scores and block logits, while the ring of the window wraps."""
    path = FOLDER / f"{DRAFTER}.gguf"
    results = [dflash_blocks(model, path, 40, 7) for model in both("qwen35-mtp.Q4_0", gpu)]
    assert results[0] == results[1]


def test_four_tokens_of_a_real_model(smollm: Path, gpu: GpuBackend) -> None:
    texts = []
    for backend in (gpu, backends.open("numpy")):
        model = opened(smollm, backend, context=64)
        session = model.session()
        logits = session.prefill(model.tokenizer.encode(PROMPT, special=True))
        found = []
        for _ in range(4):
            found.append(int(np.argmax(logits)))
            logits = session.decode(found[-1])
        texts.append((found, logits.tobytes()))
    assert texts[0] == texts[1]


def test_commands(gpu: GpuBackend) -> None:
    """The text of numpy, with drafts and without; a table of kernels; no difference of any call."""
    path, draft = FOLDER / "qwen35-mtp.Q4_0.gguf", ["--draft", "3", "--draft-pmin", "0"]
    command = ["run", str(path), "--tokens", "5,6,7,5,6,7", "-n", "6", "--ignore-eos", "-c", "64", "--backend"]
    wanted = CliRunner().invoke(app, [*command, "numpy"]).stdout
    plain, drafted = (CliRunner().invoke(app, [*command, "hip", *more]) for more in (["--profile"], draft))
    assert wanted.strip() and (plain.stdout, drafted.stdout) == (wanted, wanted), plain.output + drafted.output
    assert "delta_layer" in plain.stderr and "\nall " in plain.stderr
    compared = ["diff", str(path), "--backend", "hip", "--against", "numpy", "--rtol", "0", "-c", "64"]
    result = CliRunner().invoke(app, [*compared, "--tokens", "5,6,7"])
    assert result.exit_code == 0 and "every value is the same" in result.stdout, result.output


def test_doctor(gpu: GpuBackend) -> None:
    found = [f for f in doctor.findings() if f.what == "hip"]
    assert len(found) == 3 and all(f.ok for f in found), found
    assert "gfx1201" in found[0].detail and "libamdhip64" in found[1].detail and "numpy's bits" in found[2].detail


def test_a_kernel_that_reads_beside_its_operands(gpu: GpuBackend) -> None:
    """Its call is named; the program's record is given a pointer to nothing."""
    model = opened(FOLDER / "llama-s.Q4_0.gguf", gpu)
    assert isinstance(model.runner, GpuRunner)
    model.runner.watched = True
    program = model.program("decode", 1)
    bound = model.runner.bind(program)
    place = next(i for i, c in enumerate(program.calls) if c.op.name == "gemv")
    at = bound.table.address + RECORD_BYTES * place + HEADER.size
    gpu.device.upload(at, np.array([64], np.uint64))
    with pytest.raises(BackendError, match=rf"^decode: call {place}, gemv_q4_0.* failed \(llama\.yaml:\d+:\d+\): hip"):
        model.session().decode(5)
