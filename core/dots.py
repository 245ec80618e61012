"""Products of packed weights and activations, in the float order that every backend keeps.

For each row and token, lane l of 32 starts at 0 and takes blocks l, l + 32, ... in that order; then lanes are
added by halves, offsets 16, 8, 4, 2, 1. Nothing depends on how many tokens or rows are computed together, so
a token's result is the same alone and in a batch.

Integer dot products of a block stay below 2^24 in magnitude, so f32 matrix products give them exactly.
"""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import numpy as np

from graphrun.core.blocks import Decoded
from graphrun.core.fma import fma_into
from graphrun.core.order import LANES, tree

A = np.ndarray[Any, Any]

# Elements that one numpy call works on: fewer cost more in calls (and in threads waiting for each other).
CELLS = 1 << 18
# Weight scales are f16 times small integers, hence multiples of 2^-24. With activation scales from here on, every
# product is a multiple of 2^-149 and sums need no care in the subnormal range.
_CAREFUL_BELOW = np.float32(2.0**-100)


class Operand(NamedTuple):
    """Tiles of R rows, transposed: q: f32[groups, nb, tiles, 32 // groups, R]; s, m: f32[groups, nb, tiles, 1, R]."""

    q: A
    s: A
    m: A | None

    def take(self, tiles: slice) -> Operand:
        """Some of the tiles, as views."""
        return Operand(self.q[:, :, tiles], self.s[:, :, tiles], None if self.m is None else self.m[:, :, tiles])


class Activation(NamedTuple):
    """T tokens: q: f32[groups, nb, 1, T, 32 // groups]; d: f32[nb, 1, T, 1]; sums (of q): f32[groups, nb, 1, T, 1]."""

    q: A
    d: A
    sums: A
    careful: bool


class Scratch:
    """Working memory of one thread."""

    def __init__(self, cells: int) -> None:
        """For up to so many elements in one block or channel of a tile."""
        self.cells = cells
        self._lanes = np.empty(LANES * cells, np.float32)
        self._f32 = np.empty((2, max(CELLS, cells)), np.float32)
        self._f64 = np.empty((3, max(CELLS, cells)))

    def lanes(self, shape: tuple[int, ...]) -> A:
        return self._lanes[: math.prod(shape)].reshape(shape)

    def f32(self, shape: tuple[int, ...]) -> A:
        """f32[2, *shape]."""
        return self._f32[:, : math.prod(shape)].reshape(2, *shape)

    def f64(self, shape: tuple[int, ...]) -> A:
        """f64[3, *shape]."""
        return self._f64[:, : math.prod(shape)].reshape(3, *shape)


class _Local(threading.local):
    memory: Scratch | None = None


_local = _Local()


def scratch(cells: int) -> Scratch:
    """This thread's working memory for tiles of up to so many elements, kept from call to call."""
    if _local.memory is None or _local.memory.cells < cells:
        _local.memory = Scratch(cells)
    return _local.memory


def operand(blocks: Decoded, tiles: int, rows: int, keep: bool) -> Operand:
    """Arrange the blocks of tiles * rows rows for products.

    q is contiguous if it is to be kept. Otherwise it is a view of values in their first order: made sooner, used
    a little slower.
    """
    _, groups, size = blocks.q.shape
    q = blocks.q if keep else blocks.q.astype(np.float32)
    q = q.reshape(tiles, rows, -1, groups, size).transpose(3, 2, 0, 4, 1)
    if keep:
        q = np.ascontiguousarray(q, np.float32)

    def by_group(scales: A) -> A:
        return np.ascontiguousarray(scales.reshape(tiles, rows, -1, groups, 1).transpose(3, 2, 0, 4, 1))

    return Operand(q, by_group(blocks.s), None if blocks.m is None else by_group(blocks.m))


def activation(q: A, d: A, groups: int) -> Activation:
    """Arrange quantised activations q: int8[T, nb, 32], d: f32[T, nb] for operands with so many groups."""
    tokens, nb, _ = q.shape
    grouped = np.ascontiguousarray(q.reshape(tokens, nb, groups, 1, -1).transpose(2, 1, 3, 0, 4), np.float32)
    careful = bool(np.any((d > 0) & (d < _CAREFUL_BELOW)))
    return Activation(grouped, np.ascontiguousarray(d.T)[:, None, :, None], grouped.sum(axis=4, keepdims=True), careful)


# Scales that are not finite, or overflow, give results that are not finite; whoever runs a step looks for those.
_unchecked = np.errstate(over="ignore", under="ignore", invalid="ignore")


