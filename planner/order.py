"""order: a topological order in which independent matrix-vector products stand together."""

from __future__ import annotations

import heapq

from graphrun.core.ir import Graph
from graphrun.planner.context import Context
from graphrun.planner.segments import CONCURRENT


def order(graph: Graph, context: Context) -> Graph:
    """Kahn's algorithm on the hazards, the graph's own order deciding between nodes that are ready.

    A run of products goes on while one that does not wait for the run is ready. Views, which cost nothing, come
    as soon as their base is there.
    """
    ready = _Ready(graph)
    hazards = graph.nx()
    waiting = dict(hazards.in_degree())
    for index, count in waiting.items():
        if count == 0:
            ready.add(index)
    placed: list[int] = []
    while (taken := ready.take()) is not None:
        placed.append(taken)
        for after in hazards.successors(taken):
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.add(after)
    assert len(placed) == len(graph.nodes), "a pass made nodes wait for each other"
    return graph.with_nodes([graph.nodes[i] for i in placed])


class _Ready:
    """Nodes whose inputs are there, by index."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self.views: list[int] = []
        self.products: list[int] = []
        self.others: list[int] = []
        self.held: list[int] = []  # products that wait for the present run
        self.running = False

    def add(self, index: int) -> None:
        node = self.nodes[index]
        product = node.op.name in CONCURRENT
        queue = self.held if self.running else self.products
        heapq.heappush(self.views if node.op.view else queue if product else self.others, index)

    def take(self) -> int | None:
        """The next node to place; None when none is ready."""
        if self.views:
            return heapq.heappop(self.views)
        if not self.products:
            self.products, self.held, self.running = sorted(self.held), [], False
        if self.products and (self.running or not self.others or self.products[0] < self.others[0]):
            self.running = True
            return heapq.heappop(self.products)
        self.running = False
        return heapq.heappop(self.others) if self.others else None
