"""Sums of f32 in the orders that every backend keeps: of a wave, of a workgroup, and one after the other.

A wave is 32 lanes, a workgroup 8 waves. Lane or thread i of n starts at 0 and adds elements i, i + n, ... in that
order. The lanes of a wave are added by halves: offsets 16, 8, 4, 2, 1. Absent elements are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

A = np.ndarray[Any, Any]

LANES = 32
WAVES = 8


def tree(lanes: A) -> A:
    """Sum f32[lanes, ...] over at most 32 lanes by halves, absent ones being 0; overwrites `lanes`."""
    for half in (16, 8, 4, 2, 1):
        if len(lanes) > half:
            lanes[: len(lanes) - half] += lanes[half:]
            lanes = lanes[:half]
    total: A = lanes[0] + np.float32(0)  # a lane starts at +0, so the sum is never -0
    return total


def in_order(terms: A) -> A:
    """Sum f32[n, ...] over its first dimension, one after the other from 0."""
    total = np.zeros(terms.shape[1:], np.float32)
    for term in terms:
        total += term
    return total


def fold(terms: A, width: int) -> A:
    """Sum f32[n, ...] to [at most width, ...]: number i adds terms i, i + width, ...; overwrites `terms`."""
    first = terms[:width]
    for start in range(width, len(terms), width):
        rest = terms[start : start + width]
        first[: len(rest)] += rest
    return first


def wave_sum(terms: A) -> A:
    """Sum f32[n, ...] over its first dimension as one wave does; overwrites `terms`."""
    return tree(fold(terms, LANES))


def group_sum(terms: A) -> A:
    """Sum f32[..., n] over its last dimension as a workgroup does: 256 threads, each wave's tree, waves in order."""
    threads = LANES * WAVES
    *lead, count = terms.shape
    padded = np.zeros((*lead, max(1, -(-count // threads)) * threads), np.float32)
    padded[..., :count] = terms
    rows = np.moveaxis(padded.reshape(*lead, -1, WAVES, LANES), -3, 0)
    lanes = in_order(rows) if len(rows) > 1 else rows[0].copy()
    for half in (16, 8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half:]
    return in_order(np.moveaxis(lanes[..., 0], -1, 0))
