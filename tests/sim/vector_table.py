"""What vector instructions mean, one line an instruction, in numpy: the table that test_vector.py runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = Any  # numpy's types of results do not unite in a table
TYPES: dict[str, Any] = {
    **{"f": np.float32, "h": np.float16, "d": np.float64, "i": np.int32, "u": np.uint32},
    **{"s": np.int16, "t": np.uint16, "I": np.int64, "U": np.uint64, "m": np.bool_},
}


class Case(NamedTuple):
    """`types` is the result, then the sources, by the letters of TYPES; m is a mask of lanes."""

    mnemonic: str
    types: str
    model: Callable[..., Any]


def num_max(a: Array, b: Array) -> Array:
    larger = np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, larger))


def num_min(a: Array, b: Array) -> Array:
    smaller = np.where((a < b) | ((a == b) & np.signbit(a)), a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, smaller))


def nan_max(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a) | np.isnan(b), a + b, num_max(a, b))


def nan_min(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a) | np.isnan(b), a + b, num_min(a, b))


def med3(a: Array, b: Array, c: Array) -> Array:
    some_nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(some_nan, num_min(num_min(a, b), c), num_max(num_min(a, b), num_min(num_max(a, b), c)))


def fma(a: Array, b: Array, c: Array) -> Array:
    """Rounded once: np.longdouble holds products of floats exactly, and a sum's last bits go into an odd last bit."""
    wide = np.longdouble
    product = a.astype(wide) * b.astype(wide)
    total = product + c.astype(wide)
    back = total - product
    rest = (product - (total - back)) + (c.astype(wide) - back)
    nearby = np.nextafter(total, np.where(rest > 0, wide(np.inf), wide(-np.inf)))
    odd = (total.view(np.uint64).reshape(-1, 2)[:, 0] & np.uint64(1)).astype(bool)
    inexact = np.isfinite(rest) & (rest != 0) & ~odd
    return np.where(inexact, nearby, total).astype(a.dtype)


def saturate(x: Array, kind: Any) -> Array:
    limits, wide = np.iinfo(kind), x.astype(np.float64)
    inside = np.clip(np.nan_to_num(np.trunc(wide), posinf=2.0**40, neginf=-(2.0**40)), limits.min, limits.max)
    return inside.astype(np.int64).astype(kind)


def bits(x: Array, kind: Any) -> Array:
    return np.ascontiguousarray(x).view(kind)


def wide(x: Array) -> Array:
    return x.astype(np.int64)


def low24(x: Array) -> Array:
    return (wide(x) << 40) >> 40 if x.dtype == np.int32 else wide(x) & 0xFFFFFF


def bytes_of(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.uint8).reshape(-1, 4).astype(np.int64)


def field(a: Array, at: Array, count: Array) -> list[int]:
    out = []
    for x, o, n in zip(a.tolist(), (at & 31).tolist(), (count & 31).tolist(), strict=True):
        value = (x >> o) & ((1 << n) - 1)
        out.append(value - (1 << n) if a.dtype == np.int32 and n and value >> (n - 1) else value)
    return out


def permuted_bytes(a: Array, b: Array, c: Array) -> list[int]:
    out = []
    for x, y, s in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        data, picked = (x << 32 | y).to_bytes(8, "little"), 0
        for k in range(4):
            n = s >> 8 * k & 255
            byte = data[n] if n < 8 else 0 if n == 12 else 255 if n > 12 else 255 * (data[2 * (n - 8) + 1] >> 7)
            picked |= byte << 8 * k
        out.append(picked)
    return out


def pick(function: Callable[[int], int]) -> Callable[[Array], list[int]]:
    return lambda a: [function(x) for x in a.tolist()]


def ldexp(a: Array, n: Array) -> Array:
    return np.ldexp(a.astype(np.longdouble), np.clip(n, -5000, 5000)).astype(a.dtype)


def mantissa(a: Array) -> Array:
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


def exponent(a: Array) -> Array:
    return np.where(np.isfinite(a), np.frexp(np.where(np.isfinite(a), a, 0))[1], 0)


