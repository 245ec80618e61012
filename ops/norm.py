"""Root-mean-square normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.op import Kernel, op
from graphrun.core.order import group_sum

A = np.ndarray[Any, Any]


@op(
    "x: f32[..., N], w: f32[N], eps: float -> y: f32[..., N]",
    kernels=(Kernel("rms_norm", groups="rows * ceil(N, 256)", tile="rows: 1, N: 256"),),
    epilogues=("quantize",),
    flops="4 * N",
    requires="0 <= eps",
)
def rms_norm(x: A, w: A, eps: float) -> A:
    """y = x * (1 / sqrt(mean(x**2) + eps)) * w, each token (or head) on its own.

    The sum of squares is a workgroup's (core/order.py).
    """
    y: A = x * inverse_rms(x, eps)[..., None] * w
    return y


def inverse_rms(x: A, eps: float) -> A:
    """1 / sqrt(sum x**2 / N + eps) over the last dimension."""
    mean = group_sum(x * x) / np.float32(x.shape[-1])
    result: A = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return result
