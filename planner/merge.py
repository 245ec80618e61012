"""Merging nodes of a graph one group at a time, each merged node put where the order of data allows it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from graphrun.core.ir import Graph, Node, Value

Place = tuple[int, int]  # index in the graph's order, then order of merging


class Merger:
    """The nodes of a graph while a pass merges some: who makes and reads each value, and where each node stands.

    View nodes take no part: a view stays where its bytes are, and `result` puts each view node after them.
    """

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.kept = frozenset(v.root for v in graph.outputs.values())
        self.place: dict[Node, Place] = {}
        self.producer: dict[Value, Node] = {}
        self.readers: dict[Value, list[Node]] = {}  # of a root value, views of it included
        self.updater: dict[Value, Node] = {}
        self._count = itertools.count(1)
        for index, node in enumerate(graph.nodes):
            if not node.op.view:
                self._add(node, (index, 0))

    def _add(self, node: Node, place: Place) -> None:
        self.place[node] = place
        self.producer.update((v, node) for v in node.writes)
        for value in dict.fromkeys(v.root for v in node.reads):
            self.readers.setdefault(value, []).append(node)
        self.updater.update((v, node) for part in (node, *node.epilogues) for v in part.updates)

    def _remove(self, node: Node) -> None:
        del self.place[node]
        for value in node.writes:
            self.producer.pop(value)
        for value in dict.fromkeys(v.root for v in node.reads):
            self.readers[value].remove(node)
        for part in (node, *node.epilogues):
            for value in part.updates:
                del self.updater[value]

    def other_readers(self, value: Value, group: Sequence[Node]) -> bool:
        """Whether anything outside the group needs the bytes of a value: another node, or who ran the graph."""
        root = value.root
        return root in self.kept or any(n not in group for n in self.readers.get(root, ()))

    def merge(self, old: Sequence[Node], new: Node) -> bool:
        """Let `new` stand for the nodes `old`, near old[0]; False, and no change, if no place has its data in order."""
        earliest: Place = max((p for p in self._before(old, new)), default=(-1, 0))
        latest: Place = min((p for p in self._after(old, new)), default=(len(self.source.nodes), 0))
        wanted = self.place[old[0]]
        place = wanted if earliest < wanted < latest else (earliest[0], next(self._count))
        if not place < latest:
            return False
        for node in old:
            self._remove(node)
        self._add(new, place)
        return True

    def _before(self, old: Sequence[Node], new: Node) -> list[Place]:
        makers = [self.producer[v.root] for v in new.reads if v.root in self.producer]
        for part in (new, *new.epilogues):
            for version in part.updates:
                makers += self.readers.get(version, ())
        return [self.place[n] for n in makers if n not in old]

    def _after(self, old: Sequence[Node], new: Node) -> list[Place]:
        users = [n for v in new.writes for n in self.readers.get(v, ())]
        users += [self.updater[v] for v in new.reads if v in self.updater]
        return [self.place[n] for n in users if n not in old]

    def result(self) -> Graph:
        """The graph after all merges."""
        views: dict[Value | None, list[Node]] = {}
        for node in self.source.nodes:
            if node.op.view:
                base = node.inputs[0]
                assert base is not None
                views.setdefault(base.root if base.root in self.producer else None, []).append(node)
        outside = [n for n in views.get(None, ()) if n.inputs[0] is not None and n.inputs[0].root.kind != "node"]
        nodes = outside
        for node in sorted(self.place, key=self.place.__getitem__):
            nodes.append(node)
            nodes += (view for v in node.writes for view in views.get(v, ()))
        return self.source.with_nodes(nodes)
