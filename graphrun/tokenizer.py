"""Tokenizer: text to token ids and back, built from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphrun.bpe import CHAR_BYTES, BytePairEncoder, find_pre_tokenizer
from graphrun.core.errors import ModelError, UsageError
from graphrun.core.gguf import MetaValue, ModelFile
from graphrun.detokenizer import TextStream, clean_spaces
from graphrun.spm import SPACE, SentencePieceEncoder
from graphrun.vocabulary import BYTE, CONTROL, NORMAL, PREFIX, UNKNOWN, USER_DEFINED, Vocabulary, read_vocabulary


class Piece(NamedTuple):
    """A stretch of text; only in trusted text do the texts of control tokens become control tokens."""

    text: str
    trusted: bool


class Tokenizer:
    """Text <-> token ids, equal to llama.cpp's for BPE (model "gpt2") and SPM (model "llama").

    bos_id, eos_id, eot_id, eom_id: ids of the special tokens, None where the file has none
    stop_ids: every id that ends a generation
    add_bos: whether `encode` starts with bos_id by default
    warnings: one line each about doubtful metadata
    """

    def __init__(self, path: Path, metadata: Mapping[str, MetaValue]) -> None:
        """Raises ModelError that names the key for metadata that does not make a tokenizer."""
        vocabulary = read_vocabulary(path, metadata)
        self._vocabulary = vocabulary
        self.bos_id, self.eos_id = vocabulary.bos_id, vocabulary.eos_id
        self.eot_id, self.eom_id = vocabulary.eot_id, vocabulary.eom_id
        self.stop_ids = vocabulary.stop_ids
        self.vocab_size = len(vocabulary.tokens)
        self.warnings: tuple[str, ...] = ()
        self._encoder: BytePairEncoder | SentencePieceEncoder
        if vocabulary.model == "llama":
            self._encoder = SentencePieceEncoder(vocabulary)
            self._clean, add_bos, add_space = False, True, True
        else:
            pre, warnings = find_pre_tokenizer(vocabulary)
            self.warnings = tuple(warnings)
            self._encoder = BytePairEncoder(vocabulary, pre)
            self._clean, add_bos, add_space = pre.clean_spaces, pre.add_bos, False
        self.add_bos = _flag(path, metadata, "add_bos_token", add_bos) and self.bos_id is not None
        self._spm = vocabulary.model == "llama"
        self._add_space = _flag(path, metadata, "add_space_prefix", add_space) and self._spm
        self._specials = _specials(vocabulary)

    @classmethod
    def from_file(cls, file: ModelFile) -> Tokenizer:
        """The tokenizer of an open model file; raises ModelError."""
        return cls(file.path, file.metadata)

    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]:
        """Ids of `text`; `bos` None means as the file says.

        With special=False no part of `text` becomes a control token, whatever it spells; user-defined tokens are
        parsed either way. BOS is never added in front of a BOS, and EOS is never added. Raises UsageError for text
        with lone surrogates, and for bos=True if the file has no BOS.
        """
        return self.encode_pieces([Piece(text, special)], bos=bos)

    def encode_pieces(self, pieces: Iterable[Piece], *, bos: bool | None = None) -> list[int]:
        """Ids of the joined pieces; a control token is parsed only where every character of it is trusted."""
        pieces = list(pieces)
        text = "".join(piece.text for piece in pieces)
        trusted = b"".join((b"\1" if piece.trusted else b"\0") * len(piece.text) for piece in pieces)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the text is not Unicode: a lone surrogate at character {error.start}") from None
        if bos and self.bos_id is None:
            raise UsageError("the model has no BOS token")
        ids: list[int] = []
        after_special = True
        for part in _partition(text, trusted, self._specials):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self._encoder.encode(" " + part if self._add_space and after_special else part))
            after_special = isinstance(part, int)
        if self.bos_id is not None and (self.add_bos if bos is None else bos) and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Sequence[int], special: bool = False, *, clean: bool = False) -> str:
        """Text of `ids`, without control tokens unless `special`; bytes that are not UTF-8 become U+FFFD.

        The space that `encode` puts in front for SPM is removed. `clean` removes spaces before punctuation where
        llama_detokenize does so; it changes code, so it is off. Raises UsageError for an id outside the vocabulary.
        """
        if not special and self.bos_id is not None and list(ids[:1]) == [self.bos_id]:
            ids = ids[1:]
        data = b"".join(self.piece(token, special) for token in ids)
        if self._add_space and len(ids) and self.piece(ids[0], special).startswith(b" "):
            data = data[1:]
        return (clean_spaces(data) if clean and self._clean else data).decode("utf-8", "replace")

    def stream(self, special: bool = False) -> TextStream:
        """A detokenizer for ids that arrive one by one after a prompt."""
        return TextStream(lambda token: self.piece(token, special))

    def piece(self, token: int, special: bool = True) -> bytes:
        """The bytes that `token` stands for; b"" for unused tokens, and for control tokens unless `special`."""
        text, kind = self.text(token), self._vocabulary.kinds[token]
        if kind in (CONTROL, UNKNOWN):
            return text.encode() if special else b""
        if kind == USER_DEFINED:
            return text.encode()
        if kind == BYTE:
            return bytes([int(text[3:5], 16)])
        if kind != NORMAL:
            return b""
        if self._spm:
            return text.replace(SPACE, " ").encode()
        return b"".join(CHAR_BYTES.get(char) or char.encode() for char in text)

    def text(self, token: int) -> str:
        """The token as the file spells it; raises UsageError for an id outside the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise UsageError(f"token id {token} is outside the vocabulary of {self.vocab_size} tokens")
        return self._vocabulary.tokens[token]

    def id(self, text: str) -> int | None:
        """The id of the token spelled `text` in the file, or None."""
        return self._vocabulary.ids.get(text)

    def is_control(self, token: int) -> bool:
        """Whether `token` steers the model and is no text: control and unknown tokens."""
        return self._vocabulary.kinds[token] in (CONTROL, UNKNOWN)


