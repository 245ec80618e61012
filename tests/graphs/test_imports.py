"""Lists of the model file, inputs, states that two blocks share, a block in every layer, layer inputs as outputs."""

from __future__ import annotations

import pytest
from small_graph import Header, Tensor

from graphrun.core.errors import GraphError
from graphrun.core.ir import Graph
from graphrun.graphs.elaborate import check, elaborate
from graphrun.graphs.params import params, steps
from graphrun.graphs.spec import parse_spec
from graphrun.ops import OPS

DRAFTER = """\
arch: drafter
params:
  n_layer: block_count
  n_embd:  embedding_length
  n_vocab: len(tokenizer.ggml.tokens)
  targets: list(target_layers)
  wide:    list(wide_layers) or ()
let:
  n_target: len(targets)
  trunk:    has("blk.0.k.weight")
check:
  - len(wide) in (0, n_layer)
  - targets[0] >= 1
inputs:
  features: f32[n_target * n_embd]
weights:
  table: token_embd.weight [n_vocab, n_embd]
  fc:    fc.weight [n_embd, n_target * n_embd]
blocks:
  remember:
    weights:
      k: blk.{i}.k.weight [n_embd, n_embd]
    states:
      keys:   ring f16[(64 if wide[i] == 1 else 16) if len(wide) > 0 else 8, 4, n_embd // 4]
      values: ring f16[(64 if wide[i] == 1 else 16) if len(wide) > 0 else 8, 4, n_embd // 4]
    body:
      x:    heads(linear(h, k), 4)
      K, V: store_ring(x, x, keys, values, pos)
      h:    h
  attend_all:
    weights:
      k: blk.{i}.k.weight [n_embd, n_embd]
    states:
      keys: remember.keys
    body:
      q: heads(linear(h, k), 4)
      h: h + flat(attend_block(q, q, q, keys, keys, pos, 0))
layers:
  repeat: n_layer
  body:   attend_all(h)
graphs:
  context:
    h: layers(linear(features, fc), remember)
  draft:
    h: layers(embed(tokens, table))
    logits: linear(h, table)
steps:
  context: {graph: context, tokens: 1..64}
  draft:   {graph: draft, tokens: 2..16, when: trunk}
"""


def header(**changes: object) -> Header:
    metadata: dict[str, object] = {
        "general.architecture": "drafter",
        "drafter.block_count": 2,
        "drafter.embedding_length": 32,
        "drafter.target_layers": [1, 4, 6],
        "tokenizer.ggml.tokens": ["a"] * 16,
    }
    shapes = {"token_embd": (16, 32), "fc": (32, 96), "blk.0.k": (32, 32), "blk.1.k": (32, 32)}
    found = Header(metadata, {f"{name}.weight": Tensor("f32", shape) for name, shape in shapes.items()})
    return found.change(**changes) if changes else found


def graph(step: str, tokens: int, text: str = DRAFTER, taps: tuple[int, ...] = (), **changes: object) -> Graph:
    made = elaborate(
        parse_spec(text, "d.yaml"), header(**changes), OPS, step, tokens, context=64, taps=taps, rollback=4
    )
    made.verify()
    return made


def test_inputs_have_a_row_for_each_token() -> None:
    assert {n: str(v.type) for n, v in graph("context", 5).inputs.items()} == {
        "tokens": "i32[5]",
        "pos": "i32[1]",
        "features": "f32[5, 96]",
    }
    assert "features" not in graph("draft", 5).inputs


def test_two_blocks_share_a_state() -> None:
    context, draft = graph("context", 3), graph("draft", 3)
    names = {s.name: s.type for s in context.states}
    assert set(names) == {f"{i}.remember.{n}" for i in range(2) for n in ("keys", "values")}
    assert {s.name: s.type for s in draft.states} == {n: t for n, t in names.items() if n.endswith("keys")}


def test_a_block_is_applied_in_every_layer() -> None:
    assert [n.scope for n in graph("context", 3).nodes if n.op.name == "store_ring"] == ["0.remember", "1.remember"]


@pytest.mark.parametrize(("wide", "rows"), [(None, [32, 32]), ([True, False], [64, 32]), ([0, 1], [32, 64])])
def test_a_list_says_it_layer_by_layer(wide: object, rows: list[int]) -> None:
    made = graph("context", 3) if wide is None else graph("context", 3, drafter__wide_layers=wide)
    states = [s for s in made.states if s.name.endswith("keys")]
    assert [s.type.shape[0] for s in states] == rows


def test_params_are_without_lists() -> None:
    values = params(parse_spec(DRAFTER, "d.yaml"), header())
    assert values["n_target"] == 3 and values["trunk"] is True and "targets" not in values


def test_a_missing_tensor_takes_its_steps_away() -> None:
    text = DRAFTER.replace('has("blk.0.k.weight")', 'has("blk.7.k.weight")')
    spec = parse_spec(text, "d.yaml")
    assert list(steps(spec, header())) == ["context"]
    with pytest.raises(GraphError, match=r"this model has no step draft \(trunk = false\)"):
        elaborate(spec, header(), OPS, "draft", 2, context=64)


def test_layer_inputs_become_outputs() -> None:
    made = graph("draft", 3, taps=(0, 2, 1))
    assert set(made.outputs) == {"logits", "input.0", "input.1", "input.2"}
    assert made.producers[made.outputs["input.0"]].op.name == "embed"
    assert made.producers[made.outputs["input.1"]].scope == "0.attend_all"
    with pytest.raises(GraphError, match="the input of layer 3 is wanted, there are 2 layers"):
        graph("draft", 3, taps=(3,))


MISTAKES = {
    "list(target_layers)": ("list(block_count)", "'drafter.block_count' is 2 in the model file, not a list"),
    "targets[0] >= 1": ("targets[3] >= 1", "targets has 3 items, there is no number 3"),
    "targets[0] >= 1 ": ("targets[-1] >= 1", "targets has 3 items, there is no number -1"),
    "len(targets)": ("len(n_layer)", "a list is needed here, not 2"),
    "targets[0]": ("n_layer[0]", "a list is needed here, not 2"),
    " targets[0]": (" targets", "'>=' needs two numbers, this is a list of 3"),
    "features: f32[n_target * n_embd]": ("features: f16[4]", "cannot read this input"),
    "  features: f32": ("  pos: f32", "'pos' is part of the language"),
    "keys: remember.keys": ("keys: remembr.keys", "there is no block 'remembr'"),
    "keys: remember.keys ": ("keys: remember.key", "block remember declares no state 'key'"),
    "linear(features, fc), remember": ("linear(features, fc), remembr", "a block is needed here"),
    "attend_all(h)\n": ("remember(attend_all(h))\n", "state 0.remember.keys is used twice, by two blocks of one graph"),
    "repeat: n_layer": ('repeat: has("x")', "'has' cannot be called here"),
}


@pytest.mark.parametrize("old", MISTAKES)
def test_mistakes(old: str) -> None:
    new, message = MISTAKES[old]
    assert old.rstrip(" ") in DRAFTER
    found = check(DRAFTER.replace(old.rstrip(" "), new, 1), header(), OPS, "d.yaml")
    assert any(message in str(error) for error in found), found
