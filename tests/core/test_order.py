"""Sums in their orders, against additions written out one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphrun.core.order import group_sum, in_order, wave_sum

A = np.ndarray[Any, Any]
COUNTS = [1, 2, 4, 16, 31, 32, 33, 64, 100, 255, 256, 257, 576, 1000, 1024]


def lanes_of(x: A, count: int) -> list[np.float32]:
    lanes = [np.float32(0)] * count
    for i, value in enumerate(x):
        lanes[i % count] = lanes[i % count] + value
    return lanes


def halves(lanes: list[np.float32]) -> np.float32:
    for offset in (16, 8, 4, 2, 1):
        for i in range(offset):
            lanes[i] = lanes[i] + lanes[i + offset]
    return lanes[0]


def terms(count: int) -> A:
    rng = np.random.default_rng(count)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 3, count)).astype(np.float32)


@pytest.mark.parametrize("count", COUNTS)
def test_wave(count: int) -> None:
    x = terms(count)
    assert wave_sum(x.copy()[:, None])[0] == halves(lanes_of(x, 32))


@pytest.mark.parametrize("count", COUNTS)
def test_workgroup(count: int) -> None:
    x = terms(count)
    threads, total = lanes_of(x, 256), np.float32(0)
    for wave in range(8):
        total = total + halves(threads[32 * wave : 32 * wave + 32])
    assert group_sum(x) == total
    assert np.array_equal(group_sum(np.stack([x, -x])), [total, -total])


def test_in_order() -> None:
    x, total = terms(500), np.float32(0)
    for value in x:
        total = total + value
    assert in_order(x) == total
    assert in_order(np.zeros((0, 3), np.float32)).tolist() == [0, 0, 0]


def test_sums_of_negative_zeros_are_zero() -> None:
    x = np.full(40, -0.0, np.float32)
    for found in (wave_sum(x.copy()[:, None])[0], group_sum(x), in_order(x)):
        assert found == 0 and not np.signbit(found)
