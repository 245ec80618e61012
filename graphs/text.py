"""YAML read with marks: every string of the tree knows the line and column of each of its characters."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from graphrun.core.errors import GraphError, Span

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_NODES = 5000
MAX_LINE = 400  # a longer line is not shown in messages

Loc = tuple[str | int, ...]
Tree = Any  # dict[Text, Tree] | list[Tree] | Text


class Text(str):
    """A string of a YAML file; `pieces` are (offset in the string, place in the file), one per line it covers."""

    pieces: tuple[tuple[int, Span], ...]

    def __new__(cls, value: str, pieces: tuple[tuple[int, Span], ...]) -> Text:
        text = super().__new__(cls, value)
        text.pieces = pieces
        return text

    def at(self, offset: int) -> Span:
        """The place of the character at `offset`."""
        start, span = self.pieces[max(bisect_right(self.pieces, offset, key=lambda piece: piece[0]) - 1, 0)]
        return span.shift(offset - start)

    @property
    def span(self) -> Span:
        return self.pieces[0][1]

    def part(self, start: int, end: int | None = None) -> Text:
        """The substring [start, end), which still knows its places."""
        moved = tuple((offset - start, span) for offset, span in self.pieces if offset > start)
        return Text(self[start:end], ((0, self.at(start)), *moved))


def place_of(text: str) -> Span:
    """Where a string that came from a graph file stands."""
    assert isinstance(text, Text)
    return text.span


@dataclass(frozen=True)
class Document:
    """A YAML document: its tree, and the places of mapping keys and of values by their path in it."""

    tree: Tree
    file: str
    keys: dict[Loc, Span]
    values: dict[Loc, Span]

    def place(self, loc: Loc, *, key: bool = False) -> Span:
        """Where the value (or the key) at `loc` stands; the nearest enclosing one if there is none."""
        first, second = (self.keys, self.values) if key else (self.values, self.keys)
        for end in range(len(loc), -1, -1):
            if span := first.get(loc[:end]) or second.get(loc[:end]):
                return span
        return Span(self.file, 1, 1)


def read(data: bytes, file: str) -> Document:
    """Compose a graph file; raises GraphError for anything but one plain YAML document of text."""
    if len(data) > MAX_BYTES:
        raise GraphError(Span(file, 1, 1), f"the file is larger than {MAX_BYTES} bytes")
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise GraphError(Span(file, line, 1), "the file is not UTF-8 text") from None
    builder = _Builder(source, file)
    try:
        return builder.document(yaml.parse(source, Loader=yaml.SafeLoader))
    except yaml.reader.ReaderError as error:
        raise GraphError(builder.span_at(error.position), "this character is not allowed in YAML") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise GraphError(builder.span(mark), f"not valid YAML: {error.problem or error.context}") from None


@dataclass
class _Builder:
    source: str
    file: str
    keys: dict[Loc, Span] = field(default_factory=dict)
    values: dict[Loc, Span] = field(default_factory=dict)
    nodes: int = 0

    def __post_init__(self) -> None:
        self.lines = self.source.splitlines()

    def line(self, number: int) -> str:
        line = self.lines[number] if number < len(self.lines) else ""
        return line if len(line) <= MAX_LINE else ""

    def span(self, mark: Any) -> Span:
        if mark is None:
            return Span(self.file, 1, 1)
        return Span(self.file, mark.line + 1, mark.column + 1, self.line(mark.line))

    def span_at(self, position: int) -> Span:
        before = self.source[:position].splitlines() or [""]
        return Span(self.file, len(before), len(before[-1]) + 1)

    def document(self, events: Iterator[Any]) -> Document:
        next(events)  # stream start
        if isinstance(event := next(events), yaml.StreamEndEvent):
            raise GraphError(Span(self.file, 1, 1), "the file is empty")
        tree = self.node(next(events), events, ())
        next(events)  # document end
        if not isinstance(event := next(events), yaml.StreamEndEvent):
            raise GraphError(self.span(event.start_mark), "a graph file is one YAML document, this starts another")
        return Document(tree, self.file, self.keys, self.values)

    def node(self, event: Any, events: Iterator[Any], loc: Loc) -> Tree:
        span = self.span(event.start_mark)
        self.nodes += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise GraphError(span, "a graph file cannot use YAML anchors or aliases")
        if event.tag is not None:
            raise GraphError(span, "a graph file cannot use YAML tags")
        if len(loc) > MAX_DEPTH or self.nodes > MAX_NODES:
            raise GraphError(span, "the file is nested too deeply" if len(loc) > MAX_DEPTH else "the file is too large")
        self.values[loc] = span
        if isinstance(event, yaml.ScalarEvent):
            return self.text(event)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Tree] = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.node(event, events, (*loc, len(items))))
            return items
        return self.mapping(events, loc)

    def mapping(self, events: Iterator[Any], loc: Loc) -> dict[Text, Tree]:
        result: dict[Text, Tree] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise GraphError(self.span(event.start_mark), "a key must be plain text")
            key = self.node(event, events, (*loc, "?"))
            if key in result:
                first = self.keys[(*loc, str(key))].line
                raise GraphError(key.span, f"'{key}' is already defined", f"line {first} defines it, keys are unique")
            self.keys[(*loc, str(key))] = key.span
            result[key] = self.node(next(events), events, (*loc, str(key)))
        return result

    def text(self, event: Any) -> Text:
        """A scalar with the places of its lines; one with escapes or a block style knows only its start."""
        start, value = event.start_mark, event.value
        raw = self.source[start.index : event.end_mark.index]
        if event.style in ("'", '"'):
            shift = int(raw[1:-1] == value)
            return Text(value, ((0, self.span(start).shift(shift)),))
        lines = raw.splitlines()
        if event.style is not None or " ".join(line.strip() for line in lines) != value:
            return Text(value, ((0, self.span(start)),))
        pieces, offset = [(0, self.span(start))], 0
        for number, line in enumerate(lines[1:], start.line + 1):
            offset += len(lines[number - start.line - 1].strip()) + 1
            indent = len(line) - len(line.lstrip())
            pieces.append((offset, Span(self.file, number + 1, indent + 1, self.line(number))))
        return Text(value, tuple(pieces))
