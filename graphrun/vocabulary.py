"""The vocabulary of a GGUF file: token texts, kinds, scores, special ids and end-of-generation ids, all checked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphrun.core.errors import ModelError, did_you_mean
from graphrun.core.gguf import MetaValue

PREFIX = "tokenizer.ggml."

# token_type values of GGUF
UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(7)
BYTE_TEXT = re.compile("<0x[0-9A-Fa-f]{2}>")

EOT_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
    *("<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"),
)
EOM_TEXTS = ("<|eom_id|>",)
STOP_TEXTS = (
    *EOT_TEXTS,
    *EOM_TEXTS,
    *(
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "</s>",
        "[EOS]",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "[e~[",
    ),
)
FIM_PAD_TEXTS = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
FIM_REPO_TEXTS = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
FIM_FILE_TEXTS = ("<|file_sep|>",)
FIM_OTHER_TEXTS = (
    *(
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    *(
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    *(
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
)
CONTROL_TEXTS = frozenset((*STOP_TEXTS, *FIM_PAD_TEXTS, *FIM_REPO_TEXTS, *FIM_FILE_TEXTS, *FIM_OTHER_TEXTS))


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer needs of the file; a token's id is its index in `tokens` and `kinds`.

    kinds: GGUF token types, with tokens that llama.cpp knows to be control tokens by their text corrected
    ids: text -> id, without the empty texts
    scores: of an SPM model, else empty; merges: of a BPE model, "left right" in order of rank, else empty
    stop_ids: every token that ends a generation
    """

    path: Path
    model: str
    pre: str | None
    tokens: list[str]
    kinds: list[int]
    ids: dict[str, int]
    scores: list[float]
    merges: list[str]
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    eom_id: int | None
    unk_id: int | None
    stop_ids: frozenset[int]

    def error(self, key: str, message: str, hint: str | None = None) -> ModelError:
        """A ModelError that names `key` of this vocabulary."""
        return ModelError(self.path, PREFIX + key, message, hint)


def read_vocabulary(path: Path, metadata: Mapping[str, MetaValue]) -> Vocabulary:
    """Read and check the tokenizer.ggml keys; raises ModelError that names the key."""
    keys = _Keys(path, metadata)
    model = keys.text("model")
    if model not in ("gpt2", "llama"):
        hint = did_you_mean(model or "", ("gpt2", "llama")) or "known are 'gpt2' (BPE) and 'llama' (SPM)"
        raise keys.error("model", "is missing" if model is None else f"unknown tokenizer {model!r}", hint)
    tokens = keys.texts("tokens")
    ids = keys.unique(tokens)
    kinds = keys.kinds(tokens)
    named = keys.token_ids(len(tokens))
    spm = model == "llama"
    for key, default in (("bos", 1), ("eos", 2), ("unknown", 0)) if spm else ():
        if default < len(tokens):
            named.setdefault(f"{key}_token_id", default)
    eot = named.get("eot_token_id", _first(ids, EOT_TEXTS))
    eom = named.get("eom_token_id", _first(ids, EOM_TEXTS))
    stop_ids = _stop_ids(ids, named, (named.get("eos_token_id"), eot, eom))
    return Vocabulary(
        path=path,
        model=model,
        pre=keys.text("pre"),
        tokens=tokens,
        kinds=kinds,
        ids=ids,
        scores=keys.scores(len(tokens)) if spm else [],
        merges=[] if spm else keys.texts("merges"),
        bos_id=named.get("bos_token_id"),
        eos_id=named.get("eos_token_id"),
        eot_id=eot,
        eom_id=eom,
        unk_id=named.get("unknown_token_id"),
        stop_ids=stop_ids,
    )


def _first(ids: Mapping[str, int], texts: Iterable[str]) -> int | None:
    return next((ids[text] for text in texts if text in ids), None)


