"""A prompt in chunks of any size leaves the logits and states that its tokens leave one by one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_hybrid

from graphrun import backends
from graphrun.core.gguf import ModelFile
from graphrun.graphs.spec import load_spec
from graphrun.model import Model
from graphrun.session import Session

A = np.ndarray[Any, Any]
LIMIT = 5e-6
TOKENS = [int(t) for t in np.random.default_rng(7).integers(0, 320, 600)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path: Path = tmp_path_factory.mktemp("chunked") / "m.gguf"
    tiny_hybrid.qwen35(path, context=600)
    opened = Model(ModelFile.open(path), load_spec("qwen35"), backends.open("numpy"), activations="exact")
    single(opened)  # a model has one sequence at a time, so the reference comes first
    return opened


@cache
def single(model: Model) -> tuple[A, dict[int, dict[str, A]]]:
    """Logits after each token, and the states after some of them."""
    session = model.session()
    logits, states = [], {}
    for n, token in enumerate(TOKENS, 1):
        logits.append(session.decode(token))
        if n in (1, 2, 16, 17, 18, 31, 32, 33, 48, 63, 64, 65, 100, 256, 512, 600):
            states[n] = readable(session)
    return np.stack(logits), states


def readable(session: Session) -> dict[str, A]:
    """Caches, the last three inputs of the rings, and the current snapshots."""
    found = {}
    for state in session.model.program("decode").states:
        memory = session.model.runner.states[state.name]  # type: ignore[attr-defined]
        rows = [p % len(memory) for p in range(max(0, session.pos - 3), session.pos)]
        parts = {"append": slice(session.pos), "ring": rows, "snapshot": session.slot}
        found[state.name] = memory[parts[state.discipline]].copy()
    return found


def run(session: Session, count: int) -> A:
    part = TOKENS[session.pos : session.pos + count]
    return session.run("prefill", part)[-1] if count > 1 else session.decode(part[0])


def check(session: Session, logits: A) -> None:
    """Rows of the cache are normed, which magnifies the rounding of small ones, so they may differ by twice as much."""
    golden, states = single(session.model)
    assert float(np.abs(logits - golden[session.pos - 1]).max()) < LIMIT * float(np.abs(golden).max())
    for name, memory in states.get(session.pos, {}).items():
        assert near(readable(session)[name], memory, 2 if "attention" in name else 1), name


def near(found: A, golden: A, times: float = 1) -> bool:
    return float(np.abs(found - golden).max()) < times * LIMIT * float(np.abs(golden).max())


@pytest.mark.parametrize("size", [2, 3, 8, 16, 17, 18, 31, 32, 33, 48, 63, 64, 65, 100, 256, 512])
def test_chunk_from_the_start(model: Model, size: int) -> None:
    """One chunk at position 0, then single tokens and another chunk."""
    session = model.session()
    check(session, run(session, size))
    check(session, run(session, 1))
    if 2 * size < len(TOKENS):
        check(session, run(session, size))


@pytest.mark.parametrize("size", [1, 7, 16, 17, 32, 50, 200])
def test_chunks_of_one_size(model: Model, size: int) -> None:
    session = model.session()
    while session.pos < len(TOKENS):
        check(session, run(session, min(size, len(TOKENS) - session.pos)))


def test_every_row_of_a_chunk(model: Model) -> None:
    golden, _ = single(model)
    assert near(np.stack(list(model.session().score(TOKENS[:300]))), golden[:300])


@pytest.mark.parametrize(("before", "verified", "kept"), [(0, 16, 3), (20, 16, 1), (33, 9, 9), (64, 16, 15), (5, 2, 1)])
def test_chunk_after_a_rollback(model: Model, before: int, verified: int, kept: int) -> None:
    session = model.session()
    if before:
        run(session, before)
    wrong = [(t + 1) % 320 for t in TOKENS[before + kept : before + verified]]
    session.verify(TOKENS[before : before + kept] + wrong)
    session.keep(kept)
    check(session, run(session, 100 - session.pos))
    check(session, run(session, 156))


def test_a_new_session_starts_from_nothing(model: Model) -> None:
    """States of an earlier sequence, in whatever slot, are not read at position 0."""
    first = model.session()
    run(first, 70)
    first.verify(TOKENS[70:80])
    first.keep(5)
    for size in (1, 5, 40):
        session = model.session()
        check(session, run(session, size))
