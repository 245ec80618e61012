"""Elementary functions as fixed sequences of f32 operations, so that every device gives their bits.

Each step is one f32 product, sum, quotient or square root, rounded once and never fused, or an operation on the bits
of a number; kernels/fmath.h has the same steps. Errors are those against the exact function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

A = np.ndarray[Any, Any]
f32 = np.float32

BLOCK = 1 << 13

LEAST, MOST = f32(-104), f32(89)  # exp is 0 below and infinite above
LOG2_E = f32(float.fromhex("0x1.715476p+0"))
LN2_HIGH = f32(355 / 512)  # so short that its products with whole numbers up to 150 are exact
LN2_LOW = f32(float.fromhex("-0x1.bd0106p-13"))
WHOLE = f32(3 << 22)  # f32 of this size have steps of 1: adding it rounds to a whole number
# (exp(r) - 1 - r) / r^2 on [-ln(2)/2, ln(2)/2], fitted at Chebyshev nodes; highest power first.
EXP = tuple(
    f32(float.fromhex(c))
    for c in ("0x1.a151bcp-13", "0x1.6d4366p-10", "0x1.1110c6p-7", "0x1.5554e8p-5", "0x1.555556p-3", "0x1p-1")
)
# (log(1 + u) / (2 s) - 1) / s^2 with s = u / (2 + u), as a polynomial of s^2 on [0, 1/9].
LOG = tuple(
    f32(float.fromhex(c)) for c in ("0x1.dbf2aep-4", "0x1.bc7b44p-4", "0x1.24c9c2p-3", "0x1.9998d2p-3", "0x1.555556p-2")
)


def _in_blocks(function: Callable[..., A]) -> Callable[..., A]:
    """The function for arrays of one shape, computed a block of elements at a time, which stay in the cache."""

    @wraps(function)
    def run(*arrays: A) -> A:
        if arrays[0].size <= BLOCK:
            return function(*arrays)
        flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
        result = np.empty(flat[0].size, f32)
        for start in range(0, result.size, BLOCK):
            block = slice(start, start + BLOCK)
            result[block] = function(*(a[block] for a in flat))
        return result.reshape(arrays[0].shape)

    return run


@_in_blocks
def exp(x: A) -> A:
    """e^x within 1 ulp, subnormal results rounded once; 1 for 0, inf and 0 beyond the range, nan for nan.

    x = n ln(2) + r, n whole; then 2^n (1 + r + r^2 p(r)), where 2^n is two factors for results that are subnormal.
    """
    x = np.minimum(np.maximum(x, LEAST), MOST)
    shifted = x * LOG2_E
    shifted += WHOLE
    n = shifted - WHOLE
    r = n * LN2_HIGH
    np.subtract(x, r, out=r)
    n *= LN2_LOW
    r -= n
    p = r * EXP[0]
    for c in EXP[1:-1]:
        p += c
        p *= r
    p += EXP[-1]
    p *= np.multiply(r, r, out=n)
    p += r
    p += f32(1)
    whole = shifted.view(np.int32) - WHOLE.view(np.int32)
    half = whole >> 1
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        p *= _power(half)
        p *= _power(whole - half)
    return p


def _power(n: A) -> A:
    """2^n, for n that are exponents of normal numbers."""
    return ((n + 127) << 23).view(f32)


@_in_blocks
def gated(x: A, gate: A) -> A:
    """x / (1 + exp(-gate)) of two arrays of one shape, within 3 ulp; 0 where exp overflows, below -88.8."""
    below = exp(-gate)
    below += f32(1)
    with np.errstate(under="ignore", invalid="ignore"):
        return np.divide(x, below, out=below)


def sigmoid(x: A) -> A:
    """1 / (1 + exp(-x))."""
    return gated(np.ones_like(x), x)


def silu(x: A) -> A:
    """x / (1 + exp(-x))."""
    return gated(x, x)


def softplus(x: A) -> A:
    """log(1 + exp(x)) = max(x, 0) + log(1 + u) with u = exp(-|x|), within 3 ulp; the latter by s = u / (2 + u)."""
    u = exp(-np.abs(x))
    s = u / (f32(2) + u)
    z = s * s
    p = z * LOG[0]
    for c in LOG[1:-1]:
        p += c
        p *= z
    p += LOG[-1]
    p *= z
    s += s
    p *= s
    p += s
    return np.maximum(x, f32(0)) + p


def widened(x: A) -> A:
    """f32 of f16, or of f32; the same values as `astype`, sooner."""
    if x.dtype != np.float16:
        return np.asarray(x, f32)
    bits = x.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # sign, exponent and mantissa
    wide = bits.view(f32)
    wide *= f32(2.0**112)  # the difference of the two exponents' offsets
    finite = wide.max(initial=0) < 65536 and wide.min(initial=0) > -65536
    return wide if finite else x.astype(f32)