def _stop_ids(ids: Mapping[str, int], named: Mapping[str, int], turn_ends: Iterable[int | None]) -> frozenset[int]:
    """All end-of-generation ids, collected by the file's keys and by text as llama.cpp collects them."""
    stops = {ids[text] for text in STOP_TEXTS if text in ids}
    stops.update(token for token in turn_ends if token is not None)
    for key, texts in (("fim_pad", FIM_PAD_TEXTS), ("fim_rep", FIM_REPO_TEXTS), ("fim_sep", FIM_FILE_TEXTS)):
        token = named.get(f"{key}_token_id", _first(ids, texts))
        if token is not None:
            stops.add(token)

    def has(text: str) -> bool:
        return ids.get(text) in stops

    # in the harmony and solar formats <|end|> only ends a message, and gemma 4 never ends with </s>
    if (has("<|return|>") and (has("<|call|>") or has("<|calls|>"))) or (has("<|calls|>") and has("<|flush|>")):
        stops.discard(ids.get("<|end|>", -1))
    if has("<|tool_response>"):
        stops.discard(ids.get("</s>", -1))
    return frozenset(stops)


class _Keys:
    """Checked access to the tokenizer.ggml keys of one file."""

    def __init__(self, path: Path, metadata: Mapping[str, MetaValue]) -> None:
        self.path = path
        self.metadata = metadata

    def error(self, key: str, message: str, hint: str | None = None) -> ModelError:
        return ModelError(self.path, PREFIX + key, message, hint)

    def text(self, key: str) -> str | None:
        value = self.metadata.get(PREFIX + key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "must be a string")
        return value

    def texts(self, key: str) -> list[str]:
        """A string array that must be there and be UTF-8."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            raise self.error(key, "is missing: the file has no complete tokenizer")
        texts = [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(texts) != len(value):
            raise self.error(key, "must be an array of strings")
        try:
            "\n".join(texts).encode()
        except UnicodeEncodeError:
            bad = next(i for i, text in enumerate(texts) if not _is_utf8(text))
            raise self.error(key, f"entry {bad} is not UTF-8") from None
        return texts

    def unique(self, tokens: list[str]) -> dict[str, int]:
        if not tokens:
            raise self.error("tokens", "is empty")
        ids = {text: token for token, text in enumerate(tokens) if text}
        if len(ids) + tokens.count("") != len(tokens):
            twice = next(i for i, text in enumerate(tokens) if text and ids[text] != i)
            text = tokens[twice]
            raise self.error("tokens", f"token {text!r} appears twice: ids {twice} and {tokens.index(text, twice + 1)}")
        return ids

    def kinds(self, tokens: list[str]) -> list[int]:
        """Token types; a token whose text is known to be a control token becomes one."""
        value = self.metadata.get(PREFIX + "token_type")
        if value is None:
            value = [NORMAL] * len(tokens)
        if not isinstance(value, list) or len(value) != len(tokens):
            raise self.error("token_type", f"must be an array of {len(tokens)} numbers, one per token")
        kinds = [kind for kind in value if isinstance(kind, int) and UNDEFINED <= kind <= BYTE]
        if len(kinds) != len(value):
            raise self.error("token_type", f"must hold numbers from {UNDEFINED} to {BYTE}")
        for text, kind in zip(tokens, kinds, strict=True):
            if kind == BYTE and not BYTE_TEXT.fullmatch(text):
                raise self.error("token_type", f"token {text!r} is marked as a byte, but is not spelled like <0x0A>")
        return [CONTROL if text in CONTROL_TEXTS else kind for text, kind in zip(tokens, kinds, strict=True)]

    def scores(self, n: int) -> list[float]:
        value = self.metadata.get(PREFIX + "scores")
        if value is None:
            raise self.error("scores", "is missing: an SPM tokenizer merges by score")
        if not isinstance(value, list) or len(value) != n:
            raise self.error("scores", f"must be an array of {n} numbers, one per token")
        scores = [score for score in value if isinstance(score, (int, float)) and math.isfinite(score)]
        if len(scores) != n:
            raise self.error("scores", "must hold finite numbers")
        return scores

    def token_ids(self, n: int) -> dict[str, int]:
        """Every "..._token_id" key -> id, each inside the vocabulary."""
        found: dict[str, int] = {}
        for full in self.metadata:
            if full.startswith(PREFIX) and full.endswith("_token_id"):
                key, value = full.removeprefix(PREFIX), self.metadata[full]
                if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n:
                    raise self.error(key, f"{value!r} is not a token id: the file has {n} tokens")
                found[key] = value
        return found


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
