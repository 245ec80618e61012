"""YAML text -> Spec: a graph file whose every string knows its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from graphrun.core.errors import GraphError, Span, UsageError, did_you_mean
from graphrun.graphs import declare
from graphrun.graphs.declare import Equation, InputDecl, Param, StateDecl, StateRef, Tokens, WeightDecl
from graphrun.graphs.expr import Expr, parse
from graphrun.graphs.text import MAX_BYTES, Document, Loc, Text, read

Parsed = TypeVar("Parsed")


def _mistakes(errors: list[GraphError]) -> PydanticCustomError:
    return PydanticCustomError("graph", "a mistake in a graph file", {"errors": errors})


def _leaf(parser: Callable[[Text], Parsed]) -> PlainValidator:
    def validate(value: object) -> Parsed:
        if not isinstance(value, Text):
            raise PydanticCustomError("text", "must be text, not a {kind}", {"kind": _kind(value)})
        if not value.strip():
            raise PydanticCustomError("text", "is empty")
        try:
            return parser(value)
        except GraphError as error:
            raise _mistakes([error]) from None

    return PlainValidator(validate)


def _equations(value: object) -> tuple[Equation, ...]:
    if not isinstance(value, dict):
        raise PydanticCustomError("section", "must be a mapping of names to expressions")
    result, errors = [], []
    for key, expr in value.items():
        try:
            if not isinstance(expr, Text):
                raise GraphError(key.span, f"the equation of '{key}' must be text, not a {_kind(expr)}")
            result.append(declare.equation(key, expr))
        except GraphError as error:
            errors.append(error)
    if errors:
        raise _mistakes(errors)
    return tuple(result)


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Text) else value


def _kind(value: object) -> str:
    return "mapping" if isinstance(value, dict) else "list" if isinstance(value, list) else "text"


Label = Annotated[str, _leaf(declare.identifier)]  # a Text: text.place_of finds where it stands
Word = Annotated[Text, _leaf(lambda text: text)]
Expression = Annotated[Expr, _leaf(parse)]
Weights = dict[Label, Annotated[WeightDecl, _leaf(declare.weight)]]
Equations = Annotated[tuple[Equation, ...], PlainValidator(_equations)]
Words = Annotated[tuple[Word, ...], BeforeValidator(_tuple)]
Expressions = Annotated[tuple[Expression, ...], BeforeValidator(_tuple)]


class Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Block(Section):
    """A function from h to h with its own weights and states."""

    weights: Weights = {}
    states: dict[Label, Annotated[StateDecl | StateRef, _leaf(declare.state)]] = {}
    body: Equations


class Layers(Section):
    """An expression of h and i, applied `repeat` times."""

    repeat: Expression
    body: Expression


class Step(Section):
    """A graph to compile for a range of token counts; with `rows: last`, rows(x) is the last token's row."""

    graph: Word
    tokens: Annotated[Tokens, _leaf(declare.tokens)]
    rows: Annotated[Literal["all", "last"], BeforeValidator(_plain)] = "all"
    when: Expression | None = None

    def takes(self, tokens: int) -> bool:
        """Whether the step can be compiled for that many tokens."""
        return self.tokens.low <= tokens <= self.tokens.high

    def largest(self, limit: int) -> int:
        """The most tokens it takes, at most `limit` where it can choose."""
        return self.tokens.fitting(limit)


class Spec(Section):
    """A graph file. `place` finds the span of a path in it, as ("steps", "decode")."""

    arch: Word
    params: dict[Label, Annotated[Param, _leaf(declare.param)]] = {}
    let: dict[Label, Expression] = {}
    check: Expressions = ()
    ignored: Words = ()
    inputs: dict[Label, Annotated[InputDecl, _leaf(declare.given)]] = {}
    weights: Weights = {}
    blocks: dict[Label, Block] = {}
    layers: Layers | None = None
    graphs: dict[Label, Equations]
    steps: dict[Label, Step]
    document: Annotated[Document, PlainValidator(lambda document: document)]

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return self.document.file

    def place(self, *loc: str | int, key: bool = False) -> Span:
        """Where the value (or the key) at this path stands."""
        return self.document.place(loc, key=key)


