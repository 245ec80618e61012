"""How long each call of a program takes, added up over steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from graphrun.core.program import Program


@dataclass
class Profile:
    """Runs and seconds of every call of every program that has run, by program and number of the call."""

    calls: dict[Program, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, program: Program, index: int, seconds: float) -> None:
        """Count one more run of a call."""
        timed = self.calls.setdefault(program, [(0, 0.0)] * len(program.calls))
        runs, before = timed[index]
        timed[index] = runs + 1, before + seconds

    @contextmanager
    def timing(self, program: Program, index: int) -> Iterator[None]:
        """Count a call that has run when the block ends."""
        begin = time.perf_counter()
        yield
        self.add(program, index, time.perf_counter() - begin)
