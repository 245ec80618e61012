"""Model files with one thing wrong: each ends in one error that names file and field, soon and in little memory."""

from __future__ import annotations

import math
import struct
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from gguf import GGUFValueType
from typer.testing import CliRunner

from graphrun import load
from graphrun.cli import app
from graphrun.core.errors import ModelError
from graphrun.core.gguf import ModelFile

MAX_SECONDS, MAX_BYTES = 1.0, 200 << 20
VOCAB = 64
TOK = "tokenizer.ggml."
TOKENIZER: Mapping[str, Any] = tiny.tokenizer("llama-bpe", VOCAB)
TOKENS, TYPES = TOKENIZER[TOK + "tokens"], TOKENIZER[TOK + "token_type"]


def invoke(path: Path, *args: str) -> tuple[int, str]:
    """Exit code and stderr of `graphrun run` on a file."""
    result = CliRunner().invoke(app, ["run", str(path), "-n", "2", *(args or ("--tokens", "1,2"))])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result.exit_code, result.stderr


def run(path: Path, *args: str) -> tuple[int, str]:
    """The same within the limit of time."""
    started = time.process_time()
    result = invoke(path, *args)
    assert time.process_time() - started < MAX_SECONDS
    return result


def run_traced(path: Path) -> tuple[int, str]:
    """The same within the limit of memory."""
    tracemalloc.start()
    try:
        result = invoke(path)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
        return result
    finally:
        tracemalloc.stop()


def refused(path: Path, text: str, *args: str, traced: bool = False) -> None:
    """One error that names the file and contains `text`: one line, or a line of the graph file with its caret."""
    code, stderr = run_traced(path) if traced else run(path, *args)
    lines = stderr.splitlines()
    assert code == 1 and lines[0].startswith("error: "), stderr
    assert text in stderr and "Traceback" not in stderr
    if ".yaml:" in lines[0]:
        assert lines[3] == f"  model: {path}" and len(lines) <= 5
    else:
        assert len(lines) == 1 + lines[-1].startswith("  hint: ")


KEYS: list[tuple[dict[str, Any], str]] = [
    ({TOK + "tokens": TOKENS[:-1]}, "token_embd.weight is f32[64, 64], this says [63, 64]"),
    ({TOK + "tokens": [*TOKENS, "new"]}, "token_embd.weight is f32[64, 64], this says [65, 64]"),
    ({TOK + "tokens": [*TOKENS, "new"], TOK + "token_type": [*TYPES, 1]}, "this says [65, 64]"),
    ({TOK + "tokens": [1] * VOCAB}, "tokens: must be an array of strings"),
    ({TOK + "tokens": 7}, "'tokenizer.ggml.tokens' is 7 in the model file, not a list"),
    ({TOK + "tokens": [*TOKENS[:-1], TOKENS[0]]}, "appears twice"),
    ({TOK + "tokens": None}, "the model file has no key 'tokenizer.ggml.tokens'"),
    (dict.fromkeys(TOKENIZER), "the model file has no key 'tokenizer.ggml.tokens'"),
    *(
        ({f"{TOK}{name}_token_id": VOCAB}, f"tokenizer.ggml.{name}_token_id: 64 is not a token id")
        for name in ("bos", "eos", "eot", "eom", "padding", "unknown", "seperator", "fim_pre")
    ),
    ({TOK + "eos_token_id": -1}, "eos_token_id: -1 is not a token id: the file has 64 tokens"),
    ({TOK + "eos_token_id": (GGUFValueType.UINT64, 2**64 - 1)}, "18446744073709551615 is not a token id"),
    ({TOK + "eos_token_id": 3.0}, "eos_token_id: 3.0 is not a token id"),
    ({TOK + "bos_token_id": [1]}, "bos_token_id: [1] is not a token id"),
    ({"llama.block_count": 4096}, "has no tensor 'blk.2.attn_norm.weight'"),
    ({"llama.block_count": 0}, "this is 0, it must be a whole number from 1"),
    ({"llama.block_count": -1}, "this is -1, it must be a whole number from 1"),
    ({"llama.block_count": None}, "the model file has no key 'llama.block_count'"),
    ({"llama.embedding_length": 0}, "this is 0"),
    ({"llama.embedding_length": 63}, "this says [64, 63]"),
    ({"llama.feed_forward_length": [96, 64]}, "'llama.feed_forward_length' is a list in the model file (96, 64)"),
    ({"llama.attention.head_count": 0}, "this is 0"),
    ({"llama.attention.head_count": 3}, "(n_head = 3, n_head_kv = 2)"),
    ({"llama.attention.head_count": [4, 2]}, "'llama.attention.head_count' is a list in the model file (4, 2)"),
    ({"llama.attention.head_count": "four"}, "'four'"),
    ({"llama.attention.head_count_kv": [2, 1]}, "'llama.attention.head_count_kv' is a list in the model file (2, 1)"),
    ({"llama.attention.head_count_kv": 0}, "division by zero"),
    ({"llama.context_length": 0}, "llama.context_length: 0 is not a number of positions"),
    ({"llama.context_length": -5}, "llama.context_length: -5 is not a number of positions"),
    ({"llama.context_length": 256.5}, "llama.context_length: 256.5 is not a number of positions"),
    ({"llama.context_length": "long"}, "llama.context_length: 'long' is not a number of positions"),
    ({"llama.context_length": True}, "llama.context_length: True is not a number of positions"),
    ({"llama.rope.dimension_count": 31}, "(rope_dim = 31, head_dim = 32)"),
    ({"llama.rope.dimension_count": 0}, "(rope_dim = 0, head_dim = 32)"),
    ({"llama.rope.freq_base": 0.0}, "1 < base does not hold (base = 0)"),
    ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "0 <= eps does not hold (eps = -1)"),
    ({"llama.attention.layer_norm_rms_epsilon": math.nan}, "'llama.attention.layer_norm_rms_epsilon' is nan"),
    ({"llama.attention.layer_norm_rms_epsilon": math.inf}, "'llama.attention.layer_norm_rms_epsilon' is inf"),
    ({"llama.attention.layer_norm_rms_epsilon": "1e-5"}, "eps must be a number, not '1e-5'"),
    ({"llama.expert_count": 8}, "(n_expert = 8)"),
    ({"llama.attention.sliding_window": 128}, "'llama.attention.sliding_window', which this graph does not read"),
    ({"llama.rope.scaling.type": "a\x1b[2J\nb"}, r"(scaling = 'a\x1b[2J\nb')"),
    ({"general.architecture": "qwen9"}, "general.architecture: there is no graph for 'qwen9'"),
    ({"general.architecture": "../x\x1b[2J\ny"}, r"there is no graph for '../x\x1b[2J\ny'"),
    ({"general.architecture": 7}, "key 'general.architecture': must be a string"),
]

