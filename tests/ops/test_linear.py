"""Quantised products against a word-for-word model, and the promise that tokens do not influence each other."""

from __future__ import annotations

import numpy as np
import pytest
from quant_cases import F16_AT, FULL, A, literal_gemv, matrix, random_rows, same, token

from graphrun.core import dots, quant, tiles
from graphrun.core.blocks import BLOCKS
from graphrun.core.quant import Q8, Matrix
from graphrun.core.workers import Workers
from graphrun.ops.linear import gemv, gemv_f32, linear, quantize

F = np.float32
SHAPES = {32: [(40, 1, 2), (5, 2, 5), (3, 18, 2), (2, 31, 2), (1, 32, 17), (3, 33, 2), (2, 48, 1), (2, 65, 2)]}
SHAPES[256] = [(40, 8, 1), (3, 24, 5), (1, 32, 17), (3, 40, 2), (2, 72, 2)]
CASES = [(layout, *shape) for layout in FULL for shape in SHAPES[256 if layout in ("q4_k", "q6_k", "i8_a") else 32]]


def weights(layout: str, rows: int, nb: int, scales: str = "plain", seed: int = 0) -> Matrix:
    type_ = FULL[layout]
    return matrix(type_, layout, random_rows(np.random.default_rng(seed), type_, rows, 32 * nb, scales))


def tokens(count: int, nb: int, seed: int = 1) -> Q8:
    """Tokens with blocks of zeros and scales that differ by orders of magnitude."""
    rng = np.random.default_rng(seed)
    x: A = rng.standard_normal((count, nb, 32)) * 10.0 ** rng.integers(-6, 6, (count, nb, 1))
    x[:, ::7] = 0
    return quantize(x.reshape(count, -1).astype(F))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("layout", "rows", "nb", "count"), CASES)
def test_the_literal_model(layout: str, rows: int, nb: int, count: int) -> None:
    w, x = weights(layout, rows, nb), tokens(count, nb)
    assert same(gemv(x, w), literal_gemv(w, x))


@pytest.mark.parametrize("layout", FULL)
def test_the_literal_model_with_any_scales(layout: str) -> None:
    w, x = weights(layout, 4, 40, "any"), tokens(3, 40)
    assert same(gemv(x, w), literal_gemv(w, x))


@pytest.mark.parametrize("layout", FULL)
def test_sums_in_the_subnormal_range(layout: str) -> None:
    w, x = weights(layout, 4, 40), tokens(3, 40)
    scales = np.random.default_rng(2).random((3, 40))
    tiny = Q8(x.q, (scales * 2.0**-135).astype(F), x.asum)
    assert same(gemv(tiny, w), literal_gemv(w, tiny))


def test_extreme_integers() -> None:
    raw = random_rows(np.random.default_rng(0), "q8_0", 2, 64, "plain")
    raw.reshape(-1, 34)[:, 2:] = 0x80
    w = matrix("q8_0", "q8_0", raw)
    x = Q8(np.full((1, 2, 32), 127, np.int8), np.ones((1, 2), F), np.full((1, 2), 32 * 127, np.uint32))
    assert same(gemv(x, w), literal_gemv(w, x))


@pytest.mark.parametrize("layout", FULL)
def test_scales_that_are_not_finite_show_up_in_the_result(layout: str) -> None:
    raw = random_rows(np.random.default_rng(0), FULL[layout], 2, 256, "plain")
    block = raw[1, : BLOCKS[FULL[layout]][1]]
    at = F16_AT[FULL[layout]][0]
    block[at : at + 2] = [0, 0x7C]
    w = matrix(FULL[layout], layout, raw)
    y = gemv(tokens(3, 8), w)
    assert np.all(np.isfinite(y[:, 0])) and not np.any(np.isfinite(y[:, 1]))
    assert not np.all(np.isfinite(w.f32()))


def test_activations_that_are_not_finite_show_up_in_the_result() -> None:
    x = np.ones((3, 64), F)
    x[1, 40], x[2, 3] = np.inf, np.nan
    y = gemv(quantize(x), weights("q4_1", 4, 2))
    assert np.all(np.isfinite(y[0])) and not np.any(np.isfinite(y[1:]))


@pytest.mark.parametrize("layout", FULL)
def test_zeros_are_positive(layout: str) -> None:
    w = weights(layout, 3, 64)
    zero = quantize(np.zeros((2, 64 * 32), F))
    assert same(gemv(zero, w), np.zeros((2, 3), F))


@pytest.mark.parametrize("layout", FULL)
def test_a_token_does_not_depend_on_the_others(layout: str) -> None:
    w, x = weights(layout, 300, 40), tokens(300, 40)
    together = gemv(x, w)
    for t in range(0, 300, 23):
        assert same(together[t : t + 1], gemv(token(x, t), w))
    few = Q8(x.q[7:19], x.d[7:19], x.asum[7:19])
    assert same(together[7:19], gemv(few, w))


