"""The numpy backend in place of one that could not be had."""

from __future__ import annotations

from collections.abc import Sequence

from graphrun.backends.base import Progress
from graphrun.backends.reference import NumpyBackend, NumpyRunner
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import State, Value


class Fallback(NumpyBackend):
    """Runs through numpy, and tells why in its runner's notes."""

    def __init__(self, threads: int | None, reason: str) -> None:
        super().__init__(threads)
        self.reason = reason

    def load(
        self, file: ModelFile, weights: Sequence[Value], states: Sequence[State], progress: Progress | None = None
    ) -> NumpyRunner:
        """As the numpy backend, with the reason among the notes."""
        runner = super().load(file, weights, states, progress)
        runner.notes = (self.reason, *runner.notes)
        return runner
