"""A reader of C headers that gives terms, and refuses everything whose meaning it is not sure of.

Known are functions of `u32`, `bool` and `const u32 *` whose body declares constants and returns an expression.
Plain ints, implicit conversions, conditions in arithmetic, loops, assignments and signed types are refused.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .term import Term, binary, compare, lift, negate, node, var

c_ast: Any = importlib.import_module("pycparser.c_ast")
c_parser: Any = importlib.import_module("pycparser.c_parser")

BINARY = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
BINARY |= {"<<": "shl", ">>": "shr", "/": "div", "%": "mod"}


class Refused(Exception):
    """Something in the file that this reader does not understand."""


class CFunction:
    """A function of the header: parameter terms, sort of the result, body."""

    def __init__(self, name: str, params: list[Term], sort: str) -> None:
        self.name, self.params, self.sort = name, params, sort
        self.body: Term = lift(0)


def compilers() -> list[tuple[str, list[str]]]:
    """(name, command) of every C compiler at hand."""
    found = [(name, [name]) for name in ("gcc", "clang") if shutil.which(name)]
    return found or [("zig cc", [sys.executable, "-m", "ziglang", "cc"])]


def read(path: Path) -> dict[str, CFunction]:
    """Every function of a header, after the compiler's own preprocessor."""
    command = [*compilers()[0][1], "-E", "-P", "-std=c11", "-x", "c", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return read_text(text)


def read_text(text: str) -> dict[str, CFunction]:
    """Every function of a preprocessed header."""
    functions: dict[str, CFunction] = {}
    for item in c_parser.CParser().parse(text).ext:
        if isinstance(item, c_ast.FuncDef):
            function = _Reader(functions).function(item)
            functions[function.name] = function
        elif not (isinstance(item, c_ast.Typedef) and item.name == "u32" and _is_unsigned(item.type)):
            raise Refused(f"{type(item).__name__} at top level")
    return functions


def _is_unsigned(kind: Any) -> bool:
    return isinstance(kind.type, c_ast.IdentifierType) and kind.type.names == ["unsigned", "int"]


def _sort(kind: Any) -> str:
    if isinstance(kind, c_ast.PtrDecl):
        inner = kind.type
        if kind.quals or "const" not in inner.quals or _sort(inner) != "u32":
            raise Refused("a pointer that is not const u32 *")
        return "mem"
    if isinstance(kind, c_ast.TypeDecl) and isinstance(kind.type, c_ast.IdentifierType):
        sorts = {("u32",): "u32", ("_Bool",): "bool", ("bool",): "bool"}
        if tuple(kind.type.names) in sorts:
            return sorts[tuple(kind.type.names)]
    raise Refused("an unknown type")


class _Reader:
    """One function's body in the scope of the functions before it."""

    def __init__(self, functions: dict[str, CFunction]) -> None:
        self.functions = functions
        self.scope: dict[str, Term] = {}

    def function(self, item: Any) -> CFunction:
        declared = [p for p in (item.decl.type.args.params if item.decl.type.args else []) if p.name]
        params = [var(f"%{p.name}", _sort(p.type)) for p in declared]
        self.scope = {p.name: t for p, t in zip(declared, params, strict=True)}
        out = CFunction(item.decl.name, params, _sort(item.decl.type.type))
        *statements, last = item.body.block_items
        for s in statements:
            if not isinstance(s, c_ast.Decl) or "const" not in s.quals or s.init is None or s.name in self.scope:
                raise Refused(f"{type(s).__name__} in {out.name}")
            self.scope[s.name] = self._typed(s.init, _sort(s.type), f"initialiser in {out.name}")
        if not isinstance(last, c_ast.Return):
            raise Refused(f"{out.name} does not end with a return")
        out.body = self._typed(last.expr, out.sort, f"return in {out.name}")
        return out

    def _typed(self, e: Any, sort: str, where: str) -> Term:
        value = self.expression(e)
        if value.sort != sort:
            raise Refused(f"{value.sort} used as {sort}: {where}")
        return value

    def expression(self, e: Any) -> Term:
        method = getattr(self, f"_{type(e).__name__.lower()}", None)
        if method is None:
            raise Refused(f"{type(e).__name__} at {e.coord}")
        value: Term = method(e)
        return value

    def _id(self, e: Any) -> Term:
        if e.name not in self.scope:
            raise Refused(f"unknown name {e.name}")
        return self.scope[e.name]

    def _constant(self, e: Any) -> Term:
        plain = re.fullmatch(r"(0|[1-9][0-9]*|0x[0-9A-Fa-f]+)u", e.value)
        if not plain or int(plain[1], 0) >> 32:
            raise Refused(f"constant {e.value} is not a plain unsigned one")
        return lift(int(plain[1], 0))

    def _binaryop(self, e: Any) -> Term:
        a, b = self.expression(e.left), self.expression(e.right)
        if e.op in ("&&", "||") and a.sort == b.sort == "bool":
            return binary("and" if e.op == "&&" else "or", a, b)
        if a.sort != "u32" or b.sort != "u32":
            raise Refused(f"{a.sort} {e.op} {b.sort} at {e.coord}")
        if e.op in BINARY:
            return binary(BINARY[e.op], a, b)
        tests = {"<": ("lt", a, b), "<=": ("le", a, b), ">": ("lt", b, a), ">=": ("le", b, a), "==": ("eq", a, b)}
        if e.op == "!=":
            return lift(negate(compare("eq", a, b)))
        if e.op not in tests:
            raise Refused(f"operator {e.op}")
        return lift(compare(*tests[e.op]))

    def _unaryop(self, e: Any) -> Term:
        if e.op != "!":
            raise Refused(f"operator {e.op}")
        return lift(negate(self._typed(e.expr, "bool", "operand of !")))

    def _ternaryop(self, e: Any) -> Term:
        test = self._typed(e.cond, "bool", "condition of ?:")
        yes = self.expression(e.iftrue)
        no = self._typed(e.iffalse, yes.sort, "branch of ?:")
        return (yes if test.value else no) if test.op == "const" else lift(test.select(yes, no))

    def _arrayref(self, e: Any) -> Term:
        return node(
            "load", (self._typed(e.name, "mem", "array"), self._typed(e.subscript, "u32", "index")), None, "u32"
        )

    def _funccall(self, e: Any) -> Term:
        function = self.functions.get(e.name.name)
        given = e.args.exprs if e.args else []
        if function is None or len(given) != len(function.params):
            raise Refused(f"call of {e.name.name}")
        args = [
            self._typed(x, p.sort, f"argument of {function.name}") for x, p in zip(given, function.params, strict=True)
        ]
        return node("call", tuple(args), function, function.sort)
