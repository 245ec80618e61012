"""A session: one sequence of tokens, prefilled in chunks and then decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphrun.core.errors import ProgramError, UsageError
from graphrun.core.program import Program
from graphrun.core.types import F32

if TYPE_CHECKING:
    from graphrun.model import Model

A = np.ndarray[Any, Any]
CHUNK = 256


class Session:
    """Positions 0 .. pos - 1 are in the states; `tokens` are the ids at these positions."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tokens: list[int] = []

    @property
    def pos(self) -> int:
        return len(self.tokens)

    def rewind(self, pos: int) -> int:
        """Forget the tokens from `pos` on; returns the position that leaves, 0 if a state cannot be rewound.

        Rows of an append state past the position are written before they are read.
        """
        rewindable = all(state.discipline == "append" for state in self.model.program("decode").states)
        del self.tokens[pos if rewindable else 0 :]
        return self.pos

    def run(self, step: str, tokens: Sequence[int]) -> A:
        """Run one step on the next tokens; returns its logits, f32[R, V].

        Raises UsageError past the context or for an id outside the vocabulary, ProgramError where the logits
        are not finite.
        """
        self._check(tokens)
        program = self.model.program(step, len(tokens))
        _require_logits(program)
        runner = self.model.runner
        runner.step(program, tokens, self.pos)
        logits = runner.read("logits")
        if not np.isfinite(logits).all():
            raise ProgramError(self._blame(program, tokens))
        self.tokens += tokens
        return logits

    def prefill(self, tokens: Sequence[int], done: Callable[[int, int], None] | None = None) -> A:
        """Run a prompt in chunks; returns the logits after its last token, f32[V]."""
        if not tokens:
            raise UsageError("the prompt is empty", "give text with -p, or token ids with --tokens")
        self._check(tokens)
        logits = np.empty((0, 0), np.float32)
        for start, step, count in self._chunks("prefill", len(tokens)):
            logits = self.run(step, tokens[start : start + count])
            if done:
                done(start + count, len(tokens))
        last: A = logits[-1]
        return last

    def score(self, tokens: Sequence[int], done: Callable[[int, int], None] | None = None) -> Iterator[A]:
        """Run tokens in chunks; yields the logits of each, f32[V]."""
        self._check(tokens)
        for start, step, count in self._chunks("score", len(tokens)):
            yield from self.run(step, tokens[start : start + count])
            if done:
                done(start + count, len(tokens))

    def decode(self, token: int) -> A:
        """Run one token; returns the logits after it, f32[V]."""
        logits: A = self.run("decode", [token])[-1]
        return logits

    def _chunks(self, step: str, total: int) -> Iterator[tuple[int, str, int]]:
        """(start, step, tokens) of each run; single tokens where the graph has no such step."""
        start = 0
        while start < total:
            count = min(CHUNK, total - start)
            while count > 1 and not self.model.takes(step, count):
                count -= 1
            yield start, step if count > 1 else "decode", count
            start += count

    def _check(self, tokens: Sequence[int]) -> None:
        end, context = self.pos + len(tokens), self.model.context
        if end > context:
            raise UsageError(f"{end} tokens do not fit the context of {context}", f"-c {end} or more would hold them")
        vocabulary = self.model.vocabulary
        for token in tokens:
            if not 0 <= token < vocabulary:
                raise UsageError(f"there is no token {token}: the vocabulary has {vocabulary}")

    def _blame(self, program: Program, tokens: Sequence[int]) -> str:
        index = self.model.runner.first_bad_call(program, tokens, self.pos)
        place = f"positions {self.pos} to {self.pos + len(tokens) - 1}" if len(tokens) > 1 else f"position {self.pos}"
        if index is None:
            return f"{program.name} at {place}: a logit is not finite, but no call of a second run made it so"
        call = program.calls[index]
        return (
            f"{program.name} at {place}: call {index}, {call.label} of {call.scope or 'the head'}, "
            f"made a value that is not finite ({call.span})"
        )


def _require_logits(program: Program) -> None:
    logits = program.outputs.get("logits")
    if logits is None or logits.type.dtype != F32 or len(logits.type.shape) != 2:
        found = f"{logits.type}" if logits else f"only {', '.join(program.outputs)}"
        raise UsageError(f"step {program.name} makes no logits f32[rows, vocabulary]: {found}")
