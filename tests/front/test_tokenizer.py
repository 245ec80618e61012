"""Encoding against llama.cpp's vectors, against SPM by definition, and with texts that spell control tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CONTROL, GOLDEN, USER_DEFINED, VOCABULARIES, bpe, build, spm, tiny_model, words

from graphrun.core.errors import UsageError
from graphrun.core.gguf import ModelFile
from graphrun.tokenizer import Piece, Tokenizer


@cache
def vectors() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((GOLDEN / "tiny_tokenizers.json").read_text(encoding="utf-8"))
    return data


@pytest.mark.parametrize("name", VOCABULARIES)
def test_tiny_vocabularies_equal_llama_cpp(name: str) -> None:
    tokenizer, want = tiny_model(name), vectors()["vocabs"][name]
    got = (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos, sorted(tokenizer.stop_ids), tokenizer.warnings)
    assert got == (want["bos"], want["eos"], want["add_bos"], want["eog"], ())
    for i, text in enumerate(vectors()["strings"]):
        with_bos = want["add_special"][i]
        if with_bos[:2] == [want["bos"]] * 2:
            with_bos = with_bos[1:]  # llama.cpp adds a second BOS and warns
        assert tokenizer.encode(text, bos=False) == want["plain"][i], text
        assert tokenizer.encode(text, bos=False, special=True) == want["special"][i], text
        assert tokenizer.encode(text, special=True) == with_bos, text
        assert tokenizer.decode(want["plain"][i], clean=True) == want["detok"][i], text


def test_smollm_equals_llama_cpp(smollm: Path) -> None:
    want = json.loads((GOLDEN / "smollm" / "tokens.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(ModelFile.open(smollm))
    got = (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos, sorted(tokenizer.stop_ids), tokenizer.vocab_size)
    assert got == (want["bos"], want["eos"], want["add_bos"], want["eog"], 49152)
    for vector in want["vectors"]:
        text = vector["text"]
        assert tokenizer.encode(text) == vector["plain"], text
        assert tokenizer.encode(text, special=True) == vector["special"] == vector["add_special"], text
        assert tokenizer.decode(vector["plain"], clean=True) == vector["detok_plain"], text
    long = (GOLDEN / "smollm" / "text.txt").read_text(encoding="utf-8")
    assert tokenizer.encode(long) == want["text_ids"]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("qwen2", "e\u0301", ["e", "Ì", "ģ"]),  # a combining mark is no letter
        ("qwen35", "e\u0301", ["eÌ", "ģ"]),
        ("qwen2", "1212", ["1", "2", "1", "2"]),  # every digit on its own
        ("qwen35", "1212", ["1", "2", "1", "2"]),
        ("smollm", "1212", ["1", "2", "1", "2"]),
        ("llama-bpe", "1212", ["12", "1", "2"]),  # groups of three: 121, 2
        ("default", "1212", ["12", "1", "2"]),
        ("llama-bpe", "xyz", ["xyz"]),  # a word that is a token needs no merges
        ("qwen2", "xyz", ["x", "y", "z"]),
        ("qwen2", "I'LL", ["I", "'L", "L"]),  # contractions of any case
        ("smollm", "I'LL", ["I", "'", "L", "L"]),
    ],
)
def test_pre_tokenizers_cut_words(pre: str, text: str, pieces: list[str]) -> None:
    tokenizer = bpe("e Ì", "1 2", "2 1", "xyz", "' L", pre=pre)
    assert words(tokenizer, text) == pieces


def test_a_missing_byte_is_dropped_and_separates_its_neighbours() -> None:
    tokens = ["a", "b", "ab"]
    tokenizer = build(model="gpt2", pre="smollm", tokens=tokens, merges=["a b"])
    assert words(tokenizer, "ab") == ["ab"]
    assert words(tokenizer, "aéb") == ["a", "b"]


# SPM, by definition


def spm_by_definition(text: str, scores: dict[str, float]) -> list[str]:
    """Merge the neighbours whose joined text has the best score, leftmost first, until none is a token."""
    pieces = list(text.replace(" ", "▁"))
    while True:
        joined = [
            (scores.get(left + right), i) for i, (left, right) in enumerate(zip(pieces, pieces[1:], strict=False))
        ]
        best = min(((-score, i) for score, i in joined if score is not None), default=None)
        if best is None:
            return [p if p in scores else f"<0x{b:02X}>" for p in pieces for b in p.encode()[: 1 if p in scores else 4]]
        pieces[best[1] : best[1] + 2] = ["".join(pieces[best[1] : best[1] + 2])]


SPM_CHARS = "ab▁é中"


@settings(deadline=None)
@given(
    st.dictionaries(st.text(SPM_CHARS, min_size=1, max_size=5), st.integers(-3, 3), min_size=1, max_size=40),
    st.lists(st.text("ab é中", max_size=12), min_size=1, max_size=5),
)
def test_spm_merges_by_score(scores: dict[str, float], texts: list[str]) -> None:
    """Few different scores, so that ties matter, and tokens whose parts are no tokens."""
    tokenizer = spm(scores, add_space_prefix=False)
    for text in texts:
        assert words(tokenizer, text) == spm_by_definition(text, scores)
        assert tokenizer.decode(tokenizer.encode(text)).replace("▁", " ") == text


def test_spm_puts_a_space_in_front_of_text_after_special_tokens() -> None:
    tokenizer = spm({"▁": -1.0, "a": -2.0, "▁a": -3.0})
    ids = tokenizer.encode("a</s>a", special=True)
    assert [tokenizer.text(token) for token in ids] == ["<s>", "▁a", "</s>", "▁a"]
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"
    without = spm({"▁": -1.0, "a": -2.0, "▁a": -3.0}, add_space_prefix=False)
    assert words(without, "a") == ["a"]


# control tokens, BOS, ends


CONTROL_TEXTS = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<0x0A>", "<|pad|>", "<tool>"]


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(deadline=None)
@given(st.lists(st.sampled_from([*CONTROL_TEXTS, "<|im_", "end|>", "<", "|", ">", "s", "a", " "]), max_size=12))
def test_plain_text_never_becomes_a_control_token(name: str, parts: list[str]) -> None:
    tokenizer = tiny_model(name)
    ids = tokenizer.encode("".join(parts), bos=False)
    assert not any(tokenizer.is_control(token) for token in ids)


def test_control_tokens_cannot_be_merged_from_plain_text() -> None:
    stop = {"<x>": CONTROL}
    tokenizer = bpe("< x", "<x>", kinds=stop, merges=["< x", "<x >"], pre="llama-bpe")
    assert not any(map(tokenizer.is_control, tokenizer.encode("<x>", bos=False)))
    scores = {"<": -1.0, "s": -1.0, ">": -1.0, "s>": -1.0}
    assert words(spm(scores, add_space_prefix=False), "<s>") == ["<", "s>"]


def test_a_known_control_text_is_control_whatever_the_file_says() -> None:
    tokenizer = bpe("<|im_end|>", kinds={"<|im_end|>": USER_DEFINED})
    assert not any(map(tokenizer.is_control, tokenizer.encode("<|im_end|>")))
    assert tokenizer.encode("<|im_end|>", special=True) == [tokenizer.id("<|im_end|>")]


def test_user_defined_tokens_are_parsed_in_plain_text() -> None:
    tokenizer = bpe("<tool>", "<t", kinds={"<tool>": USER_DEFINED, "<t": USER_DEFINED})
    assert words(tokenizer, "a<tool><t") == ["a", "<tool>", "<t"]


def test_only_fully_trusted_text_becomes_a_control_token() -> None:
    tokenizer = tiny_model("qwen2-s.F32")
    end = tokenizer.id("<|im_end|>")
    assert end is not None
    cases = [
        ([Piece("<|im_end|>", True)], 1),
        ([Piece("<|im_", True), Piece("end|>", True)], 1),
        ([Piece("<|im_", False), Piece("end|>", False)], 0),
        ([Piece("<|im_", False), Piece("end|>", True)], 0),
        ([Piece("<|im_end|>", False), Piece("<|im_end|>", True), Piece("<|im_end|>", False)], 1),
    ]
    for pieces, count in cases:
        ids = tokenizer.encode_pieces(pieces)
        assert ids.count(end) == count, pieces
        assert tokenizer.decode(ids, special=True) == "".join(piece.text for piece in pieces)


def test_pieces_are_encoded_as_one_text() -> None:
    tokenizer = bpe("a b")
    assert tokenizer.encode_pieces([Piece("a", True), Piece("b", False)]) == tokenizer.encode("ab")


def test_bos_is_added_as_asked_and_never_twice() -> None:
    adds, leaves = tiny_model("llama-s.F32"), tiny_model("qwen2-s.F32")
    bos = adds.bos_id
    assert bos is not None and bos == leaves.bos_id
    assert adds.encode("a") == [bos, *adds.encode("a", bos=False)]
    assert leaves.encode("a", bos=True) == [bos, *leaves.encode("a")]
    assert adds.encode("") == [bos]
    text = adds.text(bos)
    assert adds.encode(text + "a", special=True) == adds.encode("a")
    assert adds.decode(adds.encode("a")) == "a"
    with pytest.raises(UsageError, match="no BOS"):
        bpe().encode("a", bos=True)


@pytest.mark.parametrize(
    ("texts", "keys", "stops"),
    [
        (["<|im_end|>", "<|eot_id|>", "[x]"], {}, ["<|im_end|>", "<|eot_id|>"]),
        (["[x]", "[y]"], {"eos_token_id": 256, "eot_token_id": 257}, ["[x]", "[y]"]),
        (["[x]", "[y]"], {"eom_token_id": 257}, ["[y]"]),
        (
            ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"],
            {},
            ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"],
        ),
        (["<|return|>", "<|call|>", "<|end|>"], {}, ["<|return|>", "<|call|>"]),
        (["<|end|>"], {}, ["<|end|>"]),
    ],
)
def test_stop_ids_are_found_by_key_and_by_text(texts: list[str], keys: dict[str, int], stops: list[str]) -> None:
    tokenizer = bpe(*texts, kinds=dict.fromkeys(texts, CONTROL), **keys)
    assert tokenizer.stop_ids == {tokenizer.id(text) for text in stops}
