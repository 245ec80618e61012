"""The verified integer core: every address, every integer product, every work split and the check of a memory plan.

A function of words takes ints or uint32 arrays and gives the same kind back, modulo 2^32 (`graphrun.core.u32`).
`Mem` arguments are arrays of words, `Fuel` arguments are plain ints. The laws are in `graphrun.core.laws`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from graphrun.core import ie_plan
from graphrun.core.ie_base import *  # noqa: F403  (this module is the one place that names the whole core)
from graphrun.core.ie_k import *  # noqa: F403
from graphrun.core.ie_sums import *  # noqa: F403
from graphrun.core.u32 import Fn

FUNCTIONS: tuple[Fn[int] | Fn[bool], ...] = tuple(f for f in list(globals().values()) if isinstance(f, Fn))
"""Every function of words above, in the order of the imports."""


class Plan(NamedTuple):
    """n buffers in an arena of `cap` bytes: buffer i has the bytes [off, off + size) in the steps first .. last."""

    off: list[int]
    size: list[int]
    first: list[int]
    last: list[int]
    cap: int

    @property
    def n(self) -> int:
        """The number of buffers."""
        return len(self.off)


def plan(slots: Iterable[tuple[int, int, int, int]], cap: int) -> Plan:
    """A plan from one (off, size, first, last) per buffer."""
    rows = [(int(off), int(size), int(first), int(last)) for off, size, first, last in slots]
    off, size, first, last = ([row[column] for row in rows] for column in range(4))
    return Plan(off, size, first, last, cap)


def ie_off(p: Plan, i: int) -> int:
    """Byte offset of buffer i."""
    return p.off[i]


def ie_size(p: Plan, i: int) -> int:
    """Bytes of buffer i; it may be 0 and need not be a multiple of 256."""
    return p.size[i]


def ie_first(p: Plan, i: int) -> int:
    """The step that first uses buffer i."""
    return p.first[i]


def ie_last(p: Plan, i: int) -> int:
    """The step that last uses buffer i."""
    return p.last[i]


def ie_buf_ok(p: Plan, i: int) -> bool:
    """Buffer i lies in the arena, on a multiple of 256, and lives in some step."""
    return ie_plan.buf_ok(*p, i)


def ie_buf_sep(p: Plan, i: int, j: int) -> bool:
    """Buffers i and j never live in the same step, or share no byte."""
    return ie_plan.buf_sep(p.off, p.size, p.first, p.last, i, j)


def ie_pairs_ok(p: Plan, i: int, j: int) -> bool:
    """Buffer i is separate from every buffer j, j+1, ... ."""
    return ie_plan.first_overlap(p.off, p.size, p.first, p.last, i, j) == p.n


def ie_bufs_ok(p: Plan, i: int) -> bool:
    """The buffers i, i+1, ... are ok and each is separate from every later one."""
    return ie_plan.first_fault(*p, i) == p.n


def ie_plan_check(p: Plan) -> bool:
    """Accepts exactly the plans whose buffers are all ok and pairwise separate.

    Touching at one step counts as living together; a plan without buffers is accepted.
    """
    return _is_plan(p) and ie_plan.plan_check(*p)


def first_conflict(p: Plan) -> tuple[int, int] | None:
    """The first pair i < j of buffers in conflict, (i, i) if buffer i by itself is wrong, None for an accepted plan."""
    if not _is_plan(p):
        raise ValueError(f"a plan needs lists of one length, got {[len(column) for column in p[:4]]}")
    i = ie_plan.first_fault(*p, 0)
    if i == p.n:
        return None
    return (i, ie_plan.first_overlap(p.off, p.size, p.first, p.last, i, i + 1)) if ie_buf_ok(p, i) else (i, i)


def _is_plan(p: Plan) -> bool:
    return len(p.off) == len(p.size) == len(p.first) == len(p.last)


def ie_in_buf(p: Plan, i: int, x: int) -> bool:
    """Byte x of the arena belongs to buffer i."""
    return p.off[i] <= x < p.off[i] + p.size[i]


def ie_live(p: Plan, i: int, t: int) -> bool:
    """Buffer i is in use in step t."""
    return p.first[i] <= t <= p.last[i]