def fract(a: Array) -> Array:
    return np.minimum(a - np.floor(a), np.nextafter(a.dtype.type(1), a.dtype.type(0)))


def double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


def sine(turns: Array) -> Array:
    r = turns - np.rint(turns)
    return np.sin(2 * np.pi * np.where(np.abs(r) > 0.25, np.copysign(0.5, r) - r, r))


def cosine(turns: Array) -> Array:
    return sine(0.25 - np.abs(turns - np.rint(turns)))


def towards_zero(x: Array) -> Array:
    h = x.astype(np.float16)
    too_far = np.abs(h.astype(np.float64)) > np.abs(x.astype(np.float64))
    return np.where(too_far & ~np.isinf(x), np.nextafter(h, np.float16(0)), h).view(np.uint16).astype(np.uint32)


def classes(kind: str) -> Callable[[Array, Array], Array]:
    def model(a: Array, wanted: Array) -> Array:
        size = {"f": (np.uint32, 22), "h": (np.uint16, 9), "d": (np.uint64, 51)}[kind]
        quiet = (bits(a, size[0]) >> size[0](size[1]) & size[0](1)).astype(bool)
        negative, least = np.signbit(a), np.finfo(a.dtype).smallest_normal
        tests: tuple[Array, ...] = (
            np.isnan(a) & ~quiet,
            np.isnan(a) & quiet,
            np.isinf(a) & negative,
            np.isfinite(a) & negative & (np.abs(a) >= least),
        )
        small = np.isfinite(a) & (a != 0) & (np.abs(a) < least)
        tests += (small & negative, (a == 0) & negative, (a == 0) & ~negative, small & ~negative)
        tests += (np.isfinite(a) & ~negative & (np.abs(a) >= least), np.isinf(a) & ~negative)
        return np.any([test & ((wanted >> n) & 1).astype(bool) for n, test in enumerate(tests)], axis=0)

    return model


