"""Steps of a program on any backend, and the last of them once more, call by call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from graphrun.backends.base import NOTHING, Given
from graphrun.backends.profile import Profile
from graphrun.backends.replay import Replay, first_bad, written
from graphrun.core.errors import BackendError
from graphrun.core.ir import State
from graphrun.core.program import Operand, Program
from graphrun.core.quant import Q8

A = np.ndarray[Any, Any]
UNSEEN = ("the states that the step began with were not kept", "set runner.watched before it")


class Bound(Protocol):
    """A program over a runner's memory."""

    program: Program

    def start(self, tokens: Sequence[int], pos: int, slot: int, given: Given) -> None:
        """Set the inputs."""

    def run(self, calls: range) -> None:
        """Run calls by number, in order."""

    def array(self, operand: Operand) -> Any:
        """The array or Q8 in the arena that an operand names, or a copy of it."""


B = TypeVar("B", bound=Bound)


class StepRunner(ABC, Generic[B]):
    """What all runners do alike; they say how a program is bound, and what it takes to see a step again."""

    def __init__(self, watched: bool = False) -> None:
        self.bound: dict[Program, B] = {}
        self.last: B | None = None
        self.replay: Replay | None = None
        self.ran: tuple[tuple[int, ...], int, int] | None = None  # tokens, position and snapshot of the last step
        self.watched = watched  # keep what is needed to see any step again
        self.profile: Profile | None = None

    @abstractmethod
    def bind(self, program: Program) -> B:
        """The program over this runner's memory."""

    @abstractmethod
    def _replay(self, program: Program, tokens: Sequence[int], pos: int, slot: int) -> Replay | None:
        """What it takes to run the step again, unless that is much to copy at every step."""

    @abstractmethod
    def _rows(self, state: State, rows: Sequence[int]) -> A:
        """Copies of rows of a state."""

    def step(self, program: Program, tokens: Sequence[int], pos: int, slot: int = 0, given: Given = NOTHING) -> None:
        """Run a program on `tokens` at positions pos, pos + 1, ... from snapshot `slot`."""
        self._finish()
        self.last = self.bind(program)
        self.replay = self._replay(program, tokens, pos, slot)
        self.ran = (tuple(tokens), pos, slot)
        self.last.start(tokens, pos, slot, given)
        self.last.run(range(len(program.calls)))

    def read(self, output: str) -> A:
        """A copy of an output of the last step."""
        assert self.last is not None
        self._finish()
        result: A = self.last.array(self.last.program.outputs[output]).copy()
        return result

    def first_bad_call(
        self, program: Program, tokens: Sequence[int], pos: int, slot: int = 0, given: Given = NOTHING
    ) -> int | None:
        """Index of the first call of the step whose result is not finite, or None; BackendError as for `buffers`."""
        bound = self.bind(program)
        if self.last is not bound or self.ran != (tuple(tokens), pos, slot):
            watched, self.watched = self.watched, True
            self.step(program, tokens, pos, slot, given)
            self.watched = watched
        if self.replay is None:
            raise BackendError(*UNSEEN)
        found = first_bad(self.replay, len(program.calls), bound.run, lambda index: _stored(bound, index))
        self._finish()
        return found

    def buffers(self, call: int) -> dict[str, A]:
        """Copies of what call number `call` of the last step stored, by the names of `Call.named`.

        The step runs once more up to that call, because later calls reuse the arena; asking for one call after the
        other runs it once in all. Raises BackendError where that is impossible: `watched` was not set before a step
        of a model with large recurrent states.
        """
        assert self.last is not None
        if self.replay is None:
            raise BackendError(*UNSEEN)
        self.last.run(self.replay.until(call))
        tokens, pos, slot = self.replay.of
        result: dict[str, A] = {}
        for name, operand in self.last.program.calls[call].named.items():
            state = operand.value.state
            if operand.place == "state" and state is not None:
                result[name] = self._rows(state, written(state, len(tokens), pos, slot))
                continue
            array = self.last.array(operand)
            quantised = isinstance(array, Q8)
            result[name] = (array.q * array.d[..., None]).reshape(operand.type.shape) if quantised else array.copy()
        return result

    def _finish(self) -> None:
        """Run what is left of a step that is being seen again."""
        if self.last is not None and self.replay is not None:
            self.last.run(self.replay.rest(len(self.last.program.calls)))


def _stored(bound: Bound, index: int) -> Iterator[A]:
    """The results of a call in the arena; of quantised ones the scales."""
    for operand in bound.program.calls[index].stored:
        if operand.place == "arena":
            array = bound.array(operand)
            yield array.d if isinstance(array, Q8) else array
