"""The integer core: the super-block formats Q4_K and Q6_K, 256 weights in 8 blocks of 32.

b is the block of 32 within its row and nb their number, a multiple of 8. Kernels keep the nibbles as Q4_0 does
(`ie_q4_dst_word`), a 16-bit table beside them, and for Q6_K the high bits in a word per half block.
"""

from __future__ import annotations

from graphrun.core.ie_base import ie_byte, ie_dot4_ss, ie_dot4_us, ie_q4_nib, ie_q4_word_of, ie_q4q8_word, ie_sext8
from graphrun.core.u32 import Fuel, Mem, sel, sum_while, word

# Q4_K: 144 bytes in a file (f16 d, f16 dmin, 12 bytes of 6-bit scales, 128 bytes of nibbles).


@word
def ie_q4k_sm(r: int, b: int, nb: int) -> int:
    """16-bit index of a block's scale, with its minimum in the high byte."""
    return r * nb + b


@word
def ie_q4k_dd(rows: int, r: int, b: int, nb: int) -> int:
    """16-bit index of the super-block's f16 d; dmin follows it."""
    return rows * nb + (r * (nb // 8) + b // 8) * 2


@word
def ie_q4k_qs_n(rows: int, nb: int) -> int:
    """Length of the table in 16-bit entries."""
    return rows * nb + rows * (nb // 8) * 2


@word
def ie_q4k_src_blk(r: int, b: int, nb: int) -> int:
    """Byte offset of the super-block that holds block b."""
    return (r * nb + 8 * (b // 8)) * 18


@word
def ie_q4k_src_qbyte(r: int, b: int, j: int, nb: int) -> int:
    """Byte offset of the nibble of weight j; an even block and the odd one after it share bytes."""
    return ie_q4k_src_blk(r, b, nb) + 16 + 32 * ((b % 8) // 2) + j


@word
def ie_q4k_src_nib(qbyte: int, b: int) -> int:
    """Block b's half of the file's byte: even blocks are low."""
    return sel(b % 2 == 1, (qbyte & 255) >> 4, qbyte & 15)


@word
def ie_q4k_pack(lo: int, hi: int, b: int) -> int:
    """The kernel's byte j < 16 from the file's bytes j and j + 16."""
    return ie_q4k_src_nib(lo, b) | ie_q4k_src_nib(hi, b) << 4


@word
def ie_q4k_lo(wq: int) -> int:
    """The four low nibbles of a word, one per byte."""
    return wq & 0x0F0F0F0F


@word
def ie_q4k_hi(wq: int) -> int:
    """The four high nibbles of a word, one per byte."""
    return (wq >> 4) & 0x0F0F0F0F


@word
def ie_q4k_dot(qw: Mem, qb: int, aw: Mem, ab: int) -> int:
    """Dot product of 32 weights 0..15 with 32 int8."""
    acc = 0
    for w in range(4):
        acc = ie_q4q8_word(acc, qw[qb + w], aw[ab + w], aw[ab + 4 + w])
    return acc


@word
def ie_q4k_dot_u(u: Mem, ub: int, aw: Mem, ab: int) -> int:
    """The same from words split before: u[2k] and u[2k+1] are the low and high nibbles of word k."""
    acc = 0
    for k in range(4):
        acc = ie_dot4_us(acc, u[ub + 2 * k], aw[ab + k])
        acc = ie_dot4_us(acc, u[ub + 2 * k + 1], aw[ab + 4 + k])
    return acc


@word
def ie_q4k_term(qw: Mem, qb: int, aw: Mem, ab: int, j: int) -> int:
    """q_j * a_j."""
    return ie_q4_nib(qw[qb + ie_q4_word_of(j)], j) * ie_sext8(ie_byte(aw[ab + (j >> 2)], j & 3))


@word
def ie_q4k_spec(n: Fuel, qw: Mem, qb: int, aw: Mem, ab: int, j: int) -> int:
    """Sum of the terms j .. 31, at most n of them."""
    return sum_while(n, j, 32, 1, lambda at: ie_q4k_term(qw, qb, aw, ab, at))


# Q6_K: 210 bytes in a file (128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales, f16 d).


@word
def ie_q6k_hw(rows: int, r: int, b: int, h: int, nb: int) -> int:
    """Index of the high-bit word of half h of a block, behind all nibble words."""
    return rows * nb * 4 + (r * nb + b) * 2 + h


@word
def ie_q6k_qw_n(rows: int, nb: int) -> int:
    """Number of nibble and high-bit words."""
    return rows * nb * 6


@word
def ie_q6k_sc(r: int, b: int, nb: int) -> int:
    """16-bit index of a block's two int8 scales, half 0 in the low byte."""
    return r * nb + b


@word
def ie_q6k_d(rows: int, r: int, b: int, nb: int) -> int:
    """16-bit index of the super-block's f16 d."""
    return rows * nb + r * (nb // 8) + b // 8


@word
def ie_q6k_qs_n(rows: int, nb: int) -> int:
    """Length of the table in 16-bit entries."""
    return rows * nb + rows * (nb // 8)


@word
def ie_q6k_src_blk(r: int, b: int, nb: int) -> int:
    """Byte offset of the super-block that holds block b."""
    return (r * (nb // 8) + b // 8) * 210


@word
def ie_q6k_src_ql(r: int, b: int, j: int, nb: int) -> int:
    """Byte offset of the low nibble of weight j."""
    return ie_q6k_src_blk(r, b, nb) + 64 * (b % 8 // 4) + 32 * (b % 8 % 2) + j


@word
def ie_q6k_src_qh(r: int, b: int, j: int, nb: int) -> int:
    """Byte offset of the high bits of weight j."""
    return ie_q6k_src_blk(r, b, nb) + 128 + 32 * (b % 8 // 4) + j


@word
def ie_q6k_src_sc(r: int, b: int, h: int, nb: int) -> int:
    """Byte offset of the int8 scale of half h."""
    return ie_q6k_src_blk(r, b, nb) + 192 + 2 * (b % 8) + h


@word
def ie_q6k_src_d(r: int, b: int, nb: int) -> int:
    """Byte offset of the super-block's f16 d."""
    return ie_q6k_src_blk(r, b, nb) + 208


@word
def ie_q6k_src_q(ql: int, qh: int, b: int) -> int:
    """The 6 bits of a weight of block b from the file's two bytes."""
    t = b % 8 % 4
    return sel(t < 2, ql & 15, (ql & 255) >> 4) | (((qh & 255) >> 2 * t) & 3) << 4


@word
def ie_q6k_h2(q: int, e: int) -> int:
    """The high two bits of weight e < 16 of a half, at their place in the half's word."""
    return ((q >> 4) & 3) << (8 * (e % 4) + 2 * (e // 4))


@word
def ie_q6k_hpack(
    q0: int,
    q1: int,
    q2: int,
    q3: int,
    q4: int,
    q5: int,
    q6: int,
    q7: int,
    q8: int,
    q9: int,
    q10: int,
    q11: int,
    q12: int,
    q13: int,
    q14: int,
    q15: int,
) -> int:
    """The high-bit word of a half from its 16 weights."""
    total = 0
    for e, q in enumerate((q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15)):
        total = total | ie_q6k_h2(q, e)
    return total


@word
def ie_q6k_q(nibword: int, hword: int, j: int) -> int:
    """The 6 bits of weight j from its nibble word and its half's high-bit word."""
    return ie_q4_nib(nibword, j) | ((hword >> (8 * (j % 4) + 2 * (j % 16 // 4))) & 3) << 4


@word
def ie_q6k_vw(nibword: int, hword: int, h: int, k: int) -> int:
    """The four weights 16h+4k .. 16h+4k+3 in 0..63, one per byte."""
    return sel(h == 0, ie_q4k_lo(nibword), ie_q4k_hi(nibword)) | ((hword >> 2 * k) & 0x03030303) << 4


@word
def ie_q8_hsum(aw: Mem, ab: int, h: int) -> int:
    """Sum of the 16 int8 of half h."""
    acc = 0
    for k in range(4):
        acc = ie_dot4_ss(acc, aw[ab + 4 * h + k], 0x01010101)
    return acc


@word
def ie_q6k_dot(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, h: int, hs: int) -> int:
    """Dot product of half h, weights q - 32, with 16 int8 whose sum is hs; hw[hb] is this half's word."""
    acc = 0
    for k in range(4):
        acc = ie_dot4_us(acc, ie_q6k_vw(qw[qb + k], hw[hb], h, k), aw[ab + 4 * h + k])
    return acc - 32 * hs


@word
def ie_q6k_sw(nibword: int, hword: int, h: int, k: int) -> int:
    """The same four weights as q - 32, one int8 per byte; no borrow leaves a byte."""
    return ((ie_q6k_vw(nibword, hword, h, k) | 0x80808080) - 0x20202020) ^ 0x80808080


@word
def ie_q6k_dots(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, h: int) -> int:
    """Dot product of half h by signed words; hw[hb] is this half's word."""
    acc = 0
    for k in range(4):
        acc = ie_dot4_ss(acc, ie_q6k_sw(qw[qb + k], hw[hb], h, k), aw[ab + 4 * h + k])
    return acc


@word
def ie_q6k_dots_s(sw: Mem, sb: int, aw: Mem, ab: int, h: int) -> int:
    """The same from signed words made before."""
    acc = 0
    for k in range(4):
        acc = ie_dot4_ss(acc, sw[sb + k], aw[ab + 4 * h + k])
    return acc


@word
def ie_q6k_term(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, j: int) -> int:
    """(q_j - 32) * a_j; hw[hb] is the word of weight j's half."""
    q = ie_q6k_q(qw[qb + ie_q4_word_of(j)], hw[hb], j)
    return (q - 32) * ie_sext8(ie_byte(aw[ab + (j >> 2)], j & 3))


@word
def ie_q6k_spec(n: Fuel, qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, j: int, hi: int) -> int:
    """Sum of the terms j .. hi-1, at most n of them."""
    return sum_while(n, j, hi, 1, lambda at: ie_q6k_term(qw, qb, hw, hb, aw, ab, at))
