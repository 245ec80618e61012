"""The table of vector instructions, continued: 32-bit integers, conversions, 64 bits; CASES is all of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import sim.vector_table as t
from sim.vector_table import Case


def integers() -> Iterator[Case]:
    yield Case("v_mov_b32", "uu", lambda a: a)
    yield Case("v_not_b32", "uu", lambda a: ~a)
    yield Case("v_bfrev_b32", "uu", t.pick(lambda x: int(f"{x:032b}"[::-1], 2)))
    yield Case("v_clz_i32_u32", "iu", t.pick(lambda x: 32 - x.bit_length() if x else -1))
    yield Case("v_ctz_i32_b32", "iu", t.pick(lambda x: (x & -x).bit_length() - 1))
    yield Case("v_cls_i32", "ii", t.pick(lambda x: -1 if x in (0, -1) else 32 - (x ^ (x >> 31)).bit_length()))
    yield Case("v_add_nc_u32", "uuu", lambda a, b: a + b)
    yield Case("v_add_nc_i32", "iii", lambda a, b: a + b)
    yield Case("v_sub_nc_u32", "uuu", lambda a, b: a - b)
    yield Case("v_sub_nc_i32", "iii", lambda a, b: a - b)
    yield Case("v_subrev_nc_u32", "uuu", lambda a, b: b - a)
    yield Case("v_lshlrev_b32", "uuu", lambda a, b: b << (a & 31))
    yield Case("v_lshrrev_b32", "uuu", lambda a, b: b >> (a & 31))
    yield Case("v_ashrrev_i32", "iii", lambda a, b: b >> (a & 31))
    yield Case("v_and_b32", "uuu", lambda a, b: a & b)
    yield Case("v_or_b32", "uuu", lambda a, b: a | b)
    yield Case("v_xor_b32", "uuu", lambda a, b: a ^ b)
    yield Case("v_xnor_b32", "uuu", lambda a, b: ~(a ^ b))


def signed_and_unsigned() -> Iterator[Case]:
    for name, letter in (("i32", "i"), ("u32", "u")):
        yield Case(f"v_max_{name}", letter * 3, np.maximum)
        yield Case(f"v_min_{name}", letter * 3, np.minimum)
        yield Case(f"v_max3_{name}", letter * 4, lambda a, b, c: np.maximum(np.maximum(a, b), c))
        yield Case(f"v_min3_{name}", letter * 4, lambda a, b, c: np.minimum(np.minimum(a, b), c))
        yield Case(f"v_med3_{name}", letter * 4, lambda a, b, c: np.sort([a, b, c], axis=0)[1])
        yield Case(f"v_maxmin_{name}", letter * 4, lambda a, b, c: np.minimum(np.maximum(a, b), c))
        yield Case(f"v_minmax_{name}", letter * 4, lambda a, b, c: np.maximum(np.minimum(a, b), c))
        yield Case(f"v_bfe_{name}", letter + letter + "uu", t.field)
        yield Case(
            f"v_mul_hi_{name}",
            letter * 3,
            lambda a, b: [x * y >> 32 for x, y in zip(a.tolist(), b.tolist(), strict=True)],
        )
        yield Case(f"v_mul_{name}_{name[0]}24", letter * 3, lambda a, b: t.low24(a) * t.low24(b))
        yield Case(f"v_mul_hi_{name}_{name[0]}24", letter * 3, lambda a, b: t.low24(a) * t.low24(b) >> 32)
        yield Case(f"v_mad_{name}_{name[0]}24", letter * 4, lambda a, b, c: t.low24(a) * t.low24(b) + c)


def combined() -> Iterator[Case]:
    u32 = np.uint32
    yield Case("v_mul_lo_u32", "uuu", lambda a, b: a * b)
    yield Case("v_add3_u32", "uuuu", lambda a, b, c: a + b + c)
    yield Case("v_lshl_add_u32", "uuuu", lambda a, b, c: (a << (b & 31)) + c)
    yield Case("v_add_lshl_u32", "uuuu", lambda a, b, c: (a + b) << (c & 31))
    yield Case("v_lshl_or_b32", "uuuu", lambda a, b, c: (a << (b & 31)) | c)
    yield Case("v_and_or_b32", "uuuu", lambda a, b, c: (a & b) | c)
    yield Case("v_or3_b32", "uuuu", lambda a, b, c: a | b | c)
    yield Case("v_xor3_b32", "uuuu", lambda a, b, c: a ^ b ^ c)
    yield Case("v_xad_u32", "uuuu", lambda a, b, c: (a ^ b) + c)
    yield Case("v_bfi_b32", "uuuu", lambda a, b, c: (a & b) | (~a & c))
    yield Case("v_bfm_b32", "uuu", lambda a, b: ((u32(1) << (a & 31)) - u32(1)) << (b & 31))
    yield Case(
        "v_alignbit_b32",
        "uuuu",
        lambda a, b, c: [
            (x << 32 | y) >> (z & 31) & 0xFFFFFFFF for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        ],
    )
    yield Case(
        "v_alignbyte_b32",
        "uuuu",
        lambda a, b, c: [
            (x << 32 | y) >> 8 * (z & 3) & 0xFFFFFFFF
            for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        ],
    )


def bytewise() -> Iterator[Case]:
    u32 = np.uint32
    yield Case("v_perm_b32", "uuuu", t.permuted_bytes)
    yield Case("v_bcnt_u32_b32", "uuu", lambda a, b: np.bitwise_count(a) + b)
    yield Case(
        "v_mbcnt_lo_u32_b32",
        "uuu",
        lambda a, b: np.bitwise_count(a & ((u32(1) << np.arange(32, dtype=u32)) - u32(1))) + b,
    )
    yield Case("v_mbcnt_hi_u32_b32", "uuu", lambda a, b: b)
    yield Case("v_sad_u8", "uuuu", lambda a, b, c: np.abs(t.bytes_of(a) - t.bytes_of(b)).sum(1) + c)
    yield Case(
        "v_msad_u8", "uuuu", lambda a, b, c: (np.abs(t.bytes_of(a) - t.bytes_of(b)) * (t.bytes_of(b) != 0)).sum(1) + c
    )
    yield Case("v_sad_hi_u8", "uuuu", lambda a, b, c: (np.abs(t.bytes_of(a) - t.bytes_of(b)).sum(1) << 16) + c)
    yield Case("v_sad_u32", "uuuu", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)
    yield Case(
        "v_sad_u16",
        "uuuu",
        lambda a, b, c: abs(t.wide(a >> 16) - t.wide(b >> 16)) + abs(t.wide(a & 0xFFFF) - t.wide(b & 0xFFFF)) + c,
    )
    yield Case(
        "v_lerp_u8",
        "uuuu",
        lambda a, b, c: t.bits(
            ((t.bytes_of(a) + t.bytes_of(b) + (t.bytes_of(c) & 1)) >> 1).astype(np.uint8), np.uint32
        )[:, 0],
    )


def conversions() -> Iterator[Case]:
    yield Case("v_cvt_f32_i32", "fi", lambda a: a.astype(np.float32))
    yield Case("v_cvt_f32_u32", "fu", lambda a: a.astype(np.float32))
    yield Case("v_cvt_i32_f32", "if", lambda a: t.saturate(a, np.int32))
    yield Case("v_cvt_u32_f32", "uf", lambda a: t.saturate(a, np.uint32))
    yield Case("v_cvt_floor_i32_f32", "if", lambda a: t.saturate(np.floor(a), np.int32))
    yield Case("v_cvt_nearest_i32_f32", "if", lambda a: t.saturate(np.floor(a.astype(np.float64) + 0.5), np.int32))
    for k in range(4):
        yield Case(f"v_cvt_f32_ubyte{k}", "fu", lambda a, k=k: (a >> 8 * k & 255).astype(np.float32))
    yield Case("v_cvt_off_f32_i4", "fu", lambda a: (((a & 15) ^ 8).astype(np.float32) - 8) / 16)
    yield Case("v_cvt_f16_f32", "hf", lambda a: a.astype(np.float16))
    yield Case("v_cvt_f32_f16", "fh", lambda a: a.astype(np.float32))
    yield Case("v_cvt_f16_i16", "hs", lambda a: a.astype(np.float16))
    yield Case("v_cvt_f16_u16", "ht", lambda a: a.astype(np.float32).astype(np.float16))
    yield Case("v_cvt_i16_f16", "sh", lambda a: t.saturate(a, np.int16))
    yield Case("v_cvt_u16_f16", "th", lambda a: t.saturate(a, np.uint16))
    yield Case("v_cvt_i32_i16", "is", lambda a: a.astype(np.int32))
    yield Case("v_cvt_u32_u16", "ut", lambda a: a.astype(np.uint32))
    yield Case(
        "v_cvt_norm_i16_f16",
        "sh",
        lambda a: t.saturate(np.rint(np.clip(a.astype(np.float64), -1, 1) * 32767), np.int16),
    )
    yield Case(
        "v_cvt_norm_u16_f16",
        "th",
        lambda a: t.saturate(np.rint(np.clip(a.astype(np.float64), 0, 1) * 65535), np.uint16),
    )
    yield Case("v_cvt_pk_rtz_f16_f32", "uff", lambda a, b: t.towards_zero(a) | t.towards_zero(b) << 16)
    for letter, kind in (("i", np.int16), ("u", np.uint16)):
        pack = lambda a, b: a.view(np.uint16).astype(np.uint32) | b.view(np.uint16).astype(np.uint32) << 16  # noqa: E731
        full = {"i": np.int32, "u": np.uint32}[letter]
        yield Case(
            f"v_cvt_pk_{letter}16_f32", "uff", lambda a, b, k=kind, p=pack: p(t.saturate(a, k), t.saturate(b, k))
        )
        yield Case(
            f"v_cvt_pk_{letter}16_{letter}32",
            f"u{letter}{letter}",
            lambda a, b, k=kind, f=full, p=pack: p(t.saturate(a.view(f), k), t.saturate(b.view(f), k)),
        )


def exponents() -> Iterator[Case]:
    yield Case("v_frexp_exp_i32_f32", "if", t.exponent)
    yield Case("v_frexp_exp_i16_f16", "sh", lambda a: t.exponent(a.astype(np.float32)))
    yield Case("v_frexp_exp_i32_f64", "id", t.exponent)
    yield Case("v_pack_b32_f16", "uhh", lambda a, b: a.view(np.uint16) | b.view(np.uint16).astype(np.uint32) << 16)


def wide() -> Iterator[Case]:
    yield Case("v_fma_f64", "dddd", t.exact_fma)
    yield Case("v_rcp_f64", "dd", lambda a: 1 / a)
    yield Case("v_sqrt_f64", "dd", np.sqrt)
    yield Case("v_rsq_f64", "dd", lambda a: 1 / np.sqrt(a))
    yield Case("v_cvt_f64_f32", "df", lambda a: a.astype(np.float64))
    yield Case("v_cvt_f32_f64", "fd", lambda a: a.astype(np.float32))
    yield Case("v_cvt_f64_i32", "di", lambda a: a.astype(np.float64))
    yield Case("v_cvt_f64_u32", "du", lambda a: a.astype(np.float64))
    yield Case("v_cvt_i32_f64", "id", lambda a: t.saturate(a, np.int32))
    yield Case("v_cvt_u32_f64", "ud", lambda a: t.saturate(a, np.uint32))
    yield Case("v_lshlrev_b64", "UuU", lambda a, b: b << (a & 63).astype(np.uint64))
    yield Case("v_lshrrev_b64", "UuU", lambda a, b: b >> (a & 63).astype(np.uint64))
    yield Case("v_ashrrev_i64", "IuI", lambda a, b: b >> (a & 63).astype(np.int64))


CASES = [
    *t.floats(),
    *integers(),
    *signed_and_unsigned(),
    *combined(),
    *bytewise(),
    *conversions(),
    *exponents(),
    *t.half_integers(),
    *wide(),
    *t.comparisons(),
]
