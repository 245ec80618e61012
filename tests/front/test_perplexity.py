"""Perplexity from its definition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrun.core.errors import UsageError
from graphrun.perplexity import Perplexity, negative_log_likelihood, perplexity
from graphrun.session import Session

A = np.ndarray[Any, Any]
V = 7


class Parrot:
    """A session whose logits after a token favour the token plus one, by log 9."""

    def score(self, tokens: Sequence[int], done: object = None) -> Iterator[A]:
        for token in tokens:
            yield np.log(np.where(np.arange(V) == (token + 1) % V, 9.0, 1.0)).astype(np.float32)


PARROT = cast(Session, Parrot())
LIKELY, UNLIKELY = -math.log(9 / 15), -math.log(1 / 15)


@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=20), st.integers(0, 19))
def test_likelihood_is_the_log_of_the_softmax(logits: list[float], token: int) -> None:
    token %= len(logits)
    exact = -math.log(math.exp(logits[token]) / math.fsum(map(math.exp, logits)))
    assert negative_log_likelihood(np.array(logits, np.float32), token) == pytest.approx(exact, abs=1e-9, rel=1e-9)


def test_large_logits_do_not_overflow() -> None:
    assert negative_log_likelihood(np.array([3e38, 0], np.float32), 0) == 0
    assert negative_log_likelihood(np.array([1000, 0], np.float32), 1) == 1000


@pytest.mark.parametrize(
    ("ids", "first", "tokens", "nll"),
    [
        ([0, 1, 2, 3], 0, 3, 3 * LIKELY),
        ([0, 1, 2, 0], 0, 3, 2 * LIKELY + UNLIKELY),
        ([0, 1, 2, 0], 2, 1, UNLIKELY),
        ([0, 0, 1, 2], 1, 2, 2 * LIKELY),
    ],
)
def test_scored_positions(ids: list[int], first: int, tokens: int, nll: float) -> None:
    result = perplexity(PARROT, ids, first)
    assert result.tokens == tokens
    assert result.nll == pytest.approx(nll, rel=1e-6)
    assert result.value == pytest.approx(math.exp(nll / tokens), rel=1e-6)


@pytest.mark.parametrize(("ids", "first"), [([], 0), ([1], 0), ([1, 2], 1), ([1, 2], -1)])
def test_nothing_to_score(ids: list[int], first: int) -> None:
    with pytest.raises(UsageError, match="nothing to score"):
        perplexity(PARROT, ids, first)


def test_as_text() -> None:
    assert str(Perplexity(4, 4 * math.log(2))) == "ppl: 4 tokens scored, mean nll 0.693147, perplexity 2.0000"
    assert Perplexity(1, 1e6).value == math.inf
