"""Whole models on the native backend and on numpy: the same logits, states, drafts and texts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from model_runs import TOKENS, dflash_blocks, error, mtp_drafts, worked
from models.test_drafting import drafter_of, generated
from models.test_rollback import states_after
from typer.testing import CliRunner

from graphrun import load
from graphrun.cli import app
from graphrun.model import Activations, Model
from graphrun.sampling import Sampling
from graphrun.session import Session

A = np.ndarray[Any, Any]
FOLDER = GOLDEN / "models"
DENSE = [  # every layout of weights, by two architectures
    *(f"llama-{name}" for name in ("s.F32", "s.Q4_0", "s.Q4_1", "s.Q8_0", "s.IQ4_NL", "k.Q2_K", "k.Q6_K")),
    *(f"qwen2-{name}" for name in ("s.Q4_0", "s.Q5_1", "k.Q4_K_M")),
]
HYBRIDS = sorted(p.stem for p in FOLDER.glob("qwen35-[km]*.gguf"))
DRAFTERS = sorted(p.stem for p in FOLDER.glob("dflash*.gguf"))
VERIFIED = ((7, 3), (16, 16), (7, 7), (16, 1))
CHUNKED = 1e-5  # numpy solves the delta rule of many tokens in segments: relative
EXACT = 2e-5  # numpy sums dequantised weights in an order of its own: relative
BACKENDS = ("native", "numpy")


def opened(name: str, backend: str, activations: Activations = "q8") -> Model:
    return load(FOLDER / f"{name}.gguf", backend=backend, threads=2, activations=activations, context=128)


@pytest.mark.parametrize("name", [*DENSE, *HYBRIDS])
def test_decoding_verifying_and_rollback(name: str) -> None:
    """Bit for bit, and so are the states at the end; then a long chunk."""
    (ours, session), (expected, other) = (worked(opened(name, b), VERIFIED) for b in BACKENDS)
    assert ours.tobytes() == expected.tobytes()
    states = states_after(other)
    assert states and session.tokens == other.tokens
    for state, memory in states_after(session).items():
        assert memory.tobytes() == states[state].tobytes(), state
    found, wanted = (np.stack(list(s.score(TOKENS[s.pos : s.pos + 30]))) for s in (session, other))
    assert error(found, wanted) < CHUNKED if name in HYBRIDS else found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ["llama-s.Q4_0", "qwen2-k.Q4_K_M", "qwen35-mtp.Q4_0"])
def test_exact_activations(name: str) -> None:
    (ours, _), (expected, _) = (worked(opened(name, b, "exact"), VERIFIED) for b in BACKENDS)
    assert error(ours, expected) < EXACT


@pytest.mark.parametrize("name", [n for n in HYBRIDS if n.startswith("qwen35-mtp")])
def test_mtp_drafts(name: str) -> None:
    """The chain of guesses and the logits of the last, also after drafts that were wrong."""
    found = [mtp_drafts(opened(name, backend), 4, 6) for backend in BACKENDS]
    assert found[0] == found[1]
    assert all(len(guesses) == 6 for guesses, _ in found[0])


@pytest.mark.parametrize("name", DRAFTERS)
def test_dflash_blocks(name: str) -> None:
    """Features, candidates, their scores, block logits: bit for bit, while the ring of the window wraps."""
    path = FOLDER / f"{name}.gguf"
    found = [dflash_blocks(opened(HYBRIDS[-1], backend), path, 60, 5) for backend in BACKENDS]
    assert found[0] == found[1]


@cache
def drafting_model(backend: str, kind: str) -> Model:
    """For drafters that read the inputs of its layers one, for the others another; one whose text repeats itself."""
    return opened("llama-s.Q4_0" if kind == "lookup" else "qwen35-mtp.Q4_0", backend)


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [
        ("mtp", Sampling()),
        ("mtp and lookup", Sampling(0.8, 40, seed=3, repeat_penalty=1.2)),
        ("dflash", Sampling(0.8, 40, seed=3, repeat_penalty=1.2)),
        ("dflash and lookup", Sampling()),
        ("lookup", Sampling()),
    ],
)
def test_speculation(kind: str, sampling: Sampling) -> None:
    """The text of numpy without drafts, in as many steps as numpy takes with them."""
    prompt, counts = [5, 6, 7, 5, 6, 7, 5, 6], []
    length = 100 if kind == "lookup" else 20
    plain, _ = generated(drafting_model("numpy", kind).session(), prompt, sampling, length, frozenset())
    for backend in BACKENDS:
        model = drafting_model(backend, kind)
        session = Session(model, drafter_of(kind, model, 0.0), 7)
        found, generation = generated(session, prompt, sampling, length, frozenset())
        assert found == plain, backend
        counts.append((generation.steps, generation.drafted, generation.accepted))
    assert counts[0] == counts[1] and counts[0][1] > 0


def text(model: Path, backend: str, *drafts: str) -> str:
    command = ["run", str(model), "--tokens", "5,6,7,5,6,7,5,6", "-n", "16", "--ignore-eos", "--backend", backend]
    result = CliRunner().invoke(app, [*command, *drafts])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("name", "drafts"),
    [
        ("qwen2-k.Q4_K_M", ["--lookup"]),
        ("qwen35-mtp.Q4_0", ["--draft", "3", "--draft-pmin", "0"]),
        ("qwen35-mtp.Q8_0", ["--mtp", str(FOLDER / "qwen35-mtp.Q4_0.gguf"), "--lookup"]),
        ("qwen35-mtp.Q8_0", ["--dflash", str(FOLDER / "dflash.Q4_0.gguf")]),
    ],
)
def test_commands(name: str, drafts: list[str]) -> None:
    path = FOLDER / f"{name}.gguf"
    expected = text(path, "numpy")
    assert expected.strip()
    assert {text(path, "native"), text(path, "native", *drafts)} == {expected}
