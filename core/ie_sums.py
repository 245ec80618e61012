"""The integer core: which lane owns which block, and the order of sums. Sums of floats use the same order."""

from __future__ import annotations

from graphrun.core.u32 import Fuel, Mem, sum_while, word


@word
def ie_gemv_ngroups(rows: int) -> int:
    """Workgroups of a matrix-vector product, 8 rows each."""
    return (rows + 7) >> 3


@word
def ie_gemv_row(g: int, v: int) -> int:
    """Row of wave v < 8 in workgroup g."""
    return 8 * g + v


@word
def ie_lane_blk(l: int, t: int) -> int:  # noqa: E741  (l is the field's name for a lane)
    """Block that lane l < 32 takes in step t."""
    return l + 32 * t


@word
def ie_blk_lane(b: int) -> int:
    """Lane that takes block b."""
    return b & 31


@word
def ie_blk_step(b: int) -> int:
    """Step in which block b is taken."""
    return b >> 5


@word
def ie_seq_sum(n: Fuel, x: Mem, lo: int, hi: int) -> int:
    """x[lo] + ... + x[hi-1], at most n of them."""
    return sum_while(n, lo, hi, 1, lambda i: x[i])


@word
def ie_lane_sum(n: Fuel, x: Mem, b: int, nb: int) -> int:
    """x[b] + x[b+32] + ... below nb, at most n of them."""
    return sum_while(n, b, nb, 32, lambda i: x[i])


@word
def ie_lanes_sum(n: Fuel, x: Mem, l: int, nb: Fuel) -> int:  # noqa: E741
    """Sum of what the lanes l .. 31 own, at most n of them."""
    return sum_while(n, l, 32, 1, lambda lane: ie_lane_sum(nb, x, lane, nb))


@word
def ie_strided_sum(x: Mem, nb: Fuel) -> int:
    """x[0] + ... + x[nb-1] as 32 lanes add it."""
    total: int = ie_lanes_sum(32, x, 0, nb)
    return total


@word
def ie_tree(m: Fuel, x: Mem, i: int) -> int:
    """Pairwise sum after m halvings: lane i adds lane i + 16, then + 8, ... ."""
    if m == 0:
        return x[i]
    total: int = ie_tree(m - 1, x, i) + ie_tree(m - 1, x, i + (32 >> m))
    return total


@word
def ie_wave_sum(x: Mem) -> int:
    """Sum over the 32 lanes of a wave, in lane 0, pairwise with offsets 16, 8, 4, 2, 1."""
    total: int = ie_tree(5, x, 0)
    return total
