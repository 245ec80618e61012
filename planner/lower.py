"""Lowering: a graph goes through the passes and becomes a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import overload

from graphrun.core.errors import UsageError, did_you_mean
from graphrun.core.ir import Graph
from graphrun.core.op import Op
from graphrun.core.program import Program
from graphrun.core.target import Target
from graphrun.planner.absorb import absorb
from graphrun.planner.build import build_program
from graphrun.planner.check import check
from graphrun.planner.context import Context
from graphrun.planner.dedupe import dedupe
from graphrun.planner.expand import expand
from graphrun.planner.fuse import fuse
from graphrun.planner.order import order
from graphrun.planner.select import select
from graphrun.planner.stack import stack

Pass = Callable[[Graph, Context], Graph]
PASSES: tuple[Pass, ...] = (expand, dedupe, fuse, absorb, stack, order, select)
STAGES = tuple(p.__name__ for p in PASSES)


@overload
def lower(graph: Graph, ops: Mapping[str, Op], target: Target, *, exact: bool = ..., until: None = ...) -> Program: ...
@overload
def lower(graph: Graph, ops: Mapping[str, Op], target: Target, *, exact: bool = ..., until: str) -> Graph: ...
def lower(
    graph: Graph, ops: Mapping[str, Op], target: Target, *, exact: bool = False, until: str | None = None
) -> Program | Graph:
    """The program of a graph on a machine, or the graph as it is after the pass named `until`.

    With `exact`, activations are not rounded. The graph is verified after every pass. Raises GraphError for an op
    that cannot be computed, ProgramError for a plan that cannot be or a program that a check refuses.
    """
    if until is not None and until not in STAGES:
        hint = did_you_mean(until, STAGES) or f"the passes are {', '.join(STAGES)}"
        raise UsageError(f"there is no pass '{until}'", hint)
    context, source = Context(ops, target, exact), graph
    for run in PASSES:
        graph = run(graph, context)
        graph.verify()
        if run.__name__ == until:
            return graph
    program = build_program(graph, target, source, exact)
    check(program, ops)
    return program
