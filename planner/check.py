"""The checks that every lowered program passes before it may run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphrun.core.errors import ProgramError
from graphrun.core.ir import Value
from graphrun.core.op import Op
from graphrun.core.program import Program
from graphrun.planner import arena, check_lists
from graphrun.planner.check_access import Access, access, accesses, call_text, span_text, value_text
from graphrun.planner.check_races import check_races
from graphrun.planner.check_tiles import check_tiles
from graphrun.planner.check_values import check_values


@dataclass(frozen=True, slots=True)
class Checks:
    """What was checked of a program: reads of a value that is there, accesses in bounds, buffers apart, tiles that
    cover outputs, pairs of accesses without a race, and values that are the graph's."""

    reads: int
    accesses: int
    buffers: int
    tiles: int
    pairs: int
    values: int


def check(program: Program, ops: Mapping[str, Op]) -> Checks:
    """Check a program against its own graph; ProgramError names the calls, the values, their bytes and their lines."""
    every = [accesses(call) for call in program.calls]
    reads = _check_order(program, every)
    arena.check(program.slots, program.arena)
    return Checks(
        reads=reads,
        accesses=_check_bounds(program, every),
        buffers=len(program.slots),
        tiles=sum(check_tiles(program, index) for index in range(len(program.calls))),
        pairs=check_races(program, every),
        values=check_values(program, ops),
    )


def _check_order(program: Program, every: list[list[Access]]) -> int:
    """Segments follow each other, every read finds what was written or given before, no value is written twice."""
    segments = [call.segment for call in program.calls]
    steps = zip([-1, *segments], segments, strict=False)
    if any(b not in (a, a + 1) for a, b in steps) or program.segments != len(set(segments)):
        raise ProgramError(f"{program.name}: the segments of the calls do not count from 0 to {program.segments - 1}")
    numbers: dict[Value, int] = {}
    steps_of = [(i, a) for i, found in enumerate(every) for a in found]
    last = len(program.calls)
    steps_of += [(last, access(o)) for o in program.outputs.values()]
    value = [numbers.setdefault(a.root, len(numbers)) for _, a in steps_of]
    write = [int(a.write) for _, a in steps_of]
    given = [int(root.kind != "node") for root in numbers]
    at = check_lists.first_unwritten(value, write, given)
    if at < len(value):
        _unwritten(program, steps_of, at)
    written = [k for k, flag in enumerate(write) if flag]
    at = check_lists.first_rewritten([value[k] for k in written], given)
    if at < len(written):
        _rewritten(program, steps_of, value, written[at])
    return len(value) - len(written)


def _unwritten(program: Program, steps: list[tuple[int, Access]], at: int) -> None:
    index, touched = steps[at]
    reader = call_text(program, index) if index < len(program.calls) else f"{program.name} gives out"
    later = [i for i, a in steps[at:] if a.write and a.root is touched.root]
    after = f"; {call_text(program, later[0])} writes it later" if later else "; no call writes it"
    raise ProgramError(
        f"{program.name}: {reader} reads {value_text(touched.root)}, {span_text(touched)}, before it is written{after}"
    )


def _rewritten(program: Program, steps: list[tuple[int, Access]], value: list[int], at: int) -> None:
    index, touched = steps[at]
    first = next((i for (i, a), v in zip(steps[:at], value, strict=False) if a.write and v == value[at]), None)
    other = "what is given from outside" if first is None else f"what {call_text(program, first)} has written"
    name = value_text(touched.root)
    raise ProgramError(f"{program.name}: {call_text(program, index)} writes {name}, {span_text(touched)}, over {other}")


def _check_bounds(program: Program, every: list[list[Access]]) -> int:
    """Accesses of the arena lie in the buffer of their value while it is alive, others in their tensor."""
    slots = {slot.value: slot for slot in program.slots}
    end = program.segments - 1
    steps = [(i, a) for i, found in enumerate(every) for a in found]
    steps += [(len(program.calls), access(o)) for o in program.outputs.values()]
    floor, ceiling = [], []
    for index, touched in steps:
        segment = program.calls[index].segment if index < len(program.calls) else end
        low, high = 0, touched.root.type.nbytes
        if touched.place == "arena":
            slot = slots.get(touched.root)
            if slot is None or not slot.first <= segment <= slot.last:
                _misplaced(program, index, touched, "has no bytes of the arena in that segment")
            assert slot is not None
            low, high = slot.offset, slot.offset + slot.size
        floor.append(low)
        ceiling.append(high)
    lo, hi = [a.lo for _, a in steps], [a.hi for _, a in steps]
    at = check_lists.first_outside(lo, hi, floor, ceiling, max([program.arena, *ceiling]))
    if at < len(lo):
        _misplaced(program, *steps[at], f"has bytes {floor[at]} to {ceiling[at]}")
    return len(lo)


def _misplaced(program: Program, index: int, touched: Access, problem: str) -> None:
    who = call_text(program, index) if index < len(program.calls) else "the caller"
    does = "writes" if touched.write else "reads"
    name = value_text(touched.root)
    raise ProgramError(f"{program.name}: {who} {does} {name}, {span_text(touched)}, which {problem}")
