"""Bytes of tokens -> text: whole UTF-8 characters only, and llama.cpp's cleaning of spaces."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

SPACE_BEFORE_MARK = re.compile(rb" (?=[?!.,])")
LONE_APOSTROPHE = re.compile(rb" ' ")
SPACE_BEFORE_CONTRACTION = re.compile(rb" (?='(?:[sm]|re|ve))")


class TextStream:
    """Text of tokens that arrive one by one; never half a character."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is certain after this token; bytes that cannot become UTF-8 are U+FFFD."""
        return self._decoder.decode(self._piece(token))

    def flush(self) -> str:
        """What was held back: U+FFFD if an unfinished character is left, else ""."""
        return self._decoder.decode(b"", final=True)


def clean_spaces(text: bytes) -> bytes:
    """Remove spaces as llama_detokenize does for some families: " !" -> "!", " ' " -> "'", " 's" -> "'s"."""
    text = SPACE_BEFORE_MARK.sub(b"", text)
    text = LONE_APOSTROPHE.sub(b"'", text)
    return SPACE_BEFORE_CONTRACTION.sub(b"", text)
