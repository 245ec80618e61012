"""A session: one sequence of tokens, prefilled in chunks, then decoded or verified and kept in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphrun.core.errors import BackendError, ProgramError, UsageError
from graphrun.core.program import Program
from graphrun.core.types import F32

if TYPE_CHECKING:
    from graphrun.draft import Drafter
    from graphrun.model import Model

A = np.ndarray[Any, Any]
CHUNK = 256
MOST_DRAFTS = 15


class Session:
    """Positions 0 .. pos - 1 are in the states; `tokens` are the ids at these positions.

    `slot` is the number of the current snapshot in states that keep several; `verified` are tokens of which `keep`
    has still to say how many stay. A drafter is told of every token that stays, and guesses at most `drafts` at once.
    """

    def __init__(self, model: Model, drafter: Drafter | None = None, drafts: int = MOST_DRAFTS) -> None:
        self.model = model
        self.drafter = drafter
        self.drafts = drafts
        self.tokens: list[int] = []
        self.slot = 0
        self.verified: list[int] = []

    @property
    def pos(self) -> int:
        return len(self.tokens)

    def rewind(self, pos: int) -> int:
        """Forget the tokens from `pos` on; returns the position that leaves, 0 if a state cannot be rewound.

        Rows of an append state past the position are written before they are read.
        """
        rewindable = all(state.discipline == "append" for state in self.model.program("decode").states)
        del self.tokens[pos if rewindable else 0 :]
        self.verified = []
        return self.pos

    def run(self, step: str, tokens: Sequence[int]) -> A:
        """Run one step on the next tokens; returns its logits, f32[R, V].

        Raises UsageError past the context or for an id outside the vocabulary, ProgramError where the logits
        are not finite.
        """
        logits = self._run(step, tokens)
        self._accept(tokens)
        return logits

    def verify(self, tokens: Sequence[int]) -> A:
        """Run tokens of which the first ones may turn out right: logits after each, f32[T, V]; `keep` must follow.

        Raises as `run` does, and UsageError for more tokens than can be taken back.
        """
        if len(tokens) > self.model.rollback:
            raise UsageError(f"{len(tokens)} tokens cannot be verified at once, {self.model.rollback} can")
        logits = self._run("verify" if len(tokens) > 1 else "decode", tokens)
        self.verified = list(tokens)
        return logits

    def keep(self, count: int) -> None:
        """Make the first `count` (at least one) of the verified tokens final, and forget the others."""
        if not 1 <= count <= len(self.verified):
            raise UsageError(f"{count} tokens cannot be kept, {len(self.verified)} were verified")
        kept, self.verified = self.verified[:count], []
        self._accept(kept)

    def draft(self, token: int, most: int) -> list[int]:
        """At most `most` guesses of what follows `token`, no more than can be verified together with it."""
        room = self.model.context - self.pos - 1
        count = min(most, self.drafts, self.model.rollback - 1, room)
        while count > 0 and not self.model.takes("verify", count + 1):
            count -= 1
        return self.drafter.draft(token, count) if self.drafter is not None and count > 0 else []

    def _run(self, step: str, tokens: Sequence[int]) -> A:
        """Run a step without moving on."""
        if self.verified:
            raise UsageError("verified tokens must be kept, or some of them, before the next step")
        self._check(tokens)
        program = self.model.program(step, len(tokens))
        _require_logits(program)
        runner = self.model.runner
        runner.step(program, tokens, self.pos, self.slot)
        logits = runner.read("logits")
        if not np.isfinite(logits).all():
            raise self._blame(program, tokens)
        return logits

    def _accept(self, tokens: Sequence[int]) -> None:
        """Move on by tokens that a step has run; a snapshot was left after each, or after the last one only."""
        if self.drafter is not None:
            self.drafter.follow(self.pos, tokens, self.model.runner.read)
        self.tokens += tokens
        self.slot = (self.slot + len(tokens) - 1) % self.model.rollback

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

    def _blame(self, program: Program, tokens: Sequence[int]) -> ProgramError:
        """The error of a step whose logits are not finite, with the call that made them so where it can be found."""
        place = f"positions {self.pos} to {self.pos + len(tokens) - 1}" if len(tokens) > 1 else f"position {self.pos}"
        start = f"{program.name} at {place}:"
        try:
            index = self.model.runner.first_bad_call(program, tokens, self.pos, self.slot)
        except BackendError as error:
            hint = "with --backend numpy, or where model.runner.watched is set before the step, the call is named"
            return ProgramError(f"{start} a logit is not finite, made by a call unknown: {error.message}", hint)
        if index is None:
            return ProgramError(f"{start} a logit is not finite, but no call of a second run made it so")
        call = program.calls[index]
        scope = call.scope or "the head"
        text = f"{start} call {index}, {call.label} of {scope}, made a value that is not finite ({call.span})"
        return ProgramError(text)


def _require_logits(program: Program) -> None:
    logits = program.outputs.get("logits")
    if logits is None or logits.type.dtype != F32 or len(logits.type.shape) != 2:
        found = f"{logits.type}" if logits else f"only {', '.join(program.outputs)}"
        raise UsageError(f"step {program.name} makes no logits f32[rows, vocabulary]: {found}")