@_unchecked
def product(w: Operand, x: Activation, memory: Scratch) -> A:
    """f32[tiles, T, R]; without minimum and with one group it is not fused, else it is."""
    groups, nb, tiles, _, rows = w.q.shape
    tokens = x.q.shape[3]
    step = _two_groups if groups == 2 else _plain if w.m is None else _one_group
    lanes = memory.lanes((min(LANES, nb), tiles, tokens, rows))
    at_once = max(1, CELLS // (tiles * tokens * rows))
    for lane in range(0, len(lanes), at_once):
        some = lanes[lane : lane + at_once]
        for block in range(lane, nb, LANES):
            blocks = slice(block, min(block + len(some), nb))
            step(w, x, blocks, some[: blocks.stop - block], memory, block == lane)
    return tree(lanes)


def outer(column: A, row: A, out: A) -> None:
    """out[..., T, R] = column[..., T, 1] * row[..., 1, R]."""
    if out.shape[-2] < 8:
        np.multiply(column, row, out=out, dtype=out.dtype)
        return
    # A matrix product, with a zero added to every element, is faster than a product that broadcasts.
    left = np.zeros((*column.shape[:-1], 2), out.dtype)
    right = np.zeros((*row.shape[:-2], 2, row.shape[-1]), out.dtype)
    left[..., :1] = column
    right[..., :1, :] = row
    np.matmul(left, right, out=out)


def _plain(w: Operand, x: Activation, blocks: slice, lanes: A, memory: Scratch, first: bool) -> None:
    """lanes += s * d * dot."""
    dot, scale = memory.f32(lanes.shape)
    np.matmul(x.q[0, blocks], w.q[0, blocks], out=dot)
    outer(x.d[blocks], w.s[0, blocks], scale)
    if first:
        np.multiply(dot, scale, out=lanes)
    else:
        dot *= scale
        lanes += dot


def _one_group(w: Operand, x: Activation, blocks: slice, lanes: A, memory: Scratch, first: bool) -> None:
    """lanes = fma(s * dot, d, lanes), then fma(-m, d * sum, lanes)."""
    assert w.m is not None
    dot, wide = memory.f32(lanes.shape)[0], memory.f64(lanes.shape)
    np.matmul(x.q[0, blocks], w.q[0, blocks], out=dot)
    dot *= w.s[0, blocks]
    _add_scaled(dot, x, blocks, lanes, wide, first)
    outer(x.d[blocks] * x.sums[0, blocks], -w.m[0, blocks], wide[0])
    fma_into(wide[0], lanes, wide[1:], x.careful)


def _two_groups(w: Operand, x: Activation, blocks: slice, lanes: A, memory: Scratch, first: bool) -> None:
    """lanes = fma(fma(s1, dot1, s0 * dot0), d, lanes), then fma(-fma(m1, sum1, m0 * sum0), d, lanes)."""
    both, dot = memory.f32(lanes.shape)
    wide = memory.f64(lanes.shape)
    np.matmul(x.q[0, blocks], w.q[0, blocks], out=both)
    both *= w.s[0, blocks]
    np.matmul(x.q[1, blocks], w.q[1, blocks], out=dot)
    np.copyto(wide[0], dot)
    wide[0] *= w.s[1, blocks].astype(np.float64)
    fma_into(wide[0], both, wide[1:], careful=False)
    _add_scaled(both, x, blocks, lanes, wide, first)
    if w.m is not None:
        outer(x.sums[0, blocks], -w.m[0, blocks], both)
        outer(x.sums[1, blocks], -w.m[1, blocks], wide[0])
        fma_into(wide[0], both, wide[1:], careful=False)
        _add_scaled(both, x, blocks, lanes, wide, first=False)


def _add_scaled(values: A, x: Activation, blocks: slice, lanes: A, wide: A, first: bool) -> None:
    """lanes = fma(values, d, lanes); a `first` time lanes are 0."""
    if first:
        np.multiply(values, x.d[blocks], out=lanes)
    else:
        np.copyto(wide[0], values)
        wide[0] *= x.d[blocks].astype(np.float64)
        fma_into(wide[0], lanes, wide[1:], x.careful)


@_unchecked
def dense_product(w: A, x: A, memory: Scratch) -> A:
    """f32[tiles, T, R] of rows w: f32[N, tiles, 1, R] and x: f32[T, N]; lane l takes channels l, l + 32, ..."""
    channels, tiles, _, rows = w.shape
    columns = x.T[:, None, :, None]
    lanes = memory.lanes((min(LANES, channels), tiles, len(x), rows))
    at_once = max(1, CELLS // (tiles * len(x) * rows))
    for lane in range(0, len(lanes), at_once):
        some = lanes[lane : lane + at_once]
        for channel in range(lane, channels, LANES):
            taken = slice(channel, min(channel + len(some), channels))
            term = memory.f32((taken.stop - channel, *some.shape[1:]))[0]
            outer(columns[taken], w[taken], some if channel == lane else term)
            if channel != lane:
                some[: len(term)] += term
    return tree(lanes)
