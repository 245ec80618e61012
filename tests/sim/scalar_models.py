"""What scalar integer instructions give, in Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
Result = tuple[int, int | None]  # value, and SCC unless it stays


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def with_scc(x: int, bits: int = 32) -> Result:
    x &= (1 << bits) - 1
    return x, int(x != 0)


def fits(x: int) -> int:
    return int(x == signed(x))


def bit_field(a: int, b: int, bits: int, extend: bool) -> Result:
    width = b >> 16 & 127
    value = (signed(a, bits) if extend else a) >> (b & (bits - 1)) & ((1 << width) - 1)
    return with_scc(signed(value, width) if extend and width else value, bits)


def leading(x: int, bits: int) -> int:
    return bits - x.bit_length() if x else -1


def sign_run(x: int, bits: int) -> int:
    text = f"{x:0{bits}b}"
    run_length = len(text) - len(text.lstrip(text[0]))
    return -1 if run_length == bits else run_length


def quads(x: int, bits: int, whole: bool) -> int:
    return sum((15 << k if whole else 1 << (k // 4)) for k in range(0, bits, 4) if x >> k & 15)


def reverse(x: int, bits: int) -> int:
    return int(f"{x:0{bits}b}"[::-1], 2)


# Sizes in bits of destination and sources, and the result of sources a, b, of SCC, and of the old destination.
Rule = Callable[[int, int, int, int], Result]
Model = tuple[str, Rule]
MODELS: dict[str, Model] = {  # by mnemonic
    "s_add_co_u32": ("32 32 32", lambda a, b, c, d: (a + b, (a + b) >> 32)),
    "s_sub_co_u32": ("32 32 32", lambda a, b, c, d: (a - b, int(b > a))),
    "s_add_co_i32": ("32 32 32", lambda a, b, c, d: (a + b, 1 - fits(signed(a) + signed(b)))),
    "s_sub_co_i32": ("32 32 32", lambda a, b, c, d: (a - b, 1 - fits(signed(a) - signed(b)))),
    "s_add_co_ci_u32": ("32 32 32", lambda a, b, c, d: (a + b + c, (a + b + c) >> 32)),
    "s_sub_co_ci_u32": ("32 32 32", lambda a, b, c, d: (a - b - c, int(b + c > a))),
    "s_add_nc_u64": ("64 64 64", lambda a, b, c, d: (a + b, None)),
    "s_sub_nc_u64": ("64 64 64", lambda a, b, c, d: (a - b, None)),
    "s_mul_u64": ("64 64 64", lambda a, b, c, d: (a * b, None)),
    "s_mul_i32": ("32 32 32", lambda a, b, c, d: (a * b, None)),
    "s_mul_hi_u32": ("32 32 32", lambda a, b, c, d: (a * b >> 32, None)),
    "s_mul_hi_i32": ("32 32 32", lambda a, b, c, d: (signed(a) * signed(b) >> 32, None)),
    "s_absdiff_i32": ("32 32 32", lambda a, b, c, d: with_scc(abs(signed(signed(a) - signed(b))))),
    "s_min_i32": ("32 32 32", lambda a, b, c, d: (min(signed(a), signed(b)), int(signed(a) < signed(b)))),
    "s_max_i32": ("32 32 32", lambda a, b, c, d: (max(signed(a), signed(b)), int(signed(a) >= signed(b)))),
    "s_min_u32": ("32 32 32", lambda a, b, c, d: (min(a, b), int(a < b))),
    "s_max_u32": ("32 32 32", lambda a, b, c, d: (max(a, b), int(a >= b))),
    "s_bfm_b32": ("32 32 32", lambda a, b, c, d: (((1 << (a & 31)) - 1) << (b & 31), None)),
    "s_bfm_b64": ("64 32 32", lambda a, b, c, d: (((1 << (a & 63)) - 1) << (b & 63), None)),
    "s_bfe_u32": ("32 32 32", lambda a, b, c, d: bit_field(a, b, 32, False)),
    "s_bfe_i32": ("32 32 32", lambda a, b, c, d: bit_field(a, b, 32, True)),
    "s_bfe_u64": ("64 64 32", lambda a, b, c, d: bit_field(a, b, 64, False)),
    "s_bfe_i64": ("64 64 32", lambda a, b, c, d: bit_field(a, b, 64, True)),
    "s_cselect_b32": ("32 32 32", lambda a, b, c, d: (a if c else b, None)),
    "s_cselect_b64": ("64 64 64", lambda a, b, c, d: (a if c else b, None)),
    "s_pack_ll_b32_b16": ("32 32 32", lambda a, b, c, d: (a & 0xFFFF | b << 16, None)),
    "s_pack_lh_b32_b16": ("32 32 32", lambda a, b, c, d: (a & 0xFFFF | b >> 16 << 16, None)),
    "s_pack_hh_b32_b16": ("32 32 32", lambda a, b, c, d: (a >> 16 | b >> 16 << 16, None)),
    "s_pack_hl_b32_b16": ("32 32 32", lambda a, b, c, d: (a >> 16 | b << 16, None)),
    "s_cmov_b32": ("32 32", lambda a, b, c, d: (a if c else d, None)),
    "s_cmov_b64": ("64 64", lambda a, b, c, d: (a if c else d, None)),
    "s_abs_i32": ("32 32", lambda a, b, c, d: with_scc(abs(signed(a)))),
    "s_sext_i32_i8": ("32 32", lambda a, b, c, d: (signed(a, 8), None)),
    "s_sext_i32_i16": ("32 32", lambda a, b, c, d: (signed(a, 16), None)),
    "s_bitset0_b32": ("32 32", lambda a, b, c, d: (d & ~(1 << (a & 31)), None)),
    "s_bitset1_b32": ("32 32", lambda a, b, c, d: (d | 1 << (a & 31), None)),
    "s_bitset0_b64": ("64 32", lambda a, b, c, d: (d & ~(1 << (a & 63)), None)),
    "s_bitset1_b64": ("64 32", lambda a, b, c, d: (d | 1 << (a & 63), None)),
    "s_bitreplicate_b64_b32": ("64 32", lambda a, b, c, d: (int("".join(x + x for x in f"{a:032b}"), 2), None)),
    "s_cvt_f32_i32": (
        "32 32",
        lambda a, b, c, d: (int(np.array(signed(a), np.int32).astype(np.float32).view(np.uint32)), None),
    ),
    "s_cvt_f32_u32": (
        "32 32",
        lambda a, b, c, d: (int(np.array(a, np.uint32).astype(np.float32).view(np.uint32)), None),
    ),
}
LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
}


def logic(name: str, n: int) -> Rule:
    return lambda a, b, c, d: with_scc(LOGIC[name](a, b), n)


def shifted_add(n: int) -> Rule:
    return lambda a, b, c, d: ((a << n) + b, int((a << n) + b > MASK32))


def sized(n: int) -> dict[str, Model]:
    """Instructions that exist for 32 and 64 bits."""
    same, shift = f"{n} {n}", f"{n} {n} 32"
    return {f"s_{name}_b{n}": (f"{n} {n} {n}", logic(name, n)) for name in LOGIC} | {
        f"s_lshl_b{n}": (shift, lambda a, b, c, d: with_scc(a << (b & (n - 1)), n)),
        f"s_lshr_b{n}": (shift, lambda a, b, c, d: with_scc(a >> (b & (n - 1)), n)),
        f"s_ashr_i{n}": (shift, lambda a, b, c, d: with_scc(signed(a, n) >> (b & (n - 1)), n)),
        f"s_mov_b{n}": (same, lambda a, b, c, d: (a, None)),
        f"s_not_b{n}": (same, lambda a, b, c, d: with_scc(~a, n)),
        f"s_brev_b{n}": (same, lambda a, b, c, d: (reverse(a, n), None)),
        f"s_quadmask_b{n}": (same, lambda a, b, c, d: with_scc(quads(a, n, False), n)),
        f"s_wqm_b{n}": (same, lambda a, b, c, d: with_scc(quads(a, n, True), n)),
        f"s_bcnt0_i32_b{n}": (f"32 {n}", lambda a, b, c, d: with_scc(n - a.bit_count())),
        f"s_bcnt1_i32_b{n}": (f"32 {n}", lambda a, b, c, d: with_scc(a.bit_count())),
        f"s_ctz_i32_b{n}": (f"32 {n}", lambda a, b, c, d: ((a & -a).bit_length() - 1, None)),
        f"s_clz_i32_u{n}": (f"32 {n}", lambda a, b, c, d: (leading(a, n), None)),
    }


MODELS |= {f"s_lshl{n}_add_u32": ("32 32 32", shifted_add(n)) for n in (1, 2, 3, 4)} | sized(32) | sized(64)
MODELS["s_cls_i32"] = ("32 32", lambda a, b, c, d: (sign_run(a, 32), None))
MODELS["s_cls_i32_i64"] = ("32 64", lambda a, b, c, d: (sign_run(a, 64), None))
