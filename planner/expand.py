"""expand: ops that stand for others (`linear`) become those."""

from __future__ import annotations

from graphrun.core.errors import GraphError
from graphrun.core.ir import Graph, Node, Value
from graphrun.core.op import Expansion
from graphrun.core.types import DTYPES
from graphrun.planner.context import Context
from graphrun.planner.pattern import Bound, bindings, build, pattern


def expand(graph: Graph, context: Context) -> Graph:
    """Replace each op that has expansions by the body of the first one that fits its weight.

    In exact mode the last one is taken, whatever the weight. Results keep their values, so no reader changes.
    """
    return graph.with_nodes([new for node in graph.nodes for new in _expanded(node, context)])


def _expanded(node: Node, context: Context) -> list[Node]:
    if not node.op.expansions:
        return [node]
    body = pattern(node.op, _choose(node, context).body)
    results = dict(zip(body.results, node.outputs, strict=True))
    bound = bindings(node)
    nodes = []
    for line in body.equations:
        op = context.ops[line.op]
        given: dict[str, Bound] = {
            p: bound[a] for p, a in zip(op.signature.parameter_names, line.arguments, strict=False)
        }
        names = [o if isinstance(o, str) else o.name for o in op.signature.outputs]
        outputs: dict[str, Value] = {n: results[o] for n, o in zip(names, line.outputs, strict=True) if o in results}
        new = build(op, given, outputs, node.scope, node.span)
        bound |= zip(line.outputs, new.outputs, strict=True)
        nodes += _expanded(new, context)
    return nodes


def _choose(node: Node, context: Context) -> Expansion:
    if context.exact:
        return node.op.expansions[-1]
    weight = bindings(node)["w"]
    assert isinstance(weight, Value), f"{node.op.name} needs a weight"
    for expansion in node.op.expansions:
        if weight.type.dtype.quantised if expansion.when == "Q" else weight.type.dtype == DTYPES[expansion.when]:
            return expansion
    raise GraphError(node.span, f"{node.op.name} cannot read {weight.name}, which is {weight.type}")
