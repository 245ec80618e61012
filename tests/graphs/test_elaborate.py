"""Graphs of the golden models, and of the small graph file."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
from small_graph import MODELS, SMALL, header_of, small_header

from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Graph
from graphrun.graphs.elaborate import elaborate
from graphrun.graphs.params import params
from graphrun.graphs.spec import load_spec, parse_spec
from graphrun.ops import OPS

ATTENTION = "rms_norm linear heads linear heads linear heads rope rope store attend flat linear add"
FFN = "rms_norm linear linear swiglu linear add"


def small_graph(
    step: str = "decode", tokens: int = 1, text: str = SMALL, context: int = 128, exact: bool = False
) -> Graph:
    spec = parse_spec(text, "small.yaml")
    return elaborate(spec, small_header(), OPS, step, tokens, context=context, exact=exact)


def names(graph: Graph, scope: str) -> str:
    return " ".join(n.op.name for n in graph.nodes if n.scope == scope)


MODEL_NAMES = sorted(p.stem for p in MODELS.glob("*.gguf") if p.stem.split("-")[0] in ("llama", "qwen2"))


@pytest.mark.parametrize("name", MODEL_NAMES)
@pytest.mark.parametrize(("step", "tokens"), [("decode", 1), ("verify", 5), ("prefill", 32)])
def test_golden_models(name: str, step: str, tokens: int) -> None:
    header = header_of(name)
    spec = load_spec(str(header.metadata["general.architecture"]))
    values = params(spec, header)
    graph = elaborate(spec, header, OPS, step, tokens, context=64)
    graph.verify()
    assert nx.is_directed_acyclic_graph(graph.nx())
    rows, n_layer = (1 if step == "prefill" else tokens), values["n_layer"]
    assert len(graph.nodes) == 4 + (step == "prefill") + 20 * int(n_layer)
    for i in range(int(n_layer)):
        assert (names(graph, f"{i}.attention"), names(graph, f"{i}.ffn")) == (ATTENTION, FFN)
    assert names(graph, "") == f"embed {'last ' * (step == 'prefill')}rms_norm linear argmax"
    assert {k: str(v.type) for k, v in graph.outputs.items()} == {
        "hidden": f"f32[{rows}, {values['n_embd']}]",
        "logits": f"f32[{rows}, {values['n_vocab']}]",
        "best": f"i32[{rows}]",
    }
    assert {k: str(v.type) for k, v in graph.inputs.items()} == {"tokens": f"i32[{tokens}]", "pos": "i32[1]"}
    cache = f"f16[64, {values['n_head_kv']}, {values['head_dim']}]"
    assert [(s.name, s.discipline, str(s.type)) for s in graph.states] == [
        (f"{i}.attention.{kind}", "append", cache) for i in range(int(n_layer)) for kind in ("keys", "values")
    ]
    assert {p.tensor for w in graph.weights for p in w.parts} == set(header.tensors)


def test_smollm(smollm: Path) -> None:
    with ModelFile.open(smollm) as file:
        graph = elaborate(load_spec("llama"), file, OPS, "decode", 1, context=2048)
    assert len(graph.nodes) == 4 + 20 * 30
    assert str(graph.outputs["logits"].type) == "f32[1, 49152]"


def test_tied_output_is_the_embedding_itself() -> None:
    graph = elaborate(load_spec("llama"), header_of("llama-tied.F32"), OPS, "decode", 1, context=8)
    embed, output = graph.nodes[0], graph.nodes[-2]
    assert output.inputs[1] is embed.inputs[1]


def test_weights_say_where_they_come_from() -> None:
    graph = small_graph()
    by_name = {f"{w.scope}.{w.name}": w for w in graph.weights}
    wq = by_name["1.attention.wq"]
    assert [(p.tensor, p.rows) for p in wq.parts] == [("blk.1.attn_q.weight", 64)]
    assert (str(wq.type), str(by_name["1.attention.norm"].type)) == ("q4_0[64, 64]", "f32[64]")
    assert wq.span.line == 20
    assert not any(w.name == "bias" for w in graph.weights)


def test_attributes_are_filled_in() -> None:
    rope = next(n for n in small_graph().nodes if n.op.name == "rope")
    assert {"base": 10000.0, "width": 16, "pairs": "halves", "factor": 1.0, "yarn": 0}.items() <= rope.attrs.items()
    assert list(rope.attrs) == [a.name for a in rope.op.signature.attrs]
    assert rope.inputs[-1] is None


def test_exact_graphs_keep_states_in_f32() -> None:
    graph = small_graph(exact=True)
    graph.verify()
    assert {str(s.type) for s in graph.states} == {"f32[128, 4, 16]"}


def test_rows_are_all_or_the_last() -> None:
    assert str(small_graph("prefill", 7).outputs["logits"].type) == "f32[1, 32]"
    every = small_graph("prefill", 7, SMALL.replace("rows: last", "rows: all"))
    assert str(every.outputs["logits"].type) == "f32[7, 32]"


def test_results_are_named_by_their_equations() -> None:
    graph = small_graph()
    assert [v.name for n in graph.nodes if n.scope == "0.attention" for v in n.outputs] == [
        *("x", "q.linear", "q.heads", "q", "k.linear", "k", "K", "V", "h.attend", "h.flat", "h")
    ]
    swiglu = next(
        n
        for n in elaborate(load_spec("llama"), header_of("llama-s.F32"), OPS, "decode", 1, context=8).nodes
        if n.op.name == "swiglu"
    )
    assert [v.name for v in swiglu.inputs if v] == ["y.linear", "y.linear2"]
