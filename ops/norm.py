"""Root-mean-square normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.op import Kernel, op

A = np.ndarray[Any, Any]


@op(
    "x: f32[..., N], w: f32[N], eps: float -> y: f32[..., N]",
    kernels=(Kernel("rms_norm", groups="ceil(N, 256)"),),
    epilogues=("quantize",),
    flops="4 * N",
    requires="0 <= eps",
)
def rms_norm(x: A, w: A, eps: float) -> A:
    """y = x / sqrt(mean(x**2) + eps) * w, each token (or head) on its own."""
    mean = np.mean(x * x, axis=-1, keepdims=True)
    y: A = x * (np.float32(1) / np.sqrt(mean + np.float32(eps))) * w
    return y