def opposite(test: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    return lambda a, b: ~test(a, b)


def comparisons() -> Iterator[Case]:
    relations: dict[str, Callable[[Array, Array], Any]] = {
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "eq": lambda a, b: a == b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
    }

    def unordered(a: Array, b: Array) -> Array:
        return np.isnan(a) | np.isnan(b)

    for kind, letter in {
        "f32": "f",
        "f16": "h",
        "f64": "d",
        "i32": "i",
        "u32": "u",
        "i16": "s",
        "u16": "t",
        "i64": "I",
        "u64": "U",
    }.items():
        table = dict(relations)
        if kind[0] == "f":
            for name in ("lt", "le", "gt", "ge"):
                table["n" + name] = opposite(relations[name])
            table |= {
                "lg": lambda a, b: (a < b) | (a > b),
                "nlg": lambda a, b: ~((a < b) | (a > b)),
                "neq": lambda a, b: a != b,
            }
            table |= {"o": lambda a, b: ~unordered(a, b), "u": unordered}
            yield Case(f"v_cmp_class_{kind}", f"m{letter}u", classes(letter))
        else:
            table["ne"] = lambda a, b: a != b
        for name, test in table.items():
            yield Case(f"v_cmp_{name}_{kind}", f"m{letter}{letter}", test)


def floats() -> Iterator[Case]:
    """Instructions that exist alike for several sizes."""
    for size, t in (("f32", "f"), ("f16", "h"), ("f64", "d")):
        yield Case(f"v_add_{size}", t * 3, lambda a, b: a + b)
        yield Case(f"v_mul_{size}", t * 3, lambda a, b: a * b)
        for name, model in (("max_num", num_max), ("min_num", num_min), ("maximum", nan_max), ("minimum", nan_min)):
            yield Case(f"v_{name}_{size}", t * 3, model)
        for name, unary in (
            ("trunc", np.trunc),
            ("ceil", np.ceil),
            ("floor", np.floor),
            ("rndne", np.rint),
            ("fract", fract),
        ):
            yield Case(f"v_{name}_{size}", t * 2, unary)
        yield Case(f"v_frexp_mant_{size}", t * 2, mantissa)
        yield Case(f"v_ldexp_{size}", t * 2 + ("s" if t == "h" else "i"), ldexp)
    for size, t in (("f32", "f"), ("f16", "h")):
        yield Case(f"v_sub_{size}", t * 3, lambda a, b: a - b)
        yield Case(f"v_subrev_{size}", t * 3, lambda a, b: b - a)
        yield Case(f"v_fma_{size}", t * 4, fma)
        yield Case(f"v_max3_num_{size}", t * 4, lambda a, b, c: num_max(num_max(a, b), c))
        yield Case(f"v_min3_num_{size}", t * 4, lambda a, b, c: num_min(num_min(a, b), c))
        yield Case(f"v_maxmin_num_{size}", t * 4, lambda a, b, c: num_min(num_max(a, b), c))
        yield Case(f"v_minmax_num_{size}", t * 4, lambda a, b, c: num_max(num_min(a, b), c))
        yield Case(f"v_maximum3_{size}", t * 4, lambda a, b, c: nan_max(nan_max(a, b), c))
        yield Case(f"v_minimummaximum_{size}", t * 4, lambda a, b, c: nan_max(nan_min(a, b), c))
        yield Case(f"v_med3_num_{size}", t * 4, med3)
        for name, function in (("exp", np.exp2), ("log", np.log2), ("sqrt", np.sqrt), ("sin", sine), ("cos", cosine)):
            yield Case(f"v_{name}_{size}", t * 2, double(function))
        yield Case(f"v_rcp_{size}", t * 2, double(lambda a: 1 / a))
        yield Case(f"v_rsq_{size}", t * 2, double(lambda a: 1 / np.sqrt(a)))


def half_integers() -> Iterator[Case]:
    for t, name in (("s", "i16"), ("t", "u16")):
        yield Case(f"v_add_nc_{name}", t * 3, lambda a, b: a + b)
        yield Case(f"v_sub_nc_{name}", t * 3, lambda a, b: a - b)
        yield Case(f"v_mad_{name}", t * 4, lambda a, b, c: a * b + c)
        yield Case(f"v_max_{name}", t * 3, np.maximum)
        yield Case(f"v_min_{name}", t * 3, np.minimum)
        yield Case(f"v_max3_{name}", t * 4, lambda a, b, c: np.maximum(np.maximum(a, b), c))
        yield Case(f"v_med3_{name}", t * 4, lambda a, b, c: np.sort([a, b, c], axis=0)[1])
    yield Case("v_mul_lo_u16", "ttt", lambda a, b: a * b)
    yield Case("v_lshlrev_b16", "ttt", lambda a, b: b << (a & 15))
    yield Case("v_lshrrev_b16", "ttt", lambda a, b: b >> (a & 15))
    yield Case("v_ashrrev_i16", "sts", lambda a, b: b >> (a & 15).astype(np.int16))
    yield Case("v_and_b16", "ttt", lambda a, b: a & b)
    yield Case("v_or_b16", "ttt", lambda a, b: a | b)
    yield Case("v_xor_b16", "ttt", lambda a, b: a ^ b)
    yield Case("v_not_b16", "tt", lambda a: ~a)
    yield Case("v_mad_u32_u16", "uttu", lambda a, b, c: a.astype(np.uint32) * b + c)
    yield Case("v_mad_i32_i16", "issi", lambda a, b, c: a.astype(np.int32) * b + c)


def exact_fma(a: Array, b: Array, c: Array) -> list[float]:
    """Of doubles, by rational numbers."""
    out = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        if not all(map(math.isfinite, (x, y, z))):
            out.append(x * y + z)
            continue
        total = Fraction(x) * Fraction(y) + Fraction(z)
        try:
            out.append(float(total) if total else x * y + z)
        except OverflowError:
            out.append(math.inf if total > 0 else -math.inf)
    return out
