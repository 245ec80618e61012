"""Byte-pair encoding of plain text: pre-tokenizers by name, merges by rank, on the `tokenizers` package."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from graphrun.core.errors import did_you_mean
from graphrun.vocabulary import BYTE, CONTROL, UNKNOWN, Vocabulary

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
QWEN2 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
QWEN35 = (
    rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
)


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut into words, and what llama.cpp ties to the same name.

    patterns: applied one after the other, each inside the pieces of the one before
    whole_words: a word that is a token is taken without merging
    add_bos: default of tokenizer.ggml.add_bos_token
    clean_spaces: llama_detokenize removes spaces before punctuation
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    clean_spaces: bool = False


PLAIN = PreTokenizer(
    (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    clean_spaces=True,
)
LLAMA_BPE = PreTokenizer((LLAMA3,), whole_words=True, add_bos=True, clean_spaces=True)
QWEN = PreTokenizer((QWEN2,))

PRE_TOKENIZERS = {
    "default": PLAIN,
    "llama-bpe": LLAMA_BPE,
    "llama3": LLAMA_BPE,
    "llama-v3": LLAMA_BPE,
    "qwen2": QWEN,
    "deepseek-r1-qwen": QWEN,
    "qwen35": PreTokenizer((QWEN35,)),
    "smollm": PreTokenizer((r"\p{N}", GPT2)),
}


def _byte_chars() -> list[str]:
    """GPT-2's printable character for each byte: itself where printable, else the next free one from U+0100."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


CHAR_BYTES = {char: bytes([byte]) for byte, char in enumerate(_byte_chars())}


class BytePairEncoder:
    """Text without special tokens -> ids; a byte that has no token is dropped, as llama.cpp does."""

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer) -> None:
        """Raises ModelError if a merge names a text that is not a token."""
        self._missing = len(vocabulary.tokens)
        # control tokens stay out: text must never turn into one
        hidden = (CONTROL, UNKNOWN, BYTE)
        kinds = vocabulary.kinds
        words = {text: token for text, token in vocabulary.ids.items() if kinds[token] not in hidden}
        merges = _read_merges(vocabulary, words)
        # byte-level words cannot hold this character; it stops merges across a byte that has no token
        missing = "\U0010ffff"
        words[missing] = self._missing
        self._engine = Engine(BPE(words, merges, unk_token=missing, ignore_merges=pre.whole_words))
        splits = [Split(Regex(pattern), "isolated") for pattern in pre.patterns]
        self._engine.pre_tokenizer = Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token != self._missing] if self._missing in ids else ids


def _read_merges(vocabulary: Vocabulary, words: dict[str, int]) -> list[tuple[str, str]]:
    """Pairs in order of rank, without those that would make or use a control token."""
    merges: list[tuple[str, str]] = []
    for rank, merge in enumerate(dict.fromkeys(vocabulary.merges)):
        cut = merge.find(" ", 1)
        left, right = merge[:cut], merge[cut + 1 :]
        if cut < 0 or not right:
            raise vocabulary.error("merges", f"entry {rank} is {merge!r}: two texts with a space between are needed")
        if left in words and right in words and left + right in words:
            merges.append((left, right))
            continue
        for text in (left, right, left + right):
            if text not in vocabulary.ids:
                raise vocabulary.error("merges", f"entry {rank} ({merge!r}) needs {text!r}, which is not a token")
    return merges


def find_pre_tokenizer(vocabulary: Vocabulary) -> tuple[PreTokenizer, list[str]]:
    """The pre-tokenizer that the file names, and warnings; raises ModelError for an unknown name."""
    if not vocabulary.pre:
        return PLAIN, [
            "tokenizer.ggml.pre is missing: 'default' is used, words may be cut differently than in training"
        ]
    if vocabulary.pre not in PRE_TOKENIZERS:
        known = "known are " + ", ".join(PRE_TOKENIZERS)
        near = did_you_mean(vocabulary.pre, PRE_TOKENIZERS)
        raise vocabulary.error("pre", f"unknown pre-tokenizer {vocabulary.pre!r}", f"{near} {known}" if near else known)
    return PRE_TOKENIZERS[vocabulary.pre], []
