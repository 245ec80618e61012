"""The lowering lock: the same for the same lowering everywhere, another one when any part of it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from damage import with_call
from handmade import MACHINE, llama

from graphrun.core.errors import Span
from graphrun.core.ir import Graph, Node
from graphrun.core.program import Program
from graphrun.core.types import tensor
from graphrun.ops import OPS
from graphrun.planner.certificate import canonical, lock
from graphrun.planner.lower import lower

PROGRAM = lower(llama(1), OPS, MACHINE)


def test_the_lock_is_the_same_on_every_machine_and_version() -> None:
    """Whoever changes what is locked changes this constant; nothing else may."""
    assert lock(PROGRAM) == "374e00cf67f3705a"


def test_the_lock_does_not_depend_on_where_the_graph_was_read() -> None:
    elsewhere = Span("/home/somebody/other.yaml", 99, 1, "text")

    def moved(node: Node) -> Node:
        return replace(node, span=elsewhere)

    graph = llama(1)
    again = lower(graph.with_nodes([moved(n) for n in graph.nodes]), OPS, MACHINE)
    assert lock(again) == lock(PROGRAM)
    assert lock(lower(llama(1), OPS, replace(MACHINE, name="other", memory=1, bandwidth=2.0))) == lock(PROGRAM)
    assert not any("hand.yaml" in line or "0x" in line for line in canonical(PROGRAM))


def _with_output(**changes: object) -> Callable[[Program], Program]:
    def change(program: Program) -> Program:
        return with_call(program, 3, outputs=(replace(program.calls[3].outputs[0], **changes),))  # type: ignore[arg-type]

    return change


def _first_node(graph: Graph, node: Node) -> Graph:
    return graph.with_nodes([node, *graph.nodes[1:]])


CHANGES: dict[str, Callable[[Program], Program]] = {
    "op": lambda p: with_call(p, 3, op=replace(p.calls[3].op, name="other")),
    "op signature": lambda p: with_call(p, 3, op=replace(p.calls[3].op, signature=OPS["add"].signature)),
    "op meaning": lambda p: with_call(p, 3, op=replace(p.calls[3].op, fuses="other")),
    "kernel": lambda p: with_call(p, 3, kernel=replace(p.calls[3].kernel, name="other")),
    "tile": lambda p: with_call(p, 3, kernel=replace(p.calls[3].kernel, tile="T: 2")),
    "workgroups": lambda p: with_call(p, 3, groups=p.calls[3].groups + 1),
    "attribute": lambda p: with_call(p, 3, attrs={**p.calls[3].attrs, "base": 9.0}),
    "type": _with_output(type=tensor("f16", 1, 4, 32)),
    "offset": _with_output(offset=256),
    "strides": _with_output(strides=(1, 2, 4)),
    "segment": lambda p: with_call(p, 3, segment=9),
    "absorbed": lambda p: with_call(p, 1, epilogues=()),
    "order": lambda p: replace(p, calls=p.calls[::-1]),
    "arena": lambda p: replace(p, arena=p.arena + 256),
    "buffer": lambda p: replace(p, slots=(replace(p.slots[0], last=9), *p.slots[1:])),
    "outputs": lambda p: replace(p, outputs={"logits": p.outputs["logits"]}),
    "exactness": lambda p: replace(p, exact=True),
    "tokens": lambda p: replace(p, tokens=2),
    "context": lambda p: replace(p, context=2),
    "machine": lambda p: replace(p, target=replace(p.target, kernels="other")),
    "graph": lambda p: replace(p, graph=_first_node(p.graph, p.graph.nodes[1])),
    "graph attribute": lambda p: replace(p, graph=_first_node(p.graph, replace(p.graph.nodes[0], attrs={"a": 1}))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_changes_the_lock(change: str) -> None:
    assert lock(CHANGES[change](PROGRAM)) != lock(PROGRAM)


def test_other_graphs_have_other_locks() -> None:
    types = {"wv": "q4_0"}
    graphs = [llama(1), llama(2), llama(1, 2), llama(1, dtype="q4_0"), llama(1, types=types), llama(1, tied=True)]
    assert len({lock(lower(g, OPS, MACHINE)) for g in graphs}) == len(graphs)
