"""Random stored weights for tests, and a word-for-word model of quantised matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from graphrun.backends.pack import encode
from graphrun.core.blocks import BLOCKS
from graphrun.core.ie import (
    ie_dot4_ss,
    ie_q4_dst_word,
    ie_q4k_dd,
    ie_q4k_dot,
    ie_q4k_sm,
    ie_q4q8_block,
    ie_q6k_d,
    ie_q6k_dots,
    ie_q6k_hw,
    ie_q6k_sc,
    ie_q8_dst_word,
    ie_q8q8_block,
)
from graphrun.core.quant import EXACT, Q8, Matrix
from graphrun.core.types import DTYPES

A = np.ndarray[Any, Any]
F = np.float32

# Bytes where a block keeps f16 scales.
F16_AT = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "iq4_nl": (0,),
    "iq4_xs": (0,),
}
PAIRS = [(type_, layout) for type_, layouts in EXACT.items() for layout in (*layouts, "f32")]
# A type that fills a layout with every integer it can hold.
FULL = {"q4_0": "q4_0", "q4_1": "q4_1", "q8_0": "q8_0", "q4_k": "q4_k", "q6_k": "q6_k", "i8_a": "iq4_xs"}


def random_rows(rng: np.random.Generator, type_: str, rows: int, cols: int, scales: str = "any") -> A:
    """Stored rows with random bytes; f16 scales of any finite bits, or "plain" ones between 2^-8 and 2^-5."""
    elements, size = BLOCKS[type_]
    raw = rng.integers(0, 256, (rows, cols // elements * size), dtype=np.uint8)
    blocks = raw.reshape(-1, size)
    for at in F16_AT[type_]:
        high = blocks[:, at + 1]
        if scales == "plain":
            high[:] = high & 0x8F | 0x20
        high[high & 0x7C == 0x7C] &= 0xBF  # neither infinite nor NaN
    return raw


def matrix(type_: str, layout: str, raw: A) -> Matrix:
    elements, size = BLOCKS[type_]
    made = Matrix.zeros(DTYPES[layout], (len(raw), raw.shape[1] // size * elements))
    words, scales = made.sections
    for section, values in zip(words + scales, encode(type_, layout, raw), strict=True):
        section[...] = values
    return made


def token(x: Q8, t: int) -> Q8:
    """One token of several."""
    return Q8(x.q[t : t + 1], x.d[t : t + 1], x.asum[t : t + 1])


def same(a: A, b: A) -> bool:
    """Equal bit for bit."""
    return a.shape == b.shape and bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))


def rounded(x: Fraction) -> np.float32:
    """The f32 nearest to x, ties to even; below the largest f32."""
    if x == 0:
        return F(0)
    exponent = max(x.numerator.bit_length() - x.denominator.bit_length() - 24, -149)
    while abs(x) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    return F(np.ldexp(np.float64(round(x / Fraction(2) ** exponent)), exponent))


def exact_fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """f32(a * b + c); a zero result is +0."""
    return rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def literal_gemv(w: Matrix, x: Q8) -> A:
    """Section by section what a kernel does: lanes, blocks l, l + 32, ..., then the wave tree. f32[T, M]."""
    rows, nb = w.shape[0], w.shape[1] // 32
    result = np.empty((len(x.q), rows), F)
    weights = _Words(w)
    for t in range(len(x.q)):
        tokens = np.ascontiguousarray(x.q[t]).view(np.uint32).reshape(-1).tolist()
        for r in range(rows):
            lanes = [F(0)] * 32
            for lane in range(32):
                for b in range(lane, nb, 32):
                    lanes[lane] = weights.step(lanes[lane], r, b, tokens, x.d[t, b], int(x.asum[t, b]))
            for offset in (16, 8, 4, 2, 1):
                lanes = [lanes[i] + lanes[i + offset] for i in range(offset)]
            result[t, r] = lanes[0]
    return result


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def int8(x: int) -> int:
    return (x & 255) - ((x & 128) << 1)


class _Words:
    """The buffers of a matrix, read with the verified index functions."""

    def __init__(self, w: Matrix) -> None:
        self.layout = w.layout.name
        self.rows, self.nb = w.shape[0], w.shape[1] // 32
        self.words: list[int] = w.words.tolist()
        self.scales = w.scales

    def f16(self, index: int) -> np.float32:
        return F(self.scales[index : index + 1].view(np.float16)[0])

    def step(self, acc: np.float32, r: int, b: int, x: Sequence[int], da: np.float32, asum: int) -> np.float32:
        nb, at, words = self.nb, r * self.nb + b, self.words
        q4, q8 = ie_q4_dst_word(r, b, 0, nb), ie_q8_dst_word(r, b, 0, nb)
        total = F(signed(asum))
        match self.layout:
            case "q4_0":
                dot = F(signed(ie_q4q8_block(words, q4, x, 8 * b, asum)))
                return acc + (self.f16(at) * da) * dot
            case "q8_0":
                dot = F(signed(ie_q8q8_block(words, q8, x, 8 * b)))
                return acc + (self.f16(at) * da) * dot
            case "q4_1":
                dot = F(signed(ie_q4k_dot(words, q4, x, 8 * b)))
                acc = exact_fma(self.f16(2 * at) * dot, da, acc)
                return exact_fma(self.f16(2 * at + 1), da * total, acc)
            case "q4_k":
                dot = F(signed(ie_q4k_dot(words, q4, x, 8 * b)))
                pair, dd = int(self.scales[ie_q4k_sm(r, b, nb)]), ie_q4k_dd(self.rows, r, b, nb)
                acc = exact_fma((self.f16(dd) * F(pair & 255)) * dot, da, acc)
                return exact_fma(-(self.f16(dd + 1) * F(pair >> 8)), da * total, acc)
            case "q6_k":
                high = ie_q6k_hw(self.rows, r, b, 0, nb)
                d0, d1 = (F(signed(ie_q6k_dots(words, q4, words, high + h, x, 8 * b, h))) for h in (0, 1))
                pair, d = int(self.scales[ie_q6k_sc(r, b, nb)]), self.f16(ie_q6k_d(self.rows, r, b, nb))
                s0, s1 = d * F(int8(pair)), d * F(int8(pair >> 8))
                return exact_fma(exact_fma(s1, d1, s0 * d0), da, acc)
        d0, d1 = (F(self._bytes_dot(words[q8:], x[8 * b :], h)) for h in (0, 1))
        h0, h1 = (F(self._bytes_dot([0x01010101] * 8, x[8 * b :], h)) for h in (0, 1))
        s0, s1, m0, m1 = self.scales[4 * at : 4 * at + 4]
        acc = exact_fma(exact_fma(s1, d1, s0 * d0), da, acc)
        return exact_fma(-exact_fma(m1, h1, m0 * h0), da, acc)

    @staticmethod
    def _bytes_dot(w: Sequence[int], x: Sequence[int], half: int) -> int:
        dot = 0
        for k in range(4 * half, 4 * half + 4):
            dot = ie_dot4_ss(dot, w[k], x[k])
        return signed(dot)
