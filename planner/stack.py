"""stack: matrix-vector products of one input become one product with a taller weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from graphrun.core import ie
from graphrun.core.ir import Graph, Node, Part, Value, View
from graphrun.core.types import F32, TensorType
from graphrun.core.view import view_again
from graphrun.planner.context import Context

GEMVS = frozenset({"gemv", "gemv_f32"})
MAX_ROWS = 1 << 18  # of layouts without a size law of their own
SIZES: dict[str, Callable[[int, int], bool]] = {
    "q4_0": ie.ie_sizes_ok,
    "q4_1": ie.ie_sizes_ok,
    "q8_0": ie.ie_q8_sizes_ok,
    "i8_a": ie.ie_q8_sizes_ok,
    "q4_k": ie.ie_q4k_sizes_ok,
    "q6_k": ie.ie_q4k_sizes_ok,
}


def stack(graph: Graph, context: Context) -> Graph:
    """Join products of the same op, input and weight layout; their results become column slices of the joint one.

    A product with epilogues, or whose weight has other readers, stays alone; so do those whose results are read
    through views that a slice does not have.
    """
    groups = _groups(graph)
    stacked, refused = _rewrite(graph, groups)
    if refused:
        stacked, _ = _rewrite(graph, [g for g in groups if not refused.intersection(g)])
    return stacked


def _groups(graph: Graph) -> list[list[Node]]:
    uses = Counter(p.tensor for n in graph.nodes for v in n.reads for p in v.parts)
    groups: list[list[Node]] = []
    latest: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if node.op.name not in GEMVS or node.epilogues:
            continue
        parts = [p for v in node.inputs[1:] if v is not None for p in v.parts or (Part(None, 0),)]
        if any(p.tensor is None or uses[p.tensor] > 1 for p in parts):
            continue
        weight = _weight(node)
        key = (node.op, node.inputs[0], weight.type.dtype, weight.type.shape[1])
        if key in latest and _fits([*latest[key], node]):
            latest[key].append(node)
        else:
            latest[key] = [node]
            groups.append(latest[key])
    return [g for g in groups if len(g) > 1]


def _weight(node: Node) -> Value:
    weight = node.inputs[1]
    assert weight is not None
    return weight


def _fits(group: list[Node]) -> bool:
    """Whether the joint weight keeps to the sizes whose addresses are proved."""
    weight = _weight(group[0]).type
    rows, check = sum(_weight(n).type.shape[0] for n in group), SIZES.get(weight.dtype.name)
    return rows < MAX_ROWS if check is None else bool(check(rows, weight.shape[1] // 32))


def _rewrite(graph: Graph, groups: list[list[Node]]) -> tuple[Graph, set[Node]]:
    """The graph with these groups joined, and the products of which some view cannot be taken any more."""
    joints: dict[Node, list[Node]] = {}
    new: dict[Value, Value] = {}
    source: dict[Value, Node] = {}  # the joint result -> a product in it
    for group in groups:
        joint = _joint(group)
        joints |= dict.fromkeys(group, []) | {group[0]: [joint]}
        new |= _slices(group, joint.outputs[0])
        source[joint.outputs[0]] = group[0]
    nodes: list[Node] = []
    refused: set[Node] = set()
    for node in graph.nodes:
        if node in joints:
            nodes += joints[node]
            continue
        renamed = node.rename(new)
        if renamed is not node and node.op.view:
            view = view_again(renamed)
            if view is None:
                refused |= {source[v.root] for v in renamed.reads}
            else:
                renamed = view
                new |= zip(node.outputs, view.outputs, strict=True)
        nodes.append(renamed)
    outputs = {name: new.get(value, value) for name, value in graph.outputs.items()}
    return replace(graph, nodes=tuple(nodes), outputs=outputs), refused


def _joint(group: list[Node]) -> Node:
    weights = [_weight(n) for n in group]
    weight = _concat(weights)
    bias = None
    if any(n.inputs[2] is not None for n in group):
        bias = _concat([n.inputs[2] or _zeros(w) for n, w in zip(group, weights, strict=True)])
    result = group[0].outputs[0]
    tokens, rows = result.type.shape[0], weight.type.shape[0]
    name = "+".join(n.outputs[0].name for n in group)
    joint = replace(result, name=name, type=TensorType(result.type.dtype, (tokens, rows)))
    return replace(group[0], inputs=(group[0].inputs[0], weight, bias), outputs=(joint,))


def _concat(values: list[Value]) -> Value:
    """Weights (or biases) one below the other."""
    first = values[0]
    type_ = TensorType(first.type.dtype, (sum(v.type.shape[0] for v in values), *first.type.shape[1:]))
    name = "+".join(v.name for v in values)
    return replace(first, name=name, type=type_, parts=tuple(p for v in values for p in v.parts))


def _zeros(weight: Value) -> Value:
    """The bias of a product that has none."""
    rows = weight.type.shape[0]
    return replace(weight, name="0", type=TensorType(F32, (rows,)), parts=(Part(None, rows),))


def _slices(group: list[Node], joint: Value) -> dict[Value, Value]:
    """Each product's result as columns of the joint one."""
    slices, start = {}, 0
    for node in group:
        value = node.outputs[0]
        slices[value] = replace(value, view=View(joint, start, joint.strides))
        start += value.type.shape[1] * value.type.dtype.block_bytes
    return slices
