"""The choice of a token."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.op import Kernel, op

A = np.ndarray[Any, Any]


@op(
    "x: f32[R, V] -> y: i32[R]",
    kernels=(Kernel("argmax", groups="R * 128", tile="R: 1", split="128", scratch="R * 128 * 2", limits="R <= 16384"),),
    flops="R * V",
)
def argmax(x: A) -> A:
    """y = index of the largest value of each row, the smallest index among equals."""
    y: A = np.argmax(x, axis=-1).astype(np.int32)
    return y
