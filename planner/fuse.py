"""fuse: subgraphs that a fused op stands for become that op."""

from __future__ import annotations

from collections.abc import Iterator

from graphrun.core.equations import Equation
from graphrun.core.ir import Graph, Node, Value
from graphrun.core.op import Op
from graphrun.core.signature import SignatureError
from graphrun.core.target import Target
from graphrun.planner.context import Context
from graphrun.planner.merge import Merger
from graphrun.planner.pattern import Bound, Pattern, bindings, build, pattern
from graphrun.planner.select import kernels_for

Match = tuple[dict[str, Bound], tuple[Node, ...]]  # values by name, nodes from the last equation to the first


def fuse(graph: Graph, context: Context) -> Graph:
    """Replace every match of a fused op's equations, those with most equations first.

    A match needs: values used inside have no other reader and are not the graph's outputs, attributes agree, a
    kernel takes this number of tokens. Equations that share no value with the last one match in its block only.
    """
    fusions = [(pattern(op, op.fuses), op) for op in context.ops.values() if op.fuses]
    for shape, op in sorted(fusions, key=lambda pair: -len(pair[0].equations)):
        graph = _Fusion(graph, op, shape, context.target).apply()
    return graph


class _Fusion:
    """One fused op being matched in one graph."""

    def __init__(self, graph: Graph, op: Op, shape: Pattern, target: Target) -> None:
        self.op, self.shape, self.graph, self.target = op, shape, graph, target
        self.names = {line.op for line in shape.equations}
        self.by_scope: dict[tuple[str, str], list[Node]] = {}
        for node in graph.nodes:
            if node.op.name in self.names and not node.epilogues:
                self.by_scope.setdefault((node.scope, node.op.name), []).append(node)

    def apply(self) -> Graph:
        last = self.shape.equations[-1]
        anchors = [n for (_, name), found in self.by_scope.items() if name == last.op for n in found]
        if not anchors:
            return self.graph
        self.merger = Merger(self.graph)
        self.producers = self.graph.producers
        for anchor in anchors:
            any(self._replace(match) for match in self._matches(len(self.shape.equations) - 1, anchor, {}, ()))
        return self.merger.result()

    def _matches(self, k: int, anchor: Node, bound: dict[str, Bound], taken: tuple[Node, ...]) -> Iterator[Match]:
        """Matches of equations k, k - 1, ... 0, the last equation being the anchor's."""
        if k < 0:
            yield bound, taken
            return
        line = self.shape.equations[k]
        for node in self._candidates(line, anchor, bound) if taken else (anchor,):
            if node not in taken and (extended := _unify(line, node, bound)) is not None:
                yield from self._matches(k - 1, anchor, extended, (*taken, node))

    def _candidates(self, line: Equation, anchor: Node, bound: dict[str, Bound]) -> list[Node]:
        made = [self.producers.get(v) for name in line.outputs if isinstance(v := bound.get(name), Value)]
        if made:
            return [made[0]] if made[0] is not None else []
        return self.by_scope.get((anchor.scope, line.op), [])

    def _replace(self, match: Match) -> bool:
        bound, nodes = match
        live = [n for n in nodes if not n.op.view]
        if any(n not in self.merger.place for n in live):  # an earlier match took it
            return False
        inner = [v for name in self.shape.inner if isinstance(v := bound[name], Value) and v.view is None]
        if any(self.merger.other_readers(v, live) for v in inner):
            return False
        names = [o if isinstance(o, str) else o.name for o in self.op.signature.outputs]
        results = {n: v for n, r in zip(names, self.shape.results, strict=True) if isinstance(v := bound[r], Value)}
        try:
            new = build(self.op, bound, results, nodes[0].scope, nodes[0].span)
        except SignatureError:
            return False
        return bool(kernels_for(new, self.graph.tokens, self.target)) and self.merger.merge(live, new)


def _unify(line: Equation, node: Node, bound: dict[str, Bound]) -> dict[str, Bound] | None:
    """`bound` with what this node's values and attributes add; None if they contradict it."""
    if node.op.name != line.op or node.epilogues:
        return None
    given = bindings(node)
    names = node.op.signature.parameter_names
    pairs = [
        *zip(line.outputs, node.outputs, strict=True),
        *((a, given[p]) for p, a in zip(names, line.arguments, strict=False)),
    ]
    extended = dict(bound)
    for name, value in pairs:
        known = extended.setdefault(name, value)
        if known is not value and (isinstance(known, Value) or isinstance(value, Value) or known != value):
            return None
    left_out = names[len(line.arguments) :]
    defaults = {a.name: a.default for a in node.op.signature.attrs}
    return extended if all(given[p] == defaults.get(p) for p in left_out) else None
