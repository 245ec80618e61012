"""The native backend runs what the numpy backend runs, with the same bits for any chunks and instruction set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from conftest import GOLDEN

from graphrun import backends
from graphrun.backends import engine
from graphrun.backends.abi import layout
from graphrun.backends.fallback import Fallback
from graphrun.backends.native import NativeBackend
from graphrun.backends.reference import NumpyBackend
from graphrun.core.errors import BackendError, ProgramError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.model import Activations, Model, graph_of
from graphrun.ops import OPS

A = np.ndarray[Any, Any]
MODELS = json.loads((GOLDEN / "manifest.json").read_text())["models"]
NAMES = sorted(n for n, record in MODELS.items() if (GOLDEN / record["golden"]).is_file())
HYBRIDS = sorted(p.stem for p in (GOLDEN / "models").glob("qwen35-[km]*.gguf"))
SETS = [name for name, usable in engine.instruction_sets().items() if usable]


def opened(path: Path, backend: backends.Backend, activations: Activations = "q8") -> Model:
    file = ModelFile.open(path)
    return Model(file, graph_of(file, None), backend, activations=activations, context=128)


def decoded(model: Model, tokens: list[int]) -> A:
    session = model.session()
    return np.stack([session.decode(t) for t in tokens])


@pytest.fixture(scope="module")
def native() -> NativeBackend:
    return NativeBackend(2)


@pytest.mark.parametrize("instructions", SETS)
def test_every_kernel_of_the_table_is_an_ops(instructions: str) -> None:
    """And every kernel of an op is in the table: those of the ops are what tests/ops/test_kernels.py runs."""
    table = dict(engine.kernels(instructions).index)
    del table["read"]  # no op: it measures, see below
    assert table == {k.name: (table[k.name][0], layout(op).checksum) for op in OPS.values() for k in op.kernels}


@pytest.mark.parametrize("instructions", SETS)
def test_read_limit(instructions: str) -> None:
    pool = engine.Pool(2, engine.kernels(instructions))
    assert 1e8 < pool.read_limit(1 << 22) < 1e13


@pytest.mark.parametrize("name", NAMES)
def test_golden_models(name: str, native: NativeBackend) -> None:
    """Exact activations: llama.cpp's logits. Rounded ones: the bits of the numpy backend."""
    record = MODELS[name]
    arrays = np.load(GOLDEN / record["golden"])
    golden = arrays["logits_f32act"] if "logits_f32act" in arrays.files else arrays["logits_seq"]
    path, tokens = GOLDEN / record["file"], arrays["tokens"].tolist()
    assert np.abs(decoded(opened(path, native, "exact"), tokens) - golden).max() < 2e-5 * np.abs(golden).max()
    ours, reference = (decoded(opened(path, backend), tokens) for backend in (native, NumpyBackend(1)))
    assert np.array_equal(ours, reference)


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrid_models(name: str, native: NativeBackend) -> None:
    """The bits of the numpy backend token by token, and of that in chunks of any size."""
    path, tokens = GOLDEN / "models" / f"{name}.gguf", list(range(40, 76))
    model = opened(path, native)
    logits = decoded(model, tokens)
    assert np.array_equal(logits, decoded(opened(path, NumpyBackend(1)), tokens))
    for size in (4, 16, 36):
        session = model.session()
        rows = [row for i in range(0, len(tokens), size) for row in session.score(tokens[i : i + size])]
        assert np.array_equal(np.stack(rows), logits), size


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(("Q4_0", "Q4_1", "Q8_0", "Q4_K_M", "Q2_K", "F32"))])
def test_chunks_and_instruction_sets_do_not_matter(name: str) -> None:
    """Rounded activations: tokens one by one, and in chunks of any size, on every instruction set."""
    path = GOLDEN / MODELS[name]["file"]
    tokens = np.load(GOLDEN / MODELS[name]["golden"])["tokens"].tolist()
    single = decoded(opened(path, NativeBackend(1, SETS[-1])), tokens)
    for instructions in SETS:
        model = opened(path, NativeBackend(2, instructions))
        for size in (1, 3, 5, 17, 24):
            session = model.session()
            rows = [row for i in range(0, len(tokens), size) for row in session.score(tokens[i : i + size])]
            assert np.array_equal(np.stack(rows), single), (instructions, size)


def test_states_in_the_order_of_their_types(tmp_path: Path, native: NativeBackend) -> None:
    path = tiny.llama(tmp_path / "tiny.gguf")
    models = [opened(path, backend, "exact") for backend in (native, NumpyBackend(1))]
    for model in models:
        model.session().prefill(list(range(3, 22)))
    ours, reference = (model.runner.states for model in models)  # type: ignore[attr-defined]
    assert ours.keys() == reference.keys()
    for name, memory in reference.items():
        assert np.allclose(ours[name][:19], memory[:19], rtol=0, atol=1e-5 * np.abs(memory).max()), name


def test_buffers_and_the_first_bad_call(tmp_path: Path, native: NativeBackend) -> None:
    """A weight that is not finite is blamed on the call that reads it."""
    good = opened(tiny.llama(tmp_path / "good.gguf"), native)
    good.session().decode(3)
    program = good.program("decode", 1)
    for index, call in enumerate(program.calls):
        stored = good.runner.buffers(index)
        assert stored.keys() == call.named.keys()
    assert good.runner.first_bad_call(program, [3], 0) is None
    weights = np.ones(tiny.E, np.float32)
    weights[5] = np.nan
    bad = opened(tiny.llama(tmp_path / "bad.gguf", tensors={"blk.1.ffn_norm.weight": weights}), native)
    with pytest.raises(ProgramError, match="rms_norm"):
        bad.session().decode(3)


def test_memory_that_does_not_suffice(tmp_path: Path) -> None:
    from dataclasses import replace

    backend = NativeBackend(1)
    backend.target = replace(backend.target, memory=1000)
    with pytest.raises(BackendError, match="GB of memory are available"):
        _ = opened(tiny.llama(tmp_path / "tiny.gguf"), backend).runner


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="no backend 'nativ'"):
        backends.open("nativ")
    with pytest.raises(BackendError, match="does not run"):
        NativeBackend(1, "sse9")


def test_auto_is_native_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(backends.open("auto", threads=1), NativeBackend)

    def fails(*_: Any, **__: Any) -> None:
        raise BackendError("the native backend cannot be built: there is no C compiler")

    monkeypatch.setattr(engine, "kernels", fails)
    instead = backends.open("auto", threads=1)
    assert isinstance(instead, Fallback)
    model = opened(tiny.llama(tmp_path / "tiny.gguf"), instead)
    assert "there is no C compiler" in model.runner.notes[0] and "\n" not in model.runner.notes[0]
    with pytest.raises(BackendError, match="no C compiler"):
        backends.open("native")
