"""Segments: the calls between two barriers of a program, which may run at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from graphrun.core.ir import Node, Value

CONCURRENT = frozenset({"gemv", "gemv_f32"})


def segments(nodes: Sequence[Node]) -> list[int]:
    """The segment of each node, counted from 0: neighbouring products that read nothing of each other share one."""
    found: list[int] = []
    written: set[Value] = set()
    concurrent = False
    for node in nodes:
        product = node.op.name in CONCURRENT
        joins = concurrent and product and written.isdisjoint(v.root for v in node.reads)
        if not joins:
            written = set()
        found.append((found[-1] if found else -1) + (not joins))
        written.update(node.writes)
        concurrent = product
    return found
