"""Block formats, the choice of layouts, exactness of every conversion, and quantised activations."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from quant_cases import F16_AT, PAIRS, A, matrix, random_rows, same

from graphrun.core.blocks import BLOCKS, dequantise
from graphrun.core.quant import EXACT, Matrix, layout, q8_views, quantise, supported, why
from graphrun.core.types import DTYPES, F32

WIDE = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


@pytest.mark.parametrize("type_", BLOCKS)
def test_block_sizes_are_those_of_ggml(type_: str) -> None:
    assert BLOCKS[type_] == GGML_QUANT_SIZES[GGMLQuantizationType[type_.upper()]]


@pytest.mark.parametrize("type_", F16_AT)
def test_values_are_those_of_the_reference(type_: str) -> None:
    raw = random_rows(np.random.default_rng(1), type_, 64, 1024)
    assert same(dequantise(type_, raw), dequantize(raw, GGMLQuantizationType[type_.upper()]))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_short_floats_widen_exactly(type_: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[bits & 0x7F80 != 0x7F80] if type_ == "bf16" else bits[bits & 0x7C00 != 0x7C00]
    raw = bits.reshape(1, -1).view(np.uint8)
    assert same(dequantise(type_, raw), dequantize(raw, GGMLQuantizationType[type_.upper()]))


@pytest.mark.parametrize(("type_", "kept"), PAIRS)
@pytest.mark.parametrize("scales", ["any", "plain"])
def test_every_conversion_keeps_every_value(type_: str, kept: str, scales: str) -> None:
    raw = random_rows(np.random.default_rng(2), type_, 37, 768, scales)
    expected, w = dequantise(type_, raw), matrix(type_, kept, raw)
    assert same(w.f32(), expected)
    assert same(w.f32(5, 9), expected[5:9])
    assert same(w.rows(np.array([36, 0, 3], np.int32)), expected[[36, 0, 3]])
    assert w.nbytes == DTYPES[kept].nbytes(w.shape)


def test_the_choice_of_layouts() -> None:
    chosen = {type_: layout(type_, 512, 1024).name for type_ in supported()}
    assert chosen == {
        "f32": "f32",
        "f16": "f32",
        "bf16": "f32",
        "q4_0": "q4_0",
        "q4_1": "q4_1",
        "q5_0": "q8_0",
        "q5_1": "i8_a",
        "q8_0": "q8_0",
        "q2_k": "i8_a",
        "q3_k": "q6_k",
        "q4_k": "q4_k",
        "q5_k": "i8_a",
        "q6_k": "q6_k",
        "iq4_nl": "q8_0",
        "iq4_xs": "i8_a",
    }


@pytest.mark.parametrize(
    ("type_", "rows", "cols", "kept"),
    [
        ("q4_0", 1024, 511 * 32, "q4_0"),
        ("q4_0", 1024, 512 * 32, "q8_0"),
        ("q4_1", 1024, 512 * 32, "i8_a"),
        ("q4_0", (1 << 18) - 1, 1024, "q4_0"),
        ("q4_0", 1 << 18, 1024, "f32"),
        ("q8_0", 1024, 2047 * 32, "q8_0"),
        ("q8_0", 1024, 2048 * 32, "f32"),
        ("q6_k", 1 << 17, 512 * 32, "f32"),
        ("q4_k", 1024, 256 * 255, "q4_k"),
    ],
)
def test_limits_of_layouts(type_: str, rows: int, cols: int, kept: str) -> None:
    assert layout(type_, rows, cols).name == kept


def test_unsupported_types() -> None:
    assert "iq2_xxs" not in supported() and "mxfp4" not in supported()
    with pytest.raises(ValueError, match="mxfp4"):
        layout("mxfp4", 32, 32)


def test_reasons_for_layouts() -> None:
    assert why("q4_0", DTYPES["q4_0"]) == "as stored" and why("f32", F32) == "as stored"
    assert "f32" in why("bf16", F32) and "limits" in why("q8_0", F32)
    assert all("same values" in why(t, DTYPES[k]) for t, kinds in EXACT.items() for k in kinds if t != k)


@given(arrays(np.float32, (3, 64), elements=WIDE))
def test_quantised_activations_follow_the_definition(x: A) -> None:
    y = quantise(x)
    for t, b, j in np.ndindex(3, 2, 32):
        block = x[t, 32 * b : 32 * b + 32]
        d = np.float32(np.max(np.abs(block)) / np.float32(127))
        assert y.d[t, b] == d
        ratio = Fraction(float(block[j] / d)) if d else Fraction(0)
        away = int(abs(ratio) + Fraction(1, 2))
        assert y.q[t, b, j] == (away if ratio >= 0 else -away)
    assert np.array_equal(y.asum.view(np.int32), y.q.sum(axis=-1, dtype=np.int32))


def test_rounding_of_halves_is_away_from_zero() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [127, 0.5, -0.5, 1.5, -2.5, 0.49999997]
    assert quantise(x).q[0, 0, :6].tolist() == [127, 1, -1, 2, -3, 0]


def test_stored_activations() -> None:
    x = quantise(np.random.default_rng(3).standard_normal((2, 96)).astype(np.float32))
    memory = np.zeros((2, 256), np.uint8)
    views = q8_views(memory[:, :120])
    for view, values in zip(views, x, strict=True):
        view[...] = values
    assert memory[1, 33] == x.q[1, 1, 1].view(np.uint8)
    assert memory[0, 96:108].tobytes() == x.d[0].tobytes()
    assert memory[1, 108:120].tobytes() == x.asum[1].tobytes()
    assert not memory[:, 120:].any()


def test_dense_matrix() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    w = Matrix.dense(values)
    assert w.layout is F32 and w.f32().base is not None
    assert same(w.f32(), values) and same(w.rows(np.array([2])), values[2:])
    assert w.buffers[0].size == 12 and len(w.buffers) == 1
