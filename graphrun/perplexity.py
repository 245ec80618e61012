"""Perplexity: how well a model predicts each next token of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphrun.core.errors import UsageError
from graphrun.session import Session

A = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Perplexity:
    """The sum of negative log likelihoods (natural logarithm) of `tokens` scored tokens."""

    tokens: int
    nll: float

    @property
    def mean(self) -> float:
        return self.nll / self.tokens

    @property
    def value(self) -> float:
        """exp(mean), infinite where that overflows."""
        return math.exp(self.mean) if self.mean < 709 else math.inf

    def __str__(self) -> str:
        return f"ppl: {self.tokens} tokens scored, mean nll {self.mean:.6f}, perplexity {self.value:.4f}"


def perplexity(
    session: Session, ids: Sequence[int], first: int = 0, done: Callable[[int, int], None] | None = None
) -> Perplexity:
    """Score the token after each position p >= `first` of a new session.

    Raises UsageError where nothing is left to score.
    """
    count = len(ids) - 1 - first
    if first < 0 or count < 1:
        raise UsageError(f"{len(ids)} tokens leave nothing to score after position {first}", "give a longer text")
    nll = 0.0
    for position, logits in enumerate(session.score(ids[:-1], done)):
        if position >= first:
            nll += negative_log_likelihood(logits, ids[position + 1])
    return Perplexity(count, nll)


def negative_log_likelihood(logits: A, token: int) -> float:
    """max + log(sum(exp(l - max))) - l[token], in f64."""
    wide = logits.astype(np.float64)
    top = float(wide.max())
    return top + math.log(float(np.exp(wide - top).sum())) - float(wide[token])
