"""Applying an op to values: types are inferred, attributes filled in, views laid out, a node recorded."""

from __future__ import annotations

from collections.abc import Mapping

from graphrun.core.errors import GraphError, Span
from graphrun.core.ir import Node, State, Value, infer
from graphrun.core.op import Op
from graphrun.core.signature import Attr, AttrValue, SignatureError, Tensor
from graphrun.core.types import TensorType
from graphrun.core.view import part, view_layouts
from graphrun.graphs.scalars import Result, describe

Given = Mapping[str, tuple[Result, Span]]


class Applier:
    """Appends a node to `nodes` for each op applied; equal types and attributes are inferred once."""

    def __init__(self, ops: Mapping[str, Op], nodes: list[Node]) -> None:
        self.ops, self.nodes = ops, nodes
        self.types: dict[object, tuple[TensorType, ...]] = {}
        self.updated: set[Value] = set()

    def __call__(self, op: Op, given: Given, span: Span, scope: str, labels: tuple[str, ...]) -> tuple[Value, ...]:
        """The op's results, named by `labels`. Raises GraphError at the argument that does not fit."""
        attrs = {p.name: _attribute(op, p, *given.get(p.name, (None, span))) for p in op.signature.attrs}
        inputs = tuple(_input(op, p, *given.get(p.name, (None, span))) for p in op.signature.inputs)
        types = self.infer(op, inputs, attrs, given, span)
        self.update(op, inputs, given, span)
        if op.view:
            outputs = _views(op, inputs, attrs, types, scope, labels, span)
        else:
            names = labels if len(labels) == len(types) else tuple(f"{labels[0]}.{n}" for n in range(len(types)))
            states = _states(op, inputs)
            outputs = tuple(
                Value(name, type_, "node", span, scope, state=state)
                for name, type_, state in zip(names, types, states, strict=True)
            )
        self.nodes.append(Node(op, inputs, attrs, outputs, scope, span))
        return outputs

    def infer(
        self, op: Op, inputs: tuple[Value | None, ...], attrs: Mapping[str, AttrValue], given: Given, span: Span
    ) -> tuple[TensorType, ...]:
        key = (op.name, tuple(v and v.type for v in inputs), tuple(attrs.values()))
        types = self.types.get(key)
        if types is None:
            try:
                types = self.types[key] = infer(op, inputs, attrs)
            except SignatureError as error:
                place = given.get(error.parameter or "", (None, span))[1]
                raise GraphError(place, f"{op.name}: {error}", f"{op.name}({op.signature})") from None
            except (ValueError, ZeroDivisionError):
                raise GraphError(span, f"{op.name}: no result fits these sizes", f"{op.name}({op.signature})") from None
        return types

    def update(self, op: Op, inputs: tuple[Value | None, ...], given: Given, span: Span) -> None:
        """Each version of a state has at most one successor."""
        for parameter, value in zip(op.signature.inputs, inputs, strict=True):
            if value is None or not parameter.state or parameter.name not in op.signature.outputs:
                continue
            if value in self.updated:
                place = given.get(parameter.name, (None, span))[1]
                raise GraphError(place, f"{op.name}: this version of state {value.name} is already replaced")
            self.updated.add(value)


def _attribute(op: Op, parameter: Attr, value: Result, span: Span) -> AttrValue:
    if value is None:
        if parameter.default is None:
            raise GraphError(span, f"{op.name}: {parameter.name} is missing", f"{op.name}({op.signature})")
        return parameter.default
    if isinstance(value, Value | tuple):
        raise GraphError(span, f"{op.name}: {parameter.name} must be {_kind(parameter)}, not {describe(value)}")
    try:
        return parameter.check(value)
    except SignatureError as error:
        raise GraphError(span, f"{op.name}: {error}") from None


def _kind(parameter: Attr) -> str:
    return f"one of {', '.join(parameter.choices)}" if parameter.choices else "a number"


def _input(op: Op, parameter: Tensor, value: Result, span: Span) -> Value | None:
    if isinstance(value, Value) and not (parameter.state and value.state is None):
        return value
    if value is None and parameter.optional:
        return None
    if value is None:
        problem = "is none, but it is needed"
    elif isinstance(value, Value):
        problem = f"must be a state, {value.name} is not"
    else:
        problem = f"must be a tensor, not {describe(value)}"
    raise GraphError(span, f"{op.name}: {parameter.name} {problem}", f"{op.name}({op.signature})")


def _states(op: Op, inputs: tuple[Value | None, ...]) -> list[State | None]:
    """For each output, the state it is the next version of."""
    by_name = dict(zip(op.signature.input_names, inputs, strict=True))
    result: list[State | None] = []
    for output in op.signature.outputs:
        value = by_name.get(output) if isinstance(output, str) else None
        result.append(value.state if value is not None else None)
    return result


def _views(
    op: Op,
    inputs: tuple[Value | None, ...],
    attrs: Mapping[str, AttrValue],
    types: tuple[TensorType, ...],
    scope: str,
    labels: tuple[str, ...],
    span: Span,
) -> tuple[Value, ...]:
    base = inputs[0]
    assert base is not None  # a view has one required input
    places = view_layouts(op, base, attrs) if base.type.dtype.block == 1 else None
    if places is None:
        message = "the input is not laid out in one piece, so its channels cannot be regrouped in place"
        raise GraphError(span, f"{op.name}: {message}")
    names = labels if len(labels) == len(types) else tuple(f"{labels[0]}.{n}" for n in range(len(types)))
    return tuple(
        Value(name, type_, "node", span, scope, state=base.state, view=part(base, place))
        for name, type_, place in zip(names, types, places, strict=True)
    )
