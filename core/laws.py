"""The laws of the integer core: grid, lanes, addresses, products and sums; `graphrun.core.laws_pin` has the rest.

The three laws of the memory plan (inside the arena, aligned, no byte of two living buffers) are contracts of
`graphrun.core.ie_plan.plan_check`. A parameter means every word or every array of words.
"""
# ruff: noqa: F405 (the laws speak of the whole core)

from __future__ import annotations

from graphrun.core.ie import *  # noqa: F403
from graphrun.core.law import Claim, law
from graphrun.core.u32 import Fuel, Mem, sel

PLAN_LAWS = ("plan_fits", "plan_aligned", "plan_no_clobber")


@law("address")
def grid_cover(rows: int, r: int) -> Claim:
    """rows < 2^18, r < rows => r/8 < ngroups(rows), r mod 8 < 8, gemv_row(r/8, r mod 8) = r."""
    g, v = r >> 3, r & 7
    return Claim((rows < 1 << 18) & (r < rows), (g < ie_gemv_ngroups(rows), v < 8, ie_gemv_row(g, v) == r))


@law("address")
def grid_unique(g: int, v: int, h: int, w: int) -> Claim:
    """g, h < 2^27, v, w < 8, gemv_row(g,v) = gemv_row(h,w) => g = h, v = w."""
    small = (g < 1 << 27) & (h < 1 << 27) & (v < 8) & (w < 8)
    return Claim(small & (ie_gemv_row(g, v) == ie_gemv_row(h, w)), (g == h, v == w))


@law("address")
def lane_cover(b: int) -> Claim:
    """blk_lane(b) < 32, lane_blk(blk_lane(b), blk_step(b)) = b."""
    return Claim(True, (ie_blk_lane(b) < 32, ie_lane_blk(ie_blk_lane(b), ie_blk_step(b)) == b))


@law("address")
def lane_unique(l: int, t: int, m: int, s: int) -> Claim:  # noqa: E741
    """l, m < 32, t, s < 2^26, lane_blk(l,t) = lane_blk(m,s) => l = m, t = s."""
    small = (l < 32) & (m < 32) & (t < 1 << 26) & (s < 1 << 26)
    return Claim(small & (ie_lane_blk(l, t) == ie_lane_blk(m, s)), (l == m, t == s))


@law("address")
def q4_addr(rows: int, nb: int, r: int, b: int, w: int, k: int) -> Claim:
    """sizes_ok, r < rows, b < nb, w < 4, k < 16 => words, scales and file bytes lie in their arrays."""
    return Claim(
        ie_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (w < 4) & (k < 16),
        (
            ie_q4_dst_word(r, b, w, nb) < rows * nb * 4,
            ie_q4_dst_scale(r, b, nb) < rows * nb,
            ie_q4_src_qbyte(r, b, k, nb) < rows * nb * 18,
            ie_q4_src_blk(r, b, nb) + 1 < rows * nb * 18,
        ),
    )


@law("address")
def q4_inverse(rows: int, nb: int, r: int, b: int, w: int) -> Claim:
    """sizes_ok, r < rows, b < nb, w < 4 => word_row, word_blk, word_w of dst_word(r,b,w) are r, b, w."""
    i = ie_q4_dst_word(r, b, w, nb)
    return Claim(
        ie_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (w < 4),
        (ie_q4_word_row(i, nb) == r, ie_q4_word_blk(i, nb) == b, ie_q4_word_w(i) == w),
    )


@law("address")
def q4_onto(rows: int, nb: int, i: int) -> Claim:
    """sizes_ok, 0 < nb, i < rows*nb*4 => row(i) < rows, blk(i) < nb, dst_word(row(i), blk(i), w(i)) = i."""
    r, b = ie_q4_word_row(i, nb), ie_q4_word_blk(i, nb)
    return Claim(
        ie_sizes_ok(rows, nb) & (0 < nb) & (i < rows * nb * 4),
        (r < rows, b < nb, ie_q4_dst_word(r, b, ie_q4_word_w(i), nb) == i),
    )


