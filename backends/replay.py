"""A step run once more, call by call, from the states it began with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphrun.core.ir import State

A = np.ndarray[Any, Any]


def written(state: State, tokens: int, pos: int, slot: int) -> list[int]:
    """Rows of a state that a step of `tokens` tokens at position `pos` from snapshot `slot` writes, in order.

    Of a ring or of snapshots too few for all tokens those of the last tokens stay; snapshots then have one only.
    """
    rows = state.type.shape[0]
    if state.discipline == "append":
        return list(range(pos, min(pos + tokens, rows)))
    if state.discipline == "ring":
        return [(pos + t) % rows for t in range(max(0, tokens - rows), tokens)]
    return [(slot + t) % rows for t in (range(tokens) if tokens <= rows else (tokens - 1,))]


class Replay:
    """Keeps what a step is about to overwrite in its states, and says which calls to run so as to see one again.

    `memory` has each state by name; rows of rings and snapshots are its first dimension.
    """

    def __init__(
        self, states: Sequence[State], memory: Mapping[str, Any], tokens: Sequence[int], pos: int, slot: int
    ) -> None:
        self.of = (tuple(tokens), pos, slot)
        self.calls_run: int | None = None  # of the second run; None before it has begun
        self.before: list[tuple[Any, list[int], A]] = []
        for state in states:
            if state.discipline == "append":
                continue  # rows past the position are written before they are read
            rows = [slot] if state.discipline == "snapshot" else written(state, len(tokens), pos, slot)
            whole = memory[state.name]
            self.before.append((whole, rows, whole[rows]))

    def until(self, call: int) -> range:
        """The calls to run now, after which number `call` is the last that has run; in order, each runs once."""
        if self.calls_run is None or call < self.calls_run - 1:
            for whole, rows, content in self.before:
                whole[rows] = content
            self.calls_run = 0
        todo = range(self.calls_run, call + 1)
        self.calls_run = call + 1
        return todo

    def rest(self, calls: int) -> range:
        """The calls that are left of a second run of all `calls`, if one has begun."""
        todo = range(calls if self.calls_run is None else self.calls_run, calls)
        self.calls_run = None if self.calls_run is None else calls
        return todo


def first_bad(
    replay: Replay, calls: int, run: Callable[[range], None], stored: Callable[[int], Iterable[A]]
) -> int | None:
    """Index of the first of a step's calls that stores a value which is not finite, or None.

    `run` runs calls by number; `stored` gives the results of one.
    """
    for index in range(calls):
        run(replay.until(index))
        if any(not np.isfinite(array).all() for array in stored(index)):
            return index
    return None
