"""Expressions of a graph file: a small subset of Python's, parsed but never executed, each node with its place."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from graphrun.core.errors import GraphError, Span
from graphrun.graphs.text import Text

MAX_LENGTH = 2000
MAX_DEPTH = 30
MAX_INTEGER = 1 << 62


@dataclass(frozen=True, eq=False, slots=True)
class Literal:
    """A number, or a string that names a choice."""

    value: int | float | str
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Name:
    """A name; `none`, `true` and `false` are names too."""

    name: str
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Key:
    """A dotted key of the model file's metadata: its value, with `form` "len" its length, with "list" all of it."""

    key: str
    span: Span
    form: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """`list[position]`."""

    list: Name
    position: Expr
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """An op, a block or a function applied to arguments."""

    function: str
    args: tuple[Expr, ...]
    named: tuple[tuple[str, Expr], ...]
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Unary:
    """`-x` or `not x`."""

    op: str
    operand: Expr
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Binary:
    """Arithmetic or a comparison."""

    op: str
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Logic:
    """`a and b and c`, or the same with `or`."""

    op: str
    items: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """`then if test else other`; only the chosen side is evaluated."""

    test: Expr
    then: Expr
    other: Expr
    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """`(a, b)`, the right side of `in`, or the dimensions of a tensor."""

    items: tuple[Expr, ...]
    span: Span


Expr = Literal | Name | Key | Index | Call | Unary | Binary | Logic | Choice | Group

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "-",
}
GRAMMAR = "an expression is made of calls, + - * / // %, comparisons, and, or, not, 'a if test else b'"


def parse(text: Text, *, keys: bool = False) -> Expr:
    """Parse one expression; `keys` allows dotted keys. Raises GraphError at the exact column."""
    if len(text) > MAX_LENGTH:
        raise GraphError(text.span, f"the expression is longer than {MAX_LENGTH} characters")
    lead = len(text) - len(text.lstrip())
    source = "".join(" " if c in "\r\n" else c for c in text[lead:])
    if not source:
        raise GraphError(text.span, "an expression is missing here")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful literal is refused below or harmless
            tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        column = min(max((error.offset or 1) - 1, 0), len(source))
        raise GraphError(text.at(lead + column), "cannot read this expression") from None
    except (ValueError, RecursionError, MemoryError):
        raise GraphError(text.span, "cannot read this expression") from None
    return _Converter(text, source.encode(), lead, keys).convert(tree.body, 0)


@dataclass(frozen=True)
class _Converter:
    text: Text
    source: bytes
    lead: int
    keys: bool

    def span(self, node: ast.expr) -> Span:
        column = len(self.source[: node.col_offset].decode(errors="replace"))  # ast counts UTF-8 bytes
        return self.text.at(self.lead + column)

    def convert(self, node: ast.expr, depth: int) -> Expr:
        span = self.span(node)
        if depth > MAX_DEPTH:
            raise GraphError(span, "the expression is nested too deeply")
        deeper = depth + 1
        match node:
            case ast.Constant(value=value):
                return self.literal(value, span)
            case ast.Name(id=name):
                return Name(name, span)
            case ast.Attribute() if self.keys:
                return Key(self.dotted(node), span)
            case ast.Subscript(value=ast.Name() as name, slice=position):
                return Index(Name(name.id, span), self.convert(position, deeper), span)
            case ast.Tuple(elts=[]) if self.keys:
                return Group((), span)
            case ast.Call():
                return self.call(node, deeper, span)
            case ast.UnaryOp(op=ast.USub() | ast.Not() as op, operand=operand):
                return Unary(OPERATORS[type(op)], self.convert(operand, deeper), span)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return Binary(OPERATORS[type(op)], self.convert(left, deeper), self.convert(right, deeper), span)
            case ast.BoolOp(op=op, values=values):
                return Logic(OPERATORS[type(op)], tuple(self.convert(v, deeper) for v in values), span)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
                return self.comparison(OPERATORS[type(op)], left, right, deeper, span)
            case ast.IfExp(test=test, body=then, orelse=other):
                return Choice(self.convert(test, deeper), self.convert(then, deeper), self.convert(other, deeper), span)
        raise GraphError(span, "this is not part of the language", GRAMMAR)

    def literal(self, value: object, span: Span) -> Literal:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            hint = f"write {str(value).lower()}" if value in (None, True, False) else None
            raise GraphError(span, f"{value!r} is not part of the language", hint)
        if isinstance(value, int | float) and not abs(value) <= MAX_INTEGER:
            raise GraphError(span, "this number is too large")
        return Literal(value, span)

    def comparison(self, op: str, left: ast.expr, right: ast.expr, depth: int, span: Span) -> Binary:
        if op not in ("in", "not in"):
            return Binary(op, self.convert(left, depth), self.convert(right, depth), span)
        if not isinstance(right, ast.Tuple):
            raise GraphError(self.span(right), f"'{op}' needs a list of choices, as in (1, 2)")
        choices = Group(tuple(self.convert(item, depth) for item in right.elts), self.span(right))
        return Binary(op, self.convert(left, depth), choices, span)

    def call(self, node: ast.Call, depth: int, span: Span) -> Expr:
        if not isinstance(node.func, ast.Name):
            raise GraphError(span, "only an op, a block or a function can be called, by its name")
        named = []
        for keyword in node.keywords:
            if keyword.arg is None:
                raise GraphError(self.span(keyword.value), "'**' is not part of the language", GRAMMAR)
            named.append((keyword.arg, self.convert(keyword.value, depth)))
        args = tuple(self.convert(arg, depth) for arg in node.args)
        form = node.func.id
        if self.keys and form in ("len", "list") and len(args) == 1 and not named and isinstance(args[0], Key | Name):
            key = args[0].key if isinstance(args[0], Key) else args[0].name
            return Key(key, args[0].span, form)
        return Call(node.func.id, args, tuple(named), span)

    def dotted(self, node: ast.expr) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            raise GraphError(self.span(node), "a key is made of names and dots")
        return ".".join([node.id, *reversed(parts)])


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything in it."""
    yield expr
    match expr:
        case Call(args=args, named=named):
            children: tuple[Expr, ...] = args + tuple(value for _, value in named)
        case Unary(operand=operand):
            children = (operand,)
        case Index(list=name, position=position):
            children = (name, position)
        case Binary(left=left, right=right):
            children = (left, right)
        case Logic(items=items) | Group(items=items):
            children = items
        case Choice(test=test, then=then, other=other):
            children = (test, then, other)
        case _:
            return
    for child in children:
        yield from walk(child)


def names(expr: Expr) -> list[Name]:
    """Every name in the expression, in reading order."""
    return [e for e in walk(expr) if isinstance(e, Name)]
