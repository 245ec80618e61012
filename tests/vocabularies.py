"""Tokenizers for tests: of the tiny models, and of vocabularies written down in a test."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from graphrun.bpe import CHAR_BYTES
from graphrun.core.gguf import MetaValue, ModelFile
from graphrun.tokenizer import Tokenizer

GOLDEN = Path(__file__).parent / "golden"
VOCABULARIES = ("llama-s.F32", "qwen2-s.F32", "qwen35.Q4_0", "llama-tied.F32")
CHARS = {value: char for char, value in CHAR_BYTES.items()}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@cache
def tiny_model(name: str) -> Tokenizer:
    if name == "qwen35.Q4_0":  # has the tokens and merges of the qwen2 model
        file = ModelFile.open(GOLDEN / "models" / "qwen2-s.F32.gguf")
        return Tokenizer(file.path, {**file.metadata, "tokenizer.ggml.pre": "qwen35"})
    return Tokenizer.from_file(ModelFile.open(GOLDEN / "models" / f"{name}.gguf"))


def build(**keys: Any) -> Tokenizer:
    """A tokenizer of tokenizer.ggml keys."""
    metadata: dict[str, MetaValue] = {
        f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None
    }
    return Tokenizer(Path("model.gguf"), metadata)


def bpe(*texts: str, kinds: dict[str, int] | None = None, **keys: Any) -> Tokenizer:
    """All bytes, then `texts`: "a b" is a merge and its token, other texts are tokens of `kinds` or normal ones."""
    tokens = [CHARS[bytes([byte])] for byte in range(256)]
    tokens += [text if kinds and text in kinds else text.replace(" ", "") for text in texts]
    merges = [text for text in texts if " " in text and not (kinds and text in kinds)]
    types = [(kinds or {}).get(text, NORMAL) for text in tokens]
    return build(**{"model": "gpt2", "pre": "qwen2", "tokens": tokens, "token_type": types, "merges": merges, **keys})


def spm(scores: dict[str, float], **keys: Any) -> Tokenizer:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *scores]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(scores)]
    all_scores = [0.0] * 259 + list(scores.values())
    return build(**{"model": "llama", "tokens": tokens, "token_type": types, "scores": all_scores, **keys})


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.text(token) for token in tokenizer.encode(text, bos=False)]
