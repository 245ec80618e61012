"""Mutants of the core: one constant or operator changed, in the source, one at a time."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    """A changed function: where and how, and the body to run instead."""

    function: str
    change: str
    body: Callable[..., Any]

    @property
    def name(self) -> str:
        """How reports and the list of equivalent mutants call it."""
        return f"{self.function}: {self.change}"


def mutants(function: Callable[..., Any]) -> Iterator[Mutant]:
    """Every constant one higher and one lower, every operator swapped for a neighbour."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    count = len(_places(tree))
    for at in range(count):
        for variant in range(2):
            changed = copy.deepcopy(tree)
            what = _change(_places(changed)[at], variant)
            if what:
                yield Mutant(function.__name__, f"#{at} {what}", _compile(changed, function))


def _places(tree: ast.FunctionDef) -> list[Any]:
    statements = tree.body[1:] if ast.get_docstring(tree) else tree.body
    wanted = (ast.Constant, ast.BinOp, ast.BoolOp, ast.Compare)
    return [x for s in statements for x in ast.walk(s) if isinstance(x, wanted)]


def _change(place: Any, variant: int) -> str | None:
    """Change the node in place and say how; None where there is no such change."""
    if isinstance(place, ast.Constant):
        if type(place.value) is not int or (variant and place.value == 0):
            return None
        old = place.value
        place.value = old - 1 if variant else old + 1
        return f"{old:#x} -> {place.value:#x}" if old > 255 else f"{old} -> {place.value}"
    if variant:
        return None
    old_op = place.ops[0] if isinstance(place, ast.Compare) else place.op
    if type(old_op) not in SWAPS:
        return None
    before = ast.unparse(place)
    new_op = SWAPS[type(old_op)]()
    if isinstance(place, ast.Compare):
        place.ops[0] = new_op  # type: ignore[call-overload]
    else:
        place.op = new_op
    return f"{before} -> {ast.unparse(place)}"


def _compile(tree: ast.FunctionDef, function: Callable[..., Any]) -> Callable[..., Any]:
    module = ast.Module([tree], [])
    scope: dict[str, Any] = {}
    text = "from __future__ import annotations\n" + ast.unparse(ast.fix_missing_locations(module))
    exec(compile(text, f"<mutant of {function.__name__}>", "exec"), function.__globals__, scope)
    body: Callable[..., Any] = scope[function.__name__]
    return body
