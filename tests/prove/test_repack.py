"""Every repacking index of the core against the dequantiser of the package gguf, on random tensors of each type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as Type
from gguf.quants import Q4_K, dequantize

from graphrun.core.ie import (
    ie_byte,
    ie_pack4,
    ie_q4_dst_scale,
    ie_q4_dst_word,
    ie_q4_nib,
    ie_q4_src_blk,
    ie_q4_src_qbyte,
    ie_q4_word_of,
    ie_q4k_dd,
    ie_q4k_pack,
    ie_q4k_qs_n,
    ie_q4k_sm,
    ie_q4k_src_blk,
    ie_q4k_src_qbyte,
    ie_q6k_d,
    ie_q6k_h2,
    ie_q6k_hpack,
    ie_q6k_hw,
    ie_q6k_q,
    ie_q6k_qs_n,
    ie_q6k_qw_n,
    ie_q6k_sc,
    ie_q6k_src_d,
    ie_q6k_src_q,
    ie_q6k_src_qh,
    ie_q6k_src_ql,
    ie_q6k_src_sc,
    ie_q8_dst_scale,
    ie_q8_dst_word,
    ie_q8_src_blk,
    ie_q8_src_qbyte,
    ie_sext8,
)

ROWS, NB = 5, 24
Array = npt.NDArray[Any]
R, B = (np.ravel(x).astype(np.uint32) for x in np.meshgrid(range(ROWS), range(NB), indexing="ij"))
J = np.arange(32, dtype=np.uint32)


def _tensor(kind: Type, size: int, scales: list[int]) -> tuple[Array, Array]:
    """(bytes of a random tensor with sane f16 at the given offsets of each block, its weights by gguf)."""
    rng = np.random.default_rng(size)
    per_row = NB if size < 100 else NB // 8
    blocks = rng.integers(0, 256, (ROWS * per_row, size), dtype=np.uint8)
    for at in scales:
        values = rng.normal(0, 0.1, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = values.view(np.uint8).reshape(-1, 2)
    raw = blocks.reshape(ROWS, -1)
    return raw.ravel(), dequantize(raw, kind).reshape(ROWS, NB, 32)


def _half(raw: Array, at: Array) -> Array:
    """The f16 at byte offsets."""
    bits = raw[at].astype(np.uint16) | raw[at + 1].astype(np.uint16) << 8
    return np.asarray(bits.view(np.float16), dtype=np.float32)


def _packed(parts: list[Array]) -> Array:
    packed: Array = ie_pack4(*(p.astype(np.uint32) for p in parts))
    return packed


def _check(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got.reshape(ROWS, NB, 32), want)


def _signed(words: Array) -> Array:
    return words.astype(np.uint32).view(np.int32).astype(np.float32)


def test_q4_0() -> None:
    raw, want = _tensor(Type.Q4_0, 18, [0])
    words = np.zeros(ROWS * NB * 4, np.uint32)
    for w in range(4):
        words[ie_q4_dst_word(R, B, w, NB)] = _packed([raw[ie_q4_src_qbyte(R, B, 4 * w + i, NB)] for i in range(4)])
    scales = np.zeros(ROWS * NB, np.float32)
    scales[ie_q4_dst_scale(R, B, NB)] = _half(raw, ie_q4_src_blk(R, B, NB))
    r, b = R[:, None], B[:, None]
    q = ie_q4_nib(words[ie_q4_dst_word(r, b, ie_q4_word_of(J), NB)], J)
    _check(_signed(q - np.uint32(8)) * scales[ie_q4_dst_scale(r, b, NB)], want)


def test_q8_0() -> None:
    raw, want = _tensor(Type.Q8_0, 34, [0])
    words = np.zeros(ROWS * NB * 8, np.uint32)
    for w in range(8):
        words[ie_q8_dst_word(R, B, w, NB)] = _packed([raw[ie_q8_src_qbyte(R, B, 4 * w + i, NB)] for i in range(4)])
    scales = np.zeros(ROWS * NB, np.float32)
    scales[ie_q8_dst_scale(R, B, NB)] = _half(raw, ie_q8_src_blk(R, B, NB))
    r, b = R[:, None], B[:, None]
    q = ie_sext8(ie_byte(words[ie_q8_dst_word(r, b, J >> 2, NB)], J & 3))
    _check(_signed(q) * scales[ie_q8_dst_scale(r, b, NB)], want)


def test_q4_k() -> None:
    raw, want = _tensor(Type.Q4_K, 144, [0, 2])
    words, table = np.zeros(ROWS * NB * 4, np.uint32), np.zeros(ie_q4k_qs_n(ROWS, NB), np.uint16)
    for w in range(4):
        ends = [[raw[ie_q4k_src_qbyte(R, B, 4 * w + i + side, NB)] for i in range(4)] for side in (0, 16)]
        packed = [ie_q4k_pack(lo.astype(np.uint32), hi.astype(np.uint32), B) for lo, hi in zip(*ends, strict=True)]
        words[ie_q4_dst_word(R, B, w, NB)] = _packed(packed)
    blk = ie_q4k_src_blk(R, B, NB)
    sc, mn = Q4_K.get_scale_min(raw[blk[:, None] + 4 + np.arange(12)])
    at = np.arange(len(R)), B % 8
    table[ie_q4k_sm(R, B, NB)] = sc[at].astype(np.uint16) | mn[at].astype(np.uint16) << 8
    for k in range(2):
        table[ie_q4k_dd(ROWS, R, B, NB) + k] = _half(raw, blk + 2 * k).astype(np.float16).view(np.uint16)
    r, b = R[:, None], B[:, None]
    q = ie_q4_nib(words[ie_q4_dst_word(r, b, ie_q4_word_of(J), NB)], J).astype(np.float32)
    sm, dd = table[ie_q4k_sm(r, b, NB)], ie_q4k_dd(ROWS, r, b, NB)
    d, dmin = (table[dd + k].view(np.float16).astype(np.float32) for k in range(2))
    _check(d * (sm & 255).astype(np.float32) * q - dmin * (sm >> 8).astype(np.float32), want)


def test_q6_k() -> None:
    raw, want = _tensor(Type.Q6_K, 210, [208])
    words, table = np.zeros(ie_q6k_qw_n(ROWS, NB), np.uint32), np.zeros(ie_q6k_qs_n(ROWS, NB), np.uint16)
    ql, qh = ([raw[f(R, B, j, NB)].astype(np.uint32) for j in range(32)] for f in (ie_q6k_src_ql, ie_q6k_src_qh))
    weights = [ie_q6k_src_q(low, high, B) for low, high in zip(ql, qh, strict=True)]
    for w in range(4):
        pairs = [(weights[4 * w + i] & 15) | (weights[16 + 4 * w + i] & 15) << np.uint32(4) for i in range(4)]
        words[ie_q4_dst_word(R, B, w, NB)] = _packed(pairs)
    for h in range(2):
        half = weights[16 * h : 16 * h + 16]
        words[ie_q6k_hw(ROWS, R, B, h, NB)] = ie_q6k_hpack(*half)
        assert (ie_q6k_hpack(*half) == np.bitwise_or.reduce([ie_q6k_h2(q, e) for e, q in enumerate(half)])).all()
    sc = [raw[ie_q6k_src_sc(R, B, h, NB)].astype(np.uint16) for h in range(2)]
    table[ie_q6k_sc(R, B, NB)] = sc[0] | sc[1] << 8
    table[ie_q6k_d(ROWS, R, B, NB)] = _half(raw, ie_q6k_src_d(R, B, NB)).astype(np.float16).view(np.uint16)
    r, b = R[:, None], B[:, None]
    high = words[ie_q6k_hw(ROWS, r, b, J // 16, NB)]
    q = ie_q6k_q(words[ie_q4_dst_word(r, b, ie_q4_word_of(J), NB)], high, J)
    scale = (table[ie_q6k_sc(r, b, NB)] >> (8 * (J // 16)).astype(np.uint16)).astype(np.uint8).view(np.int8)
    d = table[ie_q6k_d(ROWS, r, b, NB)].view(np.float16).astype(np.float32)
    _check(d * scale.astype(np.float32) * _signed(q - np.uint32(32)), want)


@pytest.mark.parametrize("count", [ROWS * NB * 4])
def test_every_nibble_word_is_written_once(count: int) -> None:
    at = np.concatenate([ie_q4_dst_word(R, B, w, NB) for w in range(4)])
    assert sorted(at) == list(range(count))
