"""Equations of an op definition with every name assigned once, and nodes made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from graphrun.core.equations import Equation, equations
from graphrun.core.errors import Span
from graphrun.core.ir import Node, Value, infer
from graphrun.core.op import Op
from graphrun.core.signature import AttrValue, Tensor

Bound = Value | AttrValue | None


@dataclass(frozen=True, slots=True)
class Pattern:
    """Equations whose names are assigned once (`kc'` is the second `kc`); `results` are the names that stand for
    the outputs of the op they define."""

    equations: tuple[Equation, ...]
    results: tuple[str, ...]

    @property
    def inner(self) -> tuple[str, ...]:
        """Names that are neither parameters nor results."""
        return tuple(name for e in self.equations for name in e.outputs if name not in self.results)


@cache
def pattern(op: Op, text: str) -> Pattern:
    """The equations `text` over the parameters of `op`; ValueError if they use an unknown name or miss an output."""
    latest = {name: name for name in op.signature.parameter_names}
    found = []
    for line in equations(text):
        if unknown := [a for a in line.arguments if a not in latest]:
            raise ValueError(f"{op.name}: {unknown[0]} is not defined in {text!r}")
        arguments = tuple(latest[a] for a in line.arguments)
        for name in line.outputs:
            latest[name] = latest[name] + "'" if name in latest else name
        found.append(Equation(tuple(latest[name] for name in line.outputs), line.op, arguments))
    outputs = [o if isinstance(o, str) else o.name for o in op.signature.outputs]
    if missing := [name for name in outputs if name not in latest]:
        raise ValueError(f"{op.name}: {missing[0]} is not computed by {text!r}")
    return Pattern(tuple(found), tuple(latest[name] for name in outputs))


def bindings(node: Node) -> dict[str, Bound]:
    """A node's inputs and attributes by parameter name; None for what is absent."""
    bound: dict[str, Bound] = dict(zip(node.op.signature.input_names, node.inputs, strict=True))
    for attr in node.op.signature.attrs:
        bound[attr.name] = node.attrs.get(attr.name, attr.default)
    return bound


def build(op: Op, bound: Mapping[str, Bound], outputs: Mapping[str, Value], scope: str, span: Span) -> Node:
    """A node of `op` on parameters by name; `outputs` gives the values that exist already, others are made.

    Raises SignatureError where the types do not fit.
    """
    inputs: list[Value | None] = []
    attrs: dict[str, AttrValue] = {}
    for parameter in op.signature.parameters:
        given = bound.get(parameter.name)
        if isinstance(parameter, Tensor):
            assert given is None or isinstance(given, Value), f"{op.name}: {parameter.name} must be a tensor"
            inputs.append(given)
            continue
        given = parameter.default if given is None else given
        assert given is not None and not isinstance(given, Value), f"{op.name}: {parameter.name} must be a number"
        attrs[parameter.name] = given
    types = infer(op, tuple(inputs), attrs)
    made = []
    for output, type_ in zip(op.signature.outputs, types, strict=True):
        name = output if isinstance(output, str) else output.name
        before = bound.get(name) if isinstance(output, str) else None
        state = before.state if isinstance(before, Value) else None
        made.append(outputs.get(name) or Value(name, type_, "node", span, scope, state=state))
    return Node(op, tuple(inputs), attrs, tuple(made), scope, span)
