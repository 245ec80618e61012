"""Tiles: what kernels declare is what the core's laws are about, and workgroups that do not fit are named."""

from __future__ import annotations

import pytest
from damage import with_call
from handmade import MACHINE, llama

from graphrun.core import ie
from graphrun.core.errors import ProgramError
from graphrun.core.op import Kernel
from graphrun.ops import OPS
from graphrun.planner import check_lists
from graphrun.planner.check import check
from graphrun.planner.check_tiles import check_tiles
from graphrun.planner.lower import lower

PROGRAM = lower(llama(1, embd=256, heads=8, ff=512, dtype="q4_k"), OPS, MACHINE)


def test_tiles_of_products_are_those_of_the_core() -> None:
    """The declared rows of a workgroup are the ones whose cover and uniqueness are laws; products of many tokens, which
    are computed in tiles of matrix instructions, have their own."""
    for name in ("gemv", "gemv_f32"):
        for kernel in OPS[name].kernels:
            if kernel.name.startswith("gemm"):
                continue
            assert f"M: {ie.ie_rows_per_wg()}" in kernel.tile
    for rows in (1, 7, 8, 9, 64, 1000):
        lo = [ie.ie_gemv_row(g, 0) for g in range(ie.ie_gemv_ngroups(rows))]
        assert check_lists.tiles_cover(lo, [min(x + ie.ie_rows_per_wg(), rows) for x in lo], rows)
        assert lo[-1] < rows


def test_every_kernel_says_what_its_workgroups_write() -> None:
    """Declared tiles agree with the number of workgroups on all programs; a tile of everything takes one."""
    for op in OPS.values():
        for kernel in op.kernels:
            assert kernel.tile or kernel.groups == "1", kernel.name
    program = with_call(PROGRAM, 0, kernel=Kernel("embed"), groups=1)
    assert check_tiles(program, 0) == 1


def test_too_few_workgroups_are_named() -> None:
    short = with_call(PROGRAM, 2, groups=PROGRAM.calls[2].groups - 1)
    with pytest.raises(ProgramError) as error:
        check(short, OPS)
    assert str(error.value) == (
        "hand: call 2 (gemv_q4_k of 0.attention, dir/hand.yaml:3:7), which starts 47 workgroups where 48 tiles of"
        " [M: 8] take 48"
    )
