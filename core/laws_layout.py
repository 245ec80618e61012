"""Laws that fix every layout: where it starts, how far each index moves it, and that it ends where its array ends.

"In range" alone would accept the wrong byte. `*_layout` steps within a row, `*_rows` from one row to the next,
`*_full` says that the last element of the last block is the last of the array.
"""
# ruff: noqa: F405 (the laws speak of the whole core)

from __future__ import annotations

from graphrun.core.ie import *  # noqa: F403
from graphrun.core.law import Claim, implies, law


@law("address")
def q4_layout(rows: int, nb: int, r: int, b: int, w: int, k: int) -> Claim:
    """sizes_ok, r < rows, b+1 < nb, w < 3, k < 15 => file blocks are 18 bytes apart, words and scales are dense."""
    blk = ie_q4_src_blk(r, b, nb)
    return Claim(
        ie_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (b + 1 < nb) & (w < 3) & (k < 15),
        (
            ie_q4_src_blk(0, 0, nb) == 0,
            ie_q4_src_blk(r, b + 1, nb) == blk + 18,
            ie_q4_src_qbyte(r, b, 0, nb) == blk + 2,
            ie_q4_src_qbyte(r, b, k + 1, nb) == ie_q4_src_qbyte(r, b, k, nb) + 1,
            ie_q4_dst_word(0, 0, 0, nb) == 0,
            ie_q4_dst_word(r, b, w + 1, nb) == ie_q4_dst_word(r, b, w, nb) + 1,
            ie_q4_dst_word(r, b + 1, 0, nb) == ie_q4_dst_word(r, b, 3, nb) + 1,
            ie_q4_dst_scale(0, 0, nb) == 0,
            ie_q4_dst_scale(r, b + 1, nb) == ie_q4_dst_scale(r, b, nb) + 1,
        ),
    )


@law("address")
def q4_rows(rows: int, nb: int, r: int) -> Claim:
    """sizes_ok, 0 < nb, r+1 < rows => the next row starts where this one ends."""
    end = nb - 1
    return Claim(
        ie_sizes_ok(rows, nb) & (0 < nb) & (r < rows) & (r + 1 < rows),
        (
            ie_q4_src_blk(r + 1, 0, nb) == ie_q4_src_blk(r, end, nb) + 18,
            ie_q4_dst_word(r + 1, 0, 0, nb) == ie_q4_dst_word(r, end, 3, nb) + 1,
            ie_q4_dst_scale(r + 1, 0, nb) == ie_q4_dst_scale(r, end, nb) + 1,
        ),
    )


@law("address")
def q8_layout(rows: int, nb: int, r: int, b: int, w: int, k: int) -> Claim:
    """q8_sizes_ok, r < rows, b+1 < nb, w < 7, k < 31 => file blocks are 34 bytes apart, words and scales are dense."""
    blk = ie_q8_src_blk(r, b, nb)
    return Claim(
        ie_q8_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (b + 1 < nb) & (w < 7) & (k < 31),
        (
            ie_q8_src_blk(0, 0, nb) == 0,
            ie_q8_src_blk(r, b + 1, nb) == blk + 34,
            ie_q8_src_qbyte(r, b, 0, nb) == blk + 2,
            ie_q8_src_qbyte(r, b, k + 1, nb) == ie_q8_src_qbyte(r, b, k, nb) + 1,
            ie_q8_dst_word(0, 0, 0, nb) == 0,
            ie_q8_dst_word(r, b, w + 1, nb) == ie_q8_dst_word(r, b, w, nb) + 1,
            ie_q8_dst_word(r, b + 1, 0, nb) == ie_q8_dst_word(r, b, 7, nb) + 1,
            ie_q8_dst_scale(0, 0, nb) == 0,
            ie_q8_dst_scale(r, b + 1, nb) == ie_q8_dst_scale(r, b, nb) + 1,
        ),
    )


