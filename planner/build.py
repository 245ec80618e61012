"""A graph whose nodes have kernels becomes a program: segments, slots, and an operand for every tensor."""

from __future__ import annotations

from collections.abc import Mapping

from graphrun.core.ir import Graph, Node, Value
from graphrun.core.op import Kernel
from graphrun.core.program import Call, Operand, Program, Slot
from graphrun.core.signature import evaluate
from graphrun.core.target import Target
from graphrun.planner import arena
from graphrun.planner.segments import segments
from graphrun.planner.select import dimensions

Slots = Mapping[Value, Slot]


def build_program(graph: Graph, target: Target, source: Graph, exact: bool) -> Program:
    """The program of a lowered graph; `source` is the graph before any pass. Raises ProgramError."""
    calls = [n for n in graph.nodes if not n.op.view]
    segment = segments(calls)
    # Resident blocks may make what a product reads in the product's own segment: its inputs must still be there.
    needed = arena.buffers(graph, calls, segment, linger=int(target.resident_groups > 0 and graph.tokens == 1))
    slots, size = arena.place(needed)
    slot_of = {s.value: s for s in slots}
    return Program(
        name=graph.name,
        tokens=graph.tokens,
        context=graph.context,
        target=target,
        calls=tuple(_call(n, s, slot_of, graph.tokens, target) for n, s in zip(calls, segment, strict=True)),
        segments=segment[-1] + 1 if segment else 0,
        slots=slots,
        arena=size,
        bound=arena.bound(needed),
        nodes=len(source.nodes),
        inputs=graph.inputs,
        outputs={name: _operand(value, slot_of) for name, value in graph.outputs.items()},
        weights=tuple(dict.fromkeys(v for n in calls for v in n.reads if v.kind == "weight")),
        states=tuple(dict.fromkeys(v.state for n in calls for v in n.reads if v.state is not None)),
        graph=source,
        exact=exact,
    )


def _call(node: Node, segment: int, slots: Slots, tokens: int, target: Target) -> Call:
    kernel = node.kernel
    assert kernel is not None, "select gives every node a kernel"
    types = tuple(None if v is None else v.type for v in node.inputs)
    sizes = dimensions(node.op, types, node.attrs, tokens)
    return Call(
        op=node.op,
        kernel=kernel,
        inputs=tuple(None if v is None else _operand(v, slots) for v in node.inputs),
        attrs=node.attrs,
        outputs=tuple(_operand(v, slots) for v in node.outputs),
        epilogues=tuple(_epilogue(e, segment, slots) for e in node.epilogues),
        segment=segment,
        groups=target.groups(evaluate(kernel.groups, sizes)),
        scope=node.scope,
        span=node.span,
        scratch=evaluate(kernel.scratch, sizes),
    )


def _epilogue(node: Node, segment: int, slots: Slots) -> Call:
    """An op that runs inside another has no launch of its own: the name of its kernel is the op's."""
    return Call(
        op=node.op,
        kernel=Kernel(node.op.name),
        inputs=tuple(None if v is None else _operand(v, slots) for v in node.inputs),
        attrs=node.attrs,
        outputs=tuple(_operand(v, slots) for v in node.outputs),
        epilogues=(),
        segment=segment,
        groups=0,
        scope=node.scope,
        span=node.span,
    )


def _operand(value: Value, slots: Slots) -> Operand:
    """Where a value's bytes are: its own, those it is a view of, or a state's."""
    root, offset = value.root, value.offset
    if root in slots:
        return Operand("arena", value, value.type, slots[root].offset + offset, value.strides)
    place = "state" if root.state is not None else root.kind if root.kind in ("weight", "input") else "none"
    return Operand(place, value, value.type, offset, value.strides)
