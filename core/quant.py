"""Quantised values: the layout chosen for a weight, packed matrices, and quantised activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from graphrun.core import dots
from graphrun.core.blocks import BLOCKS
from graphrun.core.ie import ie_q4k_sizes_ok, ie_q8_sizes_ok, ie_sizes_ok
from graphrun.core.layouts import SECTIONS, split, unpack
from graphrun.core.order import LANES
from graphrun.core.tiles import TILE_TOKENS, Band, bands, chunks
from graphrun.core.types import DTYPES, F32, DType
from graphrun.core.workers import Workers

A = np.ndarray[Any, Any]

# Weights unpacked at a time where they are not kept, and products of weight and token that are worth a thread.
MOST_UNPACKED = 1 << 20
WORTH_SHARING = 1 << 23

# Layouts that hold every weight of a type exactly, best first. f32 holds all.
EXACT = {
    "q4_0": ("q4_0", "q8_0"),
    "q4_1": ("q4_1", "i8_a"),
    "q5_0": ("q8_0",),
    "q5_1": ("i8_a",),
    "q8_0": ("q8_0",),
    "q2_k": ("i8_a",),
    "q3_k": ("q6_k",),
    "q4_k": ("q4_k",),
    "q5_k": ("i8_a",),
    "q6_k": ("q6_k",),
    "iq4_nl": ("q8_0",),
    "iq4_xs": ("i8_a",),
}
# How many rows and blocks a layout can address.
_FITS = {
    "q4_0": ie_sizes_ok,
    "q4_1": ie_sizes_ok,
    "q8_0": ie_q8_sizes_ok,
    "i8_a": ie_q8_sizes_ok,
    "q4_k": ie_q4k_sizes_ok,
    "q6_k": ie_q4k_sizes_ok,
}


def supported() -> tuple[str, ...]:
    """The tensor types that can be used."""
    return tuple(BLOCKS)


def layout(type_: str, rows: int, cols: int) -> DType:
    """How a weight matrix of a supported type is kept: the smallest layout that holds its values exactly."""
    if type_ not in BLOCKS:
        raise ValueError(f"type {type_} is not one of {', '.join(BLOCKS)}")
    for name in EXACT.get(type_, ()):
        if cols % DTYPES[name].block == 0 and _FITS[name](rows, cols // 32):
            return DTYPES[name]
    return F32


def why(type_: str, kept: DType) -> str:
    """One phrase on how a tensor type is kept; no conversion changes a value."""
    if kept.name == type_:
        return "as stored"
    if kept.quantised:
        return f"as {kept.name}, same values"
    return "widened to f32, same values" if type_ in ("f16", "bf16") else "as f32, beyond the limits of its layout"


class Q8(NamedTuple):
    """Quantised activations: x[32*b + j] is about d[b] * q[b, j], and asum[b] = sum of q[b] modulo 2^32.

    q: int8[..., nb, 32]; d: f32[..., nb]; asum: u32[..., nb].
    """

    q: A
    d: A
    asum: A


def q8_views(rows: A) -> Q8:
    """Writable views of stored rows uint8[T, 40 * nb]: 32*nb int8, then nb f32, then nb u32."""
    nb = rows.shape[1] // 40
    q = rows[:, : 32 * nb].view(np.int8).reshape(len(rows), nb, 32)
    return Q8(q, rows[:, 32 * nb : 36 * nb].view(np.float32), rows[:, 36 * nb :].view(np.uint32))


def quantise(x: A) -> Q8:
    """Quantise f32[..., N], N a multiple of 32: d = max|x| / 127 and q = x / d rounded half away from zero."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    d = np.abs(blocks).max(axis=-1) / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = np.where(d[..., None] == 0, np.float32(0), blocks / d[..., None])
        whole = np.trunc(scaled)
        q = (whole + np.trunc((scaled - whole) * np.float32(2))).astype(np.int8)
    return Q8(q, d, q.sum(axis=-1, dtype=np.int32).view(np.uint32))


