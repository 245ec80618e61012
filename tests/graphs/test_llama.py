"""What llama.yaml and qwen2.yaml read from a model file, and what they refuse."""

from __future__ import annotations

import math
import time
from collections import Counter

import pytest
from small_graph import Header, Tensor, header_of

from graphrun.core.errors import GraphError
from graphrun.core.ir import Graph
from graphrun.graphs.elaborate import elaborate
from graphrun.graphs.params import params
from graphrun.graphs.spec import load_spec
from graphrun.ops import OPS


def elaborate_llama(header: Header | None = None) -> Graph:
    return elaborate(load_spec("llama"), header or header_of("llama-s.F32"), OPS, "decode", 1, context=8)


def test_lists_count_as_one_value_only_if_all_are_equal() -> None:
    header = header_of("llama-s.F32")
    assert params(load_spec("llama"), header.change(llama__attention__head_count=[4, 4]))["n_head"] == 4
    with pytest.raises(GraphError, match="'llama.attention.head_count_kv' is a list"):
        elaborate_llama(header.change(llama__attention__head_count_kv=[2, 4]))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {"factor": 1.0, "yarn": 0, "magnitude": 1.0}),
        ({"type": "none", "factor": 8.0}, {"factor": 1.0, "yarn": 0, "magnitude": 1.0}),
        ({"type": "linear", "factor": 4.0}, {"factor": 4.0, "yarn": 0, "magnitude": 1.0}),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 64, "attn_factor": 0.5},
            {"factor": 4.0, "yarn": 1, "magnitude": 0.5 * (1 + 0.1 * math.log(4)), "original": 64},
        ),
        ({"type": "yarn", "yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0}, {"yarn": 1, "fast": 16.0, "slow": 2.0}),
    ],
)
def test_rope_scaling(keys: dict[str, object], expected: dict[str, float]) -> None:
    for arch in ("llama", "qwen2"):
        header = header_of(f"{arch}-s.F32").change(**{f"{arch}__rope__scaling__{k}": v for k, v in keys.items()})
        graph = elaborate(load_spec(arch), header, OPS, "decode", 1, context=8)
        ropes = [n for n in graph.nodes if n.op.name == "rope"]
        assert len(ropes) == 4
        for rope in ropes:
            assert {name: rope.attrs[name] for name in expected} == pytest.approx(expected)
            assert rope.attrs["pairs"] == ("adjacent" if arch == "llama" else "halves")


def test_old_name_of_the_scaling_factor() -> None:
    assert params(load_spec("llama"), header_of("llama-s.F32").change(llama__rope__scale_linear=2.0))["factor"] == 2.0


def test_rope_factors_are_passed() -> None:
    graph = elaborate_llama(header_of("llama-tied.F32"))
    factors = {n.inputs[2].name for n in graph.nodes if n.op.name == "rope" and n.inputs[2] is not None}
    assert factors == {"rope_freqs"}


def test_biases_are_optional() -> None:
    biases = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    sizes = dict(zip(biases, (128, 64, 64, 64, 96, 96, 64), strict=True))
    tensors = {f"blk__0__{name}__bias": Tensor("f32", (size,)) for name, size in sizes.items()}
    graph = elaborate_llama(header_of("llama-s.F32").with_tensors(**tensors))
    with_bias = Counter(n.scope for n in graph.nodes if n.op.name == "linear" and n.inputs[2] is not None)
    assert with_bias == {"0.attention": 4, "0.ffn": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.rope.dimension_count": 16}, "does not hold for this model (rope_dim = 16, head_dim = 32)"),
        ({"llama.attention.value_length": 16}, "does not hold for this model (value_dim = 16, head_dim = 32)"),
        ({"llama.attention.head_count_kv": 3}, "does not hold for this model (n_head = 4, n_head_kv = 3)"),
        ({"llama.attention.head_count_kv": 0}, "division by zero"),
        ({"llama.rope.scaling.type": "longrope"}, "does not hold for this model (scaling = 'longrope')"),
        ({"llama.rope.scaling.yarn_ext_factor": 0.0}, "does not hold for this model (factor = 1, extrapolate = 0)"),
        ({"llama.rope.scaling.factor": 0.0}, "does not hold for this model (factor = 0, extrapolate = 1)"),
        ({"llama.rope.scaling.factor": float("nan")}, "'llama.rope.scaling.factor' is nan in the model file"),
        ({"llama.expert_count": 8}, "does not hold for this model (n_expert = 8)"),
        ({"llama.logit_scale": 2.0}, "the model file has 'llama.logit_scale', which this graph does not read"),
        ({"llama.context_length": None}, "the model file has no key 'llama.context_length'"),
        ({"llama.block_count": "2"}, "a number is needed here, not '2'"),
        ({"llama.block_count": -1}, "this is -1, it must be a whole number from 1"),
        ({"llama.block_count": 3}, "the model file has no tensor 'blk.2.attn_norm.weight'"),
        ({"llama.block_count": 1}, "blk.1.attn_k.weight is in the model file, but this graph does not use it"),
        ({"llama.embedding_length": 64.5}, "this is 64.5, it must be a whole number from 1"),
        ({"tokenizer.ggml.tokens": []}, "this is 0, it must be a whole number from 1"),
        ({"general.architecture": None}, "this graph is for 'llama', the model file says no architecture"),
    ],
)
def test_what_llama_refuses(change: dict[str, object], message: str) -> None:
    header = header_of("llama-s.Q4_0").change(**change)
    with pytest.raises(GraphError) as caught:
        elaborate_llama(header)
    assert caught.value.message == message


@pytest.mark.parametrize("key", ["block_count", "attention.layer_norm_rms_epsilon", "feed_forward_length"])
def test_keys_that_llama_needs(key: str) -> None:
    with pytest.raises(GraphError, match=f"the model file has no key 'llama.{key}'"):
        elaborate_llama(header_of("llama-s.F32").change(**{f"llama.{key}": None}))


def test_qwen2_heads_must_fill_the_channels() -> None:
    header = header_of("qwen2-s.F32").change(qwen2__attention__key_length=32)
    with pytest.raises(GraphError, match="head_dim = 32, n_embd = 64, n_head = 4"):
        elaborate(load_spec("qwen2"), header, OPS, "decode", 1, context=8)


def test_64_layers_are_unrolled_at_once() -> None:
    llama = header_of("llama-s.Q4_0")
    first = {n.removeprefix("blk.0"): t for n, t in llama.tensors.items() if n.startswith("blk.0.")}
    tensors = {n: t for n, t in llama.tensors.items() if not n.startswith("blk.")}
    tensors |= {f"blk.{i}{n}": t for i in range(64) for n, t in first.items()}
    header = Header({**llama.metadata, "llama.block_count": 64}, tensors)
    start = time.process_time()
    assert len(elaborate_llama(header).nodes) == 4 + 20 * 64
    assert time.process_time() - start < 1.0
