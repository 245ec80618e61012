"""A graph file, a model file's header and the op table make a typed graph; nothing is read but the header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from graphrun.core.errors import GraphError, UsageError, did_you_mean
from graphrun.core.ir import Graph
from graphrun.core.op import Op
from graphrun.graphs.expr import names
from graphrun.graphs.header import FileHeader
from graphrun.graphs.names import mistakes
from graphrun.graphs.params import MAX_SHOWN, Sink, active, fail, params, resolve
from graphrun.graphs.scalars import Evaluator, Known, describe
from graphrun.graphs.spec import Spec, try_spec
from graphrun.graphs.unroll import Job, Unrolled, unroll

__all__ = ["check", "elaborate", "params"]

MAX_CONTEXT = 1 << 24


def elaborate(
    spec: Spec,
    file: FileHeader,
    ops: Mapping[str, Op],
    step: str,
    tokens: int,
    *,
    context: int,
    exact: bool = False,
    rollback: int = 16,
    taps: tuple[int, ...] = (),
) -> Graph:
    """The graph of `step` for `tokens` tokens and a cache of `context` positions, layers unrolled.

    With `exact`, states are kept in f32. Of a step of at most `rollback` tokens the last ones can be taken back.
    `taps` are layers whose input becomes an output (input.0 that of the first).
    Raises GraphError where the file and the graph do not fit, also for a key or a tensor of the file that the graph
    does not use; UsageError for a step or a size that does not exist.
    """
    for error in mistakes(spec, ops):
        raise error
    _check_sizes(spec, step, tokens, context)
    values = resolve(spec, file, fail)
    _refuse_inactive(spec, step, values)
    wanted = spec.steps[step]
    job = Job(spec, file, ops, values, tokens, wanted.rows == "last", context, exact, fail, rollback, taps)
    result = unroll(job, wanted.graph)
    _refuse_unused(job, {wanted.graph: result})
    return Graph(step, tokens, context, tuple(result.nodes), result.inputs, result.outputs)


def check(text: bytes | str, file: FileHeader | None, ops: Mapping[str, Op], name: str = "graph") -> list[GraphError]:
    """Every mistake that can be found in a graph file's text, and in how it fits a model file, in reading order."""
    spec, errors = try_spec(text, name)
    if spec is None:
        return errors
    errors = mistakes(spec, ops)
    if errors or file is None:
        return errors
    values = resolve(spec, file, errors.append)
    if not errors:
        _check_steps(spec, file, ops, values, errors)
    return sorted(errors, key=lambda e: (e.span.line, e.span.col))


def _check_steps(
    spec: Spec, file: FileHeader, ops: Mapping[str, Op], values: dict[str, Known], errors: list[GraphError]
) -> None:
    """Unroll every step; a mistake that many layers or steps share is reported once."""
    places: set[tuple[int, int]] = set()

    def once(error: GraphError) -> None:
        place = (error.span.line, error.span.col)
        if place not in places:
            errors.append(error)
        places.add(place)

    done: dict[str, Unrolled] = {}
    try:
        for name in active(spec, values):
            step = spec.steps[name]
            job = Job(spec, file, ops, values, step.tokens.low, step.rows == "last", step.tokens.low, False, once)
            done[step.graph] = unroll(job, step.graph)
        if not errors and done:
            _refuse_unused(job, done, errors.append)
    except GraphError as error:
        once(error)


def _check_sizes(spec: Spec, name: str, tokens: int, context: int) -> None:
    if name not in spec.steps:
        hint = did_you_mean(name, map(str, spec.steps)) or f"steps: {', '.join(spec.steps)}"
        raise UsageError(f"{spec.name} has no step '{name}'", hint)
    allowed = spec.steps[name].tokens
    if not allowed.low <= tokens <= allowed.high:
        raise UsageError(f"step {name} of {spec.name} takes {allowed} tokens, not {tokens}")
    if not tokens <= context <= MAX_CONTEXT:
        raise UsageError(f"a context of {context} positions is not between {tokens} and {MAX_CONTEXT}")


def _refuse_inactive(spec: Spec, name: str, values: Mapping[str, Known]) -> None:
    condition = spec.steps[name].when
    if condition is not None and not Evaluator(values).truth(condition):
        facts = ", ".join(f"{n.name} = {describe(values[n.name])}" for n in names(condition) if n.name in values)
        raise GraphError(condition.span, f"this model has no step {name} ({facts})")


def _refuse_unused(job: Job, done: Mapping[str, Unrolled], sink: Sink = fail) -> None:
    """A tensor that no graph of the file uses may belong to what the graph does not express."""
    known = dict(done)
    for name in active(job.spec, job.params):
        step = job.spec.steps[name]
        if step.graph not in known:
            smallest = replace(job, tokens=step.tokens.low, last=False, context=max(job.context, step.tokens.low))
            known[step.graph] = unroll(smallest, step.graph)
    used = set[str]().union(*(known[job.spec.steps[name].graph].used for name in active(job.spec, job.params)))
    place = job.spec.place("weights", key=True)
    for tensor in islice((name for name in job.header.tensors if name not in used), MAX_SHOWN):
        sink(GraphError(place, f"{tensor} is in the model file, but this graph does not use it"))
