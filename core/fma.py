"""f32 fused multiply-add, a * b + c with one rounding, which numpy does not have.

The product of two f32 is exact in f64. Rounding the f64 sum once more to f32 is right unless that sum lies
exactly half-way between two f32, or the result is subnormal in f32; there the sum is first moved to the
neighbour with an odd last bit, in the direction of its exact error (rounding to odd).
"""

from __future__ import annotations

from typing import Any

import numpy as np

A = np.ndarray[Any, Any]

# An f64 is half-way between two normal f32 if its low 29 bits are 1 and 28 zeros. Shifted left, they are this.
_LOW_BITS = 64 - 29
_HALF_WAY = np.iinfo(np.int64).min


def fma(a: A, b: A, c: A) -> A:
    """f32(a * b + c) with one rounding, for any f32 arrays that broadcast; always a new array."""
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    total = np.array(np.broadcast_to(c, shape), np.float32, order="C")
    product = np.ascontiguousarray(np.broadcast_to(np.multiply(a, b, dtype=np.float64), shape))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        fma_into(product, total, np.empty((2, *shape)), careful=True)
    return total


def fma_into(product: A, total: A, scratch: A, careful: bool) -> None:
    """total = f32(product + total) with one rounding, for products of two f32 given exactly in f64.

    All arrays are contiguous; scratch: f64[2, ...] for intermediate values. `careful` False saves time where every
    product is a multiple of the smallest subnormal f32, 2^-149: sums in the subnormal range are exact then.
    """
    wide, bits = scratch[0], scratch[1].view(np.int64)
    np.copyto(wide, total)
    wide += product
    np.left_shift(wide.view(np.int64), _LOW_BITS, out=bits)
    if careful or bits.min(initial=0) == _HALF_WAY:
        suspect = bits == _HALF_WAY
        if careful:
            suspect |= np.abs(wide) < np.finfo(np.float32).smallest_normal
        at = np.flatnonzero(suspect)
        flat = wide.reshape(-1)
        flat[at] = _round_to_odd(product.reshape(-1)[at], total.reshape(-1)[at].astype(np.float64), flat[at])
    total[...] = wide


def _round_to_odd(a: A, b: A, s: A) -> A:
    """The f64 neighbour of a + b with an odd last bit, where s = f64(a + b) is inexact; overwrites s."""
    rest = s - a
    error = (a - (s - rest)) + (b - rest)  # exact: two-sum
    at = np.flatnonzero(error)  # few: most half-way sums are exact, and rounding those to even is right
    near, away = s[at], np.copysign(np.inf, error[at])
    s[at] = np.where(near.view(np.int64) & 1, near, np.nextafter(near, away))
    return s