@law("address")
def q8_rows(rows: int, nb: int, r: int) -> Claim:
    """q8_sizes_ok, 0 < nb, r+1 < rows => the next row starts where this one ends."""
    end = nb - 1
    return Claim(
        ie_q8_sizes_ok(rows, nb) & (0 < nb) & (r < rows) & (r + 1 < rows),
        (
            ie_q8_src_blk(r + 1, 0, nb) == ie_q8_src_blk(r, end, nb) + 34,
            ie_q8_dst_word(r + 1, 0, 0, nb) == ie_q8_dst_word(r, end, 7, nb) + 1,
            ie_q8_dst_scale(r + 1, 0, nb) == ie_q8_dst_scale(r, end, nb) + 1,
        ),
    )


@law("address")
def q4k_layout(rows: int, nb: int, r: int, b: int, j: int) -> Claim:
    """q4k_sizes_ok, r < rows, b+8 < nb, j < 31 => super-blocks are 144 bytes apart, two blocks share 32 bytes."""
    blk, byte, dd = ie_q4k_src_blk(r, b, nb), ie_q4k_src_qbyte(r, b, j, nb), ie_q4k_dd(rows, r, b, nb)
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (b + 8 < nb) & (j < 31),
        (
            ie_q4k_src_blk(0, 0, nb) == 0,
            ie_q4k_src_blk(r, b + 8, nb) == blk + 144,
            implies(b % 8 < 7, ie_q4k_src_blk(r, b + 1, nb) == blk),
            implies(b % 8 == 0, ie_q4k_src_qbyte(r, b, 0, nb) == blk + 16),
            ie_q4k_src_qbyte(r, b, j + 1, nb) == byte + 1,
            implies(b % 2 == 0, ie_q4k_src_qbyte(r, b + 1, j, nb) == byte),
            implies(b % 8 < 6, ie_q4k_src_qbyte(r, b + 2, j, nb) == byte + 32),
            ie_q4k_sm(0, 0, nb) == 0,
            ie_q4k_sm(r, b + 1, nb) == ie_q4k_sm(r, b, nb) + 1,
            ie_q4k_dd(rows, 0, 0, nb) == rows * nb,
            ie_q4k_dd(rows, r, b + 8, nb) == dd + 2,
            implies(b % 8 < 7, ie_q4k_dd(rows, r, b + 1, nb) == dd),
        ),
    )


@law("address")
def q4k_rows(rows: int, nb: int, r: int) -> Claim:
    """q4k_sizes_ok, 0 < nb, r+1 < rows => the next row starts where this one ends."""
    end = nb - 1
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (0 < nb) & (r < rows) & (r + 1 < rows),
        (
            ie_q4k_src_blk(r + 1, 0, nb) == ie_q4k_src_blk(r, end, nb) + 144,
            ie_q4k_sm(r + 1, 0, nb) == ie_q4k_sm(r, end, nb) + 1,
            ie_q4k_dd(rows, r + 1, 0, nb) == ie_q4k_dd(rows, r, end, nb) + 2,
        ),
    )


@law("address")
def q4k_full(rows: int, nb: int) -> Claim:
    """q4k_sizes_ok, 0 < rows, 0 < nb => the last d and dmin end the table, the last super-block the file's bytes."""
    last, end = rows - 1, nb - 1
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (0 < rows) & (0 < nb),
        (
            ie_q4k_dd(rows, last, end, nb) + 2 == ie_q4k_qs_n(rows, nb),
            ie_q4k_src_qbyte(last, end, 31, nb) + 1 == rows * nb * 18,
        ),
    )