HUGE: list[tuple[dict[str, Any], str]] = [
    ({"llama.block_count": 10**6}, "1000000 layers are more than 4096"),
    ({"llama.block_count": 2**31}, "2147483648 layers are more than 4096"),
    ({"llama.block_count": (GGUFValueType.UINT64, 2**63)}, "'llama.block_count' is 9.22337e+18"),
    ({"llama.embedding_length": 2**31}, "this says [64, 2147483648]"),
    ({"llama.feed_forward_length": 2**31}, "this says [2147483648, 64]"),
    ({"llama.attention.head_count": 2**31}, "blk.0.attn_q.weight is f32[128, 64]"),
    ({"llama.attention.key_length": 2**31}, "head_dim = 2147483648"),
    ({"llama.rope.dimension_count": 2**31}, "(rope_dim = 2147483648, head_dim = 32)"),
]


@pytest.mark.parametrize(("keys", "text"), KEYS, ids=[f"{list(k)[0]}={list(k.values())[0]!s:.20}" for k, _ in KEYS])
def test_a_wrong_key(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    refused(tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, metadata=keys), text)


@pytest.mark.parametrize(("keys", "text"), HUGE, ids=[text[:30] for _, text in HUGE])
def test_a_huge_number(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    refused(tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, metadata=keys), text, traced=True)


TEXT_KEYS: list[tuple[dict[str, Any], str]] = [
    ({TOK + "merges": ["nospace"]}, "merges: entry 0 is 'nospace': two texts with a space between are needed"),
    ({TOK + "merges": ["a zzz"]}, "merges: entry 0 ('a zzz') needs 'zzz', which is not a token"),
    ({TOK + "merges": [" "]}, "merges: entry 0 is ' '"),
    ({TOK + "merges": [1, 2]}, "merges: must be an array of strings"),
    ({TOK + "merges": None}, "merges: is missing"),
    ({TOK + "model": None}, "model: is missing"),
    ({TOK + "model": "bert"}, "model: unknown tokenizer 'bert'"),
    ({TOK + "pre": "x\n\x1b[2J"}, r"pre: unknown pre-tokenizer 'x\n\x1b[2J'"),
    ({TOK + "token_type": [9] * VOCAB}, "token_type: must hold numbers from 0 to 6"),
    ({TOK + "token_type": [1]}, "token_type: must be an array of 64 numbers"),
    ({TOK + "model": "llama"}, "scores: is missing"),
    ({TOK + "model": "llama", TOK + "scores": [0.0] * 3}, "scores: must be an array of 64 numbers"),
    ({TOK + "model": "llama", TOK + "scores": [math.nan] * VOCAB}, "scores: must hold finite numbers"),
    ({TOK + "add_bos_token": "yes"}, "add_bos_token: must be a bool"),
    ({"tokenizer.chat_template": 7}, "tokenizer.chat_template: must be a string"),
]