@law("address")
def act_addr(nb: int, b: int, v: int) -> Claim:
    """nb < 2^11, b < nb, v < 8 => 8b + v < 8nb."""
    return Claim((nb < 1 << 11) & (b < nb) & (v < 8), (8 * b + v < 8 * nb,))


@law("coq")
def strided_sum(x: Mem, nb: Fuel) -> Claim:
    """nb < 2^30 => strided_sum(x, nb) = x[0] + ... + x[nb-1]."""
    return Claim(nb < 1 << 30, (ie_strided_sum(x, nb) == ie_seq_sum(nb, x, 0, nb),))


@law("polynomial")
def wave_sum(x: Mem) -> Claim:
    """wave_sum(x) = x[0] + ... + x[31]."""
    return Claim(True, (ie_wave_sum(x) == ie_seq_sum(32, x, 0, 32),))


@law("bits")
def q4_nibble(q: Mem, j: int) -> Claim:
    """j < 32 => nib(pack4(q_0..q_3), j) = spec_nib(q_{j mod 4}, j)."""
    return Claim(j < 32, (ie_q4_nib(ie_pack4(q[0], q[1], q[2], q[3]), j) == ie_q4_spec_nib(q[j & 3], j),))


@law("bits")
def q4_word_of(j: int) -> Claim:
    """j < 32 => word_of(j) < 4, 4*word_of(j) + j mod 4 = j mod 16."""
    return Claim(j < 32, (ie_q4_word_of(j) < 4, 4 * ie_q4_word_of(j) + (j & 3) == (j & 15)))


@law("polynomial")
def q4q8_word(wq: int, alo: int, ahi: int) -> Claim:
    """q4q8_word(0, wq, alo, ahi) - 8*(sum of alo + sum of ahi) = q4q8_word_spec(wq, alo, ahi)."""
    got = ie_q4q8_word(0, wq, alo, ahi) - 8 * (ie_sum_s8x4(alo) + ie_sum_s8x4(ahi))
    return Claim(True, (got == ie_q4q8_word_spec(wq, alo, ahi),))


@law("polynomial")
def q4q8_block(qw: Mem, qb: int, aw: Mem, ab: int) -> Claim:
    """q4q8_block(.., q8_sum(aw,ab)) = sum over j < 32 of (q_j - 8)*a_j."""
    got = ie_q4q8_block(qw, qb, aw, ab, ie_q8_sum(aw, ab))
    return Claim(True, (got == ie_q4q8_spec(32, qw, qb, aw, ab, 0),))


@law("address")
def q8_addr(rows: int, nb: int, r: int, b: int, w: int, k: int) -> Claim:
    """q8_sizes_ok, r < rows, b < nb, w < 8, k < 32 => words, scales and file bytes lie in their arrays."""
    return Claim(
        ie_q8_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (w < 8) & (k < 32),
        (
            ie_q8_dst_word(r, b, w, nb) < rows * nb * 8,
            ie_q8_dst_scale(r, b, nb) < rows * nb,
            ie_q8_src_qbyte(r, b, k, nb) < rows * nb * 34,
            ie_q8_src_blk(r, b, nb) + 1 < rows * nb * 34,
        ),
    )


@law("address")
def q8_inverse(rows: int, nb: int, r: int, b: int, w: int) -> Claim:
    """q8_sizes_ok, r < rows, b < nb, w < 8 => word_row, word_blk, word_w of dst_word(r,b,w) are r, b, w."""
    i = ie_q8_dst_word(r, b, w, nb)
    return Claim(
        ie_q8_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (w < 8),
        (ie_q8_word_row(i, nb) == r, ie_q8_word_blk(i, nb) == b, ie_q8_word_w(i) == w),
    )


