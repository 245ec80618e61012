"""The small language in which an op is defined by other ops: one `name, ...: op(argument, ...)` a line."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphrun.core.op import Op


@dataclass(frozen=True, slots=True)
class Equation:
    """`outputs: op(arguments)`; every argument is the name of a parameter or of an earlier output."""

    outputs: tuple[str, ...]
    op: str
    arguments: tuple[str, ...]


def equations(text: str) -> tuple[Equation, ...]:
    """Parse equations; a mistake is a bug in an op definition, hence ValueError."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        left, _, right = line.partition(":")
        call = ast.parse(right.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
            raise ValueError(f"not an equation: {line!r}")
        arguments = tuple(a.id for a in call.args if isinstance(a, ast.Name))
        if len(arguments) != len(call.args):
            raise ValueError(f"arguments must be names: {line!r}")
        found.append(Equation(tuple(name.strip() for name in left.split(",")), call.func.id, arguments))
    return tuple(found)


def interpret(
    text: str, ops: Iterable[Op], parameters: tuple[str, ...], results: tuple[str, ...]
) -> Callable[..., Any]:
    """A function of the parameters that computes the equations with the numpy bodies of `ops`."""
    table: Mapping[str, Op] = {op.name: op for op in ops}
    body = equations(text)

    def run(*args: Any, **values: Any) -> Any:
        values |= zip(parameters, args, strict=False)
        for line in body:
            op = table[line.op]
            names = op.signature.parameter_names
            given = {n: values[a] for n, a in zip(names, line.arguments, strict=False) if a in values}
            result = op(**given)
            values |= zip(line.outputs, result if len(line.outputs) > 1 else (result,), strict=True)
        found = tuple(values[name] for name in results)
        return found if len(found) > 1 else found[0]

    return run
