"""What the front door asks of a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from graphrun.backends.profile import Profile
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import State, Value
from graphrun.core.program import Program
from graphrun.core.target import Target

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]  # bytes done, bytes in all
Given = Mapping[str, Array]  # inputs of a step besides tokens, by name
NOTHING: Given = MappingProxyType({})


class Runner(Protocol):
    """A loaded model: weights and states on the device, ready for steps."""

    notes: tuple[str, ...]  # one line each for what the user should know: a slow path taken, a fallback
    watched: bool  # whether every step keeps what it takes to see it again, however large its states
    profile: Profile | None  # counts the time of calls, which then run one after the other

    def step(self, program: Program, tokens: Sequence[int], pos: int, slot: int = 0, given: Given = NOTHING) -> None:
        """Run a program on `tokens` (as many as it was lowered for) at positions pos, pos + 1, ...

        Snapshot number `slot` is the state before it; `given` are the program's other inputs.
        """

    def read(self, output: str) -> Array:
        """A copy of an output of the last step: "logits" f32[R, V], "best" i32[R], "hidden" f32[T, N]."""

    def first_bad_call(
        self, program: Program, tokens: Sequence[int], pos: int, slot: int = 0, given: Given = NOTHING
    ) -> int | None:
        """Run the step, again if it was the last one, and give the index of the first call whose result is not
        finite, or None. The states end up as after one run.

        Raises BackendError where the states that the step began with are gone, and `watched` was not set before it.
        """

    def buffers(self, call: int) -> dict[str, Array]:
        """Copies of what call number `call` of the last step stored, by the names of `Call.named`.

        Quantised results are given as the f32 values they stand for; of a state, if it is there at all, the rows that
        the step writes. The states end up as after one run.
        """


class Backend(Protocol):
    """A device; it answers what it is before planning, and loads programs after."""

    target: Target

    def beside(self, weights: Iterable[Value], states: Iterable[State]) -> int:
        """Bytes it keeps beside packed weights and states, to be faster."""

    def load(
        self, file: ModelFile, weights: Sequence[Value], states: Sequence[State], progress: Progress | None = None
    ) -> Runner:
        """Pack the weights and allocate the states; raises BackendError if they do not fit."""
