"""Segments and the arena, checked by means of their own: sets of what is touched, bytes painted one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import MACHINE, Builder, llama
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphrun.core.errors import ProgramError
from graphrun.core.ir import Value
from graphrun.core.program import Program, Slot
from graphrun.core.types import tensor
from graphrun.ops import OPS
from graphrun.planner import arena
from graphrun.planner.arena import Buffer
from graphrun.planner.lower import lower

PLACE = Builder().span


def assert_hazard_free(program: Program) -> None:
    """No call reads or writes bytes, or a state, that another call of its segment writes."""
    touched: dict[int, list[tuple[set[object], set[object]]]] = {}
    for call in program.calls:
        operands = [o for part in (call, *call.epilogues) for o in part.inputs if o is not None]
        stored = {o.value.root for o in call.stored}
        reads = {o.value.root.state or o.value.root for o in operands if o.value.root not in stored}
        writes: set[object] = {v.state or v for v in stored}
        for other_reads, other_writes in touched.setdefault(call.segment, []):
            assert not writes & (other_reads | other_writes)
            assert not reads & other_writes
        touched[call.segment].append((set(reads), writes))
    numbers = [c.segment for c in program.calls]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(program.segments))


def assert_slots_clear(slots: Sequence[Slot], size: int) -> None:
    """Paint every slot's bytes, segment by segment: no byte is painted twice, none lies outside."""
    for segment in range(max((s.last for s in slots), default=-1) + 1):
        painted = np.zeros(size // 256, np.uint8)
        for slot in slots:
            if slot.first <= segment <= slot.last:
                assert slot.offset % 256 == 0 and 0 <= slot.offset and slot.offset + slot.size <= size
                painted[slot.offset // 256 : -(-(slot.offset + slot.size) // 256)] += 1
        assert painted.max(initial=0) <= 1


@pytest.mark.parametrize("tokens", [1, 5, 40])
def test_programs_have_no_hazards_and_no_overlaps(tokens: int) -> None:
    types = {"wv": "q6_k", "up": "f32"}
    program = lower(llama(3, tokens, embd=256, heads=8, ff=256, dtype="q4_k", types=types), OPS, MACHINE)
    assert_hazard_free(program)
    assert_slots_clear(program.slots, program.arena)
    assert len({c.segment for c in program.calls}) == program.segments < len(program.calls)


def buffer(index: int, size: int, first: int, length: int) -> Buffer:
    return Buffer(Value(f"v{index}", tensor("f32", 1), "node", PLACE, "0.block"), size, first, first + length)


plans = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 15), st.integers(0, 6)).map(lambda t: (t[0] * 256, t[1], t[2])),
    min_size=1,
    max_size=30,
).map(lambda rows: [buffer(i, *row) for i, row in enumerate(rows)])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(plans)
def test_slots_never_share_a_byte(needed: list[Buffer]) -> None:
    slots, size = arena.place(needed)
    assert [s.value for s in slots] == [b.value for b in needed]
    assert_slots_clear(slots, size)
    arena.check(slots, size)
    live = [sum(b.size for b in needed if b.first <= t <= b.last) for t in range(32)]
    assert arena.bound(needed) == max(live) <= size == max(s.offset + s.size for s in slots)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(plans)
def test_each_slot_is_at_the_lowest_offset_the_greedy_order_leaves(needed: list[Buffer]) -> None:
    slots, _ = arena.place(needed)
    placed: list[Slot] = []
    for slot in sorted(slots, key=lambda s: -s.size):  # stable: ties by index
        others = [s for s in placed if s.first <= slot.last and slot.first <= s.last]
        free = (
            offset
            for offset in range(0, 1 << 30, 256)
            if all(offset + slot.size <= s.offset or s.offset + s.size <= offset for s in others)
        )
        assert slot.offset == next(free)
        placed.append(slot)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(plans, st.data())
def test_a_mutated_plan_is_refused(needed: list[Buffer], data: st.DataObject) -> None:
    slots, size = arena.place(needed)
    pairs = [(a, b) for a in slots for b in slots if a is not b and a.first <= b.last and b.first <= a.last]
    assume(pairs)
    a, b = data.draw(st.sampled_from(pairs))
    moved = replace(a, offset=b.offset)
    wrong = [moved if s is a else s for s in slots]
    with pytest.raises(ProgramError, match="over 0.block.v|outside its arena") as error:
        arena.check(wrong, size)
    if "over" in str(error.value):
        assert str(error.value).count("dir/hand.yaml:1:7") == 2
        assert "segments" in str(error.value) and "bytes" in str(error.value)


@pytest.mark.parametrize("change", [{"offset": 128}, {"offset": -256}, {"offset": 512}, {"first": 9}, {"size": 1024}])
def test_a_slot_wrong_by_itself_is_refused(change: dict[str, Any]) -> None:
    (slot,), size = arena.place([buffer(0, 512, 0, 2)])
    with pytest.raises(ProgramError, match="the plan puts 0.block.v0"):
        arena.check([replace(slot, **change)], size)


def test_lifetimes_count_segments_not_calls() -> None:
    b = Builder()
    x = b.call("quantize", b.input("x", "f32", 1, 64))
    y = b.call("gemv", x, b.weight("a", "q8_0", 64, 64))
    z = b.call("gemv", x, b.weight("b", "q4_0", 64, 64))
    program = lower(b.graph(y=b.call("swiglu", y, z)), OPS, MACHINE)
    first, second = program.slots[0], program.slots[2]
    assert first.last == second.first == 1
    assert first.offset + first.size <= second.offset or second.offset + second.size <= first.offset


def test_outputs_live_to_the_end_and_inner_values_nowhere() -> None:
    program = lower(llama(1), OPS, MACHINE)
    ends = {s.value.name: s.last for s in program.slots}
    assert {ends[name] for name in ("hidden", "logits", "token")} == {program.segments - 1}
    norm = program.calls[1]
    assert (norm.outputs[0].place, norm.epilogues[0].outputs[0].place) == ("none", "arena")
    final = program.calls[-3]
    assert final.outputs[0].place == "arena"
    assert all(s.size % 256 == 0 and s.size >= math.prod(s.value.type.shape) for s in program.slots)
