"""A session that writes down the logits of every position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from graphrun.core.errors import UsageError
from graphrun.model import Model
from graphrun.session import Session

A = np.ndarray[Any, Any]


class RecordingSession(Session):
    """Runs one token per step and writes a line `position token l0 l1 ...` (%.9g, enough for any f32) of each."""

    def __init__(self, model: Model, file: TextIO) -> None:
        super().__init__(model)
        self.file = file

    def run(self, step: str, tokens: Sequence[int]) -> A:
        """Run one step on one token and write its logits."""
        (token,), position = tokens, self.pos
        logits = super().run(step, tokens)
        self.file.write(f"{position} {token} {' '.join(f'{x:.9g}' for x in logits[-1].tolist())}\n")
        return logits

    def prefill(self, tokens: Sequence[int], done: Callable[[int, int], None] | None = None) -> A:
        """Run a prompt token by token; returns the logits after its last token, f32[V]."""
        if not tokens:
            raise UsageError("the prompt is empty")
        self._check(tokens)
        for index, token in enumerate(tokens):
            logits = self.decode(token)
            if done:
                done(index + 1, len(tokens))
        return logits
