"""A cursor over the bytes of a mapped GGUF file: every read is checked against the end before it happens."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from graphrun.core.errors import ModelError

# The header, keys, values and tensor table together. Bounds every table that grows with a hostile count.
MAX_HEADER = 64 << 20

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def shown(name: str | bytes) -> str:
    """A name from the file, quoted and shortened, safe to print on one line."""
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-1]}"


class Cursor:
    """Little-endian reads from `data` at `pos`; `where` names the field in the message of a ModelError."""

    def __init__(self, path: Path, data: mmap.mmap, pos: int = 0) -> None:
        self.path = path
        self.data = data
        self.pos = pos
        self.end = min(len(data), MAX_HEADER)

    def error(self, where: str, message: str, hint: str | None = None) -> ModelError:
        return ModelError(self.path, where, message, hint)

    @property
    def left(self) -> int:
        """Bytes that may still be read."""
        return self.end - self.pos

    def skip(self, nbytes: int, where: str) -> int:
        """Step over `nbytes` and return where they start."""
        start = self.pos
        if nbytes > self.left:
            raise self.past_end(start, nbytes, where)
        self.pos = start + nbytes
        return start

    def past_end(self, start: int, nbytes: int, where: str) -> ModelError:
        """The error of a field of `nbytes` at `start` that crosses the end."""
        if self.end < len(self.data):
            return self.error(where, f"header and tensor table do not fit in {MAX_HEADER >> 20} MiB")
        return self.error(
            where,
            f"needs {nbytes} bytes at byte {start}, but the file ends at byte {self.end}",
            "the file is truncated or damaged: download it again",
        )

    def bytes(self, nbytes: int, where: str) -> bytes:
        start = self.skip(nbytes, where)
        return self.data[start : start + nbytes]

    def u32(self, where: str) -> int:
        value: int = _U32.unpack_from(self.data, self.skip(4, where))[0]
        return value

    def u64(self, where: str) -> int:
        value: int = _U64.unpack_from(self.data, self.skip(8, where))[0]
        return value

    def name(self, where: str, limit: int) -> str:
        """A key or tensor name: 1..limit bytes of printable UTF-8."""
        length = self.u64(where)
        if not 1 <= length <= limit:
            raise self.error(where, f"name is {length} bytes long, but must have 1..{limit}")
        raw = self.bytes(length, where)
        try:
            text = raw.decode()
        except UnicodeDecodeError as e:
            raise self.error(where, f"name {shown(raw)} is not valid UTF-8") from e
        if not text.isprintable():
            raise self.error(where, f"name {shown(text)} holds control characters")
        return text

    def string(self, where: str) -> str:
        """A string value; bytes that are not UTF-8 survive as surrogate escapes."""
        return self.bytes(self.u64(where), where).decode("utf-8", "surrogateescape")

    def strings(self, count: int, where: str) -> list[str]:
        """`count` string values in a row, which `skip_strings` has checked."""
        unpack, data, pos, values = _U64.unpack_from, self.data, self.pos, []
        for _ in range(count):
            start = pos + 8
            pos = start + unpack(data, pos)[0]
            values.append(data[start:pos].decode("utf-8", "surrogateescape"))
        self.skip(pos - self.pos, where)
        return values

    def skip_strings(self, count: int, where: str) -> None:
        """Step over `count` strings; the loop is bare because vocabularies have hundreds of thousands."""
        unpack, data, pos, last = _U64.unpack_from, self.data, self.pos, self.end - 8
        for index in range(count):
            if pos > last:
                raise self.past_end(pos, 8, f"{where}[{index}]")
            start = pos + 8
            pos = start + unpack(data, pos)[0]
            if pos > self.end:
                raise self.past_end(start, pos - start, f"{where}[{index}]")
        self.pos = pos