@pytest.mark.parametrize(("keys", "text"), TEXT_KEYS, ids=[text[:30] for _, text in TEXT_KEYS])
def test_a_wrong_key_that_only_text_needs(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    refused(tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, metadata=keys), text, "-p", "in the")


TEMPLATES = [
    ("{% for i in range(10**9) %}x{% endfor %}", "Range too big"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "takes too long"),
    ("{{ messages.__class__.__mro__ }}", "'__class__'"),
    ("{% if %}", "line 1"),
    ("{{ 'a' * 10**10 }}", "chat template"),
]


@pytest.mark.parametrize(("template", "text"), TEMPLATES, ids=[text for _, text in TEMPLATES])
def test_a_hostile_template(tmp_path: Path, template: str, text: str) -> None:
    path = tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, metadata={"tokenizer.chat_template": template})
    code, stderr = run(path, "-p", "in the")
    assert code == 1 and stderr.count("\n") == 1 and "chat template" in stderr and text in stderr


E = tiny.E
VECTOR, MATRIX = np.ones(E, np.float32), np.ones((tiny.F, E), np.float32)
TENSORS: list[tuple[dict[str, Any], str]] = [
    ({"blk.0.foo.weight": VECTOR}, "blk.0.foo.weight is in the model file, but this graph does not use it"),
    ({"blk.7.attn_norm.weight": VECTOR}, "blk.7.attn_norm.weight is in the model file"),
    ({"rope_freqs.weight": np.ones(8, np.float32)}, "rope_freqs.weight is f32[8], this says [16]"),
    ({"rope_freqs.weight": np.ones((2, 8), np.float32)}, "rope_freqs.weight is f32[2, 8], this says [16]"),
    ({"blk.0.rope_freqs.weight": np.ones(16, np.float32)}, "blk.0.rope_freqs.weight is in the model file"),
    ({"blk.0.ffn_gate_inp.weight": (8, E)}, "blk.0.ffn_gate_inp.weight is in the model file"),
    ({"blk.0.attn_norm.weight": np.ones(E + 1, np.float32)}, "blk.0.attn_norm.weight is f32[65], this says [64]"),
    ({"blk.0.attn_norm.weight": (1, E)}, "blk.0.attn_norm.weight is f32[1, 64], this says [64]"),
    ({"blk.0.attn_norm.weight": None}, "has no tensor 'blk.0.attn_norm.weight'"),
    ({"blk.1.ffn_down.weight": MATRIX}, "blk.1.ffn_down.weight is f32[96, 64], this says [64, 96]"),
    ({"token_embd.weight": (VOCAB, E, 1)}, "token_embd.weight is f32[64, 64, 1], this says [64, 64]"),
    (
        {f"blk.0.attn_{n}.weight": (256, E) if n == "qkv" else None for n in ("q", "k", "v", "qkv")},
        "did you mean 'blk.0.attn_qkv.weight'?",
    ),
]


@pytest.mark.parametrize(("tensors", "text"), TENSORS, ids=[text[:40] for _, text in TENSORS])
def test_a_wrong_tensor(tmp_path: Path, tensors: dict[str, Any], text: str) -> None:
    refused(tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, tensors=tensors), text)


NOT_FINITE: list[tuple[dict[str, Any], str]] = [
    ({"token_embd.weight": np.full((VOCAB, E), np.nan, np.float32)}, "call 0, embed of the head,"),
    ({"blk.1.ffn_norm.weight": VECTOR * np.nan}, "rms_norm of 1.ffn,"),
    ({"blk.0.ffn_up.weight": MATRIX * np.inf}, "gemv_f32_t of 0.ffn,"),
    ({"blk.0.ffn_up.weight": MATRIX * np.float32(3e38)}, "gemv_f32_t of 0.ffn,"),
    ({"rope_freqs.weight": np.zeros(16, np.float32)}, "rope_store of 0.attention,"),
]