def parse_spec(data: bytes | str, file: str) -> Spec:
    """A graph file's text as a Spec; `file` is its name in messages. Raises the first GraphError."""
    spec, errors = try_spec(data, file)
    if spec is None:
        raise errors[0]
    return spec


def try_spec(data: bytes | str, file: str) -> tuple[Spec | None, list[GraphError]]:
    """The Spec, or None and every mistake found, in reading order."""
    try:
        document = read(data if isinstance(data, bytes) else data.encode(errors="replace"), file)
    except GraphError as error:
        return None, [error]
    if not isinstance(document.tree, dict):
        return None, [GraphError(document.place(()), "a graph file is a mapping of sections")]
    if "document" in document.tree:
        return None, [GraphError(document.place(("document",), key=True), "unknown key 'document'")]
    try:
        return Spec.model_validate({**document.tree, "document": document}), []
    except ValidationError as error:
        found = [mistake for entry in error.errors() for mistake in _reword(entry, document)]
        return None, sorted(found, key=lambda e: (e.span.line, e.span.col))


def _reword(entry: Any, document: Document) -> Iterator[GraphError]:
    """A pydantic error in the words of the house, at its place in the file."""
    loc: Loc = tuple(part for part in entry["loc"] if part != "[key]")
    path, kind = ".".join(map(str, loc)), entry["type"]
    if kind == "graph":
        yield from entry["ctx"]["errors"]
    elif kind == "extra_forbidden":
        yield GraphError(document.place(loc, key=True), f"unknown key '{loc[-1]}'", _known_key(loc))
    elif kind == "missing":
        where = f"{'.'.join(map(str, loc[:-1]))} has" if len(loc) > 1 else "the file has"
        yield GraphError(document.place(loc[:-1], key=True), f"{where} no '{loc[-1]}'")
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        yield GraphError(document.place(loc), f"{path}: must be a mapping, not {_article(entry['input'])}")
    elif kind == "tuple_type":
        yield GraphError(document.place(loc), f"{path}: must be a list, not {_article(entry['input'])}")
    else:
        message = entry["msg"]
        yield GraphError(document.place(loc), f"{path}: {message[0].lower()}{message[1:]}")


def _article(value: object) -> str:
    return "text" if isinstance(value, Text) else f"a {_kind(value)}"


def _known_key(loc: Loc) -> str | None:
    models: dict[str, type[Section]] = {"blocks": Block, "layers": Layers, "steps": Step}
    model = models.get(str(loc[0]), Spec) if len(loc) > 1 else Spec
    known = [name for name in model.model_fields if name != "document"]
    return did_you_mean(str(loc[-1]), known) or f"known here: {', '.join(known)}"


def known() -> list[str]:
    """The graphs that come with graphrun, by name."""
    files = resources.files("graphrun.graphs").iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))


def read_source(path_or_name: str | Path) -> tuple[bytes, str]:
    """Text and display name of a known graph or of a file; raises UsageError if there is neither."""
    name = str(path_or_name)
    if name in known():
        return (resources.files("graphrun.graphs") / f"{name}.yaml").read_bytes(), f"{name}.yaml"
    path = Path(path_or_name)
    try:
        if not path.is_file():
            hint = did_you_mean(name, known()) or f"known graphs: {', '.join(known())}; or give the path of a file"
            raise UsageError(f"there is no graph '{name}'", hint)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1), name
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read '{name}': {error}") from None


def load_spec(path_or_name: str | Path) -> Spec:
    """The graph of that name or path. Raises UsageError if there is none, GraphError if it has a mistake."""
    return parse_spec(*read_source(path_or_name))
