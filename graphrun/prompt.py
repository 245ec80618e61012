"""What a command was given to read, a text or token ids, and the token ids a model gets for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphrun.core.errors import UsageError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model

TEMPLATE_KEY = "tokenizer.chat_template"
TOKENIZER_KEY = "tokenizer.ggml.model"
LARGEST_TEXT = 1 << 28  # bytes of a prompt file that are read at most


@dataclass(frozen=True, slots=True)
class Prompt:
    """Either a text or token ids."""

    text: str | None = None
    ids: tuple[int, ...] | None = None

    @classmethod
    def given(cls, text: str | None, file: Path | None, tokens: str | None, tokens_file: Path | None) -> Prompt:
        """The one of the four that is not None; raises UsageError for none or several."""
        given = [x for x in (text, file, tokens, tokens_file) if x is not None]
        if not given:
            raise UsageError("there is no prompt", "give -p TEXT, -f FILE or --tokens 1,2,3; or use graphrun chat")
        if len(given) > 1:
            raise UsageError("give one of -p, -f, --tokens and --tokens-file")
        if tokens is not None:
            return cls(ids=parse_ids(tokens, "--tokens"))
        if tokens_file is not None:
            return cls(ids=parse_ids(read_text(tokens_file), str(tokens_file)))
        content = text if text is not None else read_text(file or Path("-"))
        if not content:
            raise UsageError("the prompt is empty")
        return cls(text=content)

    def encode(self, model: Model, *, raw: bool = False, special: bool = True, system: str | None = None) -> list[int]:
        """Ids for a model: one user turn where the file has a chat template, unless `raw`.

        In a raw text, `special` lets the spelling of a control token stand for that token.
        Raises UsageError for a system text that no template would take, TemplateError, ModelError.
        """
        chat = self.ids is None and not raw and has_template(model.file)
        if system is not None and not chat:
            raise UsageError("--system needs a text prompt and a model with a chat template, without --raw")
        if self.ids is not None:
            return list(self.ids)
        assert self.text is not None
        if not chat:
            return model.tokenizer.encode(self.text, special=special)
        return model.chat.encode(turns(system, self.text))


def turns(system: str | None, user: str) -> list[dict[str, str]]:
    """The messages of a first user turn."""
    first = [{"role": "system", "content": system}] if system is not None else []
    return [*first, {"role": "user", "content": user}]


def has_template(file: ModelFile) -> bool:
    """Whether the file says how to write a conversation."""
    return TEMPLATE_KEY in file.metadata


def has_tokenizer(file: ModelFile) -> bool:
    """Whether the file says how text becomes token ids."""
    return file.metadata.get(TOKENIZER_KEY, "none") not in ("none", "no_vocab")


def parse_ids(text: str, source: str) -> tuple[int, ...]:
    """Token ids separated by commas or spaces; raises UsageError that names the first word that is none."""
    words = re.split(r"[\s,]+", text.strip(" \t\r\n,"))
    if words == [""]:
        raise UsageError(f"{source}: there are no token ids")
    for word in words:
        if not re.fullmatch(r"[0-9]{1,10}", word):
            raise UsageError(f"{source}: '{word[:20]}' is not a token id", "write ids as 1,2,3")
    return tuple(map(int, words))


def read_text(path: Path) -> str:
    """A UTF-8 text file, - for stdin; raises UsageError that says where it is not UTF-8."""
    try:
        if path == Path("-"):
            data = sys.stdin.buffer.read(LARGEST_TEXT + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_TEXT:
        raise UsageError(f"{path}: longer than {LARGEST_TEXT} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: byte {error.start} is not UTF-8") from None


def joined(ids: Sequence[int]) -> str:
    """Ids as --tokens reads them."""
    return ",".join(map(str, ids))
