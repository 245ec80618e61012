"""A program or a graph as text, JSON or dot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from graphrun.core.errors import Span
from graphrun.core.ir import Graph, Node, Value
from graphrun.core.program import Call, Operand, Program
from graphrun.planner.certificate import lock
from graphrun.planner.cost import cost as cost_of
from graphrun.planner.cost import total, weight_bytes


def program_text(program: Program, layer: int | None = None, cost: bool = False) -> str:
    """One line a call: segment (`|` where it shares it), block, kernel, results, inputs, workgroups, weights, source.

    `layer` leaves only its calls; `cost` adds megabytes moved, megaflops and the roofline time of each call.
    """
    calls = program.select(layer=layer)
    shared = _shared_segments(program)
    rows = [_row(program, call, call.segment in shared, cost) for call in calls]
    lines = [_header(program), *_columns(rows, right=(0, *range(6, 11 if cost else 8)))]
    if cost:
        whole = total(program)
        lines.append(
            f"{whole.bytes / 1e6:.1f} MB, {whole.flops / 1e6:.1f} Mflop, at least {whole.seconds * 1e6:.1f} us"
            f" on {program.target.name} with the whole context of {program.context} positions in use"
        )
    return "\n".join(lines) + "\n"


def _header(program: Program) -> str:
    return (
        f"{program.nodes} nodes -> {len(program.calls)} calls, {program.segments} segments,"
        f" arena {program.arena} bytes, {len(program.slots)} buffers, lock {lock(program)}"
    )


def _shared_segments(program: Program) -> set[int]:
    pairs = zip(program.calls, program.calls[1:], strict=False)
    return {a.segment for a, b in pairs if a.segment == b.segment}


def _row(program: Program, call: Call, shared: bool, with_cost: bool) -> list[str]:
    stored = ", ".join(f"@{o.offset:05x} {o.type}" for o in call.stored if o.place == "arena")
    weight = weight_bytes(call)
    row = [
        f"{call.segment}{'|' if shared else ' '}",
        call.scope or "-",
        call.label,
        stored,
        "<-",
        _inputs(call),
        f"{call.groups} wg",
        f"{weight / 1e6:.1f} MB" if weight else "",
    ]
    if with_cost:
        price = cost_of(program, call)
        row += [f"{price.bytes / 1e6:.2f} MB moved", f"{price.flops / 1e6:.2f} Mflop", f"{price.seconds * 1e6:.2f} us"]
    return [*row, _place(call.span)]


def _inputs(call: Call) -> str:
    made = {o.value.root for c in (call, *call.epilogues) for o in c.outputs}
    read = (o for c in (call, *call.epilogues) for o in c.inputs if o is not None and o.value.root not in made)
    return ", ".join(dict.fromkeys(map(_operand, read)))


def _operand(operand: Operand) -> str:
    value = operand.value
    match operand.place:
        case "arena":
            return f"@{operand.offset:05x}"
        case "weight":
            return f"{value.name}:{operand.type.dtype}"
        case "state":
            assert value.root.state is not None
            return f"*{value.root.state.name}"
    return value.name


def _place(span: Span) -> str:
    """File and line, the file by its last name."""
    return f"{_base(span.file)}:{span.line}"


def _base(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _columns(rows: Sequence[Sequence[str]], right: Iterable[int]) -> list[str]:
    """Rows as lines whose columns are aligned; the columns `right` to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = set(right)
    return [
        "  ".join(
            cell.rjust(width) if i in aligned else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def graph_text(graph: Graph) -> str:
    """One line a node, as an equation with types: block, results, op, inputs and attributes, source."""
    names = _unique_names(graph)
    rows = [[node.scope or "-", _equation(node, names), _place(node.span)] for node in graph.nodes]
    outputs = ", ".join(f"{name} = {names[value]}" for name, value in graph.outputs.items())
    head = f"{graph.name}: {len(graph.nodes)} nodes, {graph.tokens} tokens, context {graph.context}"
    return "\n".join([head, *_columns(rows, right=()), f"outputs: {outputs}"]) + "\n"


def _unique_names(graph: Graph) -> dict[Value, str]:
    """Names of all values, numbered where a block has several of one name."""
    values = [v for n in graph.nodes for part in (n, *n.epilogues) for v in (*part.inputs, *part.outputs)]
    known = dict.fromkeys([*graph.inputs.values(), *(v for v in values if v is not None), *graph.outputs.values()])
    used: dict[tuple[str, str], int] = {}
    names = {}
    for value in known:
        count = used[value.scope, value.name] = used.get((value.scope, value.name), 0) + 1
        names[value] = value.name if count == 1 else f"{value.name}.{count}"
    return names


def _equation(node: Node, names: dict[Value, str]) -> str:
    results = ", ".join(f"{names[v]}: {v.type}{'' if v.view is None else ' view'}" for v in node.outputs)
    inputs = [_full_name(v, node.scope, names) for v in node.inputs if v is not None]
    usual = {attr.name: attr.default for attr in node.op.signature.attrs}
    attrs = [f"{name}={value}" for name, value in node.attrs.items() if value != usual[name]]
    kernel = f"[{node.kernel.name}]" if node.kernel else ""
    absorbed = "".join(f" + {_equation(e, names)}" for e in node.epilogues)
    return f"{results} = {node.op.name}{kernel}({', '.join(inputs + attrs)}){absorbed}"


def _full_name(value: Value, scope: str, names: dict[Value, str]) -> str:
    return names[value] if value.scope in ("", scope) else f"{value.scope}.{names[value]}"


def program_json(program: Program) -> str:
    """Header, calls and slots of a program as JSON."""
    facts: dict[str, Any] = {
        "name": program.name,
        "lock": lock(program),
        "tokens": program.tokens,
        "context": program.context,
        "target": program.target.name,
        "nodes": program.nodes,
        "segments": program.segments,
        "arena": program.arena,
        "bound": program.bound,
        "weight_bytes": program.weight_bytes,
        "calls": [_call_facts(program, call) for call in program.calls],
        "slots": [
            {"value": _value(s.value), "offset": s.offset, "size": s.size, "first": s.first, "last": s.last}
            for s in program.slots
        ],
        "outputs": {name: _operand_facts(o) for name, o in program.outputs.items()},
    }
    return json.dumps(facts, indent=1) + "\n"


def _call_facts(program: Program, call: Call) -> dict[str, Any]:
    price = cost_of(program, call)
    return {
        "segment": call.segment,
        "scope": call.scope,
        "groups": call.groups,
        "source": f"{_base(call.span.file)}:{call.span.line}:{call.span.col}",
        "bytes": price.bytes,
        "flops": price.flops,
        "seconds": price.seconds,
        **_op_facts(call),
        "epilogues": [_op_facts(epilogue) for epilogue in call.epilogues],
    }


def _op_facts(call: Call) -> dict[str, Any]:
    pairs = zip(call.op.signature.input_names, call.inputs, strict=True)
    inputs = {name: _operand_facts(o) for name, o in pairs if o is not None}
    outputs = [_operand_facts(o) for o in call.outputs]
    names = {"op": call.op.name, "kernel": call.kernel.name}
    return names | {"attrs": dict(call.attrs), "inputs": inputs, "outputs": outputs}


def _operand_facts(operand: Operand) -> dict[str, Any]:
    value = operand.value
    facts: dict[str, Any] = {"value": _value(value), "type": str(operand.type), "place": operand.place}
    if operand.place == "arena":
        facts |= {"offset": operand.offset, "strides": list(operand.strides)}
    if operand.place == "weight":
        facts["tensors"] = [part.tensor for part in value.parts]
    if operand.place == "state" and value.root.state is not None:
        facts["state"] = value.root.state.name
    return facts


def _value(value: Value) -> str:
    return f"{value.scope}.{value.name}" if value.scope else value.name


def program_dot(program: Program) -> str:
    """The calls of a program in the dot language, an edge for each value that one makes and another reads."""
    maker = {o.value: i for i, call in enumerate(program.calls) for c in (call, *call.epilogues) for o in c.outputs}
    labels = [f"{call.segment}: {call.label}\n{call.scope or '-'} {_place(call.span)}" for call in program.calls]
    edges = {
        (maker[root], index, root.name): None
        for index, call in enumerate(program.calls)
        for part in (call, *call.epilogues)
        for operand in part.inputs
        if operand is not None and (root := operand.value.root) in maker and maker[root] != index
    }
    return _dot(program.name, labels, edges)


def graph_dot(graph: Graph) -> str:
    """The hazards between the nodes of a graph in the dot language, edges named after the value that makes them."""
    labels = [
        "+".join(n.op.name for n in (node, *node.epilogues)) + f"\n{node.scope or '-'} {_place(node.span)}"
        for node in graph.nodes
    ]
    edges: list[tuple[int, int, str]] = list(graph.nx().edges(data="why"))
    return _dot(graph.name, labels, edges)


def _dot(name: str, labels: Sequence[str], edges: Iterable[tuple[int, int, str]]) -> str:
    lines = [f"digraph {_quote(name)} {{", "  node [shape=box];"]
    lines += [f"  n{index} [label={_quote(label)}];" for index, label in enumerate(labels)]
    lines += [f"  n{a} -> n{b} [label={_quote(why)}];" for a, b, why in edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
