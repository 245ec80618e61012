"""Elementary functions in f32 against float64, and at their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphrun.core.fmath import BLOCK, exp, gated, sigmoid, silu, softplus, widened

A = np.ndarray[Any, Any]


def every(step: int, least: float, most: float) -> A:
    """Every step-th f32 of both signs, subnormal ones too, and a dense range, from least to most."""
    positive = np.arange(0, 0x7F800000, step, dtype=np.uint32).view(np.float32)
    values = np.concatenate([positive, -positive, np.linspace(least, most, 400_001, dtype=np.float32)])
    return values[(values >= least) & (values <= most)]


def ulps(found: A, true: A) -> float:
    """The largest error in units of the last place of the true value, at least the smallest subnormal."""
    with np.errstate(divide="ignore"):
        unit = 2.0 ** np.maximum(np.floor(np.log2(np.abs(true))) - 23, -149)
    return float((np.abs(found.astype(np.float64) - true) / unit).max())


def exact_softplus(x: A) -> A:
    result: A = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return result


@pytest.mark.parametrize(
    ("function", "exact", "least", "most", "limit"),
    [
        (exp, np.exp, -104, 88.72, 1),
        (sigmoid, lambda x: 1 / (1 + np.exp(-x)), -87, 100, 2.5),
        (silu, lambda x: x / (1 + np.exp(-x)), -87, 100, 2.5),
        (softplus, exact_softplus, -103, 100, 3),
    ],
)
def test_errors(function: Callable[[A], A], exact: Callable[[A], A], least: float, most: float, limit: float) -> None:
    x = every(4999, least, most)
    assert ulps(function(x), exact(x.astype(np.float64))) <= limit


def test_limits() -> None:
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, 89, -104.1], np.float32)
    assert np.array_equal(exp(x), np.array([1, 1, np.inf, 0, np.nan, np.inf, 0], np.float32), equal_nan=True)
    far = np.array([-1000, -89, 1000], np.float32)
    assert silu(far).tolist() == [0, 0, 1000] and sigmoid(far).tolist() == [0, 0, 1]
    assert softplus(np.array([-1000, 1000, np.inf], np.float32)).tolist() == [0, 1000, np.inf]
    assert np.isnan(softplus(np.array([np.nan], np.float32))).all()


def test_shapes_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    x, gate = rng.standard_normal((2, 3, BLOCK), np.float32) * np.float32(20)
    whole = gated(x, gate)
    assert whole.shape == x.shape
    for row in range(3):
        for part in (slice(0, 7), slice(5, 6), slice(1, None, 3)):
            assert np.array_equal(gated(x[row, part], gate[row, part]), whole[row, part])
    assert np.array_equal(exp(x.T), exp(x).T)


def test_widened() -> None:
    """Every f16, as numpy converts it; values that are not finite are seen wherever they are."""
    every_half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every_half[np.isfinite(every_half)]
    assert widened(finite).tobytes() == finite.astype(np.float32).tobytes()
    assert np.array_equal(widened(every_half), every_half.astype(np.float32), equal_nan=True)
    assert np.array_equal(widened(np.array([1, -np.inf], np.float16)), np.array([1, -np.inf], np.float32))
    assert widened(np.zeros(0, np.float16)).size == 0
