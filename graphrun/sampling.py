"""Sampling: the next token from a row of logits, by greedy choice or by a seeded draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphrun.core.errors import ProgramError, UsageError

MASK64 = (1 << 64) - 1
# candidates of a nucleus when no top_k is given
NUCLEUS = 1000


@dataclass(frozen=True)
class Sampling:
    """How to choose tokens; steps that are off by default cost nothing.

    Order: repetition penalty, top_k, temperature, top_p, min_p, draw.

    temp: 0 or less means greedy; top_k: 0 means all (1000 with top_p); top_p: smallest set with that share
    min_p: drop candidates less probable than this share of the best one's probability
    repeat_penalty: of the tokens among the last repeat_last_n (-1: all), positive logits are divided by it and others
    multiplied; seed: 0 .. 2**64 - 1
    """

    temp: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    seed: int = 1

    def __post_init__(self) -> None:
        """Raises UsageError that names the flag."""
        _check("--temp", self.temp, math.isfinite(self.temp), "a finite number")
        _check("--top-k", self.top_k, self.top_k >= 0, "0 or more")
        _check("--top-p", self.top_p, 0 <= self.top_p <= 1, "between 0 and 1")
        _check("--min-p", self.min_p, 0 <= self.min_p <= 1, "between 0 and 1")
        penalty = self.repeat_penalty
        _check("--repeat-penalty", penalty, math.isfinite(penalty) and penalty > 0, "a number above 0")
        _check("--repeat-last-n", self.repeat_last_n, self.repeat_last_n >= -1, "0 or more, or -1 for all tokens")
        _check("--seed", self.seed, 0 <= self.seed <= MASK64, "between 0 and 2**64 - 1")


def _check(flag: str, value: float, good: bool, must_be: str) -> None:
    if not good:
        raise UsageError(f"{flag} {value} makes no sense: it must be {must_be}")


class Generator:
    """xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled")."""

    def __init__(self, seed: int) -> None:
        # 0 is the one state that never changes
        self.state = (seed * 0x9E3779B97F4A7C15 + 1) & MASK64 or 1

    def draw(self) -> float:
        """The next number in [0, 1), of 53 bits."""
        x = self.state
        x ^= x >> 12
        x ^= (x << 25) & MASK64
        x ^= x >> 27
        self.state = x
        return ((x * 2685821657736338717 & MASK64) >> 11) / (1 << 53)


class Sampler:
    """Chooses tokens with one setting; each sampled token takes exactly one random number, a greedy one none."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.generator = Generator(sampling.seed)

    def pick(self, logits: NDArray[np.float32], history: Sequence[int] = ()) -> int:
        """The next token for `logits` [V] after the tokens `history`; raises ProgramError for NaN and infinity."""
        if not np.isfinite(logits).all():
            bad = int(np.flatnonzero(~np.isfinite(logits))[0])
            raise ProgramError(f"the logit of token {bad} is {logits[bad]}: the model's output is not finite")
        s = self.sampling
        logits = penalize(logits.astype(np.float32, copy=False), history, s.repeat_penalty, s.repeat_last_n)
        if s.temp <= 0:
            return int(np.argmax(logits))
        ids, weights = candidates(logits, s)
        # one subtraction after the other, in f64, so that every implementation ends at the same token
        left = np.subtract.accumulate(np.concatenate(([self.generator.draw() * _total(weights)], weights)))[1:]
        reached = left <= 0
        place = int(np.argmax(reached)) if reached[-1] else len(ids) - 1
        return int(ids[place])


def penalize(logits: NDArray[np.float32], history: Sequence[int], penalty: float, last_n: int) -> NDArray[np.float32]:
    """Logits [V] made less likely where their token is among the last `last_n` of `history` (-1: all)."""
    if penalty == 1 or last_n == 0 or not len(history):
        return logits
    recent = np.unique(np.asarray(history if last_n < 0 else history[-last_n:], np.int64))
    recent = recent[(recent >= 0) & (recent < len(logits))]
    values = logits[recent]
    result = logits.copy()
    result[recent] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
    return result


def candidates(logits: NDArray[np.float32], sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and weights to draw from, for temp > 0.

    Weights are exp((logit - best) / temp) in f32, not normalised. If top_k and top_p leave all of V, the ids ascend;
    otherwise the best comes first and equal ones in order of their ids.
    """
    n = len(logits)
    count = min(sampling.top_k or (NUCLEUS if sampling.top_p < 1 else n), n)
    ids = largest(logits, count) if count < n else np.arange(n)
    weights32 = np.exp((logits[ids] - logits.max()) / np.float32(sampling.temp))
    if sampling.top_p < 1 and count == n:
        ids = by_weight(weights32)
        weights32 = weights32[ids]
    weights = weights32.astype(np.float64)
    if sampling.top_p < 1:
        sums = np.cumsum(weights)
        size = int(np.searchsorted(sums, sampling.top_p * sums[-1])) + 1
        ids, weights = ids[:size], weights[:size]
    if sampling.min_p > 0:
        likely = weights >= sampling.min_p * weights.max()
        ids, weights = ids[likely], weights[likely]
    return ids, weights


def largest(logits: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Ids of the k largest logits, k < V: value descending, then id ascending, also where a tie crosses rank k."""
    least = np.partition(logits, len(logits) - k)[len(logits) - k]
    above = np.flatnonzero(logits > least)
    ids = np.concatenate((above, np.flatnonzero(logits == least)[: k - len(above)]))
    return ids[np.argsort(-logits[ids], kind="stable")]


def by_weight(weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Indices of weights >= 0, descending and stable; bits of such floats are ordered like their values."""
    keys = (~weights.view(np.uint32)).astype(np.uint64) << np.uint64(32) | np.arange(len(weights), dtype=np.uint64)
    return (np.sort(keys) & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _total(weights: NDArray[np.float64]) -> float:
    """The sum, added in order."""
    return float(np.cumsum(weights)[-1])