@pytest.mark.parametrize(("tensors", "text"), NOT_FINITE, ids=[text for _, text in NOT_FINITE])
def test_weights_that_are_not_finite(tmp_path: Path, tensors: dict[str, Any], text: str) -> None:
    """The first call that makes such a value is named, with its line in the graph file."""
    code, stderr = run(tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, tensors=tensors))
    assert code == 1 and stderr.count("\n") == 1
    assert stderr.startswith("error: prefill at positions 0 to 1: call ")
    assert f"{text} made a value that is not finite (llama.yaml:" in stderr


@pytest.mark.parametrize(("weights", "block"), [("q8_0", 34), ("q4_0", 18)])
@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00], ids=["inf", "-inf", "nan"])
def test_scales_that_are_not_finite(tmp_path: Path, weights: str, block: int, bits: int) -> None:
    path = tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, weights=weights)
    stored = ModelFile.open(path).raw("blk.1.attn_output.weight").tobytes()
    damaged = np.frombuffer(stored, np.uint8).reshape(-1, block).copy()
    damaged[0, :2] = bits & 255, bits >> 8
    path.write_bytes(path.read_bytes().replace(stored, damaged.tobytes()))
    code, stderr = run(path)
    assert code == 1 and stderr.count("\n") == 1
    assert f"gemv_{weights}_t+add of 1.attention, made a value that is not finite" in stderr


@pytest.mark.parametrize(("kind", "name"), [(16, "iq2_xxs"), (9, "q8_1"), (24, "i8"), (99, "type99")])
def test_a_type_that_cannot_be_used(tmp_path: Path, kind: int, name: str) -> None:
    wide = {"blk.0.ffn_down.weight": (E, 256), "blk.0.ffn_gate.weight": (256, E), "blk.0.ffn_up.weight": (256, E)}
    wide |= {"blk.1.ffn_down.weight": (E, 256), "blk.1.ffn_gate.weight": (256, E), "blk.1.ffn_up.weight": (256, E)}
    keys = {"llama.feed_forward_length": 256}
    path = tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, metadata=keys, tensors=dict(wide))
    table = tiny.string("blk.0.ffn_down.weight") + struct.pack("<IQQI", 2, 256, E, 0)
    content = path.read_bytes()
    assert content.count(table) == 1
    path.write_bytes(content.replace(table, table[:-4] + struct.pack("<I", kind)))
    refused(path, f"blk.0.ffn_down.weight: type {name} is not one of f32,")


def test_a_missing_part(tmp_path: Path) -> None:
    tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, split=8)
    parts = sorted(tmp_path.glob("m-*.gguf"))
    parts[1].unlink()
    refused(parts[0], parts[1].name)


ACCEPTED: list[dict[str, Any]] = [
    {"llama.context_length": 2**31},
    {"llama.context_length": (GGUFValueType.UINT64, 2**62)},
    {"llama.attention.head_count": [4, 4]},
    {"llama.attention.layer_norm_rms_epsilon": 0.0},
    {TOK + "pre": None},
    {TOK + "token_type": None},
    {"general.name": "a\x1b[2Jb"},
]


@pytest.mark.parametrize("keys", ACCEPTED, ids=[str(keys)[:50] for keys in ACCEPTED])
def test_odd_but_usable(tmp_path: Path, keys: dict[str, Any]) -> None:
    """A trained context that no memory could hold is not what is allocated."""
    path = tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, metadata=keys)
    code, stderr = run_traced(path)
    assert code == 0 and "\x1b" not in stderr
    assert load(path).context <= 4096


@pytest.mark.parametrize("command", ["dump", "plan", "info", "check", "chat"])
@pytest.mark.parametrize(
    "keys", [{"llama.context_length": "long"}, {TOK + "eos_token_id": 99}, {"llama.block_count": 3}]
)
def test_other_commands(tmp_path: Path, command: str, keys: dict[str, Any]) -> None:
    """No command ends in a traceback on a file that `run` refuses."""
    path = tiny.llama(tmp_path / "m.gguf", vocab=VOCAB, metadata=keys)
    args = ["check", "llama", str(path)] if command == "check" else [command, str(path)]
    result = CliRunner().invoke(app, args, input="hello\n")
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output


def test_a_file_that_shrinks_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"m\.gguf"):
        load(path)
