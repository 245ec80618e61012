"""The graph files that come with graphrun, and the examples."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_graph import Header, Tensor, header_of

from graphrun.graphs.elaborate import check, elaborate
from graphrun.graphs.spec import known, load_spec
from graphrun.ops import OPS

ROOT = Path(__file__).resolve().parents[2]


def my_arch_header() -> Header:
    llama = header_of("llama-s.F32")
    metadata = {k.replace("llama.", "my_arch."): v for k, v in llama.metadata.items() if "rope.dim" not in k}
    norms = {f"blk.{i}.attn_{x}_norm.weight": Tensor("f32", (32,)) for i in (0, 1) for x in "qk"}
    return Header({**metadata, "general.architecture": "my_arch"}, {**llama.tensors, **norms})


def tiny_arch_header() -> Header:
    tensors = {name: Tensor("f32", (32, 64)) for name in ("token_embd.weight", "output.weight")}
    metadata = {"general.architecture": "tiny_arch", "tiny_arch.embedding_length": 64}
    return Header({**metadata, "tokenizer.ggml.tokens": ["a"] * 32}, tensors)


@pytest.mark.parametrize(("name", "header"), [("my_arch", my_arch_header()), ("tiny_arch", tiny_arch_header())])
def test_examples(name: str, header: Header) -> None:
    path = ROOT / "examples" / f"{name}.yaml"
    assert check(path.read_bytes(), header, OPS, str(path)) == []
    assert len(path.read_text().splitlines()) <= 60
    for step, tokens in (("decode", 1), ("prefill", 9)):
        graph = elaborate(load_spec(path), header, OPS, step, tokens, context=16)
        graph.verify()
        assert graph.outputs["logits"].type.shape[0] == 1


def test_known_graphs_have_no_mistakes() -> None:
    assert {"llama", "qwen2"} <= set(known())
    for name in known():
        text = (ROOT / "graphs" / f"{name}.yaml").read_bytes()
        assert check(text, None, OPS, name) == []
        assert load_spec(name).arch == name
