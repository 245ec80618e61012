"""Packing: the law of every layout in terms of the verified index functions, stacking, and errors."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from quant_cases import A, matrix, random_rows, same

from graphrun.backends import pack as packing
from graphrun.backends.pack import pack
from graphrun.core import ie
from graphrun.core.blocks import dequantise
from graphrun.core.errors import ModelError
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Part
from graphrun.core.quant import Matrix
from graphrun.core.types import tensor

ROWS, NB = 5, 16


def cells(*sizes: int) -> list[A]:
    return [np.asarray(i, np.uint32).reshape(-1) for i in np.meshgrid(*map(np.arange, sizes), indexing="ij")]


def stored(type_: str) -> tuple[A, A, Matrix]:
    raw = random_rows(np.random.default_rng(4), type_, ROWS, 32 * NB)
    return raw.reshape(-1).astype(np.uint32), raw, matrix(type_, type_, raw)


def f16_bits(flat: A, at: A) -> A:
    bits: A = flat[at] | flat[at + 1] << 8
    return bits


def test_q4_0() -> None:
    flat, _, w = stored("q4_0")
    r, b, k = cells(ROWS, NB, 4)
    quads = [flat[ie.ie_q4_src_qbyte(r, b, 4 * k + e, NB)] for e in range(4)]
    assert np.array_equal(w.words[ie.ie_q4_dst_word(r, b, k, NB)], ie.ie_pack4(*quads))
    assert np.array_equal(w.scales[ie.ie_q4_dst_scale(r, b, NB)], f16_bits(flat, ie.ie_q4_src_blk(r, b, NB)))
    assert w.words.size == ROWS * NB * 4 and w.scales.size == ROWS * NB


def test_q8_0() -> None:
    flat, _, w = stored("q8_0")
    r, b, k = cells(ROWS, NB, 8)
    quads = [flat[ie.ie_q8_src_qbyte(r, b, 4 * k + e, NB)] for e in range(4)]
    assert np.array_equal(w.words[ie.ie_q8_dst_word(r, b, k, NB)], ie.ie_pack4(*quads))
    assert np.array_equal(w.scales[ie.ie_q8_dst_scale(r, b, NB)], f16_bits(flat, ie.ie_q8_src_blk(r, b, NB)))
    assert w.words.size == ROWS * NB * 8 and w.scales.size == ROWS * NB


def test_q4_k() -> None:
    flat, _, w = stored("q4_k")
    r, b, k = cells(ROWS, NB, 4)
    low = [flat[ie.ie_q4k_src_qbyte(r, b, 4 * k + e, NB)] for e in range(4)]
    high = [flat[ie.ie_q4k_src_qbyte(r, b, 4 * k + e + 16, NB)] for e in range(4)]
    quads = [ie.ie_q4k_pack(lo, hi, b) for lo, hi in zip(low, high, strict=True)]
    assert np.array_equal(w.words[ie.ie_q4_dst_word(r, b, k, NB)], ie.ie_pack4(*quads))
    r, b = cells(ROWS, NB)
    block = ie.ie_q4k_src_blk(r, b, NB)
    packed, j = [flat[block + 4 + i] for i in range(12)], b % 8
    low_scale = [np.choose(j, packed[:8]), np.choose(np.minimum(j + 4, 11), packed)]
    scale = np.where(j < 4, low_scale[0] & 63, low_scale[1] & 15 | np.choose(np.maximum(j, 4) - 4, packed) >> 6 << 4)
    minimum = np.where(j < 4, np.choose(np.minimum(j + 4, 11), packed) & 63, low_scale[1] >> 4 | low_scale[0] >> 6 << 4)
    assert np.array_equal(w.scales[ie.ie_q4k_sm(r, b, NB)], scale | minimum << 8)
    at = ie.ie_q4k_dd(ROWS, r, b, NB)
    assert np.array_equal(w.scales[at], f16_bits(flat, block))
    assert np.array_equal(w.scales[at + 1], f16_bits(flat, block + 2))
    assert w.words.size == ROWS * NB * 4 and w.scales.size == ie.ie_q4k_qs_n(ROWS, NB)


def test_q6_k() -> None:
    flat, _, w = stored("q6_k")
    r, b = cells(ROWS, NB)
    q = [
        ie.ie_q6k_src_q(flat[ie.ie_q6k_src_ql(r, b, j, NB)], flat[ie.ie_q6k_src_qh(r, b, j, NB)], b) for j in range(32)
    ]
    for k in range(4):
        quads = [q[4 * k + e] & 15 | (q[4 * k + e + 16] & 15) << 4 for e in range(4)]
        assert np.array_equal(w.words[ie.ie_q4_dst_word(r, b, k, NB)], ie.ie_pack4(*quads))
    for h in range(2):
        assert np.array_equal(w.words[ie.ie_q6k_hw(ROWS, r, b, h, NB)], ie.ie_q6k_hpack(*q[16 * h : 16 * h + 16]))
    pair = [flat[ie.ie_q6k_src_sc(r, b, h, NB)] for h in range(2)]
    assert np.array_equal(w.scales[ie.ie_q6k_sc(r, b, NB)], pair[0] | pair[1] << 8)
    assert np.array_equal(w.scales[ie.ie_q6k_d(ROWS, r, b, NB)], f16_bits(flat, ie.ie_q6k_src_d(r, b, NB)))
    assert w.words.size == ie.ie_q6k_qw_n(ROWS, NB) and w.scales.size == ie.ie_q6k_qs_n(ROWS, NB)


def test_q4_1_keeps_nibbles_scale_and_minimum() -> None:
    _, raw, w = stored("q4_1")
    blocks = raw.reshape(-1, 20)
    assert np.array_equal(w.words.view(np.uint8).reshape(-1, 16), blocks[:, 4:])
    assert np.array_equal(w.scales.view(np.uint8).reshape(-1, 4), blocks[:, :4])


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    rng = np.random.default_rng(5)
    for name, type_, rows in (("a", "q4_0", 7), ("b", "q4_0", 2), ("k", "q6_k", 3), ("s", "q3_k", 4), ("t", "q8_0", 2)):
        raw = random_rows(rng, type_, rows, 512, "plain")
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[type_.upper()])
    writer.add_tensor("v", np.arange(4, dtype=np.float32))
    writer.add_tensor("h", np.arange(3).astype(np.float16))
    writer.add_tensor("cube", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    writer.add_tensor("odd", np.zeros((2, 17), np.uint8), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelFile.open(tmp_path / "m.gguf")


def values(model: ModelFile, *names: str) -> A:
    return np.concatenate([dequantise(model.tensors[n].type, model.raw(n)) for n in names])


def packed(model: ModelFile, layout: str, *parts: tuple[str | None, int]) -> Matrix:
    shape = (sum(rows for _, rows in parts), 512)
    w = pack(model, [Part(*p) for p in parts], tensor(layout, *shape))
    assert isinstance(w, Matrix) and w.layout.name == layout and w.shape == shape
    return w


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        ("q4_0", [("a", 7), ("b", 2)]),
        ("q8_0", [("b", 2), ("t", 2), ("a", 7)]),
        ("q6_k", [("k", 3), ("s", 4)]),
        ("f32", [("k", 3), ("a", 7)]),
    ],
)
def test_stacking_by_rows(
    model: ModelFile, layout: str, parts: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = packed(model, layout, *parts)
    assert same(whole.f32(), values(model, *(name for name, _ in parts)))
    monkeypatch.setattr(packing, "CHUNK_BYTES", 1)  # row by row
    assert all(np.array_equal(a, b) for a, b in zip(packed(model, layout, *parts).buffers, whole.buffers, strict=True))


def test_rows_of_zeros(model: ModelFile) -> None:
    w = packed(model, "q4_0", ("b", 2), (None, 3))
    assert same(w.f32(0, 2), values(model, "b")) and not w.f32(2, 5).any()


def test_vectors_and_other_arrays(model: ModelFile) -> None:
    vector = pack(model, [Part("v", 4), Part(None, 2), Part("h", 3)], tensor("f32", 9))
    assert isinstance(vector, np.ndarray) and vector.tolist() == [0, 1, 2, 3, 0, 0, 0, 1, 2]
    cube = pack(model, [Part("cube", 6)], tensor("f32", 2, 3, 4))
    assert isinstance(cube, np.ndarray) and cube.shape == (2, 3, 4) and cube[1, 0, 0] == 12


def test_progress(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CHUNK_BYTES", 1000)
    told: list[int] = []
    pack(model, [Part("a", 7), Part("b", 2)], tensor("q4_0", 9, 512), on_bytes=told.append)
    assert sum(told) == 9 * 16 * 18 and len(told) > 2


def test_unsupported_type(model: ModelFile) -> None:
    with pytest.raises(ModelError, match=r"tensor odd: type mxfp4 is not supported .*q4_0"):
        pack(model, [Part("odd", 2)], tensor("f32", 2, 32))
