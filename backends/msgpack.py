"""The part of MessagePack that notes of code objects are written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DEPTH = 16  # nested maps and arrays at most


class Malformed(ValueError):
    """Bytes that are not a MessagePack value, or one of a kind that notes have not."""


def unpack(data: bytes) -> Any:
    """The value at the start of `data`: maps, arrays, strings, integers, booleans and nil; raises Malformed.

    The encoding is that of github.com/msgpack/msgpack/blob/master/spec.md.
    """
    return _Reader(data).value(0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def value(self, depth: int) -> Any:
        if depth > DEPTH:
            raise Malformed("nested too deeply")
        kind = self.unsigned(1)
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 256
        if kind < 0x90:
            return self.map(kind & 15, depth)
        if kind < 0xA0:
            return self.array(kind & 15, depth)
        if kind < 0xC0:
            return self.text(kind & 31)
        if kind in SIMPLE:
            return SIMPLE[kind]
        if kind not in SIZED:
            raise Malformed(f"byte 0x{kind:02x} begins no value of a note")
        read, width = SIZED[kind]
        return read(self, width, depth)

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise Malformed("the value ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def signed(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big", signed=True)

    def text(self, count: int) -> str:
        return self.take(count).decode(errors="replace")

    def array(self, count: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(count)]

    def map(self, count: int, depth: int) -> dict[str, Any]:
        return {str(self.value(depth + 1)): self.value(depth + 1) for _ in range(count)}


SIMPLE = {0xC0: None, 0xC2: False, 0xC3: True}
SIZED: dict[int, tuple[Callable[[_Reader, int, int], Any], int]] = {
    **{0xCC + n: (lambda r, width, depth: r.unsigned(width), 1 << n) for n in range(4)},
    **{0xD0 + n: (lambda r, width, depth: r.signed(width), 1 << n) for n in range(4)},
    **{0xD9 + n: (lambda r, width, depth: r.text(r.unsigned(width)), 1 << n) for n in range(3)},
    **{0xDC + n: (lambda r, width, depth: r.array(r.unsigned(width), depth), 2 << n) for n in range(2)},
    **{0xDE + n: (lambda r, width, depth: r.map(r.unsigned(width), depth), 2 << n) for n in range(2)},
}
