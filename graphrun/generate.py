"""Text from a session: prefill, then token after token until a stop, streamed in whole characters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from graphrun.core.errors import UsageError
from graphrun.sampling import Sampler, Sampling

if TYPE_CHECKING:
    from graphrun.session import Session


class Generation:
    """An iterator of text pieces; afterwards its counts and seconds say how fast it was.

    Ends at a token of the tokenizer's stop set, at a stop string (which is not yielded), after `max_tokens`
    tokens, or where the context is full; `ended` says which.
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

    def __iter__(self) -> Iterator[str]:
        held = Held(self.stop)
        stream = self.session.model.tokenizer.stream()
        for token in self.tokens():
            yield from held.push(stream.push(token))
            if held.found:
                self.ended = "stop string"
                return
        yield from held.push(stream.flush())
        if held.found:
            self.ended = "stop string"
            return
        yield from held.flush()

    def tokens(self) -> Iterator[int]:
        """Token ids as they are chosen; a stop token ends it and is not yielded."""
        session, room = self.session, self.session.model.context
        begin = time.perf_counter()
        logits = session.prefill(self.prompt, self.on_prefill)
        self.prompt_seconds = time.perf_counter() - begin
        while len(self.ids) < self.max_tokens:
            token = self.sampler.pick(logits, session.tokens)
            self.ids.append(token)
            if token in self.stop_ids:
                self.ended = "stop token"
                return
            yield token
            if session.pos >= room:
                self.ended = "context full"
                return
            if len(self.ids) < self.max_tokens:
                begin = time.perf_counter()
                logits = session.decode(token)
                self.decode_seconds += time.perf_counter() - begin
        self.ended = "length"

    @property
    def speed(self) -> str:
        """Prompt and generation tokens a second, as one line."""
        prompt = len(self.prompt) / self.prompt_seconds if self.prompt_seconds else 0.0
        steps = max(len(self.ids) - 1, 0)
        decode = steps / self.decode_seconds if self.decode_seconds else 0.0
        return (
            f"prompt {len(self.prompt)} tokens, {prompt:.1f} tokens/s; "
            f"generation {len(self.ids)} tokens, {decode:.1f} tokens/s"
        )


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
