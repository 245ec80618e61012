"""absorb: residual sums, gates and quantised copies run inside the op whose result they read."""

from __future__ import annotations

from dataclasses import replace

from graphrun.core.ir import Graph, Node, Value
from graphrun.core.view import whole
from graphrun.planner.context import Context
from graphrun.planner.merge import Merger

BLOCK = 32  # channels that share a scale
COMMUTATIVE = frozenset({"add", "mul"})


def absorb(graph: Graph, context: Context) -> Graph:
    """Move into each node the ops its `epilogues` list, in that order, as far as their data allows.

    An epilogue reads the node's first output, or that of the epilogue before it, as a whole. Unless it is a tee,
    nothing else may read that value. What is quantised must be whole blocks in every head. A commutative epilogue gets
    it as its last input.
    """
    merger = Merger(graph)
    for node in graph.nodes:
        if node.op.epilogues and node in merger.place:
            _absorb_chain(node, merger)
    return merger.result()


def _absorb_chain(node: Node, merger: Merger) -> None:
    tail = node.outputs[0]
    for name in node.op.epilogues:
        for reader in merger.readers.get(tail, ()):
            epilogue = _as_epilogue(reader, name, tail)
            if epilogue is None or (not reader.op.tee and merger.other_readers(tail, (node, reader))):
                continue
            if name == "quantize" and not _in_blocks(tail):
                continue
            grown = replace(node, epilogues=(*node.epilogues, epilogue))
            if merger.merge((node, reader), grown):
                node = grown
                tail = tail if reader.op.tee else reader.outputs[0]
                break


def _in_blocks(value: Value) -> bool:
    """Whether blocks of 32 channels are quantised each by one workgroup: heads, which tile their results, hold whole
    ones."""
    return len(value.type.shape) < 3 or value.type.shape[-1] % BLOCK == 0


def _as_epilogue(reader: Node, name: str, tail: Value) -> Node | None:
    """The reader as an epilogue on `tail`; None if it is not one."""
    if reader.op.name != name or reader.epilogues or reader.updates:
        return None
    inputs = reader.inputs
    if name in COMMUTATIVE and inputs[0] is not None and inputs[0].root is tail:
        inputs = inputs[::-1]
    first, others = (inputs[-1], inputs[:-1]) if name in COMMUTATIVE else (inputs[0], inputs[1:])
    if first is None or first.root is not tail or not whole(first):
        return None
    if any(v is not None and v.root is tail for v in others):
        return None
    return replace(reader, inputs=inputs)
