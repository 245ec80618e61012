"""Linear maps: the op of graph files, the activations it quantises, and its two matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.ie import ie_rows_per_wg
from graphrun.core.op import Expansion, Kernel, op
from graphrun.core.quant import Q8, Matrix, quantise
from graphrun.core.types import LAYOUTS

A = np.ndarray[Any, Any]

MANY = 1 << 30
TILE = f"M: {ie_rows_per_wg()}"  # of all tokens, but for a gemm
EDGE = 4 * ie_rows_per_wg()  # rows and tokens of a quantised gemm's tile


def _gemm(layout: str) -> Kernel:
    rows, tokens = (ie_rows_per_wg(), 16) if layout == "f32" else (EDGE, EDGE)
    groups, tile = f"ceil(T, {tokens}) * ceil(M, {rows})", f"T: {tokens}, M: {rows}"
    return Kernel(f"gemm_{layout}", groups, (17, MANY), layout, tile)


def _kernels(*layouts: str) -> tuple[Kernel, ...]:
    """One token, a few tokens, and many: a kernel each, for every layout."""
    return tuple(
        kernel
        for layout in layouts
        for kernel in (
            Kernel(f"gemv_{layout}", "ceil(M, 8)", (1, 1), layout, TILE),
            Kernel(f"gemv_{layout}_t", "ceil(M, 8)", (2, 16), layout, TILE),
            _gemm(layout),
        )
    )


@op(
    "x: f32[T, N], w: W[M, N], b?: f32[M] -> y: f32[T, M]",
    expansions=(
        Expansion("xq: quantize(x)\ny: gemv(xq, w, b)", when="Q", rounds=True),
        Expansion("y: gemv_f32(x, w, b)", when="f32"),
    ),
    flops="2 * T * M * N",
)
def linear(x: A, w: Matrix, b: A | None = None) -> A:
    """y = w @ x + b."""
    return gemv_f32(x, w, b)  # type: ignore[no-any-return]


@op(
    "x: f32[..., N] -> y: q8[..., N]",
    kernels=(Kernel("quantize", groups="rows * ceil(N, 256)", tile="rows: 1, N: 256"),),
    flops="4 * N",
    tee=True,
    requires="N % 32 == 0",
)
def quantize(x: A) -> Q8:
    """y = q * d with q = round(x / d) in int8 and d = max|x| / 127, for every 32 channels."""
    return quantise(x)


@op(
    "x: q8[T, N], w: Q[M, N], b?: f32[M] -> y: f32[T, M]",
    kernels=_kernels(*(d.name for d in LAYOUTS)),
    epilogues=("add",),
    flops="2 * T * M * N",
)
def gemv(x: Q8, w: Matrix, b: A | None = None) -> A:
    """y = w @ x + b, integer dot products of 32 weights scaled and summed in f32.

    Each row and token on its own, so a token's result does not depend on the others in the step.
    """
    y = w.product(x)
    return y if b is None else y + b


@op(
    "x: f32[T, N], w: W[M, N], b?: f32[M] -> y: f32[T, M]",
    kernels=(*_kernels("f32"), Kernel("gemv_f32", "ceil(M, 8)", tile=TILE)),
    epilogues=("add",),
    flops="2 * T * M * N",
)
def gemv_f32(x: A, w: Matrix, b: A | None = None) -> A:
    """y = w @ x + b in f32, weights dequantised."""
    y = w.dense_product(x)
    return y if b is None else y + b
