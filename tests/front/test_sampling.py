"""Sampling against a plain loop over its definition, hand-computed random numbers and a distribution test."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphrun.core.errors import ProgramError, UsageError
from graphrun.sampling import Generator, Sampler, Sampling, penalize

Logits = NDArray[np.float32]


def row(values: Sequence[float]) -> Logits:
    return np.asarray(values, np.float32)


# (seed, the first three numbers times 2**53, the state after them), from the C definition in 64-bit integers
DRAWS = [
    (0, (2529537253518747, 6045066965290796, 6537840858852963), 3659449627584515),
    (1, (4516958121989773, 213178838976319, 6755272902134255), 4957710156600930012),
    (42, (4371279014927679, 6628743440491878, 6818868584809745), 10266024835388353275),
    (2**64 - 1, (3795772940471547, 1306118148890996, 2371466716714831), 800324449848775471),
]


@pytest.mark.parametrize(("seed", "numbers", "state"), DRAWS)
def test_random_numbers_are_xorshift64_star(seed: int, numbers: tuple[int, ...], state: int) -> None:
    generator = Generator(seed)
    assert [generator.draw() * 2**53 for _ in numbers] == list(numbers)
    assert generator.state == state


def test_no_seed_gets_stuck() -> None:
    stuck = pow(0x9E3779B97F4A7C15, -1, 2**64) * -1 % 2**64
    generator = Generator(stuck)
    assert len({generator.draw() for _ in range(8)}) == 8


def ranked(logits: Logits) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def by_definition(logits: Logits, sampling: Sampling, u: float) -> tuple[int, float]:
    """The token for random number u, and how close the draw was to a neighbour (relative)."""
    n = len(logits)
    count = min(sampling.top_k or (1000 if sampling.top_p < 1 else n), n)
    ids = ranked(logits)[:count] if count < n else list(range(n))
    best = max(logits)
    weight = {i: float(np.exp((logits[i] - best) / np.float32(sampling.temp))) for i in ids}
    if sampling.top_p < 1 and count == n:
        ids.sort(key=lambda i: -weight[i])
    if sampling.top_p < 1:
        total, kept, share = sum(weight[i] for i in ids), 0, 0.0
        while kept < len(ids) and (share < sampling.top_p * total or not kept):
            share += weight[ids[kept]]
            kept += 1
        ids = ids[:kept]
    ids = [i for i in ids if weight[i] >= sampling.min_p * max(weight[j] for j in ids)]
    total = sum(weight[i] for i in ids)
    left, slack = u * total, math.inf
    for i in ids:
        left -= weight[i]
        slack = min(slack, abs(left))
        if left <= 0:
            return i, slack / total
    return ids[-1], slack / total


FINITE = st.floats(-20, 20, width=32).map(lambda x: round(x, 1))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(FINITE, min_size=1, max_size=40),
    st.builds(
        Sampling,
        temp=st.sampled_from([0.3, 1.0, 2.5]),
        top_k=st.integers(0, 45),
        top_p=st.sampled_from([0.0, 0.25, 0.7, 0.99, 1.0]),
        min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
        seed=st.integers(0, 2**64 - 1),
    ),
)
def test_picks_follow_the_definition(values: list[float], sampling: Sampling) -> None:
    logits = row(values)
    sampler, generator = Sampler(sampling), Generator(sampling.seed)
    for _ in range(3):
        want, slack = by_definition(logits, sampling, generator.draw())
        got = sampler.pick(logits)
        assert got == want or slack < 1e-12
        assert sampler.generator.state == generator.state


@given(st.lists(FINITE, min_size=1, max_size=20), st.integers(0, 2**32))
def test_one_candidate_is_greedy(values: list[float], seed: int) -> None:
    logits = row(values)
    greedy = Sampler(Sampling(temp=0)).pick(logits)
    assert greedy == ranked(logits)[0]
    assert Sampler(Sampling(temp=1, top_k=1, seed=seed)).pick(logits) == greedy
    assert Sampler(Sampling(temp=1, top_p=0, seed=seed)).pick(logits) == greedy
    assert Sampler(Sampling(temp=-1, seed=seed)).pick(logits) == greedy


def test_greedy_draws_no_random_number() -> None:
    sampler = Sampler(Sampling(temp=0, seed=5))
    sampler.pick(row([1, 2]))
    assert sampler.generator.state == Generator(5).state


def test_the_draw_walks_ids_upwards_unless_top_k_or_top_p_cut() -> None:
    """The same random number meets ids 0, 1, 2 in order, or the best candidate first."""
    logits = row([0, 1, 2])
    low = next(seed for seed in range(1000) if Generator(seed).draw() < 0.05)
    assert Sampler(Sampling(temp=1, seed=low)).pick(logits) == 0
    assert Sampler(Sampling(temp=1, top_k=2, seed=low)).pick(logits) == 2
    assert Sampler(Sampling(temp=1, top_p=0.999, seed=low)).pick(logits) == 2


def test_ties_across_rank_k_keep_the_smallest_ids() -> None:
    logits = row([1, 3, 1, 1, 3, 1])
    sampler = Sampler(Sampling(temp=1000, top_k=4, seed=3))
    assert {sampler.pick(logits) for _ in range(200)} == {1, 4, 0, 2}


def test_min_p_is_relative_to_the_best_after_temperature() -> None:
    logits = row([0, -1, -2, -3])
    kept = {}
    for temp in (1.0, 2.0):
        sampler = Sampler(Sampling(temp=temp, min_p=0.3, seed=11))
        kept[temp] = {sampler.pick(logits) for _ in range(300)}
    assert kept == {1.0: {0, 1}, 2.0: {0, 1, 2}}


@pytest.mark.parametrize("sampling", [Sampling(temp=1, seed=7), Sampling(temp=1, top_p=0.9999, top_k=5, seed=7)])
def test_frequencies_match_probabilities(sampling: Sampling) -> None:
    logits = row([0.5, 2, -1, 1, 0])
    sampler, draws = Sampler(sampling), 6000
    counts = np.bincount([sampler.pick(logits) for _ in range(draws)], minlength=5)
    expected = np.exp(logits) / np.exp(logits).sum() * draws
    # the 99.9 % point of chi-square with 4 degrees of freedom
    assert ((counts - expected) ** 2 / expected).sum() < 18.47


def test_same_seed_same_tokens() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 100)).astype(np.float32)
    runs: dict[int, list[list[int]]] = {}
    for seed in (1, 1, 2):
        sampler = Sampler(Sampling(temp=1.5, top_k=30, seed=seed))
        runs.setdefault(seed, []).append([sampler.pick(logits) for logits in rows])
    assert runs[1][0] == runs[1][1] != runs[2][0]


def test_penalty_divides_positive_and_multiplies_other_logits() -> None:
    logits = row([2, -2, 0, 2, 2])
    changed = penalize(logits, [0, 1, 1, 2, 3], 2.0, 4)
    assert changed.tolist() == [2, -4, 0, 1, 2]
    assert logits.tolist() == [2, -2, 0, 2, 2], "the logits given are not changed"
    assert penalize(logits, [0, 1, 1, 2, 3], 2.0, -1).tolist() == [1, -4, 0, 1, 2]
    assert penalize(logits, [0], 2.0, 0) is logits


def test_penalty_applies_to_greedy_choice_too() -> None:
    logits = row([1.0, 1.5, 0.9])
    assert Sampler(Sampling(repeat_penalty=2)).pick(logits, [1]) == 0
    assert Sampler(Sampling(repeat_penalty=2, repeat_last_n=1)).pick(logits, [1, 2]) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(bad: float, temp: float) -> None:
    with pytest.raises(ProgramError, match="the logit of token 1 is"):
        Sampler(Sampling(temp=temp)).pick(row([0, bad, 2]))


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--temp", {"temp": math.nan}),
        ("--top-k", {"top_k": -1}),
        ("--top-p", {"top_p": 1.1}),
        ("--top-p", {"top_p": math.nan}),
        ("--min-p", {"min_p": -0.1}),
        ("--repeat-penalty", {"repeat_penalty": 0.0}),
        ("--repeat-last-n", {"repeat_last_n": -2}),
        ("--seed", {"seed": -1}),
        ("--seed", {"seed": 2**64}),
    ],
)
def test_senseless_settings_name_their_flag(flag: str, values: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"^{flag} "):
        Sampling(**values)  # type: ignore[arg-type]


def test_a_large_vocabulary_is_quick() -> None:
    """Far above what it takes, so that only a loop over the vocabulary in Python fails."""
    logits = np.random.default_rng(1).standard_normal(150_000).astype(np.float32)
    for sampling in (Sampling(), Sampling(temp=1), Sampling(temp=1, top_k=40, top_p=0.9)):
        sampler = Sampler(sampling)
        begin = time.process_time()
        sampler.pick(logits, list(range(100)))
        assert time.process_time() - begin < 0.1