@law("address")
def q8_onto(rows: int, nb: int, i: int) -> Claim:
    """q8_sizes_ok, 0 < nb, i < rows*nb*8 => row(i) < rows, blk(i) < nb, dst_word(row(i), blk(i), w(i)) = i."""
    r, b = ie_q8_word_row(i, nb), ie_q8_word_blk(i, nb)
    return Claim(
        ie_q8_sizes_ok(rows, nb) & (0 < nb) & (i < rows * nb * 8),
        (r < rows, b < nb, ie_q8_dst_word(r, b, ie_q8_word_w(i), nb) == i),
    )


@law("bits")
def q8_byte(q: Mem, j: int) -> Claim:
    """byte(pack4(q_0..q_3), j mod 4) = q_{j mod 4} mod 256."""
    return Claim(True, (ie_byte(ie_pack4(q[0], q[1], q[2], q[3]), j & 3) == (q[j & 3] & 255),))


@law("polynomial")
def q8q8_block(qw: Mem, qb: int, aw: Mem, ab: int) -> Claim:
    """q8q8_block = sum over j < 32 of q_j*a_j."""
    return Claim(True, (ie_q8q8_block(qw, qb, aw, ab) == ie_q8q8_spec(32, qw, qb, aw, ab, 0),))


@law("address")
def q4k_addr(rows: int, nb: int, r: int, b: int, w: int, j: int) -> Claim:
    """q4k_sizes_ok, r < rows, b < nb, w < 4, j < 32 => words, table entries and file bytes lie in their arrays."""
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (w < 4) & (j < 32),
        (
            ie_q4_dst_word(r, b, w, nb) < rows * nb * 4,
            ie_q4k_sm(r, b, nb) < rows * nb,
            ie_q4k_dd(rows, r, b, nb) + 1 < ie_q4k_qs_n(rows, nb),
            ie_q4k_src_blk(r, b, nb) + 15 < rows * nb * 18,
            ie_q4k_src_qbyte(r, b, j, nb) < rows * nb * 18,
        ),
    )


@law("address")
def q4k_inverse(rows: int, nb: int, r: int, b: int, w: int) -> Claim:
    """As q4_inverse, for the sizes of Q4_K and Q6_K."""
    i = ie_q4_dst_word(r, b, w, nb)
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (w < 4),
        (ie_q4_word_row(i, nb) == r, ie_q4_word_blk(i, nb) == b, ie_q4_word_w(i) == w),
    )


@law("address")
def q4k_onto(rows: int, nb: int, i: int) -> Claim:
    """As q4_onto, for the sizes of Q4_K and Q6_K."""
    r, b = ie_q4_word_row(i, nb), ie_q4_word_blk(i, nb)
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (0 < nb) & (i < rows * nb * 4),
        (r < rows, b < nb, ie_q4_dst_word(r, b, ie_q4_word_w(i), nb) == i),
    )


@law("bits")
def q4k_nibble(lo: Mem, hi: Mem, b: int, j: int) -> Claim:
    """j < 32 => nib of the word of q4k_pack(lo_i, hi_i, b), at j, is src_nib of lo or hi_{j mod 4}."""
    packed = ie_pack4(*(ie_q4k_pack(lo[i], hi[i], b) for i in range(4)))
    return Claim(j < 32, (ie_q4_nib(packed, j) == ie_q4k_src_nib(sel(j < 16, lo[j & 3], hi[j & 3]), b),))


@law("polynomial")
def q4k_dot(qw: Mem, qb: int, aw: Mem, ab: int) -> Claim:
    """q4k_dot = sum over j < 32 of q_j*a_j, q_j in 0..15."""
    return Claim(True, (ie_q4k_dot(qw, qb, aw, ab) == ie_q4k_spec(32, qw, qb, aw, ab, 0),))


