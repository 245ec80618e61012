"""The arena: one block of memory in which every value of a program has its bytes while it is alive."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from graphrun.core import ie
from graphrun.core.errors import ProgramError
from graphrun.core.ir import Graph, Node, Value
from graphrun.core.program import Slot

ALIGN = 256
LIMIT = 0xFFFFFF00


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes needed from segment `first` to segment `last`, both included."""

    value: Value
    size: int
    first: int
    last: int


def buffers(graph: Graph, nodes: Sequence[Node], segments: Sequence[int], linger: int = 0) -> list[Buffer]:
    """The values that need bytes of the arena, in order of first use.

    States have memory of their own; a value that only its own node's epilogues read has none. What is read lives
    `linger` segments longer.
    """
    first = {v: s for n, s in zip(nodes, segments, strict=True) for v in n.writes if v.state is None}
    last: dict[Value, int] = {}
    end = segments[-1] if segments else 0
    for node, segment in zip(nodes, segments, strict=True):
        last.update((v.root, min(segment + linger, end)) for v in node.reads)
    last.update((v.root, end) for v in graph.outputs.values())
    inner = {v.root for n in nodes for e in n.epilogues for v in e.inputs if v is not None}
    return [
        Buffer(v, align(v.type.nbytes), start, last.get(v, start))
        for v, start in first.items()
        if v in last or v not in inner
    ]


def align(size: int) -> int:
    """`size` rounded up to whole units of 256 bytes."""
    return -(-size // ALIGN) * ALIGN


def place(needed: Sequence[Buffer]) -> tuple[tuple[Slot, ...], int]:
    """Slots in the order of `needed`, and the size of the arena; ProgramError above 4 GiB.

    Greedy by size: the largest first, each at the lowest 256-aligned offset where no buffer alive at the same time
    is in the way.
    """
    offsets: dict[int, int] = {}
    taken: dict[int, list[tuple[int, int]]] = {}  # segment -> (offset, end) of what is placed, sorted
    for index in sorted(range(len(needed)), key=lambda i: (-needed[i].size, i)):
        buffer = needed[index]
        alive = range(buffer.first, buffer.last + 1)
        offset = 0
        for start, end in sorted({span for segment in alive for span in taken.get(segment, ())}):
            if start >= offset + buffer.size:
                break
            offset = max(offset, align(end))
        span = (offset, offset + buffer.size)
        for segment in alive:
            bisect.insort(taken.setdefault(segment, []), span)
        offsets[index] = offset
    slots = tuple(Slot(b.value, offsets[i], b.size, b.first, b.last) for i, b in enumerate(needed))
    arena = align(max((s.offset + s.size for s in slots), default=0))
    if arena > LIMIT:
        hint = "process fewer tokens at a time: a smaller chunk"
        raise ProgramError(f"this step needs {arena} bytes of arena, and {LIMIT} is the most", hint)
    return slots, arena


def bound(needed: Sequence[Buffer]) -> int:
    """The least any arena could need: the largest sum of sizes alive in one segment."""
    change: dict[int, int] = {}
    for buffer in needed:
        change[buffer.first] = change.get(buffer.first, 0) + buffer.size
        change[buffer.last + 1] = change.get(buffer.last + 1, 0) - buffer.size
    most = alive = 0
    for segment in sorted(change):
        alive += change[segment]
        most = max(most, alive)
    return most


def check(slots: Sequence[Slot], arena: int) -> None:
    """Refuse, with ProgramError, a plan in which two values alive in one segment share a byte."""
    plan = ie.plan(((s.offset, s.size, s.first, s.last) for s in slots), arena)
    if ie.ie_plan_check(plan):
        return
    conflict = ie.first_conflict(plan)
    assert conflict is not None
    a, b = (slots[i] for i in conflict)
    if a is b:
        raise ProgramError(
            f"the plan puts {_where(a)} outside its arena of {arena} bytes, or not on a multiple of {ALIGN}"
        )
    raise ProgramError(f"the plan puts {_where(a)} over {_where(b)}")


def _where(slot: Slot) -> str:
    value = slot.value
    name = f"{value.scope}.{value.name}" if value.scope else value.name
    span, end = value.span, slot.offset + slot.size
    return f"{name} ({span}; bytes {slot.offset} to {end}, segments {slot.first} to {slot.last})"
