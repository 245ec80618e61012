"""What tests let a model do, to compare backends by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.draft import DFlashDrafter, MtpDrafter
from graphrun.model import Model
from graphrun.session import Session

A = np.ndarray[Any, Any]
TOKENS = [int(t) for t in np.random.default_rng(5).integers(3, 250, 80)]
START = TOKENS[:12]


def worked(model: Model, verified: Sequence[tuple[int, int]]) -> tuple[A, Session]:
    """Logits of a prompt, and of so many verified tokens of which so many stay, each before a single token."""
    session = model.session()
    rows = [session.prefill(START)[None]]
    for count, kept in verified:
        at = session.pos
        rows.append(session.verify([*TOKENS[at : at + kept], *(3 + i for i in range(count - kept))]))
        session.keep(kept)
        rows.append(session.decode(TOKENS[session.pos])[None])
    return np.concatenate(rows), session


def error(found: A, expected: A) -> float:
    """Largest difference, relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def mtp_drafts(model: Model, steps: int, count: int) -> list[tuple[list[int], bytes]]:
    """Chains of `count` guesses with the logits of the last, also after drafts that were wrong."""
    drafter = MtpDrafter(model)
    session, results = model.session(drafter), []
    session.prefill(START)
    for token in TOKENS[len(START) : len(START) + steps]:
        guesses = drafter.draft(token, count)
        results.append((guesses, model.runner.read("logits").tobytes()))
        session.verify([token, *guesses])
        session.keep(2)
    return results


def dflash_blocks(model: Model, path: Path, until: int, kept: int) -> list[tuple[list[bytes], list[int], list[bytes]]]:
    """Features, guesses, and candidates with their scores and block logits, up to a position."""
    drafter = DFlashDrafter(model, path)
    session, results = model.session(drafter), []
    session.prefill(START)
    while session.pos < until:
        features = [model.runner.read(f"input.{i}").tobytes() for i in drafter.targets]
        guesses = drafter.draft(TOKENS[session.pos], 7)
        outputs = [drafter.source.runner.read(n).tobytes() for n in ("ids", "scores", "logits")]
        results.append((features, guesses, outputs))
        session.verify([TOKENS[session.pos], *guesses])
        session.keep(min(kept, len(guesses) + 1))
    return results