@law("polynomial")
def q4k_dot_u(u: Mem, ub: int, qw: Mem, qb: int, aw: Mem, ab: int) -> Claim:
    """u[ub+2k] = lo(qw[qb+k]), u[ub+2k+1] = hi(qw[qb+k]) for k < 4 => q4k_dot_u = q4k_dot."""
    premise = True
    for k in range(4):
        low, high = ie_q4k_lo(qw[qb + k]), ie_q4k_hi(qw[qb + k])
        premise = premise & (u[ub + 2 * k] == low) & (u[ub + (2 * k + 1)] == high)
    return Claim(premise, (ie_q4k_dot_u(u, ub, aw, ab) == ie_q4k_dot(qw, qb, aw, ab),))


@law("address")
def q6k_addr(rows: int, nb: int, r: int, b: int, w: int, h: int, j: int) -> Claim:
    """q4k_sizes_ok, r < rows, b < nb, w < 4, h < 2, j < 32 => words, table entries, file bytes lie in their arrays."""
    size = rows * (nb // 8) * 210
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (w < 4) & (h < 2) & (j < 32),
        (
            ie_q4_dst_word(r, b, w, nb) < rows * nb * 4,
            rows * nb * 4 <= ie_q6k_hw(rows, r, b, h, nb),
            ie_q6k_hw(rows, r, b, h, nb) < ie_q6k_qw_n(rows, nb),
            ie_q6k_sc(r, b, nb) < rows * nb,
            ie_q6k_d(rows, r, b, nb) < ie_q6k_qs_n(rows, nb),
            ie_q6k_src_ql(r, b, j, nb) < size,
            ie_q6k_src_qh(r, b, j, nb) < size,
            ie_q6k_src_sc(r, b, h, nb) < size,
            ie_q6k_src_d(r, b, nb) + 1 < size,
        ),
    )


@law("bits")
def q6k_unpack(q: Mem, e: int) -> Claim:
    """e < 16 => q6k_q(word of the low nibbles of q_{4k}..q_{4k+3} with k = e/4, hpack(q_0..q_15), e) = q_e mod 64."""
    first = 4 * (e >> 2)
    nibbles = ie_pack4(*(q[first + i] & 15 for i in range(4)))
    return Claim(e < 16, (ie_q6k_q(nibbles, ie_q6k_hpack(*(q[i] for i in range(16))), e) == (q[e] & 63),))


@law("polynomial")
def q6k_dot(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, h: int) -> Claim:
    """h < 2 => q6k_dot(.., h, q8_hsum(aw,ab,h)) = sum over 16h <= j < 16h+16 of (q_j - 32)*a_j."""
    got = ie_q6k_dot(qw, qb, hw, hb, aw, ab, h, ie_q8_hsum(aw, ab, h))
    return Claim(h < 2, (got == ie_q6k_spec(16, qw, qb, hw, hb, aw, ab, 16 * h, 16 * h + 16),))


@law("polynomial")
def q6k_dots(qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, h: int) -> Claim:
    """h < 2 => q6k_dots(.., h) = sum over 16h <= j < 16h+16 of (q_j - 32)*a_j."""
    got = ie_q6k_dots(qw, qb, hw, hb, aw, ab, h)
    return Claim(h < 2, (got == ie_q6k_spec(16, qw, qb, hw, hb, aw, ab, 16 * h, 16 * h + 16),))


@law("polynomial")
def q6k_dots_s(sw: Mem, sb: int, qw: Mem, qb: int, hw: Mem, hb: int, aw: Mem, ab: int, h: int) -> Claim:
    """sw[sb+k] = q6k_sw(qw[qb+k], hw[hb], h, k) for k < 4 => q6k_dots_s = q6k_dots."""
    premise = True
    for k in range(4):
        premise = premise & (sw[sb + k] == ie_q6k_sw(qw[qb + k], hw[hb], h, k))
    return Claim(premise, (ie_q6k_dots_s(sw, sb, aw, ab, h) == ie_q6k_dots(qw, qb, hw, hb, aw, ab, h),))
