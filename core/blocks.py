"""GGML block formats: stored bytes to the integers and scales they hold, and to f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

A = np.ndarray[Any, Any]

# Elements and bytes of one block.
BLOCKS = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
}
# The 16 levels of iq4_nl and iq4_xs.
IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


class Decoded(NamedTuple):
    """Blocks in groups of equal scale; a weight is s * q - m, each operation rounded to f32.

    q: int8[blocks, groups, weights]; s, m: f32[blocks, groups]; m is None where there is no minimum.
    """

    q: A
    s: A
    m: A | None

    @np.errstate(invalid="ignore")  # infinite scales of a damaged file become NaN
    def values(self) -> A:
        """f32[blocks, groups, weights]."""
        product = self.q.astype(np.float32)
        product *= self.s[..., None]
        if self.m is not None:
            product -= self.m[..., None]
        return product


def dequantise(type_: str, raw: A) -> A:
    """The values f32[rows, cols] of stored rows uint8[rows, bytes per row], as ggml's reference computes them."""
    if type_ in _FLOATS:
        return _FLOATS[type_](np.ascontiguousarray(raw))
    return decode(type_, raw).values().reshape(raw.shape[0], -1)


@np.errstate(invalid="ignore")
def decode(type_: str, raw: A) -> Decoded:
    """Integers and scales of all blocks of rows uint8[rows, bytes per row] of a quantised type."""
    return _DECODERS[type_](raw.reshape(-1, BLOCKS[type_][1]))


def f16_bits(blocks: A, at: int) -> A:
    """The 16 bits at byte `at` of each block, u16[blocks]."""
    return blocks[:, at : at + 2].copy().view("<u2")[:, 0]


def f16(blocks: A, at: int) -> A:
    """The f16 at byte `at` of each block, as f32[blocks, 1]."""
    return f16_bits(blocks, at).view(np.float16).astype(np.float32)[:, None]


def scales_k4(packed: A) -> tuple[A, A]:
    """The 6-bit scales and minima u8[blocks, 8] packed in the 12 bytes of q4_k and q5_k."""
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minimum = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=1)
    return scale, minimum


def scales_k3(packed: A) -> A:
    """The 16 scales int8[blocks, 16], -32..31, packed in the 12 bytes of q3_k."""
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = np.concatenate([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    scale: A = (low | high << 4).astype(np.int8) - np.int8(32)
    return scale


def _fields(packed: A, run: int, bits: int) -> A:
    """Bytes split into bit fields, lowest first, for each run of `run` bytes: u8[blocks, runs, fields, run]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    split: A = packed.reshape(len(packed), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return split


def _q4(blocks: A, at: int) -> A:
    """32 nibbles from byte `at`: all low ones, then all high ones; u8[blocks, 1, 32]."""
    return _fields(blocks[:, at : at + 16], 16, 4).reshape(-1, 1, 32)


def _q5(blocks: A, at: int) -> A:
    """32 five-bit integers: 4 bytes with the fifth bits, then nibbles; u8[blocks, 1, 32]."""
    fifth = np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    q: A = _q4(blocks, at + 4) | fifth[:, None, :] << 4
    return q


def _q4_0(blocks: A) -> Decoded:
    return Decoded(_q4(blocks, 2).view(np.int8) - np.int8(8), f16(blocks, 0), None)


def _q4_1(blocks: A) -> Decoded:
    return Decoded(_q4(blocks, 4).view(np.int8), f16(blocks, 0), -f16(blocks, 2))


def _q5_0(blocks: A) -> Decoded:
    return Decoded(_q5(blocks, 2).view(np.int8) - np.int8(16), f16(blocks, 0), None)


def _q5_1(blocks: A) -> Decoded:
    return Decoded(_q5(blocks, 4).view(np.int8), f16(blocks, 0), -f16(blocks, 2))


def _q8_0(blocks: A) -> Decoded:
    return Decoded(blocks[:, 2:].view(np.int8)[:, None, :], f16(blocks, 0), None)


def _q2_k(blocks: A) -> Decoded:
    packed = blocks[:, :16]
    scale, minimum = (packed & 15).astype(np.float32), (packed >> 4).astype(np.float32)
    q = _fields(blocks[:, 16:80], 32, 2).reshape(-1, 16, 16).view(np.int8)
    return Decoded(q, f16(blocks, 80) * scale, f16(blocks, 82) * minimum)


def _q3_k(blocks: A) -> Decoded:
    low = _fields(blocks[:, 32:96], 32, 2).reshape(-1, 256)
    high = _fields(blocks[:, :32], 32, 1).reshape(-1, 256)
    q = (low | high << 2).astype(np.int8) - np.int8(4)
    return Decoded(q.reshape(-1, 16, 16), f16(blocks, 108) * scales_k3(blocks[:, 96:108]).astype(np.float32), None)


def _k4_scales(blocks: A) -> tuple[A, A]:
    scale, minimum = scales_k4(blocks[:, 4:16])
    return f16(blocks, 0) * scale.astype(np.float32), f16(blocks, 2) * minimum.astype(np.float32)


def _q4_k(blocks: A) -> Decoded:
    return Decoded(_fields(blocks[:, 16:], 32, 4).reshape(-1, 8, 32).view(np.int8), *_k4_scales(blocks))


def _q5_k(blocks: A) -> Decoded:
    low = _fields(blocks[:, 48:], 32, 4).reshape(-1, 8, 32)
    high = _fields(blocks[:, 16:48], 32, 1).reshape(-1, 8, 32)
    return Decoded((low | high << 4).view(np.int8), *_k4_scales(blocks))


def _q6_k(blocks: A) -> Decoded:
    low = _fields(blocks[:, :128], 64, 4).reshape(-1, 256)
    high = _fields(blocks[:, 128:192], 32, 2).reshape(-1, 256)
    q = (low | high << 4).view(np.int8) - np.int8(32)
    scale = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return Decoded(q.reshape(-1, 16, 16), f16(blocks, 208) * scale, None)


def _iq4_nl(blocks: A) -> Decoded:
    return Decoded(IQ4_LEVELS[_q4(blocks, 2)], f16(blocks, 0), None)


def _iq4_xs(blocks: A) -> Decoded:
    low = _fields(blocks[:, 4:8], 1, 4).reshape(-1, 8)
    high = f16_bits(blocks, 2)[:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scale = (low | high << 4).astype(np.float32) - np.float32(32)
    q = IQ4_LEVELS[_fields(blocks[:, 8:], 16, 4).reshape(-1, 8, 32)]
    return Decoded(q, f16(blocks, 0) * scale, None)


_FLOATS: dict[str, Callable[[A], A]] = {
    "f32": lambda raw: raw.view("<f4"),
    "f16": lambda raw: raw.view("<f2").astype(np.float32),
    "bf16": lambda raw: (raw.view("<u2").astype(np.uint32) << 16).view(np.float32),
}
_DECODERS: dict[str, Callable[[A], Decoded]] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q8_0": _q8_0,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": _iq4_nl,
    "iq4_xs": _iq4_xs,
}
