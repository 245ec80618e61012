"""Params: what a graph reads from a model file's metadata, and what it refuses there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from graphrun.core.errors import GraphError
from graphrun.graphs.declare import Param, Tokens
from graphrun.graphs.expr import MAX_INTEGER, Expr, Group, Key, names
from graphrun.graphs.header import FileHeader, nearest
from graphrun.graphs.scalars import Evaluator, Known, List, Scalar, describe
from graphrun.graphs.spec import Spec

MAX_SHOWN = 20

Sink = Callable[[GraphError], None]


def fail(error: GraphError) -> None:
    """The sink of those who want the first error only."""
    raise error


def params(spec: Spec, header: FileHeader) -> dict[str, Scalar]:
    """Every param and derived value for this model but lists, checked; raises GraphError."""
    return {name: v for name, v in resolve(spec, header, fail).items() if not isinstance(v, List)}


def resolve(spec: Spec, header: FileHeader, sink: Sink) -> dict[str, Known]:
    """`params` and lists, giving every mistake to `sink`; values that depend on a mistake are left out."""
    arch = header.metadata.get("general.architecture")
    if arch != spec.arch:
        found = "no architecture" if arch is None else f"'{arch}'"
        sink(GraphError(spec.arch.span, f"this graph is for '{spec.arch}', the model file says {found}"))
        return {}
    values: dict[str, Known] = {}
    for name, param in spec.params.items():
        try:
            if _known(spec, values, *param.sources):
                values[name] = _lookup(spec, header, param, values)
        except GraphError as error:
            sink(error)
    for name, expr in spec.let.items():
        try:
            if _known(spec, values, expr):
                values[name] = Evaluator(values, header.tensors).scalar(expr)
        except GraphError as error:
            sink(error)
    for condition in spec.check:
        try:
            if _known(spec, values, condition) and not Evaluator(values).truth(condition):
                used = dict.fromkeys(n.name for n in names(condition) if n.name in values)
                facts = ", ".join(f"{name} = {describe(values[name])}" for name in used)
                raise GraphError(condition.span, f"does not hold for this model ({facts})")
        except GraphError as error:
            sink(error)
    _refuse_unread(spec, header, sink)
    return values


def steps(spec: Spec, header: FileHeader) -> dict[str, Tokens]:
    """The steps that this model has, with the token counts each takes; raises GraphError."""
    return {name: spec.steps[name].tokens for name in active(spec, resolve(spec, header, fail))}


def active(spec: Spec, values: Mapping[str, Known]) -> list[str]:
    """The steps whose `when` holds."""
    return [str(n) for n, step in spec.steps.items() if step.when is None or Evaluator(values).truth(step.when)]


def _known(spec: Spec, values: Mapping[str, Known], *exprs: Expr) -> bool:
    """Whether every param that the expressions read could be resolved."""
    declared = spec.params.keys() | spec.let.keys()
    return all(n.name in values or n.name not in declared for e in exprs for n in names(e))


def _full(spec: Spec, header: FileHeader, key: str) -> str:
    return key if key in header.metadata else f"{spec.arch}.{key}"


def _lookup(spec: Spec, header: FileHeader, param: Param, values: Mapping[str, Known]) -> Known:
    for source in param.sources:
        if isinstance(source, Group):
            return List(())
        if not isinstance(source, Key):
            return Evaluator(values).scalar(source)
        key = _full(spec, header, source.key)
        if key in header.metadata:
            return _read(source, key, header.metadata[key])
    first = param.sources[0]
    assert isinstance(first, Key)
    prefix = f"{spec.arch}."
    own = (key.removeprefix(prefix) for key in header.metadata)
    name = first.key if first.key.startswith(("general.", "tokenizer.")) else prefix + first.key
    raise GraphError(first.span, f"the model file has no key '{name}'", nearest(first.key, own))


def _read(source: Key, key: str, value: object) -> Known:
    if source.form:
        if not isinstance(value, list):
            raise GraphError(source.span, f"'{key}' is {value!r:.40} in the model file, not a list")
        return len(value) if source.form == "len" else List(tuple(_scalar(source, key, item) for item in value))
    if isinstance(value, list):
        if not value or any(item != value[0] for item in value):
            shown = ", ".join(f"{item!r:.20}" for item in value[:4]) + ", ..." * (len(value) > 4)
            message = f"'{key}' is a list in the model file ({shown}), this graph needs one value for all"
            raise GraphError(source.span, message, f"len({source.key}) is its length, list({source.key}) all of it")
        value = value[0]
    return _scalar(source, key, value)


def _scalar(source: Key, key: str, value: object) -> Scalar:
    if isinstance(value, bool | str):
        return value
    if not isinstance(value, int | float):
        raise GraphError(source.span, f"'{key}' is neither a number nor text")
    if not abs(value) <= MAX_INTEGER:
        raise GraphError(source.span, f"'{key}' is {value:.6g} in the model file")
    return value


def _refuse_unread(spec: Spec, header: FileHeader, sink: Sink) -> None:
    """A key that the graph does not know may change the computation."""
    read = {source.key for param in spec.params.values() for source in param.sources if isinstance(source, Key)}
    known = {full for key in read | set(spec.ignored) for full in (str(key), f"{spec.arch}.{key}")}
    unread = (key for key in header.metadata if key.startswith(f"{spec.arch}.") and key not in known)
    for key in islice(unread, MAX_SHOWN):
        message = f"the model file has '{key}', which this graph does not read"
        sink(GraphError(spec.place("params", key=True), message, "if it changes nothing, list it under ignored"))
