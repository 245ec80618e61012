"""Gates: sigmoid of a second half of the query projection; joining and halving of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.fmath import gated
from graphrun.core.op import Kernel, op

A = np.ndarray[Any, Any]


@op(
    "x: f32[..., N], gate: f32[..., N] -> y: f32[..., N]",
    kernels=(Kernel("sigmoid_gate", groups="rows * ceil(N, 256)", tile="rows: 1, N: 256"),),
    epilogues=("quantize",),
    flops="4 * N",
)
def sigmoid_gate(x: A, gate: A) -> A:
    """y = x / (1 + exp(-gate))."""
    return gated(x, gate)


@op("x: f32[T, H, N] -> a: f32[T, H, N // 2], b: f32[T, H, N // 2]", view=True, requires="N % 2 == 0")
def halves(x: A) -> tuple[A, A]:
    """a, b = the first and the second half of the channels of each head."""
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half : 2 * half]


@op(
    "a: f32[T, N], b: f32[T, M] -> y: f32[T, N + M]",
    kernels=(Kernel("concat", groups="T * ceil(N + M, 256)", tile="T: 1, N + M: 256"),),
    epilogues=("quantize",),
)
def concat(a: A, b: A) -> A:
    """y = the channels of a, then those of b."""
    return np.concatenate([a, b], axis=-1)
