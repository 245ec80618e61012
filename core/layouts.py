"""Repacked weight layouts: how words and scales are divided, and the integers and scales they stand for.

A layout keeps 32-bit words and scales in flat arrays. Each array consists of sections, one after the other, and
each section holds the same number of entries for every row. nb is the number of 32-weight blocks in a row.

    q4_0   words: nibbles                       scales u16: f16 d                       d * (q - 8)
    q4_1   words: nibbles                       scales u16: f16 d, f16 m per block      d * q + m
    q8_0   words: int8                          scales u16: f16 d                       d * q
    q4_k   words: nibbles                       scales u16: sc | min << 8; then         d*sc * q - dmin*min
                                                f16 d, f16 dmin per 8 blocks
    q6_k   words: low nibbles; then             scales u16: sc of half 0 | half 1 << 8; d*sc * (q - 32)
           2-bit fields, a word per half        then f16 d per 8 blocks
    i8_a   words: int8                          scales f32: s0, s1, m0, m1 per block    s*q - m, by halves of 16
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphrun.core.blocks import Decoded

A = np.ndarray[Any, Any]


_LOW_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_LOW_FIELDS = np.uint32(0x03030303)


@dataclass(frozen=True)
class Sections:
    """Entries per row of each section of the words and of the scales, for a row of nb blocks."""

    words: Callable[[int], tuple[int, ...]]
    scales: Callable[[int], tuple[int, ...]]
    scale: type[np.generic] = np.uint16


SECTIONS = {
    "q4_0": Sections(lambda nb: (4 * nb,), lambda nb: (nb,)),
    "q4_1": Sections(lambda nb: (4 * nb,), lambda nb: (2 * nb,)),
    "q8_0": Sections(lambda nb: (8 * nb,), lambda nb: (nb,)),
    "q4_k": Sections(lambda nb: (4 * nb,), lambda nb: (nb, nb // 8 * 2)),
    "q6_k": Sections(lambda nb: (4 * nb, 2 * nb), lambda nb: (nb, nb // 8)),
    "i8_a": Sections(lambda nb: (8 * nb,), lambda nb: (4 * nb,), np.float32),
}


def split(flat: A, rows: int, widths: Sequence[int]) -> tuple[A, ...]:
    """Views [rows, width] of the sections of a flat array."""
    starts = np.cumsum([0, *widths]) * rows
    return tuple(flat[a:b].reshape(rows, -1) for a, b in zip(starts[:-1], starts[1:], strict=True))


@np.errstate(invalid="ignore")
def unpack(layout: str, words: Sequence[A], scales: Sequence[A]) -> Decoded:
    """The meaning of some rows of a layout, given by their part of each section.

    Returns q: int8[rows * nb, groups, 32 // groups] with 1 group, or 2 for q6_k and i8_a.
    """
    return _UNPACK[layout](words, scales)


def nibbles(words: A) -> A:
    """Four words per block to u8[blocks, 32]: weight j is nibble j // 16 of byte j % 16."""
    packed = words.reshape(-1, 4).view(np.uint64)  # eight weights at a time
    q = np.empty((len(packed), 4), np.uint64)
    for i in (0, 1):
        np.bitwise_and(packed[:, i], _LOW_NIBBLES, out=q[:, i])
        np.bitwise_and(packed[:, i] >> 4, _LOW_NIBBLES, out=q[:, i + 2])
    return q.view(np.uint8)


def low_and_high(pairs: A) -> tuple[A, A]:
    """The bytes of u16 pairs."""
    return (pairs & 255).astype(np.uint8), (pairs >> 8).astype(np.uint8)


def f16(bits: A) -> A:
    """f16 bits as f32."""
    return bits.view(np.float16).astype(np.float32)


def _one_group(q: A, s: A, m: A | None = None) -> Decoded:
    return Decoded(q.reshape(-1, 1, 32), s.reshape(-1, 1), None if m is None else m.reshape(-1, 1))


def _q4_0(words: Sequence[A], scales: Sequence[A]) -> Decoded:
    return _one_group(nibbles(words[0]).view(np.int8) - np.int8(8), f16(scales[0]))


def _q4_1(words: Sequence[A], scales: Sequence[A]) -> Decoded:
    d, m = f16(scales[0]).reshape(-1, 2).T
    return _one_group(nibbles(words[0]).view(np.int8), d, -m)


def _q8_0(words: Sequence[A], scales: Sequence[A]) -> Decoded:
    return _one_group(words[0].view(np.int8), f16(scales[0]))


def _q4_k(words: Sequence[A], scales: Sequence[A]) -> Decoded:
    scale, minimum = low_and_high(scales[0].reshape(-1, 8))
    d, dmin = f16(scales[1]).reshape(-1, 2, 1).swapaxes(0, 1)
    s, m = d * scale.astype(np.float32), dmin * minimum.astype(np.float32)
    return _one_group(nibbles(words[0]).view(np.int8), s, m)


def _q6_k(words: Sequence[A], scales: Sequence[A]) -> Decoded:
    q = nibbles(words[0])
    fours = q.view(np.uint32).reshape(-1, 2, 4)
    fields = words[1].reshape(-1, 2)  # byte i holds weights i, i + 4, i + 8, i + 12 of its half
    for k in range(4):
        fours[:, :, k] |= (fields >> (2 * k) & _LOW_FIELDS) << 4
    q = q.view(np.int8) - np.int8(32)
    codes = np.stack(low_and_high(scales[0].reshape(-1, 8)), axis=2).view(np.int8)
    s = f16(scales[1]).reshape(-1, 1, 1) * codes.astype(np.float32)
    return Decoded(q.reshape(-1, 2, 16), s.reshape(-1, 2), None)


def _i8_a(words: Sequence[A], scales: Sequence[A]) -> Decoded:
    affine = scales[0].reshape(-1, 4)
    return Decoded(words[0].view(np.int8).reshape(-1, 2, 16), affine[:, :2], affine[:, 2:])


_UNPACK: dict[str, Callable[[Sequence[A], Sequence[A]], Decoded]] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q8_0": _q8_0,
    "q4_k": _q4_k,
    "q6_k": _q6_k,
    "i8_a": _i8_a,
}
