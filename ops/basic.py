"""Embedding, elementwise sums and products, the SwiGLU activation, and views."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.fmath import silu
from graphrun.core.op import Kernel, op
from graphrun.core.quant import Matrix

A = np.ndarray[Any, Any]


@op(
    "tokens: i32[T], w: W[V, N] -> x: f32[T, N]",
    kernels=(Kernel("embed", groups="T", tile="T: 1"),),
    reads="4 * T * N",
)
def embed(tokens: A, w: Matrix) -> A:
    """x_t = row tokens_t of w, dequantised."""
    return w.rows(tokens)


@op(
    "x: f32[..., N], y: f32[..., N] -> z: f32[..., N]",
    kernels=(Kernel("add", groups="rows * ceil(N, 256)", tile="rows: 1, N: 256"),),
    flops="N",
)
def add(x: A, y: A) -> A:
    """z = x + y."""
    return x + y


@op(
    "x: f32[..., N], y: f32[..., N] -> z: f32[..., N]",
    kernels=(Kernel("mul", groups="rows * ceil(N, 256)", tile="rows: 1, N: 256"),),
    flops="N",
)
def mul(x: A, y: A) -> A:
    """z = x * y."""
    return x * y


@op(
    "gate: f32[T, N], up: f32[T, N] -> y: f32[T, N]",
    kernels=(Kernel("swiglu", groups="T * ceil(N, 256)", tile="T: 1, N: 256"),),
    epilogues=("quantize",),
    flops="6 * T * N",
)
def swiglu(gate: A, up: A) -> A:
    """y = gate / (1 + exp(-gate)) * up."""
    y = silu(gate)
    y *= up
    return y


@op("x: f32[T, N], n: int -> y: f32[T, n, N // n]", view=True, requires="N % n == 0")
def heads(x: A, n: int) -> A:
    """y = x, its channels split into n heads."""
    return x.reshape(x.shape[0], n, x.shape[1] // n)


@op("x: f32[T, H, D] -> y: f32[T, H * D]", view=True)
def flat(x: A) -> A:
    """y = x, the channels of all heads in one row."""
    return x.reshape(x.shape[0], -1)


@op("x: f32[T, N] -> y: f32[1, N]", view=True)
def last(x: A) -> A:
    """y = the last row of x."""
    return x[-1:]