class Matrix:
    """A weight matrix W[M, N] as kernels read it.

    words: u32, flat; scales: u16 or f32, flat (see core/layouts.py). An f32 matrix has its values as words.
    workers: threads for products, None for the caller's only.
    """

    def __init__(
        self, layout: DType, shape: tuple[int, int], words: A, scales: A, workers: Workers | None = None
    ) -> None:
        self.layout = layout
        self.shape = shape
        self.words = words
        self.scales = scales
        self.workers = workers
        self._operands: dict[int, dots.Operand] = {}  # by first row, see `expand`
        self._columns: dict[int, A] = {}

    @classmethod
    def dense(cls, values: A, workers: Workers | None = None) -> Matrix:
        """The matrix of f32[M, N]."""
        rows, cols = values.shape
        return cls(F32, (rows, cols), values.reshape(-1), np.empty(0, np.float32), workers)

    @classmethod
    def zeros(cls, layout: DType, shape: tuple[int, int], workers: Workers | None = None) -> Matrix:
        """A matrix to be filled by section."""
        rows, cols = shape
        if not layout.quantised:
            return cls.dense(np.zeros(shape, np.float32), workers)
        sections = SECTIONS[layout.name]
        words = np.zeros(rows * sum(sections.words(cols // 32)), np.uint32)
        scales = np.zeros(rows * sum(sections.scales(cols // 32)), sections.scale)
        return cls(layout, shape, words, scales, workers)

    def __repr__(self) -> str:
        return f"Matrix({self.layout}[{self.shape[0]}, {self.shape[1]}])"

    @property
    def buffers(self) -> tuple[A, ...]:
        """The arrays that a device needs: words and scales, or the f32 values."""
        return (self.words, self.scales) if self.layout.quantised else (self.words,)

    @property
    def nbytes(self) -> int:
        return sum(b.nbytes for b in self.buffers)

    @property
    def sections(self) -> tuple[tuple[A, ...], tuple[A, ...]]:
        """Views [M, entries per row] of the sections of words and scales."""
        rows, cols = self.shape
        if not self.layout.quantised:
            return (self.words.reshape(self.shape),), ()
        sections = SECTIONS[self.layout.name]
        return split(self.words, rows, sections.words(cols // 32)), split(
            self.scales, rows, sections.scales(cols // 32)
        )

    def rows(self, ids: A) -> A:
        """The values f32[T, N] of rows ids: i32[T]."""
        words, scales = self.sections
        return self._values([w[ids] for w in words], [s[ids] for s in scales])

    def f32(self, lo: int = 0, hi: int | None = None) -> A:
        """The values of rows lo..hi; a view where the layout is f32."""
        words, scales = self.sections
        return self._values([w[lo:hi] for w in words], [s[lo:hi] for s in scales])

    def _values(self, words: list[A], scales: list[A]) -> A:
        if not self.layout.quantised:
            return words[0]
        return unpack(self.layout.name, words, scales).values().reshape(-1, self.shape[1])

    @property
    def expanded_nbytes(self) -> int:
        """What `expand` keeps, in bytes, without scales."""
        return 4 * self.shape[0] * self.shape[1]

    def expand(self) -> None:
        """Keep f32 operands for products: 4 bytes for each weight, faster, and no different results."""
        for band in bands(self.shape[0]):
            if self.layout.quantised:
                self._operands[band.first] = self._operand(band, keep=True)
            else:
                self._columns[band.first] = np.ascontiguousarray(self._dense(band))

    def product(self, x: Q8) -> A:
        """W @ x: f32[T, M] from quantised x[T, N], with exact integer dots and the float order of core/dots.py."""
        groups = 2 if self.layout.name in ("q6_k", "i8_a") else 1
        inputs = [(c, dots.activation(x.q[c], x.d[c], groups)) for c in chunks(len(x.q))]
        result = np.empty((len(x.q), self.shape[0]), np.float32)

        def compute(band: Band, memory: dots.Scratch) -> None:
            w = self._operand(band)
            for chunk, tokens in inputs:
                y = dots.product(w, tokens, memory)
                result[chunk, band.first : band.stop] = y.transpose(1, 0, 2).reshape(y.shape[1], -1)

        self._share(compute, len(x.q))
        return result

    def dense_product(self, x: A) -> A:
        """W @ x: f32[T, M] from x: f32[T, N]; an f32 matrix in the order of core/dots.py.

        A quantised one, which only exact activations bring here, is dequantised and summed in numpy's order, faster
        and as independent of T.
        """
        result = np.empty((len(x), self.shape[0]), np.float32)

        def quick(band: Band, memory: dots.Scratch) -> None:
            rows = slice(band.first, band.stop)
            result[:, rows] = np.einsum("tn,mn->tm", x, self.f32(band.first, band.stop))

        def compute(band: Band, memory: dots.Scratch) -> None:
            w = self._dense(band)
            for chunk in chunks(len(x)):
                y = dots.dense_product(w, x[chunk], memory)
                result[chunk, band.first : band.stop] = y.transpose(1, 0, 2).reshape(y.shape[1], -1)

        self._share(quick if self.layout.quantised else compute, len(x))
        return result

    def _operand(self, band: Band, keep: bool = False) -> dots.Operand:
        for first, kept in self._operands.items():
            at = (band.first - first) // band.rows
            if kept.q.shape[-1] == band.rows and 0 <= at < kept.q.shape[2]:
                return kept.take(slice(at, at + band.tiles))
        words, scales = self.sections
        rows = slice(band.first, band.stop)
        blocks = unpack(self.layout.name, [w[rows] for w in words], [s[rows] for s in scales])
        return dots.operand(blocks, band.tiles, band.rows, keep)

    def _dense(self, band: Band) -> A:
        """f32[N, tiles, 1, R]."""
        for first, kept in self._columns.items():
            at = (band.first - first) // band.rows
            if kept.shape[-1] == band.rows and 0 <= at < kept.shape[1]:
                return kept[:, at : at + band.tiles]
        return self.f32(band.first, band.stop).reshape(band.tiles, 1, band.rows, -1).transpose(3, 0, 1, 2)

    def _share(self, compute: Callable[[Band, dots.Scratch], None], tokens: int) -> None:
        """Call `compute` on all rows, in as large bands as suit so many tokens, each once in any thread."""
        rows, cols = self.shape
        workers = self.workers if rows * cols * tokens >= WORTH_SHARING else None
        tokens = min(tokens, TILE_TOKENS)
        jobs: list[Band] = []
        for band in bands(rows):
            most = dots.CELLS // (band.rows * tokens * min(LANES, -(-cols // 32)))
            if not self._operands and not self._columns:
                most = min(most, MOST_UNPACKED // (band.rows * cols))
            if workers is not None:
                most = min(most, -(-band.tiles // workers.threads))
            jobs += band.cut(max(1, most))
        cells = max(job.tiles * job.rows for job in jobs) * tokens

        def work(some: Iterator[Band]) -> None:
            memory = dots.scratch(cells)
            for job in some:
                compute(job, memory)

        if workers is None:
            work(iter(jobs))
        else:
            workers.share(work, jobs)
