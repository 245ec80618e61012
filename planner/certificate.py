"""The lowering lock: one short hash of a graph, its plan and its kernels, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from graphrun.core.ir import Graph, Node, State, Value
from graphrun.core.op import Op
from graphrun.core.program import Call, Operand, Program

LENGTH = 16  # hexadecimal digits that are shown


def lock(program: Program) -> str:
    """The first 64 bits of the SHA-256 of `canonical`, in hexadecimal."""
    text = "\n".join(canonical(program)) + "\n"
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def canonical(program: Program) -> Iterator[str]:
    """Lines that say all of a lowering and nothing of where it was made.

    The graph before any pass, the ops that graph and program use, the calls with kernels, tiles, workgroups,
    segments and operands, and the arena's buffers. Files, lines and columns are left out, and so are the names of
    values that no one outside can see.
    """
    yield f"lowering 1 {program.name} tokens {program.tokens} context {program.context} exact {program.exact}"
    yield f"kernels {program.target.kernels} lanes {program.target.lanes}"
    parts = [part for call in program.calls for part in (call, *call.epilogues)]
    used = {op.name: op for op in (*(n.op for n in program.graph.nodes), *(p.op for p in parts))}
    yield from (_op(used[name]) for name in sorted(used))
    yield from _graph(program.graph)
    names: dict[Value, int] = {}
    for call in program.calls:
        yield f"segment {call.segment} workgroups {call.groups}"
        yield from (_call(part, names) for part in (call, *call.epilogues))
    yield f"arena {program.arena} segments {program.segments}"
    for slot in program.slots:
        value = _number(slot.value, names)
        yield f"buffer {value} at {slot.offset} size {slot.size} alive {slot.first} to {slot.last}"
    yield from (f"output {name} {_operand(o, names)}" for name, o in sorted(program.outputs.items()))


def _op(op: Op) -> str:
    expansions = [(e.body, e.when, e.rounds) for e in op.expansions]
    return f"op {op.name} ({op.signature}) requires {op.requires!r} fuses {op.fuses!r} expands {expansions!r}"


def _graph(graph: Graph) -> Iterator[str]:
    names: dict[Value, int] = {}
    for node in graph.nodes:
        yield f"node {_equation(node, names)}"
    for name, value in sorted(graph.outputs.items()):
        yield f"result {name} {_read(value, names)}"


def _equation(node: Node, names: dict[Value, int]) -> str:
    inputs = ", ".join("-" if v is None else _read(v, names) for v in node.inputs)
    outputs = ", ".join(_read(v, names) for v in node.outputs)
    return f"{node.op.name}({inputs}){sorted(node.attrs.items())!r} -> {outputs}"


def _call(call: Call, names: dict[Value, int]) -> str:
    kernel = call.kernel
    inputs = ", ".join("-" if o is None else _operand(o, names) for o in call.inputs)
    outputs = ", ".join(_operand(o, names) for o in call.outputs)
    facts = f"{kernel.name} tile [{kernel.tile}] split {kernel.split} weight {kernel.weight} of {call.op.name}"
    return f"call {facts}({inputs}){sorted(call.attrs.items())!r} -> {outputs}"


def _read(value: Value, names: dict[Value, int]) -> str:
    return f"{_number(value.root, names)} {value.type} from {value.offset} by {value.strides}"


def _operand(operand: Operand, names: dict[Value, int]) -> str:
    root = _number(operand.value.root, names)
    return f"{root} {operand.type} {operand.place} from {operand.offset} by {operand.strides}"


def _number(root: Value, names: dict[Value, int]) -> str:
    """A value from outside by what it is, one of the graph's own by the order of first mention."""
    if root.kind == "weight":
        parts = ", ".join(f"{p.tensor}:{p.rows}" for p in root.parts)
        return f"weight[{parts or root.name} {root.type}]"
    if root.kind == "input":
        return f"input[{root.name}]"
    number = names.setdefault(root, len(names))
    return f"v{number}{_state(root.state) if root.state else ''}"


def _state(state: State) -> str:
    return f"[{state.name} {state.discipline} {state.type}]"
