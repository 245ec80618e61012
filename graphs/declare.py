"""The one-line declarations of a graph file: params, weights, states, equations and token ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast, get_args

from graphrun.core.errors import GraphError, Span, did_you_mean
from graphrun.core.ir import Discipline
from graphrun.graphs.expr import Expr, Group, Key, Logic, Name, parse, walk
from graphrun.graphs.text import Text

MAX_TOKENS = 1 << 14
STATE_TYPES = ("f16", "f32")


@dataclass(frozen=True, eq=False)
class Param:
    """`KEY or KEY or EXPR`: the first key that the model file has, or else the expression."""

    sources: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class WeightDecl:
    """`TENSOR [DIMS] or NAME`; `tensor` may contain {i} and other names, `other` may be `none`."""

    tensor: Text
    names: tuple[Name, ...]
    dims: Group
    other: Name | None
    span: Span

    @property
    def optional(self) -> bool:
        return self.other is not None and self.other.name == "none"


@dataclass(frozen=True, eq=False)
class StateDecl:
    """`DISCIPLINE TYPE[DIMS]`."""

    discipline: Discipline
    dtype: str
    dims: Group
    span: Span


@dataclass(frozen=True, eq=False)
class StateRef:
    """`BLOCK.STATE`: a state of another block, of the same layer."""

    block: str
    state: str
    span: Span


@dataclass(frozen=True, eq=False)
class InputDecl:
    """`f32[DIMS]`, what a step is given for each token."""

    dims: Group
    span: Span


@dataclass(frozen=True, eq=False)
class Equation:
    """`a, b: EXPR`."""

    targets: tuple[Text, ...]
    expr: Expr


@dataclass(frozen=True)
class Tokens:
    """The token counts that a step takes, both ends included."""

    low: int
    high: int

    def fitting(self, limit: int) -> int:
        """The largest count up to `limit`, or `low` if that is more."""
        return max(self.low, min(self.high, limit))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"


def identifier(text: Text) -> Text:
    """A name that equations can use; raises GraphError."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise GraphError(text.span, f"'{text}' is not a name", "a name has letters, digits and underscores")
    return text


def param(text: Text) -> Param:
    """Parse a param; raises GraphError."""
    expr = parse(text, keys=True)
    sources = expr.items if isinstance(expr, Logic) and expr.op == "or" else (expr,)
    first = sources[0]
    if isinstance(first, Name) and first.name not in ("none", "true", "false"):
        first = Key(first.name, first.span)
    if not isinstance(first, Key):
        raise GraphError(first.span, "a param begins with a key of the model file", "derived values belong under let")
    for number, source in enumerate(sources[1:], 2):
        if isinstance(source, Key):
            continue
        if number < len(sources):
            raise GraphError(sources[number].span, "nothing can follow a default")
        for inner in walk(source):
            if isinstance(inner, Key):
                raise GraphError(inner.span, f"the key '{inner.key}' can only stand alone, or after 'or'")
    return Param((first, *sources[1:]), text.span)


_WEIGHT = re.compile(r"(?P<tensor>[^\s\[\]]+)\s*\[(?P<dims>[^\[\]]*)\](?:\s*or\s+(?P<other>\S.*))?\s*$")
_INPUT = re.compile(r"f32\s*\[(?P<dims>[^\[\]]*)\]\s*$")
_REFERENCE = re.compile(r"(\w+)\.(\w+)$")
_STATE = re.compile(r"(?P<discipline>\w+)\s+(?P<dtype>\w+)\s*\[(?P<dims>.*)\]\s*$")


def weight(text: Text) -> WeightDecl:
    """Parse a weight; raises GraphError."""
    if not (match := _WEIGHT.match(text)):
        raise GraphError(text.span, "cannot read this weight", "write TENSOR [ROWS, COLUMNS], or TENSOR [...] or NAME")
    tensor = text.part(*match.span("tensor"))
    names = []
    for hole in re.finditer(r"\{(.*?)\}|[{}]", tensor):
        if not hole[1]:
            raise GraphError(tensor.at(hole.start()), "braces hold a name, as in blk.{i}.attn_q.weight")
        name = identifier(tensor.part(*hole.span(1)))
        names.append(Name(str(name), name.span))
    other = None
    if match["other"]:
        stand_in = identifier(text.part(*match.span("other")))
        other = Name(str(stand_in), stand_in.span)
    return WeightDecl(tensor, tuple(names), _dims(text, match), other, text.span)


def given(text: Text) -> InputDecl:
    """Parse the type of an input; raises GraphError."""
    if not (match := _INPUT.match(text)):
        raise GraphError(text.span, "cannot read this input", "write f32[CHANNELS], the dimensions of one token")
    return InputDecl(_dims(text, match), text.span)


def state(text: Text) -> StateDecl | StateRef:
    """Parse a state; raises GraphError."""
    if match := _REFERENCE.match(text):
        return StateRef(match[1], match[2], text.span)
    if not (match := _STATE.match(text)):
        raise GraphError(
            text.span, "cannot read this state", "write DISCIPLINE TYPE[DIMENSIONS], as in append f16[4, 64]"
        )
    _one_of(text, match, "discipline", get_args(Discipline))
    _one_of(text, match, "dtype", STATE_TYPES)
    return StateDecl(cast(Discipline, match["discipline"]), match["dtype"], _dims(text, match), text.span)


def _one_of(text: Text, match: re.Match[str], part: str, choices: tuple[str, ...]) -> None:
    if match[part] not in choices:
        message = f"'{match[part]}' must be one of {', '.join(choices)}"
        raise GraphError(text.at(match.start(part)), message, did_you_mean(match[part], choices))


def _dims(text: Text, match: re.Match[str]) -> Group:
    """The dimensions in brackets; the group's place is that of the opening bracket."""
    start, span = match.start("dims"), text.at(match.start("dims") - 1)
    items, depth, begin = [], 0, start
    for position, char in enumerate(text[start : match.end("dims")] + ",", start):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth <= 0:
            items.append(parse(text.part(begin, position)))
            begin = position + 1
    return Group(tuple(items), span)


def equation(key: Text, value: Text) -> Equation:
    """Parse the equation `key: value`; raises GraphError."""
    targets, offset = [], 0
    for word in key.split(","):
        lead = len(word) - len(word.lstrip())
        targets.append(identifier(key.part(offset + lead, offset + lead + len(word.strip()))))
        offset += len(word) + 1
    return Equation(tuple(targets), parse(value))


def tokens(text: Text) -> Tokens:
    """Parse `N` or `A..B`; raises GraphError."""
    match = re.fullmatch(r"(\d{1,6})(?:\s*\.\.\s*(\d{1,6}))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= MAX_TOKENS:
        raise GraphError(text.span, f"'{text}' is not a count of tokens", f"write N or A..B, from 1 to {MAX_TOKENS}")
    return Tokens(low, high)
