"""Ids back to text, streams of whole characters, and files that make no tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import VOCABULARIES, bpe, build, tiny_model, words

from graphrun.core.errors import ModelError, UsageError


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(deadline=None)
@given(st.text(max_size=30).filter(lambda text: "▁" not in text))
def test_decode_undoes_encode(name: str, text: str) -> None:
    tokenizer = tiny_model(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(deadline=None)
@given(st.lists(st.integers(0, 319), max_size=30))
def test_a_stream_yields_whole_characters_only(name: str, ids: list[int]) -> None:
    tokenizer = tiny_model(name)
    data = b"".join(tokenizer.piece(token, special=False) for token in ids)
    stream = tokenizer.stream()
    parts = [stream.push(token) for token in ids]
    assert "".join(parts) + stream.flush() == data.decode("utf-8", "replace")


def test_a_stream_holds_a_character_back_until_it_is_complete() -> None:
    tokenizer = tiny_model("qwen2-s.F32")
    ids = tokenizer.encode("中")
    assert len(ids) == 3
    stream = tokenizer.stream()
    assert [stream.push(token) for token in ids] == ["", "", "中"]
    assert stream.flush() == ""
    assert stream.push(ids[0]) == ""
    assert stream.push(tokenizer.encode("a")[0]) == "\ufffda"
    assert stream.push(ids[0]) == ""
    assert stream.flush() == "\ufffd"


def test_control_tokens_are_shown_only_on_request() -> None:
    tokenizer = tiny_model("qwen2-s.F32")
    ids = tokenizer.encode("a<|im_end|>", special=True)
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, special=True) == "a<|im_end|>"
    assert tokenizer.piece(ids[-1]) == b"<|im_end|>"


def test_ids_outside_the_vocabulary_and_lone_surrogates_are_refused() -> None:
    tokenizer = tiny_model("qwen2-s.F32")
    for token in (-1, 320):
        with pytest.raises(UsageError, match=f"token id {token} is outside the vocabulary of 320"):
            tokenizer.decode([token])
    with pytest.raises(UsageError, match="lone surrogate at character 1"):
        tokenizer.encode("a\ud800")


# files that make no tokenizer


GOOD: dict[str, Any] = {"model": "gpt2", "pre": "qwen2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
GOOD_SPM: dict[str, Any] = {"model": "llama", "tokens": ["<unk>", "a", "b"], "scores": [0.0, 1.0, 2.0]}


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"model": None}, "model", "is missing"),
        ({"model": "bert"}, "model", "unknown tokenizer 'bert'"),
        ({"model": 5}, "model", "must be a string"),
        ({"pre": "qwen3"}, "pre", "known are default, llama-bpe"),
        ({"tokens": None}, "tokens", "is missing"),
        ({"tokens": []}, "tokens", "is empty"),
        ({"tokens": [1, 2]}, "tokens", "must be an array of strings"),
        ({"tokens": ["a", "b", "a"]}, "tokens", "token 'a' appears twice: ids 0 and 2"),
        ({"tokens": ["a", "b\udcff", "ab"]}, "tokens", "entry 1 is not UTF-8"),
        ({"token_type": [1, 1]}, "token_type", "must be an array of 3 numbers"),
        ({"token_type": [1, 1, 9]}, "token_type", "must hold numbers from 0 to 6"),
        ({"token_type": [1, 1, 6]}, "token_type", "is not spelled like <0x0A>"),
        ({"merges": None}, "merges", "is missing"),
        ({"merges": ["ab"]}, "merges", "two texts with a space between"),
        ({"merges": ["a c"]}, "merges", "needs 'c', which is not a token"),
        ({"merges": ["b a"]}, "merges", "needs 'ba', which is not a token"),
        ({"bos_token_id": 3}, "bos_token_id", "3 is not a token id: the file has 3 tokens"),
        ({"eot_token_id": -1}, "eot_token_id", "is not a token id"),
        ({"padding_token_id": "x"}, "padding_token_id", "is not a token id"),
        ({"add_bos_token": 1}, "add_bos_token", "must be a bool"),
        (GOOD_SPM | {"scores": None}, "scores", "is missing"),
        (GOOD_SPM | {"scores": [1.0]}, "scores", "must be an array of 3 numbers"),
        (GOOD_SPM | {"scores": [1.0, 2.0, float("nan")]}, "scores", "must hold finite numbers"),
        (GOOD_SPM | {"tokens": ["a"], "scores": [0.0], "unknown_token_id": None}, None, None),
    ],
)
def test_bad_metadata_names_its_key(changes: dict[str, Any], key: str | None, message: str | None) -> None:
    if key is None:
        assert words(build(**GOOD | changes), "z") == ["a", "a", "a", "a"], "token 0 is the default unknown token"
        return
    with pytest.raises(ModelError) as caught:
        build(**GOOD | changes)
    text = str(caught.value)
    assert text.startswith(f"model.gguf: tokenizer.ggml.{key}: ") and "\n" not in text
    assert message is not None and message in text


def test_a_missing_pre_tokenizer_is_a_warning() -> None:
    tokenizer = build(**GOOD | {"pre": None})
    assert len(tokenizer.warnings) == 1 and "tokenizer.ggml.pre is missing" in tokenizer.warnings[0]
    assert words(tokenizer, "ab") == ["ab"]


def test_huge_single_words_end_soon() -> None:
    tokenizer = bpe("a a", "Ġ Ġ")
    for text in ("a" * 200_000, " " * 200_000, "\n" * 200_000, "1" * 200_000):
        assert tokenizer.decode(tokenizer.encode(text)) == text
