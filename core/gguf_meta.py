"""GGUF metadata: every key and value is checked once on opening, values become Python objects when first asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np
from gguf.constants import GGUFValueType as ValueType

from graphrun.core.errors import did_you_mean
from graphrun.core.gguf_read import Cursor, shown

MetaValue: TypeAlias = int | float | bool | str | list["MetaValue"]

MAX_KEYS = 1 << 14
MAX_KEY_BYTES = 65535
MAX_DEPTH = 4
MAX_ARRAY = 1 << 21  # elements of one array; the largest vocabularies and merge lists have a quarter of it
MAX_ELEMENTS = 3 << 20  # elements of all arrays of a file
NESTED_COST = 64  # an array within an array counts as so many elements, because it takes as long to check

_FORMATS = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
_SCALARS = {kind: struct.Struct("<" + code) for kind, code in _FORMATS.items()}
_DTYPES = {kind: np.dtype("<" + code if code != "?" else "?") for kind, code in _FORMATS.items()}
# Fewest bytes of one element in an array: a string has its length, an array its type and count.
_ELEMENT_BYTES = {k: s.size for k, s in _SCALARS.items()} | {ValueType.STRING: 8, ValueType.ARRAY: 12}


def value_name(kind: ValueType) -> str:
    """The short name of a value type: u32, f32, bool, string, array."""
    return kind.name.lower().replace("uint", "u").replace("float", "f").replace("int", "i")


def _value_type(cursor: Cursor, where: str) -> ValueType:
    number = cursor.u32(where)
    try:
        return ValueType(number)
    except ValueError as e:
        raise cursor.error(where, f"value type {number} is not one of 0..{max(ValueType)}") from e


class _Checker:
    """Steps over values without building them; counts array elements against the file's budget."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.budget = MAX_ELEMENTS

    def value(self, kind: ValueType, where: str) -> None:
        if kind == ValueType.ARRAY:
            self.array(where, 1)
        elif kind == ValueType.STRING:
            self.cursor.skip(self.cursor.u64(where), where)
        else:
            self.scalars(kind, 1, where)

    def scalars(self, kind: ValueType, count: int, where: str) -> None:
        start = self.cursor.skip(count * _SCALARS[kind].size, where)
        if kind == ValueType.BOOL and count:
            worst = int(np.frombuffer(self.cursor.data, np.uint8, count, start).max())
            if worst > 1:
                raise self.cursor.error(where, f"bool has the value {worst}, but must be 0 or 1")

    def array(self, where: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.cursor.error(where, f"arrays are nested deeper than {MAX_DEPTH}")
        kind, count = _value_type(self.cursor, where), self.cursor.u64(where)
        self.budget -= count * (NESTED_COST if kind == ValueType.ARRAY else 1)
        if count > MAX_ARRAY or self.budget < 0:
            raise self.cursor.error(
                where, f"array of {count} elements exceeds the limits: {MAX_ARRAY} each, {MAX_ELEMENTS} together"
            )
        if count * _ELEMENT_BYTES[kind] > self.cursor.left:
            raise self.cursor.past_end(self.cursor.pos, count * _ELEMENT_BYTES[kind], where)
        if kind == ValueType.STRING:
            self.cursor.skip_strings(count, where)
        elif kind == ValueType.ARRAY:
            for _ in range(count):
                self.array(where, depth + 1)
        else:
            self.scalars(kind, count, where)


def _load(cursor: Cursor, kind: ValueType, where: str) -> MetaValue:
    """The value of type `kind` at the cursor, which has been checked before."""
    if kind == ValueType.STRING:
        return cursor.string(where)
    if kind != ValueType.ARRAY:
        scalar: int | float | bool = _SCALARS[kind].unpack_from(cursor.data, cursor.skip(_SCALARS[kind].size, where))[0]
        return scalar
    kind, count = _value_type(cursor, where), cursor.u64(where)
    if kind == ValueType.STRING:
        return list(cursor.strings(count, where))
    if kind == ValueType.ARRAY:
        return [_load(cursor, ValueType.ARRAY, where) for _ in range(count)]
    raw = cursor.bytes(count * _SCALARS[kind].size, where)
    values: list[MetaValue] = np.frombuffer(raw, _DTYPES[kind]).tolist()
    return values


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the value of a key starts in the file."""

    kind: ValueType
    pos: int


class Metadata(Mapping[str, MetaValue]):
    """The keys of one file in file order; a value is read on first access and kept."""

    def __init__(self, cursor: Cursor, places: dict[str, _Place]) -> None:
        self._path, self._data = cursor.path, cursor.data
        self._places = places
        self._values: dict[str, MetaValue] = {}

    def __getitem__(self, key: str) -> MetaValue:
        if key not in self._values:
            place = self._places[key]
            self._values[key] = _load(Cursor(self._path, self._data, place.pos), place.kind, key_place(key))
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def type_of(self, key: str) -> str:
        """The value type the file gives `key`: "u32", "string", "array", ...; KeyError if absent."""
        return value_name(self._places[key].kind)

    def closest(self, key: str) -> str | None:
        """A did-you-mean hint for an absent key."""
        return did_you_mean(key, islice(self._places, 1000))


def key_place(key: str) -> str:
    """How messages name a key."""
    return f"key {shown(key)}"


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """Check `count` key-value pairs and leave the cursor behind them; raises ModelError."""
    checker, places = _Checker(cursor), dict[str, _Place]()
    for index in range(count):
        key = cursor.name(f"metadata entry {index}", MAX_KEY_BYTES)
        where = key_place(key)
        if key in places:
            raise cursor.error(where, "appears twice")
        kind = _value_type(cursor, where)
        places[key] = _Place(kind, cursor.pos)
        checker.value(kind, where)
    return Metadata(cursor, places)