@law("address")
def q6k_layout(rows: int, nb: int, r: int, b: int, h: int) -> Claim:
    """q4k_sizes_ok, r < rows, b+8 < nb, h < 2 => the tables of Q6_K are dense and its super-blocks 210 bytes apart."""
    blk, high, d = ie_q6k_src_blk(r, b, nb), ie_q6k_hw(rows, r, b, h, nb), ie_q6k_d(rows, r, b, nb)
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (b + 8 < nb) & (h < 2),
        (
            ie_q6k_src_blk(0, 0, nb) == 0,
            ie_q6k_src_blk(r, b + 8, nb) == blk + 210,
            implies(b % 8 < 7, ie_q6k_src_blk(r, b + 1, nb) == blk),
            ie_q6k_src_d(r, b, nb) == blk + 208,
            ie_q6k_hw(rows, 0, 0, 0, nb) == rows * nb * 4,
            ie_q6k_hw(rows, r, b + 1, h, nb) == high + 2,
            high == ie_q6k_hw(rows, r, b, 0, nb) + h,
            ie_q6k_sc(0, 0, nb) == 0,
            ie_q6k_sc(r, b + 1, nb) == ie_q6k_sc(r, b, nb) + 1,
            ie_q6k_d(rows, 0, 0, nb) == rows * nb,
            ie_q6k_d(rows, r, b + 8, nb) == d + 1,
            implies(b % 8 < 7, ie_q6k_d(rows, r, b + 1, nb) == d),
        ),
    )


@law("address")
def q6k_bytes(rows: int, nb: int, r: int, b: int, h: int, j: int) -> Claim:
    """q4k_sizes_ok, r < rows, b < nb, h < 2, j < 32 => which byte of its super-block each part of a weight is in."""
    blk, ql, qh = ie_q6k_src_blk(r, b, nb), ie_q6k_src_ql(r, b, j, nb), ie_q6k_src_qh(r, b, j, nb)
    sc = ie_q6k_src_sc(r, b, h, nb)
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (r < rows) & (b < nb) & (h < 2) & (j < 32),
        (
            implies(b % 8 == 0, ql == blk + j),
            implies(b % 2 == 0, ie_q6k_src_ql(r, b + 1, j, nb) == ql + 32),
            implies(b % 4 < 2, ie_q6k_src_ql(r, b + 2, j, nb) == ql),
            implies(b % 8 < 4, ie_q6k_src_ql(r, b + 4, j, nb) == ql + 64),
            implies(b % 8 == 0, qh == blk + 128 + j),
            implies(b % 4 < 3, ie_q6k_src_qh(r, b + 1, j, nb) == qh),
            implies(b % 8 < 4, ie_q6k_src_qh(r, b + 4, j, nb) == qh + 32),
            implies(b % 8 == 0, sc == blk + 192 + h),
            implies(b % 8 < 7, ie_q6k_src_sc(r, b + 1, h, nb) == sc + 2),
        ),
    )


@law("address")
def q6k_rows(rows: int, nb: int, r: int) -> Claim:
    """q4k_sizes_ok, 0 < nb, r+1 < rows => the next row starts where this one ends."""
    end = nb - 1
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (0 < nb) & (r < rows) & (r + 1 < rows),
        (
            ie_q6k_src_blk(r + 1, 0, nb) == ie_q6k_src_blk(r, end, nb) + 210,
            ie_q6k_hw(rows, r + 1, 0, 0, nb) == ie_q6k_hw(rows, r, end, 1, nb) + 1,
            ie_q6k_sc(r + 1, 0, nb) == ie_q6k_sc(r, end, nb) + 1,
            ie_q6k_d(rows, r + 1, 0, nb) == ie_q6k_d(rows, r, end, nb) + 1,
        ),
    )


@law("address")
def q6k_full(rows: int, nb: int) -> Claim:
    """q4k_sizes_ok, 0 < rows, 0 < nb => the last of each table ends it, the last d the file's bytes."""
    last, end = rows - 1, nb - 1
    return Claim(
        ie_q4k_sizes_ok(rows, nb) & (0 < rows) & (0 < nb),
        (
            ie_q6k_hw(rows, last, end, 1, nb) + 1 == ie_q6k_qw_n(rows, nb),
            ie_q6k_d(rows, last, end, nb) + 1 == ie_q6k_qs_n(rows, nb),
            ie_q6k_src_d(last, end, nb) + 2 == rows * (nb // 8) * 210,
        ),
    )
