"""Text from a session: prefill, then steps of a token and its drafts until a stop, streamed in whole characters."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from graphrun.core.errors import UsageError
from graphrun.sampling import Sampler, Sampling

if TYPE_CHECKING:
    from graphrun.session import Session

A = np.ndarray[Any, Any]


class Generation:
    """An iterator of text pieces; afterwards its counts and seconds say how fast it was.

    Ends at a token of the tokenizer's stop set, at a stop string (which is not yielded), after `max_tokens`
    tokens, or where the context is full; `ended` says which. Where the session has a drafter, each step verifies its
    guesses; what is generated is the same, token by token and random number by random number.
    """

    def __init__(
        self,
        session: Session,
        prompt: Sequence[int],
        max_tokens: int,
        sampling: Sampling,
        stop: Sequence[str] = (),
        on_prefill: Callable[[int, int], None] | None = None,
        ignore_eos: bool = False,
    ) -> None:
        if any(not text for text in stop):
            raise UsageError("a stop string is empty")
        self.session = session
        self.prompt = list(prompt)
        self.max_tokens = max_tokens
        self.sampler = Sampler(sampling)
        self.stop = tuple(stop)
        self.on_prefill = on_prefill
        self.stop_ids = frozenset() if ignore_eos else session.model.tokenizer.stop_ids
        self.ids: list[int] = []
        self.ended = ""
        self.prompt_seconds = 0.0
        self.decode_seconds = 0.0
        self.steps = self.drafted = self.accepted = 0

    def __iter__(self) -> Iterator[str]:
        held = Held(self.stop)
        stream = self.session.model.tokenizer.stream()
        with closing(self.tokens()) as tokens:
            for token in tokens:
                yield from held.push(stream.push(token))
                if held.found:
                    self.ended = "stop string"
                    return
        yield from held.push(stream.flush())
        if held.found:
            self.ended = "stop string"
            return
        yield from held.flush()

    def tokens(self) -> Generator[int, None, None]:
        """Token ids as they are chosen; a stop token ends it and is not yielded.

        Whenever it is left off, the session has run all tokens before the last that was chosen.
        """
        session, drafts = self.session, list[int]()
        begin = time.perf_counter()
        rows = session.prefill(self.prompt, self.on_prefill)[None]
        self.prompt_seconds = time.perf_counter() - begin
        while len(self.ids) < self.max_tokens:
            token = yield from self._choose(rows, drafts)
            if token is None:
                return
            if session.pos >= session.model.context:
                self.ended = "context full"
                return
            if len(self.ids) < self.max_tokens:
                rows, drafts = self._step(token)
        self.ended = "length"

    def _choose(self, rows: A, drafts: Sequence[int]) -> Generator[int, None, int | None]:
        """Tokens chosen from logits [1 + drafts, V], each row following a draft, as far as the drafts are right.

        Returns the last one, which the session has not run, or None where it is a stop token.
        """
        session, right = self.session, 0
        try:
            for row, draft in zip(rows, [*drafts, None], strict=True):
                token = self.sampler.pick(row, [*session.tokens, *session.verified[: right + 1]])
                self.ids.append(token)
                if token in self.stop_ids:
                    self.ended = "stop token"
                    return None
                yield token
                if token != draft:
                    break
                right += 1
        finally:
            if session.verified:
                session.keep(right + 1)
            self.accepted += right
        return token

    def _step(self, token: int) -> tuple[A, list[int]]:
        """Run the last token that was chosen and its drafts; logits after each, and the drafts.

        A draft that is a stop token would not be run by plain decoding, so it is none.
        """
        begin = time.perf_counter()
        guesses = self.session.draft(token, self.max_tokens - len(self.ids) - 1)
        drafts = list(takewhile(lambda guess: guess not in self.stop_ids, guesses))
        rows = self.session.verify([token, *drafts]) if drafts else self.session.decode(token)[None]
        self.steps += 1
        self.drafted += len(drafts)
        self.decode_seconds += time.perf_counter() - begin
        return rows, drafts

    @property
    def speed(self) -> str:
        """Prompt and generation tokens a second, and what became of drafts, as one line."""
        prompt = len(self.prompt) / self.prompt_seconds if self.prompt_seconds else 0.0
        steps = max(len(self.ids) - 1, 0)
        decode = steps / self.decode_seconds if self.decode_seconds else 0.0
        line = (
            f"prompt {len(self.prompt)} tokens, {prompt:.1f} tokens/s; "
            f"generation {len(self.ids)} tokens, {decode:.1f} tokens/s"
        )
        if self.session.drafter is None:
            return line
        each = steps / self.steps if self.steps else 0.0
        return f"{line}; drafts {self.accepted} of {self.drafted} accepted, {each:.2f} tokens a step"


class Held:
    """Holds back text that may be the beginning of a stop string."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop = stop
        self.text = ""
        self.found = False

    def push(self, piece: str) -> Iterator[str]:
        """Text that is certain to lie before any stop string."""
        self.text += piece
        at = min((i for i in map(self.text.find, self.stop) if i >= 0), default=-1)
        if at >= 0:
            self.found = True
            free, self.text = self.text[:at], ""
        else:
            keep = max((n for s in self.stop for n in range(1, len(s)) if self.text.endswith(s[:n])), default=0)
            cut = len(self.text) - keep
            free, self.text = self.text[:cut], self.text[cut:]
        if free:
            yield free

    def flush(self) -> Iterator[str]:
        """What is left at the end."""
        if self.text:
            yield self.text
        self.text = ""