@pytest.mark.parametrize("layout", FULL)
@pytest.mark.parametrize("count", [1, 40])
def test_neither_threads_nor_kept_operands_change_results(
    layout: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quant, "WORTH_SHARING", 1)
    w, x = weights(layout, 1025, 8), tokens(count, 8)
    expected = gemv(x, w)
    w.workers = Workers(3)
    assert same(gemv(x, w), expected)
    w.expand()
    assert same(gemv(x, w), expected)
    monkeypatch.setattr(dots, "CELLS", 3000)
    assert same(gemv(x, w), expected)


@pytest.mark.parametrize("layout", FULL)
def test_a_row_does_not_depend_on_the_others(layout: str) -> None:
    type_ = FULL[layout]
    raw, x = random_rows(np.random.default_rng(0), type_, 700, 256, "plain"), tokens(2, 8)
    whole, part = matrix(type_, layout, raw), matrix(type_, layout, raw[290:513])
    assert same(gemv(x, whole)[:, 290:513], gemv(x, part))


@pytest.mark.parametrize("rows", [1, 7, 256, 257, 511, 513, 1001])
def test_tiles_cover_every_row_once(rows: int) -> None:
    covered = [r for band in tiles.bands(rows) for b in band.cut(2) for r in range(b.first, b.stop)]
    assert covered == list(range(rows))
    assert all(band.rows <= tiles.TILE_ROWS for band in tiles.bands(rows))


def test_bias_is_added_last() -> None:
    w, x, b = weights("q4_1", 5, 2), tokens(3, 2), np.arange(5, dtype=F)
    assert same(gemv(x, w, b), gemv(x, w) + b)
    y = np.random.default_rng(3).standard_normal((3, 64)).astype(F)
    assert same(gemv_f32(y, w, b), gemv_f32(y, w) + b)


def literal_dense(w: A, x: A) -> A:
    result = np.empty((len(x), len(w)), F)
    for t, r in np.ndindex(*result.shape):
        lanes = [F(0)] * 32
        for i in range(w.shape[1]):
            lanes[i % 32] = lanes[i % 32] + w[r, i] * x[t, i]
        for offset in (16, 8, 4, 2, 1):
            lanes = [lanes[i] + lanes[i + offset] for i in range(offset)]
        result[t, r] = lanes[0]
    return result


@pytest.mark.parametrize(("rows", "cols", "count"), [(40, 1, 2), (5, 31, 1), (4, 32, 17), (3, 33, 2), (2, 100, 9)])
def test_float_products(rows: int, cols: int, count: int) -> None:
    rng = np.random.default_rng(4)
    values, x = rng.standard_normal((rows, cols)).astype(F), rng.standard_normal((count, cols)).astype(F)
    w = Matrix.dense(values)
    expected = literal_dense(values, x)
    assert same(gemv_f32(x, w), expected) and same(linear(x, w), expected)
    w.expand()
    assert same(gemv_f32(x, w), expected)


@pytest.mark.parametrize("layout", FULL)
def test_float_products_dequantise(layout: str) -> None:
    w = weights(layout, 300, 8)
    x = np.random.default_rng(5).standard_normal((40, 256)).astype(F)
    y = gemv_f32(x, w)
    ordered = gemv_f32(x, Matrix.dense(w.f32()))
    assert np.max(np.abs(y - ordered)) < 1e-6 * np.max(np.abs(ordered))
    assert same(y[3:4], gemv_f32(x[3:4], w))
    w.expand()
    assert same(gemv_f32(x, w), y)


@pytest.mark.parametrize("layout", FULL)
def test_quantised_products_approximate_float_products(layout: str) -> None:
    w = weights(layout, 64, 16)
    x = np.random.default_rng(6).standard_normal((4, 512)).astype(F)
    exact = x.astype(np.float64) @ w.f32().astype(np.float64).T
    assert np.max(np.abs(gemv(quantize(x), w) - exact)) < 0.02 * np.max(np.abs(exact))


def test_signatures_and_kernels() -> None:
    assert [e.when for e in linear.expansions] == ["Q", "f32"] and linear.expansions[0].rounds
    names = {k.name: k for k in gemv.kernels}
    assert names["gemv_q4_0"].tokens == (1, 1) and names["gemv_q4_0_t"].tokens == (2, 16)
    assert names["gemm_i8_a"].tokens[0] == 17 and names["gemm_i8_a"].weight == "i8_a"
    assert {k.name for k in gemv_f32.kernels} == {"gemv_f32", "gemv_f32_t", "gemm_f32"}
    assert gemv.epilogues == gemv_f32.epilogues == ("add",) and quantize.tee


def test_workers_raise_what_a_thread_raised() -> None:
    def fail(items: object) -> None:
        raise KeyError("seven")

    with pytest.raises(KeyError, match="seven"):
        Workers(2).share(fail, [1, 2])
