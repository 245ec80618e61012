"""Programs with one thing wrong, for the checks to refuse."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from graphrun.core.ir import Value
from graphrun.core.program import Call, Operand, Program, Slot

Change = Callable[[Operand], Operand]


def with_call(program: Program, index: int, **changes: Any) -> Program:
    """The program with other fields in one call."""
    calls = list(program.calls)
    calls[index] = replace(calls[index], **changes)
    return replace(program, calls=tuple(calls))


def each_operand(call: Call, change: Change) -> Call:
    """The call with every operand changed, those of absorbed ops included."""
    return replace(
        call,
        inputs=tuple(None if o is None else change(o) for o in call.inputs),
        outputs=tuple(change(o) for o in call.outputs),
        epilogues=tuple(each_operand(e, change) for e in call.epilogues),
    )


def moved(program: Program, value: Value, by: int, *, slot: bool = True) -> Program:
    """The program with a value's bytes elsewhere; without `slot` the plan still says where they were."""

    def change(operand: Operand) -> Operand:
        here = operand.place == "arena" and operand.value.root is value
        return replace(operand, offset=operand.offset + by) if here else operand

    slots = [replace(s, offset=s.offset + by) if slot and s.value is value else s for s in program.slots]
    return replace(
        program,
        calls=tuple(each_operand(c, change) for c in program.calls),
        slots=tuple(slots),
        arena=max(program.arena, *(s.offset + s.size for s in slots)),
        outputs={name: change(o) for name, o in program.outputs.items()},
    )


def overlap(program: Program, rng: random.Random) -> tuple[Program, tuple[Slot, Slot]]:
    """Two values that are alive in one segment share bytes: one starts somewhere inside the other."""
    pairs = [(a, b) for a in program.slots for b in program.slots if a is not b]
    a, b = rng.choice([(a, b) for a, b in pairs if a.first <= b.last and b.first <= a.last])
    inside = rng.choice([0, rng.randrange(0, b.size, 256)])
    return moved(program, a.value, b.offset + inside - a.offset), (a, b)


def touched(call: Call) -> tuple[set[object], set[object]]:
    """What a call reads and writes: values, and states as such."""
    made = {o.value.root for o in call.stored}
    operands = [o for part in (call, *call.epilogues) for o in part.inputs if o is not None]
    reads = {o.value.root.state or o.value.root for o in operands if o.value.root not in made}
    return set(reads), {v.state or v for v in made}


def barriers(program: Program) -> list[int]:
    """Segments after which a barrier is needed: a call of the next one reads or writes what one of them writes."""
    found = []
    for segment in range(program.segments - 1):
        for a in (c for c in program.calls if c.segment == segment):
            for b in (c for c in program.calls if c.segment == segment + 1):
                (reads, writes), (later_reads, later_writes) = touched(a), touched(b)
                if writes & (later_reads | later_writes) or reads & later_writes:
                    found.append(segment)
    return sorted(set(found))


def without_barrier(program: Program, rng: random.Random) -> Program:
    """Two segments that must not be one are one; the plan is told so, too."""
    gone = rng.choice(barriers(program))
    return replace(
        program,
        calls=tuple(replace(c, segment=c.segment - (c.segment > gone)) for c in program.calls),
        slots=tuple(replace(s, first=s.first - (s.first > gone), last=s.last - (s.last > gone)) for s in program.slots),
        segments=program.segments - 1,
    )


def _twice(program: Program, rng: random.Random) -> Program:
    """A call runs a second time, in its own segment or in a later one."""
    index = rng.randrange(len(program.calls))
    again = program.calls[index]
    later = rng.randrange(index, len(program.calls))
    calls = list(program.calls)
    calls.insert(later + 1, replace(again, segment=program.calls[later].segment))
    return replace(program, calls=tuple(calls))


def _onto_another(program: Program, rng: random.Random) -> Program:
    """A call's result is written where another one of the program is, without the plan's knowledge."""
    stored = [(i, k, o) for i, c in enumerate(program.calls) for k, o in enumerate(c.outputs) if o.place == "arena"]
    index, k, operand = rng.choice(stored)
    other = rng.choice([s for s in program.slots if s.value is not operand.value and s.offset != operand.offset])
    outputs = list(program.calls[index].outputs)
    outputs[k] = replace(operand, offset=other.offset)
    return with_call(program, index, outputs=tuple(outputs))


def _as_another(program: Program, rng: random.Random) -> Program:
    """A call writes a value that another call writes."""
    stored = [(i, k, o) for i, c in enumerate(program.calls) for k, o in enumerate(c.outputs) if o.place == "arena"]
    index, k, operand = rng.choice(stored)
    others = [o for i, _, o in stored if i != index and o.type == operand.type]
    if not others:
        return _twice(program, rng)
    outputs = list(program.calls[index].outputs)
    outputs[k] = rng.choice(others)
    return with_call(program, index, outputs=tuple(outputs))


def double_write(program: Program, rng: random.Random) -> Program:
    """Bytes or values that are written twice."""
    return rng.choice([_twice, _onto_another, _as_another])(program, rng)


def uncovered(program: Program, rng: random.Random) -> Program:
    """A call with workgroups missing or too many, or with tiles that do not fit its results or its workgroups."""
    index = rng.randrange(len(program.calls))
    call = program.calls[index]
    kernel = call.kernel
    wrong: list[Mapping[str, Any]] = [
        {"groups": call.groups - 1},
        {"groups": call.groups + 1},
        {"groups": 2 * call.groups},
        {"kernel": replace(kernel, split=f"({kernel.split}) * 2")},
        {"kernel": replace(kernel, tile=f"{kernel.tile}, Z: 1")},
        {"kernel": replace(kernel, tile=f"{kernel.tile} | ")},
    ]
    if call.outputs[0].place == "arena":
        wide = call.outputs[0].type
        shape = (*wide.shape[:-1], wide.shape[-1] + 32)
        larger = replace(call.outputs[0], type=replace(wide, shape=shape))
        wrong.append({"outputs": (larger, *call.outputs[1:])})
    if ": 8" in kernel.tile and call.groups > 1:
        wrong += [{"kernel": replace(kernel, tile=kernel.tile.replace(": 8", size))} for size in (": 4", ": 16")]
    if ": 1," in kernel.tile and program.tokens > 1:
        wrong.append({"kernel": replace(kernel, tile=kernel.tile.replace(": 1,", ": 2,", 1))})
    return with_call(program, index, **rng.choice(wrong))
