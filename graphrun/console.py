"""The command line's surroundings: errors to exit codes, aligned columns, files written whole."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from graphrun.core.errors import GraphrunError, UsageError

FAILED, USAGE, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


class Commands(TyperGroup):
    """The group of commands; what a user or a file can cause ends in a message and an exit code.

    Any other exception is a bug and keeps its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except GraphrunError as error:
            complain(error)
            raise typer.Exit(USAGE if isinstance(error, UsageError) else FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes stdout once more at its end
            raise typer.Exit(PIPE_CLOSED) from None


def use_any_encoding() -> None:
    """Characters that the terminal's encoding lacks become question marks instead of errors."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def complain(error: GraphrunError) -> None:
    """One message on stderr."""
    sys.stdout.flush()
    print(f"error: {printable(str(error))}", file=sys.stderr)


def printable(text: str) -> str:
    """The text without control characters, which names and texts of a file may carry to drive a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class Stream:
    """Text written piece by piece to stdout; leaving the block ends an unfinished line."""

    def __init__(self) -> None:
        self.open_line = False

    def __enter__(self) -> Callable[[str], None]:
        return self.write

    def write(self, piece: str) -> None:
        """Show a piece at once."""
        if piece:
            sys.stdout.write(piece)
            sys.stdout.flush()
            self.open_line = not piece.endswith("\n")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.open_line and (kind is None or not issubclass(kind, BrokenPipeError)):
            self.write("\n")


def columns(rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows as lines with aligned columns, two spaces apart; `right` lists the columns aligned at their ends."""
    table = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, table))


def size(nbytes: int) -> str:
    """Bytes in decimal units: 17.3 MB."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B"


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file that appears whole or not at all: written beside its place, then renamed.

    Raises UsageError where the place cannot be written.
    """
    path = path.resolve()
    special = path.exists() and not path.is_file()  # /dev/null must not be replaced
    part = path if special else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            yield file
        if not special:
            part.replace(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        if not special:
            part.unlink(missing_ok=True)
