"""Strings that remember, character by character, whether a template wrote them or a user did."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import SupportsIndex

RUN = re.compile(rb"\x00+|\x01+")


class Traced(str):
    """A str with one flag per character: 1 if the template wrote it, 0 if it may come from a user.

    The text of every result is computed by str itself, so templates behave as if there were no flags. An operation
    that is not known here returns a plain str, which counts as the user's: flags get lost, never invented.
    """

    __slots__ = ("_flags",)
    _flags: bytes

    def __new__(cls, text: str, flags: bytes | None = None) -> Traced:
        self = super().__new__(cls, text)
        self._flags = flags if flags is not None and len(flags) == len(self) else bytes(len(self))
        return self

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        # markup escapes what it is added to, and does so itself
        if hasattr(other, "__html__") or not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(self, other), self._flags + flags_of(other))

    def __radd__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(other, self), flags_of(other) + self._flags)

    def __mul__(self, count: SupportsIndex) -> str:
        return Traced(str.__mul__(self, count), self._flags * count)

    __rmul__ = __mul__

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        index = key if isinstance(key, slice) else slice(int(key), int(key) + 1 or None)
        return Traced(str.__getitem__(self, key), self._flags[index])

    def _part(self, text: str, start: int) -> str:
        return Traced(text, self._flags[start : start + len(text)])

    def _tiles(self, texts: list[str], gap: int) -> list[str]:
        """Parts that follow each other with `gap` characters between."""
        parts, start = [], 0
        for text in texts:
            parts.append(self._part(text, start))
            start += len(text) + gap
        return parts

    def _words(self, texts: list[str]) -> list[str]:
        """Parts that follow each other with only white space between, none of them beginning with any."""
        parts, start = [], 0
        for text in texts:
            start = self.find(text, start)
            parts.append(self._part(text, start))
            start += len(text)
        return parts

    def lstrip(self, chars: str | None = None, /) -> str:
        text = str.lstrip(self, chars)
        return self._part(text, len(self) - len(text))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._part(str.rstrip(self, chars), 0)

    def strip(self, chars: str | None = None, /) -> str:
        return self._part(str.strip(self, chars), len(self) - len(str.lstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        text = str.removeprefix(self, prefix)
        return self._part(text, len(self) - len(text))

    def removesuffix(self, suffix: str, /) -> str:
        return self._part(str.removesuffix(self, suffix), 0)

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        texts = str.split(self, sep, maxsplit)
        return self._words(texts) if sep is None else self._tiles(texts, len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        texts = str.rsplit(self, sep, maxsplit)
        return self._words(texts) if sep is None else self._tiles(texts, len(sep))

    def splitlines(self, keepends: bool = False) -> list[str]:
        whole = self._tiles(str.splitlines(self, True), 0)
        return whole if keepends else [line[: len(str.splitlines(line)[0])] for line in whole]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        before, middle, after = self._tiles(list(str.partition(self, sep)), 0)
        return before, middle, after

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        before, middle, after = self._tiles(list(str.rpartition(self, sep)), 0)
        return before, middle, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return str.replace(self, old, new, count)
        return _join(new, self.split(old, count))

    def join(self, parts: Iterable[str], /) -> str:
        return _join(self, list(parts))

    # a case mapping may lengthen a text, which drops its flags, but it never shortens one
    def lower(self) -> str:
        return Traced(str.lower(self), self._flags)

    def upper(self) -> str:
        return Traced(str.upper(self), self._flags)

    def title(self) -> str:
        return Traced(str.title(self), self._flags)

    def capitalize(self) -> str:
        return Traced(str.capitalize(self), self._flags)


def flags_of(text: str) -> bytes:
    """The flags of a string; all 0 for one that is not traced."""
    return text._flags if isinstance(text, Traced) else bytes(len(text))


def _join(gap: str, parts: list[str]) -> str:
    return Traced(str.join(gap, parts), flags_of(gap).join(map(flags_of, parts)))


def written(text: str) -> Traced:
    """A string that the template wrote."""
    return Traced(text, b"\1" * len(text))


def concat(parts: Iterable[str]) -> str:
    """The joined strings, with their flags."""
    parts = list(parts)
    return Traced("".join(parts), b"".join(map(flags_of, parts)))


def runs(text: str) -> Iterator[tuple[str, bool]]:
    """Longest stretches with one flag, in order: (text, whether the template wrote it)."""
    flags = flags_of(text)
    for run in RUN.finditer(flags):
        yield str.__getitem__(text, slice(*run.span())), flags[run.start()] == 1
