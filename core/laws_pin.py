"""Laws that pin down what the main ones leave open: each helper by an independent formula, and exact integer ranges."""
# ruff: noqa: F405 (the laws speak of the whole core)

from __future__ import annotations

from collections.abc import Callable

from graphrun.core.ie import *  # noqa: F403
from graphrun.core.law import Bounds, Claim, law
from graphrun.core.u32 import Mem, sel


def total(term: Callable[[int], int], count: int) -> int:
    """term(0) + ... + term(count-1)."""
    out = term(0)
    for i in range(1, count):
        out = out + term(i)
    return out


def int8(word: int, e: int) -> int:
    """Byte e of a word as a signed number."""
    byte = word // (1 << 8 * e) % 256
    return sel(byte < 128, byte, byte - 256)


def weight(qw: Mem, qb: int, j: int) -> int:
    """Weight j < 32 of four nibble words: byte j mod 16 of the block, low half first."""
    return qw[qb + j % 16 // 4] // (1 << 8 * (j % 4)) // (1 << 4 * (j // 16)) % 16


@law("bits")
def constants() -> Claim:
    """wave = 32, rows_per_wg = 8, align_mask = 255."""
    return Claim(True, (ie_wave() == 32, ie_rows_per_wg() == 8, ie_align_mask() == 255))


@law("bits")
def size_limits(rows: int, nb: int) -> Claim:
    """Exactly these sizes are accepted: rows below 18 bits, nb below 9 or 11 bits, rows*nb below 26, nb mod 8 = 0."""
    q8 = (rows >> 18 == 0) & (nb >> 11 == 0) & (rows * nb >> 26 == 0)
    return Claim(
        True,
        (
            ie_sizes_ok(rows, nb) == ((rows >> 18 == 0) & (nb >> 9 == 0)),
            ie_q8_sizes_ok(rows, nb) == q8,
            ie_q4k_sizes_ok(rows, nb) == (q8 & (nb & 7 == 0)),
        ),
    )


@law("bits")
def byte_digits(x: int) -> Claim:
    """The bytes are the digits of x in base 256, and pack4 puts them back."""
    b = [ie_byte(x, e) for e in range(4)]
    digits = b[0] + 256 * b[1] + 256**2 * b[2] + 256**3 * b[3]
    return Claim(True, (*(d < 256 for d in b), digits == x, ie_pack4(*b) == x))


@law("bits")
def sext8_sign(v: int) -> Claim:
    """sext8(v) = v mod 256 if that is below 128, else v mod 256 - 256."""
    return Claim(True, (ie_sext8(v) == int8(v, 0),))


@law("polynomial")
def sum_s8x4_terms(a: int) -> Claim:
    """sum_s8x4(a) = sum over e < 4 of the signed byte e."""
    return Claim(True, (ie_sum_s8x4(a) == total(lambda e: int8(a, e), 4),))


@law("polynomial")
def dot4_terms(acc: int, a: int, b: int) -> Claim:
    """dot4_us = acc + sum of unsigned a_e times signed b_e; dot4_ss = acc + sum of signed a_e times signed b_e."""
    return Claim(
        True,
        (
            ie_dot4_us(acc, a, b) == acc + total(lambda e: a // (1 << 8 * e) % 256 * int8(b, e), 4),
            ie_dot4_ss(acc, a, b) == acc + total(lambda e: int8(a, e) * int8(b, e), 4),
        ),
    )


@law("polynomial")
def q8_sum_terms(aw: Mem, ab: int, h: int) -> Claim:
    """q8_sum adds 32 signed bytes; for h < 2, q8_hsum adds the 16 of half h."""
    half = total(lambda i: int8(aw[ab + 4 * h + i // 4], i % 4), 16)
    full = total(lambda i: int8(aw[ab + i // 4], i % 4), 32)
    return Claim(h < 2, (ie_q8_sum(aw, ab) == full, ie_q8_hsum(aw, ab, h) == half))


@law("bits")
def nibble_halves(qbyte: int, j: int) -> Claim:
    """spec_nib(qbyte, j) is the byte mod 16 for j < 16, else the byte / 16."""
    return Claim(j < 32, (ie_q4_spec_nib(qbyte, j) == sel(j < 16, qbyte % 16, qbyte // 16 % 16),))


@law("polynomial")
def q4q8_word_terms(acc: int, wq: int, alo: int, ahi: int) -> Claim:
    """q4q8_word = acc + sum of nibbles times int8; its spec is the same with nibbles - 8 and no acc."""
    low = [wq // (1 << 8 * e) % 16 for e in range(4)]
    high = [wq // (1 << 8 * e) // 16 % 16 for e in range(4)]
    plain = total(lambda e: low[e] * int8(alo, e) + high[e] * int8(ahi, e), 4)
    moved = total(lambda e: (low[e] - 8) * int8(alo, e) + (high[e] - 8) * int8(ahi, e), 4)
    return Claim(True, (ie_q4q8_word(acc, wq, alo, ahi) == acc + plain, ie_q4q8_word_spec(wq, alo, ahi) == moved))


@law("polynomial")
def block_terms(qw: Mem, qb: int, aw: Mem, ab: int, asum: int) -> Claim:
    """The block products are the sums of 32 products they are named for, with any sum of activations."""
    plain = total(lambda j: weight(qw, qb, j) * int8(aw[ab + j // 4], j % 4), 32)
    signed = total(lambda j: int8(qw[qb + j // 4], j % 4) * int8(aw[ab + j // 4], j % 4), 32)
    return Claim(
        True,
        (
            ie_q4q8_block(qw, qb, aw, ab, asum) == plain - 8 * asum,
            ie_q4k_dot(qw, qb, aw, ab) == plain,
            ie_q8q8_block(qw, qb, aw, ab) == signed,
        ),
    )


@law("polynomial")
def spec_fuel(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int) -> Claim:
    """A spec starts at j, ends at its bound, and sums at most n terms."""
    q = (qw, qb, aw, ab)
    q6 = (qw, qb, hw, hb, aw, ab)
    return Claim(
        True,
        (
            ie_q4q8_spec(2, *q, 5) == ie_q4q8_term(*q, 5) + ie_q4q8_term(*q, 6),
            ie_q4q8_spec(9, *q, 31) == ie_q4q8_term(*q, 31),
            ie_q8q8_spec(2, *q, 5) == ie_q8q8_term(*q, 5) + ie_q8q8_term(*q, 6),
            ie_q8q8_spec(9, *q, 31) == ie_q8q8_term(*q, 31),
            ie_q4k_spec(2, *q, 5) == ie_q4k_term(*q, 5) + ie_q4k_term(*q, 6),
            ie_q4k_spec(9, *q, 31) == ie_q4k_term(*q, 31),
            ie_q6k_spec(2, *q6, 5, 16) == ie_q6k_term(*q6, 5) + ie_q6k_term(*q6, 6),
            ie_q6k_spec(9, *q6, 15, 16) == ie_q6k_term(*q6, 15),
        ),
    )


@law("bits")
def q4k_halves(qbyte: int, hi: int, b: int) -> Claim:
    """src_nib is the low half of the byte for even blocks, the high half for odd ones; pack joins two of them."""
    low, high = ie_q4k_src_nib(qbyte, b), ie_q4k_src_nib(hi, b)
    return Claim(
        True,
        (low == sel(b & 1 == 0, qbyte % 16, qbyte // 16 % 16), ie_q4k_pack(qbyte, hi, b) == low + 16 * high),
    )


@law("bits")
def q4k_split(wq: int, e: int) -> Claim:
    """For e < 4, byte e of lo(wq) is weight e of the word, and byte e of hi(wq) weight 16 + e."""
    low, high = ie_byte(ie_q4k_lo(wq), e), ie_byte(ie_q4k_hi(wq), e)
    return Claim(e < 4, (low == ie_q4_nib(wq, e), high == ie_q4_nib(wq, 16 + e)))


@law("bits")
def q6k_source(ql: int, qh: int, b: int) -> Claim:
    """src_q: blocks 0, 1 of four have the low nibble, 2, 3 the high one; block t has the bits 2t, 2t+1 of qh on top."""
    t = b & 3
    low = sel(t <= 1, ql % 16, ql // 16 % 16)
    pair = sel(t == 0, qh, sel(t == 1, qh // 4, sel(t == 2, qh // 16, qh // 64))) % 4
    return Claim(True, (ie_q6k_src_q(ql, qh, b) == low + 16 * pair,))


@law("bits")
def q6k_high_bits(q: int, e: int) -> Claim:
    """For e < 16, h2(q, e) is the pair q/16 mod 4 at bit 8*(e mod 4) + 2*(e/4)."""
    at = 8 * (e & 3) + 2 * (e >> 2)
    return Claim(e < 16, (ie_q6k_h2(q, e) == (q // 16 % 4) << at,))


@law("bits")
def q6k_unpack_high(q: Mem, e: int) -> Claim:
    """As q6k_unpack for the second half: e < 16 => q6k_q(word of high nibbles, hpack, 16 + e) = q_e mod 64."""
    first = 4 * (e >> 2)
    nibbles = ie_pack4(*((q[first + i] & 15) << 4 for i in range(4)))
    return Claim(e < 16, (ie_q6k_q(nibbles, ie_q6k_hpack(*(q[i] for i in range(16))), 16 + e) == (q[e] & 63),))


@law("bits")
def q6k_vw_byte(nibword: int, hword: int, h: int, w: int, e: int) -> Claim:
    """h < 2, w < 4, e < 4 => byte e of vw(.., h, w) is weight 16h + 4w + e."""
    byte = ie_byte(ie_q6k_vw(nibword, hword, h, w), e)
    return Claim((h < 2) & (w < 4) & (e < 4), (byte == ie_q6k_q(nibword, hword, 16 * h + 4 * w + e),))


@law("bits")
def q6k_sw_byte(nibword: int, hword: int, h: int, w: int, e: int) -> Claim:
    """w < 4, e < 4 => byte e of sw is byte e of vw minus 32, as int8."""
    signed = ie_sext8(ie_byte(ie_q6k_sw(nibword, hword, h, w), e))
    return Claim((w < 4) & (e < 4), (signed == ie_byte(ie_q6k_vw(nibword, hword, h, w), e) - 32,))


@law("polynomial")
def q6k_dot_sum(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, h: int, hs: int) -> Claim:
    """q6k_dot subtracts 32 times whatever sum it is given."""
    q = (qw, qb, hw, hb, aw, ab, h)
    return Claim(h < 2, (ie_q6k_dot(*q, hs) == ie_q6k_dot(*q, 0) - 32 * hs,))


@law("address")
def grid_tight(rows: int) -> Claim:
    """0 < rows < 2^18 => the last workgroup has a row; rows_per_wg waves are numbered 0 .. 7."""
    groups = ie_gemv_ngroups(rows)
    first = ie_gemv_row(groups - 1, 0)
    return Claim(
        (0 < rows) & (rows < 1 << 18),
        (first < rows, first + ie_rows_per_wg() == ie_gemv_row(groups, 0), ie_gemv_row(groups, 7) == 8 * groups + 7),
    )


@law("polynomial")
def sum_fuel(x: Mem, i: int) -> Claim:
    """The sums start, step, end and run out of fuel where they should; the tree pairs i with i + 16, then + 8."""
    return Claim(
        True,
        (
            ie_seq_sum(3, x, 5, 9) == x[5] + x[6] + x[7],
            ie_seq_sum(9, x, 5, 7) == x[5] + x[6],
            ie_lane_sum(9, x, 3, 67) == x[3] + x[35],
            ie_lane_sum(2, x, 3, 99) == x[3] + x[35],
            ie_lanes_sum(2, x, 29, 62) == x[29] + x[61] + x[30],
            ie_lanes_sum(9, x, 31, 40) == x[31],
            ie_strided_sum(x, 40) == total(lambda at: x[at], 40),
            ie_tree(0, x, i) == x[i],
            ie_tree(2, x, i) == x[i] + x[i + 16] + (x[i + 8] + x[i + 24]),
        ),
    )


@law("range")
def q4q8_exact(qw: Mem, qb: int, aw: Mem, ab: int) -> Bounds:
    """The Q4_0 block sum over the integers lies in -32512 .. 32768."""
    return Bounds(ie_q4q8_spec(32, qw, qb, aw, ab, 0), -32512, 32768)


@law("range")
def q8q8_exact(qw: Mem, qb: int, aw: Mem, ab: int) -> Bounds:
    """The Q8_0 block sum over the integers lies in -520192 .. 524288."""
    return Bounds(ie_q8q8_spec(32, qw, qb, aw, ab, 0), -520192, 524288)


@law("range")
def q4k_exact(qw: Mem, qb: int, aw: Mem, ab: int) -> Bounds:
    """The Q4_K block sum over the integers lies in -61440 .. 60960."""
    return Bounds(ie_q4k_spec(32, qw, qb, aw, ab, 0), -61440, 60960)


@law("range")
def q6k_exact(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int) -> Bounds:
    """The sum of the first half of a Q6_K block over the integers lies in -65024 .. 65536."""
    return Bounds(ie_q6k_spec(16, qw, qb, hw, hb, aw, ab, 0, 16), -65024, 65536)


@law("range")
def q6k_exact_high(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int) -> Bounds:
    """The sum of the second half of a Q6_K block over the integers lies in -65024 .. 65536."""
    return Bounds(ie_q6k_spec(16, qw, qb, hw, hb, aw, ab, 16, 32), -65024, 65536)


@law("range")
def q8_sum_exact(aw: Mem, ab: int) -> Bounds:
    """The sum of 32 activations over the integers lies in -4096 .. 4064."""
    return Bounds(ie_q8_sum(aw, ab), -4096, 4064)