class _Special(NamedTuple):
    text: str
    token: int
    needs_trust: bool


def _specials(vocabulary: Vocabulary) -> list[_Special]:
    """Tokens that are cut out of the text before it is encoded, longest first."""
    kinds = vocabulary.kinds
    found = [
        _Special(text, token, kinds[token] != USER_DEFINED)
        for text, token in vocabulary.ids.items()
        if kinds[token] in (CONTROL, UNKNOWN, USER_DEFINED)
    ]
    return sorted(found, key=lambda special: -len(special.text.encode()))


def _partition(text: str, trusted: bytes, specials: list[_Special]) -> list[str | int]:
    """Cut `text` at special tokens, longest token first over the whole text as llama.cpp does."""
    spans: list[tuple[int, int] | int] = [(0, len(text))]
    any_trust = 1 in trusted
    for special in specials:
        if (special.needs_trust and not any_trust) or special.text not in text:
            continue
        cut: list[tuple[int, int] | int] = []
        for span in spans:
            cut.extend([span] if isinstance(span, int) else _cut(text, trusted, span, special))
        spans = cut
    parts = (span if isinstance(span, int) else text[slice(*span)] for span in spans)
    return [part for part in parts if part != ""]


def _cut(text: str, trusted: bytes, span: tuple[int, int], special: _Special) -> Iterable[tuple[int, int] | int]:
    start, end = span
    size = len(special.text)
    look = start
    while (at := text.find(special.text, look, end)) >= 0:
        if special.needs_trust and 0 in trusted[at : at + size]:
            look = at + 1
            continue
        yield (start, at)
        yield special.token
        start = look = at + size
    yield (start, end)


def _flag(path: Path, metadata: Mapping[str, MetaValue], key: str, default: bool) -> bool:
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, bool):
        raise ModelError(path, PREFIX + key, "must be a bool")
    return value
