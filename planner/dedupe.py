"""dedupe: what is computed twice from the same values is computed once."""

from __future__ import annotations

from dataclasses import replace

from graphrun.core.ir import Graph, Node, Value
from graphrun.core.view import view_again
from graphrun.planner.context import Context


def dedupe(graph: Graph, context: Context) -> Graph:
    """Keep the first node of each (op, inputs, attributes); `quantize(x)` of q, k and v becomes one."""
    new: dict[Value, Value] = {}
    first: dict[object, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        renamed = node.rename(new)
        key = (renamed.op, renamed.inputs, tuple(renamed.attrs.items()))
        known = None if renamed.updates else first.setdefault(key, renamed)
        if known is not None and known is not renamed:
            new |= zip(node.outputs, known.outputs, strict=True)
            continue
        if renamed is not node and node.op.view:
            view = view_again(renamed)
            assert view is not None, "a base of the same layout has the same views"
            first[key] = renamed = view
            new |= zip(node.outputs, renamed.outputs, strict=True)
        nodes.append(renamed)
    outputs = {name: new.get(value, value) for name, value in graph.outputs.items()}
    return replace(graph, nodes=tuple(nodes), outputs=outputs)
