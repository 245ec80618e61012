"""Data that crosses lanes: DPP16, DPP8, permutes, reads and writes of single lanes."""

from __future__ import annotations

import numpy as np
import pytest

from sim.simulator import EXEC, Machine, assemble, assemble_all, run
from sim.vector_table import Array

LANE = np.arange(32)
PLACE, ROW = LANE % 16, LANE // 16 * 16
A = (np.arange(32, dtype=np.uint32) * 7919 + 13) * 977
OLD = np.arange(32, dtype=np.uint32) + 0xAAAA0000
MASKS = (0xFFFFFFFF, 0x00FF0F35, 0x80000001, 0)


def after(line: str | bytes, exec_mask: int = 0xFFFFFFFF, **scalars: int) -> Machine:
    machine = Machine()
    machine.v[0][:], machine.v[1][:], machine.v[2][:] = OLD.tolist(), A.tolist(), (A ^ 0x5555).tolist()
    machine.s[EXEC] = exec_mask
    for name, value in scalars.items():
        machine.s[int(name[1:])] = value
    run(assemble(line) if isinstance(line, str) else line, machine)
    return machine


CONTROLS: dict[str, Array] = {  # lane that each lane reads, -1 outside the row
    **{f"row_shl:{n}": np.where(PLACE + n < 16, LANE + n, -1) for n in (1, 5, 15)},
    **{f"row_shr:{n}": np.where(n <= PLACE, LANE - n, -1) for n in (1, 8, 15)},
    **{f"row_ror:{n}": ROW | (PLACE - n) % 16 for n in (1, 4, 15)},
    **{f"row_share:{n}": ROW | n for n in (0, 3, 15)},
    **{f"row_xmask:{n}": ROW | PLACE ^ n for n in (0, 1, 2, 4, 8, 15)},
    "row_mirror": ROW | 15 - PLACE,
    "row_half_mirror": LANE // 8 * 8 | 7 - LANE % 8,
    "quad_perm:[3,1,0,2]": LANE // 4 * 4 | np.array([3, 1, 0, 2])[LANE % 4],
}


@pytest.mark.parametrize("control", CONTROLS)
def test_dpp16(control: str) -> None:
    lane = CONTROLS[control]
    masks = ((15, 15), (1, 15), (15, 5), (2, 8))
    choices = [(rows, banks, zero, inactive) for rows, banks in masks for zero in (0, 1) for inactive in (0, 1)]
    lines = [
        f"v_mov_b32_dpp v0, v1 {control} row_mask:{rows} bank_mask:{banks}"
        + " bound_ctrl:1" * zero
        + " fi:1" * inactive
        for rows, banks, zero, inactive in choices
    ]
    codes = assemble_all(tuple(lines))
    for line, (rows, banks, zero, inactive) in zip(lines, choices, strict=True):
        chosen = (rows >> LANE // 16 & 1 & banks >> LANE % 16 // 4).astype(bool)
        for exec_mask in MASKS:
            active = (exec_mask >> LANE & 1).astype(bool)
            valid = (lane >= 0) & (active[lane] | bool(inactive))
            moved = np.where(valid, A[lane], 0)
            written = active & chosen & (valid | bool(zero))
            machine = after(codes[line], exec_mask)
            assert (np.array(machine.v[0]) == np.where(written, moved, OLD)).all(), (hex(exec_mask), line)
            assert machine.s[EXEC] == exec_mask


def test_dpp_feeds_an_operation() -> None:
    machine = after("v_add_nc_u32_dpp v0, v1, v2 row_xmask:8 row_mask:0xf bank_mask:0xf")
    assert (np.array(machine.v[0], np.uint32) == A[LANE ^ 8] + (A ^ 0x5555)).all()
    machine = after("v_cmp_gt_u32_e64_dpp s4, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf")
    moved = np.where(PLACE >= 1, A[LANE - 1], 0)
    assert machine.s[4] == sum(1 << int(n) for n in np.flatnonzero((moved > (A ^ 0x5555)) & (PLACE >= 1)))


@pytest.mark.parametrize("order", [[7, 6, 5, 4, 3, 2, 1, 0], [1, 1, 3, 0, 5, 7, 2, 4]])
def test_dpp8(order: list[int]) -> None:
    lane = LANE // 8 * 8 + np.array(order)[LANE % 8]
    for exec_mask in MASKS:
        active = (exec_mask >> LANE & 1).astype(bool)
        for inactive in (0, 1):
            machine = after(f"v_mov_b32_dpp v0, v1 dpp8:{order}" + " fi:1" * inactive, exec_mask)
            moved = np.where(active[lane] | bool(inactive), A[lane], 0)
            assert (np.array(machine.v[0]) == np.where(active, moved, OLD)).all()


@pytest.mark.parametrize("cross", [0, 1])
@pytest.mark.parametrize("options", ["", " op_sel:[1,0]", " op_sel:[0,1]", " op_sel:[1,1]"])
def test_permlane16(cross: int, options: str) -> None:
    low, high = 0x03FEDC21, 0x8A4B9675
    selector = np.array([(low | high << 32) >> 4 * n & 15 for n in range(16)])
    lane = (ROW ^ 16 * cross) + selector[PLACE]
    for exec_mask in MASKS:
        active = (exec_mask >> LANE & 1).astype(bool)
        readable = active[lane] | ("[1" in options)
        kept = np.where("1]" in options, 0, OLD)
        machine = after(f"v_permlane{'x' * cross}16_b32 v0, v1, s4, s5{options}", exec_mask, s4=low, s5=high)
        assert (np.array(machine.v[0]) == np.where(active, np.where(readable, A[lane], kept), OLD)).all()


@pytest.mark.parametrize("cross", [0, 1])
def test_permlane16_by_lanes(cross: int) -> None:
    machine = after(f"v_permlane{'x' * cross}16_var_b32 v0, v1, v2")
    lane = (ROW ^ 16 * cross) + (A ^ 0x5555) % 16
    assert (np.array(machine.v[0]) == A[lane]).all()


def test_single_lanes() -> None:
    for exec_mask, first in ((0xFFFFFFFF, 0), (0x00FF0F30, 4), (0x80000000, 31), (0, 0)):
        assert after("v_readfirstlane_b32 s4, v1", exec_mask).s[4] == A[first]
        assert after("v_readlane_b32 s4, v1, s5", exec_mask, s5=37).s[4] == A[5]
        machine = after("v_writelane_b32 v0, s5, 9", exec_mask, s5=4711)
        assert (np.array(machine.v[0]) == np.where(LANE == 9, 4711, OLD)).all()


def test_swap() -> None:
    for exec_mask in MASKS:
        active = (exec_mask >> LANE & 1).astype(bool)
        machine = after("v_swap_b32 v0, v1", exec_mask)
        assert (np.array(machine.v[0]) == np.where(active, A, OLD)).all()
        assert (np.array(machine.v[1]) == np.where(active, OLD, A)).all()
