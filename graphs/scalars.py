"""Values of expressions over numbers and strings."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from graphrun.core.errors import GraphError, Span, did_you_mean
from graphrun.core.gguf_read import shown
from graphrun.core.ir import Value
from graphrun.graphs.expr import MAX_INTEGER, Binary, Call, Choice, Expr, Group, Index, Key, Literal, Logic, Name, Unary

Scalar = int | float | str | bool


@dataclass(frozen=True, slots=True)
class List:
    """A list of the model file's metadata."""

    items: tuple[Scalar, ...]


Known = Scalar | List
Result = Known | Value | tuple[Value, ...] | None

CONSTANTS: dict[str, bool | None] = {"none": None, "true": True, "false": False}
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {  # number of arguments, meaning
    "log": (1, math.log),
    "sqrt": (1, math.sqrt),
    "min": (2, min),
    "max": (2, max),
    "len": (1, len),  # of a list
    "has": (1, bool),  # whether the model file has a tensor of this name
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def describe(value: Result) -> str:
    """A value in words, for messages."""
    if isinstance(value, Value):
        return f"the tensor {value.type}"
    if isinstance(value, tuple):
        return f"{len(value)} tensors"
    if isinstance(value, List):
        return f"a list of {len(value.items)}"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return shown(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)


class Evaluator:
    """Evaluates expressions over `names`; subclasses add what else a name, a call or an operator can mean."""

    def __init__(self, names: Mapping[str, Result], tensors: Container[str] | None = None) -> None:
        self.names = names
        self.tensors = tensors

    def value(self, expr: Expr) -> Result:
        """The expression's value; raises GraphError at the column of the part that has none."""
        match expr:
            case Name():
                return self.name(expr.name, expr.span)
            case Call():
                return self.call(expr)
            case Literal():
                return expr.value
            case Binary():
                return self.binary(expr)
            case Index():
                return self.index(expr)
            case Choice():
                return self.choice(expr)
            case Logic(op=op, items=items):
                return any(map(self.truth, items)) if op == "or" else all(map(self.truth, items))
            case Unary(op="not", operand=operand):
                return not self.truth(operand)
            case Unary(operand=operand):
                return finite(-self.number(operand), expr.span)
            case Key() | Group():
                raise GraphError(expr.span, "a value is needed here")

    def name(self, name: str, span: Span) -> Result:
        if name in self.names:
            return self.names[name]
        if name in CONSTANTS:
            return CONSTANTS[name]
        raise GraphError(span, f"'{name}' is not defined", did_you_mean(name, self.names))

    def choice(self, expr: Choice) -> Result:
        return self.value(expr.then if self.truth(expr.test) else expr.other)

    def call(self, call: Call) -> Result:
        """A function of numbers."""
        arity, function = FUNCTIONS.get(call.function, (0, None))
        if function is None:
            raise GraphError(
                call.span, f"'{call.function}' cannot be called here", f"functions: {', '.join(FUNCTIONS)}"
            )
        if len(call.args) != arity or call.named:
            raise GraphError(call.span, f"{call.function} takes {arity} number{'s' * (arity > 1)}")
        if call.function == "len":
            return len(self.list(call.args[0]).items)
        if call.function == "has":
            if self.tensors is None:
                raise GraphError(call.span, "'has' cannot be called here", "it belongs under let")
            return self.scalar(call.args[0]) in self.tensors
        try:
            return finite(function(*map(self.number, call.args)), call.span)
        except ValueError:
            raise GraphError(call.span, f"{call.function} has no value here") from None

    def index(self, expr: Index) -> Scalar:
        """An item of a list, counted from 0."""
        items, position = self.list(expr.list).items, self.number(expr.position)
        if not isinstance(position, int) or not 0 <= position < len(items):
            message = f"{expr.list.name} has {len(items)} items, there is no number {describe(position)}"
            raise GraphError(expr.span, message)
        return items[position]

    def list(self, expr: Expr) -> List:
        value = self.value(expr)
        if not isinstance(value, List):
            raise GraphError(expr.span, f"a list is needed here, not {describe(value)}")
        return value

    def binary(self, expr: Binary) -> Result:
        op = expr.op
        if op in ("in", "not in"):
            assert isinstance(expr.right, Group)
            left, items = self.scalar(expr.left), [self.scalar(item) for item in expr.right.items]
            return (left in items) == (op == "in")
        return self.combine(expr, self.value(expr.left), self.value(expr.right))

    def combine(self, expr: Binary, left: Result, right: Result) -> Result:
        """The operator on two values."""
        op = expr.op
        if op in ("==", "!=") and not isinstance(left, Value | tuple) and not isinstance(right, Value | tuple):
            return (left == right) == (op == "==")
        for side, value in ((expr.left, left), (expr.right, right)):
            if not is_number(value):
                raise GraphError(side.span, f"'{op}' needs two numbers, this is {describe(value)}")
        if op in COMPARISONS:
            return COMPARISONS[op](left, right)
        try:
            return finite(ARITHMETIC[op](left, right), expr.span)
        except ZeroDivisionError:
            raise GraphError(expr.right.span, "division by zero") from None
        except OverflowError:
            raise GraphError(expr.span, "the result is too large") from None

    def scalar(self, expr: Expr) -> Scalar:
        """A number, a string, true or false."""
        value = self.value(expr)
        if value is None or isinstance(value, Value | tuple | List):
            raise GraphError(expr.span, f"a number is needed here, not {describe(value)}")
        return value

    def number(self, expr: Expr) -> int | float:
        value = self.value(expr)
        if not is_number(value):
            raise GraphError(expr.span, f"a number is needed here, not {describe(value)}")
        assert isinstance(value, int | float)
        return value

    def size(self, expr: Expr) -> int:
        """A whole number from 1."""
        value = self.number(expr)
        if not isinstance(value, int) or value < 1:
            raise GraphError(expr.span, f"this is {describe(value)}, it must be a whole number from 1")
        return value

    def truth(self, expr: Expr) -> bool:
        value = self.value(expr)
        if not isinstance(value, bool):
            raise GraphError(expr.span, f"this must be true or false, not {describe(value)}")
        return value


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def finite(value: Any, span: Span) -> int | float:
    """The number, if it is neither infinite nor absurdly large."""
    number: int | float = value
    if isinstance(number, float) and not math.isfinite(number) or isinstance(number, int) and abs(number) > MAX_INTEGER:
        raise GraphError(span, "the result is too large")
    return number
