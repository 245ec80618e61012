"""Random bits of a tiny model file turned over: it is refused, or it computes finite numbers."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from graphrun import backends
from graphrun.core.errors import GraphError, GraphrunError, ModelError, ProgramError
from graphrun.core.gguf import ModelFile
from graphrun.graphs.spec import Spec, parse_spec, read_source
from graphrun.model import Model

VOCAB, E = 280, 32
ROUNDS, FLIPS = 2000, 4
HEAD, GROUPS, FF = 16, 1, 32


def write(path: Path) -> Path:
    """One layer with quantised matrices, so that half of the file is metadata."""
    shapes: dict[str, tiny.Tensor] = {
        "token_embd.weight": (VOCAB, E),
        "output_norm.weight": (E,),
        "blk.0.attn_norm.weight": (E,),
        "blk.0.attn_q.weight": (E, E),
        "blk.0.attn_k.weight": (GROUPS * HEAD, E),
        "blk.0.attn_v.weight": (GROUPS * HEAD, E),
        "blk.0.attn_output.weight": (E, E),
        "blk.0.ffn_norm.weight": (E,),
        "blk.0.ffn_gate.weight": (FF, E),
        "blk.0.ffn_up.weight": (FF, E),
        "blk.0.ffn_down.weight": (E, FF),
        "rope_freqs.weight": np.ones(HEAD // 2, np.float32),
    }
    numbers: dict[str, Any] = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": E,
        "feed_forward_length": FF,
        "attention.head_count": E // HEAD,
        "attention.head_count_kv": GROUPS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": HEAD,
    }
    keys: dict[str, Any] = {"general.architecture": "llama"} | {f"llama.{k}": v for k, v in numbers.items()}
    return tiny.write(path, "llama", keys | tiny.tokenizer("llama-bpe", VOCAB), shapes, "q4_0")


def decode_only() -> Spec:
    """The graph of llama with one step, since a model compiles all of them."""
    source, _ = read_source("llama")
    text = source.decode()
    return parse_spec(text[: text.index("steps:")] + "steps:\n  decode: {graph: main, tokens: 1}\n", "llama.yaml")


class Attempt:
    """Opens a file, encodes a text and computes one token; what does not depend on the file is kept."""

    def __init__(self) -> None:
        self.spec, self.backend = decode_only(), backends.open("numpy", threads=1)

    def __call__(self, path: Path) -> type[GraphrunError] | None:
        """The error that refuses the file, None if the logits are finite."""
        try:
            with ModelFile.open(path) as file:
                model = Model(file, self.spec, self.backend)
                token = [*model.tokenizer.encode("in the end"), 0][0]
                logits = model.session().decode(token)
        except GraphrunError as error:
            lines = str(error).splitlines()
            assert len(lines) == 1 or (isinstance(error, GraphError) and len(lines) <= 5), str(error)
            assert str(error).isprintable() or len(lines) > 1
            return type(error)
        assert np.isfinite(logits).all()
        return None


def test_flipped_bits(tmp_path: Path) -> None:
    path, rng, attempt = tmp_path / "m.gguf", random.Random(0), Attempt()
    content = write(path).read_bytes()
    outcomes: Counter[type[GraphrunError] | None] = Counter([attempt(path)])
    assert outcomes == {None: 1}
    for _ in range(ROUNDS):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, FLIPS)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        outcomes[attempt(path)] += 1
    assert outcomes.keys() == {None, ModelError, GraphError, ProgramError}


@pytest.mark.parametrize("section", ["metadata", "tensor table"])
def test_damaged_headers(tmp_path: Path, section: str) -> None:
    """Whole bytes, in the part of the file where each of them means something."""
    path, rng, attempt = tmp_path / "m.gguf", random.Random(1), Attempt()
    content = write(path).read_bytes()
    table = content.index(tiny.string("token_embd.weight"))
    tokens, end = (
        content.index(tiny.string("tokenizer.ggml.tokens")),
        content.index(tiny.string("rope_freqs.weight")) + 60,
    )
    low, high = (24, tokens) if section == "metadata" else (table, end)
    outcomes: Counter[type[GraphrunError] | None] = Counter()
    for _ in range(ROUNDS // 2):
        damaged = bytearray(content)
        damaged[rng.randrange(low, high)] = rng.randrange(256)
        path.write_bytes(damaged)
        outcomes[attempt(path)] += 1
    assert outcomes[ModelError] > 0 and outcomes[GraphError] > 0
