"""Errors that a user can cause, each with the place it came from.

GraphrunError            every error below: one clear message, no traceback at the command line
├── GraphError           a mistake in a graph file: file:line:col, the line, a caret, a hint
├── ModelError           a model file that is damaged, or that its graph cannot run
├── TemplateError        a chat template that fails, loops or reaches for what it must not
├── ProgramError         a lowered program that a check refuses, or that computed NaN
├── BackendError         a device, driver or package that is missing or too small
└── UsageError           an argument that makes no sense: an empty prompt, a context too short
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text file: 1-based line and column, and the line itself."""

    file: str
    line: int
    col: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"

    def shift(self, columns: int) -> Span:
        """The same line, `columns` further right."""
        return Span(self.file, self.line, self.col + columns, self.text)


class GraphrunError(Exception):
    """Base of every error caused by input; `str()` is the whole message for the user."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        return self.message + (f"\n  hint: {self.hint}" if self.hint else "")


class GraphError(GraphrunError):
    """A mistake in a graph file, or a model file that it does not fit; shown with the line and a caret.

    `model` is the path of that model file, set where it is known.
    """

    def __init__(self, span: Span, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.span = span
        self.model = ""

    def __str__(self) -> str:
        lines = [f"{self.span}: {self.message}"]
        if self.span.text:
            lines += [f"    {self.span.text}", " " * (self.span.col + 3) + "^"]
        if self.model:
            lines.append(f"  model: {self.model}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class ModelError(GraphrunError):
    """A model file that cannot be used; `where` names the key, tensor or section.

    Shown on one line, because a damaged file has no source line to point at.
    """

    def __init__(self, path: object, where: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.path = str(path)
        self.where = where

    def __str__(self) -> str:
        place = f"{self.path}: {self.where}" if self.where else self.path
        return f"{place}: {self.message}" + (f" (hint: {self.hint})" if self.hint else "")


class TemplateError(GraphrunError):
    """A chat template that cannot be rendered."""


class ProgramError(GraphrunError):
    """A program that a check refuses, or whose run produced a value that is not finite."""


class BackendError(GraphrunError):
    """A device or a package that is missing, or too small for the model."""


class UsageError(GraphrunError):
    """An argument of a call or a command that makes no sense here."""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The hint "did you mean 'x'?" for the closest of `known`, or None if nothing is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else None
