"""A small graph file, and a model file's header made by hand for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from graphrun.core.gguf import ModelFile

MODELS = Path(__file__).resolve().parent / "golden" / "models"

SMALL = """\
arch: small
params:
  n_layer: block_count
  n_embd: embedding_length
  n_vocab: len(tokenizer.ggml.tokens)
  n_head: attention.head_count
  eps: attention.layer_norm_rms_epsilon
let:
  dim: n_embd // n_head
check:
  - n_embd % n_head == 0
ignored: [context_length]
weights:
  table: token_embd.weight [n_vocab, n_embd]
  bias: output.bias [n_vocab] or none
blocks:
  attention:
    weights:
      norm: blk.{i}.attn_norm.weight [n_embd]
      wq: blk.{i}.attn_q.weight [n_embd, n_embd]
      wk: blk.{i}.attn_k.weight [n_embd, n_embd]
    states:
      keys: append f16[n_head, dim]
      values: append f16[n_head, dim]
    body:
      x: rms_norm(h, norm, eps)
      q: rope(heads(linear(x, wq), n_head), pos, 10000.0, dim, "halves")
      k: heads(linear(x, wk), n_head)
      K, V: store(k, k, keys, values, pos)
      h: h + flat(attend(q, K, V, pos))
layers:
  repeat: n_layer
  body: attention(h)
graphs:
  main:
    h: layers(embed(tokens, table))
    logits: linear(rows(h), table, bias)
steps:
  decode: {graph: main, tokens: 1}
  prefill: {graph: main, tokens: 2..64, rows: last}
"""


@dataclass(frozen=True)
class Tensor:
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Header:
    """Metadata and tensors of a file that does not exist."""

    metadata: Mapping[str, object]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    path: str = "model.gguf"

    def change(self, **values: object) -> Header:
        """The same with metadata keys set, or removed by None; `__` stands for a dot."""
        metadata = {**self.metadata, **{key.replace("__", "."): value for key, value in values.items()}}
        return replace(self, metadata={key: value for key, value in metadata.items() if value is not None})

    def with_tensors(self, **tensors: Tensor | None) -> Header:
        """The same with tensors set, or removed by None; `__` stands for a dot."""
        changed = {**self.tensors, **{name.replace("__", "."): value for name, value in tensors.items()}}
        return replace(self, tensors={name: value for name, value in changed.items() if value is not None})


def small_header() -> Header:
    """The header that SMALL fits: 2 layers of 4 heads, 64 channels, 32 vocabulary entries."""
    metadata: dict[str, object] = {
        "general.architecture": "small",
        "small.block_count": 2,
        "small.embedding_length": 64,
        "small.context_length": 256,
        "small.attention.head_count": 4,
        "small.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.tokens": [f"<{n}>" for n in range(32)],
    }
    tensors = {"token_embd.weight": Tensor("q8_0", (32, 64))}
    for i in range(2):
        tensors[f"blk.{i}.attn_norm.weight"] = Tensor("f32", (64,))
        tensors[f"blk.{i}.attn_q.weight"] = Tensor("q4_0", (64, 64))
        tensors[f"blk.{i}.attn_k.weight"] = Tensor("q4_0", (64, 64))
    return Header(metadata, tensors)


def header_of(name: str) -> Header:
    """The header of a golden model, so that a test can change it."""
    with ModelFile.open(MODELS / f"{name}.gguf") as file:
        tensors = {t.name: Tensor(t.type, t.shape) for t in file.tensors.values()}
        return Header(dict(file.metadata), tensors)
