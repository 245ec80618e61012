"""Verifying tokens and keeping some is, bit for bit, decoding those that were kept."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_hybrid
from conftest import GOLDEN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphrun import load
from graphrun.core.errors import UsageError
from graphrun.draft import DFlashDrafter, Drafter, MtpDrafter, accepted
from graphrun.model import Model
from graphrun.session import Session

A = np.ndarray[Any, Any]
FILES = ("llama-s.Q4_0", "qwen35-mtp.Q4_0", "qwen35-mtp.Q8_0", "qwen35-k.Q4_K_M")
CASES = [(name, mode, 16) for name in FILES for mode in ("q8", "exact")] + [("qwen35-mtp.IQ4_NL", "q8", 8)]


@cache
def model(name: str, activations: str, rollback: int) -> Model:
    opened = Model.open(GOLDEN / "models" / f"{name}.gguf", activations=activations)  # type: ignore[arg-type]
    return Model(opened.file, opened.spec, opened.backend, activations=activations, rollback=rollback)  # type: ignore[arg-type]


def states_after(session: Session) -> dict[str, A]:
    """What later steps can read: caches up to the position, the last inputs of rings, the current snapshot."""
    found = {}
    runner = session.model.runner
    for state in session.model.program("decode").states:
        memory = runner.states[state.name]  # type: ignore[attr-defined]
        if state.discipline == "append":
            found[state.name] = memory[: session.pos].copy()
        elif state.discipline == "ring":
            reach = [p % len(memory) for p in range(max(0, session.pos - 3), session.pos)]
            found[state.name] = memory[reach].copy()
        else:
            found[state.name] = memory[session.slot].copy()
    return found


@pytest.mark.parametrize(("name", "activations", "rollback"), CASES)
@settings(max_examples=8, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_verify_then_keep_is_decoding(name: str, activations: str, rollback: int, data: st.DataObject) -> None:
    tested = model(name, activations, rollback)
    token = st.integers(0, 319)
    prompt = data.draw(st.lists(token, max_size=24), label="prompt")
    plan = data.draw(st.lists(st.integers(1, rollback).flatmap(lambda t: st.tuples(st.just(t), st.integers(1, t))),
                              min_size=1, max_size=5), label="verified, kept")  # fmt: skip
    kept = data.draw(st.lists(token, min_size=80, max_size=80), label="tokens")

    plain = tested.session()
    if prompt:
        plain.prefill(prompt)
    count = sum(k for _, k in plan)
    expected = np.stack([plain.decode(t) for t in kept[:count]])
    after = states_after(plain)

    session = tested.session()
    if prompt:
        session.prefill(prompt)
    found, done = [], 0
    for total, keep in plan:
        wrong = [(t + 1) % 320 for t in kept[done + keep : done + total]]
        logits = session.verify(kept[done : done + keep] + wrong)
        session.keep(keep)
        found.append(logits[:keep])
        done += keep
    assert np.array_equal(np.concatenate(found), expected)
    assert session.tokens == plain.tokens
    for state, memory in states_after(session).items():
        assert np.array_equal(memory, after[state]), state


def greedy(session: Session, prompt: list[int], count: int) -> list[int]:
    logits, found = session.prefill(prompt), []
    for _ in range(count):
        found.append(int(np.argmax(logits)))
        logits = session.decode(found[-1])
    return found


def speculated(session: Session, drafter: Drafter, prompt: list[int], count: int, most: int) -> tuple[list[int], int]:
    """Greedy tokens with drafts, and how many steps they took."""
    found = [int(np.argmax(session.prefill(prompt)))]
    steps = 0
    while len(found) <= count:
        guesses = drafter.draft(found[-1], most)
        chosen = session.verify([found[-1], *guesses]).argmax(axis=1).tolist()
        right = accepted(guesses, chosen)
        session.keep(right + 1)
        found += chosen[: right + 1]
        steps += 1
    return found[:count], steps


@pytest.mark.parametrize("kind", ["mtp", "dflash"])
@pytest.mark.parametrize("most", [1, 4, 15])
def test_speculation_changes_nothing(kind: str, most: int) -> None:
    opened = load(GOLDEN / "models" / "qwen35-mtp.Q4_0.gguf", activations="exact")
    prompt = [226, 104, 75, 310, 57, 102, 202, 248, 201, 273, 18, 124, 181, 139, 123, 118, 15, 36]
    plain = greedy(opened.session(), prompt, 40)
    drafter: Drafter = MtpDrafter(opened)
    if kind == "dflash":
        drafter = DFlashDrafter(opened, GOLDEN / "models" / "dflash.Q8_0.gguf")
    found, steps = speculated(opened.session(drafter), drafter, prompt, 40, most)
    assert found == plain
    assert steps <= 40


class Oracle:
    """Guesses what is known to come, wrong at every `miss`-th guess."""

    def __init__(self, tokens: list[int], start: int, miss: int) -> None:
        self.tokens, self.miss, self.calls = tokens, miss, 0
        self.pos = self.start = start

    def follow(self, start: int, tokens: object, read: object) -> None:
        self.pos = start + len(tokens)  # type: ignore[arg-type]

    def draft(self, token: int, count: int) -> list[int]:
        self.calls += 1
        ahead = self.tokens[self.pos - self.start + 1 :][:count]
        return [t if (i + self.calls) % self.miss else (t + 1) % 320 for i, t in enumerate(ahead)]


@pytest.mark.parametrize("miss", [2, 5, 100])
def test_right_guesses_take_fewer_steps(miss: int) -> None:
    opened = model("qwen35-mtp.Q8_0", "q8", 16)
    plain = greedy(opened.session(), [1, 2, 3], 48)
    oracle = Oracle(plain, 3, miss)
    found, steps = speculated(opened.session(oracle), oracle, [1, 2, 3], 40, 15)
    assert found == plain[:40]
    assert steps <= {2: 40, 5: 15, 100: 5}[miss]


def test_mtp_of_a_file_of_its_own_drafts_the_same(tmp_path: Path) -> None:
    whole = load(tiny_hybrid.qwen35(tmp_path / "whole.gguf"), activations="exact")
    tensors = {n: whole.file.raw(n).view(np.float32).reshape(t.shape) for n, t in whole.file.tensors.items()}
    kept = {n: t for n, t in tensors.items() if n.startswith("blk.4.") or not n.startswith("blk.")}
    without = {n: None for n in tensors if n not in kept}
    alone = load(tiny_hybrid.qwen35(tmp_path / "mtp.gguf", tensors={**kept, **without}), activations="exact")
    assert not alone.has("decode") and alone.has("draft")
    drafts = []
    for drafter in (MtpDrafter(whole), MtpDrafter(whole, alone)):
        session = whole.session(drafter)
        session.prefill([5, 6, 7, 8])
        drafts.append(drafter.draft(9, 6))
        session.verify([9, *drafts[-1]])
        session.keep(1)
        drafts.append(drafter.draft(10, 6))
    assert drafts[:2] == drafts[2:]


def test_drafts_of_a_token_that_was_not_chosen_leave_no_trace() -> None:
    """A drafter asked about one token, after which the session decodes another."""
    opened = model("qwen35-mtp.Q8_0", "exact", 16)
    found = []
    for asked in (7, 9):
        drafter = MtpDrafter(opened)
        session = opened.session(drafter)
        session.prefill([1, 2, 3])
        drafter.draft(asked, 5)
        session.decode(9)
        found.append(drafter.draft(4, 5))
    assert found[0] == found[1]


def test_keep_comes_after_verify() -> None:
    session = model("qwen35-mtp.Q8_0", "q8", 16).session()
    with pytest.raises(UsageError, match="0 were verified"):
        session.keep(1)
    session.verify([1, 2])
    with pytest.raises(UsageError, match="must be kept"):
        session.decode(3)
    for count in (0, 3):
        with pytest.raises(UsageError, match=f"{count} tokens cannot be kept, 2 were verified"):
            session.keep(count)
    session.keep(2)
    assert session.tokens == [1, 2]
    with pytest.raises(UsageError, match="17 tokens cannot be verified at once, 16 can"):
        session.verify([1] * 17)
