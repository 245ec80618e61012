"""A graph file with two kinds of layers, ring and snapshot states, and a graph that is given values."""

from __future__ import annotations

import pytest
from small_graph import Header, Tensor

from graphrun.core.errors import GraphError
from graphrun.core.ir import Graph
from graphrun.graphs.elaborate import check, elaborate
from graphrun.graphs.params import steps
from graphrun.graphs.spec import parse_spec
from graphrun.ops import OPS


def names(graph: Graph, scope: str) -> str:
    return " ".join(n.op.name for n in graph.nodes if n.scope == scope)


HYBRID = """\
arch: hybrid
params:
  n_block: block_count
  n_extra: extra_layers or 0
  n_embd:  embedding_length
  n_vocab: len(tokenizer.ggml.tokens)
  every:   interval or 4
let:
  n_layer: n_block - n_extra
inputs:
  before: f32[n_embd]
weights:
  table: token_embd.weight [n_vocab, n_embd]
blocks:
  mix:
    states:
      tail: ring f32[3, n_embd]
    weights:
      taps: blk.{i}.taps.weight [n_embd, 4]
    body:
      y, tail2: conv_silu(h, taps, tail, pos)
      h: y + h
  gate:
    weights:
      w: blk.{i}.gate.weight [n_embd, n_embd]
    body:
      h: sigmoid_gate(h, linear(h, w))
  join:
    weights:
      w: blk.{i}.join.weight [n_embd, 2 * n_embd]
    body:
      h: linear(concat(h, before), w)
layers:
  repeat: n_layer
  body: gate(h) if (i + 1) % every == 0 else mix(h)
graphs:
  main:
    h:      layers(embed(tokens, table))
    hidden: h * h
    logits: linear(rows(hidden), table)
  next:
    h:      gate(join(embed(tokens, table), i=n_layer), i=n_layer)
    hidden: rows(h)
    logits: linear(hidden, table)
steps:
  decode:  {graph: main, tokens: 1}
  verify:  {graph: main, tokens: 2..16}
  prefill: {graph: main, tokens: 17..64, rows: last}
  draft:   {graph: next, tokens: 1, when: n_extra > 0}
"""


def hybrid_header(extra: bool = True) -> Header:
    """6 layers: mix, mix, gate, mix, mix, gate; and one more for the graph `next`."""
    metadata: dict[str, object] = {
        "general.architecture": "hybrid",
        "hybrid.block_count": 6 + extra,
        "hybrid.embedding_length": 64,
        "hybrid.interval": 3,
        "tokenizer.ggml.tokens": ["a"] * 32,
    }
    tensors = {"token_embd.weight": Tensor("f32", (32, 64))}
    for i in range(6):
        gate = i % 3 == 2
        tensors[f"blk.{i}.{'gate' if gate else 'taps'}.weight"] = Tensor("f32", (64, 64) if gate else (64, 4))
    if extra:
        metadata["hybrid.extra_layers"] = 1
        tensors |= {"blk.6.gate.weight": Tensor("q8_0", (64, 64)), "blk.6.join.weight": Tensor("q8_0", (64, 128))}
    return Header(metadata, tensors)


def test_layers_choose_their_block() -> None:
    graph = elaborate(parse_spec(HYBRID, "h.yaml"), hybrid_header(), OPS, "decode", 1, context=64)
    graph.verify()
    scopes = list(dict.fromkeys(n.scope for n in graph.nodes))
    assert scopes == ["", "0.mix", "1.mix", "2.gate", "3.mix", "4.mix", "5.gate"]
    assert set(graph.outputs) == {"hidden", "logits"}
    assert "mul" in names(graph, "")


def test_ring_states_have_room_for_a_step_that_is_rolled_back() -> None:
    graph = elaborate(parse_spec(HYBRID, "h.yaml"), hybrid_header(), OPS, "prefill", 64, context=64)
    assert {(s.discipline, str(s.type)) for s in graph.states} == {("ring", "f32[32, 64]")}


def test_a_graph_has_the_inputs_that_it_reads() -> None:
    spec, header = parse_spec(HYBRID, "h.yaml"), hybrid_header()
    assert {name: str(tokens) for name, tokens in steps(spec, header).items()} == {
        "decode": "1",
        "verify": "2..16",
        "prefill": "17..64",
        "draft": "1",
    }
    graph = elaborate(spec, header, OPS, "draft", 1, context=64)
    graph.verify()
    assert {k: str(v.type) for k, v in graph.inputs.items()} == {
        "tokens": "i32[1]",
        "pos": "i32[1]",
        "before": "f32[1, 64]",
    }
    assert set(elaborate(spec, header, OPS, "decode", 1, context=64).inputs) == {"tokens", "pos"}
    concat = next(n for n in graph.nodes if n.op.name == "concat")
    assert concat.scope == "6.join" and concat.inputs[1] is graph.inputs["before"]


def test_steps_that_a_model_does_not_have() -> None:
    spec, header = parse_spec(HYBRID, "h.yaml"), hybrid_header(extra=False)
    assert "draft" not in steps(spec, header)
    assert check(HYBRID, header, OPS) == []
    with pytest.raises(GraphError, match=r"this model has no step draft \(n_extra = 0\)"):
        elaborate(spec, header, OPS, "draft", 1, context=64)


def test_tensors_of_a_step_that_is_not_there_are_refused() -> None:
    header = hybrid_header().change(hybrid__extra_layers=0, hybrid__block_count=6)
    with pytest.raises(GraphError, match="blk.6.gate.weight is in the model file, but this graph does not use it"):
        elaborate(parse_spec(HYBRID, "h.yaml"), header, OPS, "decode", 1, context=64)


def test_snapshot_states_have_a_copy_for_each_token() -> None:
    text = HYBRID.replace("tail: ring f32[3, n_embd]", "tail: snapshot f32[n_embd]")
    graph = elaborate(parse_spec(text, "h.yaml"), hybrid_header(), OPS, "decode", 1, context=64)
    assert {(s.discipline, str(s.type)) for s in graph.states} == {("snapshot", "f32[16, 64]")}
