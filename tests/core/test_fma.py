"""The fused multiply-add against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quant_cases import exact_fma, rounded, same

from graphrun.core.fma import fma

F = np.float32
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)


def one(a: float | np.float32, b: float | np.float32, c: float | np.float32) -> np.float32:
    return F(fma(np.array([a], F), np.array([b], F), np.array([c], F))[0])


def test_rounding_once_differs_from_rounding_twice() -> None:
    a, b, c = F(2.0**-24 * (1 + 2.0**-23)), F(1 - 2.0**-23), F(1 + 2.0**-23)
    assert F(np.float64(a) * np.float64(b) + np.float64(c)) == F(1 + 2.0**-22)
    assert one(a, b, c) == c


@given(FLOATS, FLOATS, FLOATS)
def test_any_floats(a: float, b: float, c: float) -> None:
    assert one(a, b, c) == exact_fma(F(a), F(b), F(c))


@given(st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(-60, 60))
def test_half_way_sums(a: int, b: int, c: int, shift: int) -> None:
    scaled = float(np.ldexp(F(c), shift))
    assert one(a, b, scaled) == exact_fma(F(a), F(b), F(scaled))


@given(st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(100, 150))
def test_subnormal_results(a: int, b: int, c: int, shift: int) -> None:
    x, z = float(np.ldexp(F(a), -shift)), float(np.ldexp(F(c), -149))
    y = float(np.ldexp(F(b), shift - 149 - 20))
    assert one(x, y, z) == exact_fma(F(x), F(y), F(z))


def test_many_at_once_near_half_way() -> None:
    rng = np.random.default_rng(0)
    a = np.ldexp(rng.integers(2**23, 2**24, 4000).astype(F), -23)
    b = np.ldexp((2**24 - rng.integers(1, 8, 4000)).astype(F), -24)
    c = np.ldexp(rng.integers(2**23, 2**24, 4000).astype(F), rng.integers(-2, 4, 4000))
    expected = np.array([exact_fma(*abc) for abc in zip(a, b, c, strict=True)], F)
    assert same(fma(a, b, c), expected)


def test_shapes_broadcast_and_overflow_is_infinite() -> None:
    a = np.full((2, 1), 2.0**100, F)
    result = fma(a, np.full(3, 2.0**100, F), np.zeros((2, 3), F))
    assert result.shape == (2, 3) and bool(np.all(np.isinf(result)))


@pytest.mark.parametrize(
    "x", [Fraction(1), Fraction(1, 3), Fraction(2**24 + 1), Fraction(3, 2**150), Fraction(-(2**25) - 2)]
)
def test_the_exact_model_rounds_like_numpy(x: Fraction) -> None:
    assert rounded(x) == F(float(x))
