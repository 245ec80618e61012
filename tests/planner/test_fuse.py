"""Fusing: patterns, what they match, and what they must leave alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import MACHINE, Builder, delta, gated_attention
from interpret import assert_same_bits

from graphrun.core.ir import Graph
from graphrun.core.op import Op, fused
from graphrun.ops import OPS
from graphrun.planner.context import Context
from graphrun.planner.fuse import fuse
from graphrun.planner.lower import lower
from graphrun.planner.pattern import pattern

HERE = Context(OPS, MACHINE)
SHALLOW = OPS | {"attend": replace(OPS["attend"], epilogues=("quantize",))}


def names(graph: Graph) -> list[str]:
    """Ops with their epilogues, views left out."""
    graph.verify()
    return ["+".join(n.op.name for n in (node, *node.epilogues)) for node in graph.nodes if not node.op.view]


def test_a_pattern_assigns_every_name_once() -> None:
    found = pattern(OPS["rope_store"], OPS["rope_store"].fuses or "")
    assert [line.outputs for line in found.equations] == [("q2",), ("kr",), ("kc'", "vc'")]
    assert found.equations[2].arguments == ("kr", "v", "kc", "vc", "pos")
    assert found.results == ("q2", "kc'", "vc'")
    assert found.inner == ("kr",)


@pytest.mark.parametrize(
    ("text", "message"), [("y: add(x, w)\nz: add(u, w)", "u is not defined"), ("z: add(x, w)", "y is not computed")]
)
def test_a_wrong_pattern_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pattern(OPS["rms_norm"], text)


def rope_block(*, share: bool = False, output: bool = False, base: float = 1e4) -> Graph:
    """q and k rotated, k and v stored, q attending; perhaps with rotated k read twice, or with another base."""
    b = Builder()
    q, k, v = b.input("q", "f32", 1, 4, 32), b.input("k", "f32", 1, 2, 32), b.input("v", "f32", 1, 2, 32)
    pos = b.inputs["pos"]
    b.scope = "0.attention"
    q2 = b.call("rope", q, pos, base=base, width=32, pairs="halves")
    k2 = b.call("rope", k, pos, base=1e4, width=32, pairs="halves", name="k2")
    keys, values = b.calls("store", k2, v, b.state("k", "f16", 64, 2, 32), b.state("v", "f16", 64, 2, 32), pos)
    y = b.call("attend", q2, keys, values, pos)
    return b.graph(y=y, **({"k2": k2} if output else {}), **({"twice": b.call("add", k2, k2)} if share else {}))


def test_fuse_replaces_rotation_and_store() -> None:
    graph = rope_block()
    fused_graph = fuse(graph, HERE)
    assert names(fused_graph) == ["rope_store", "attend"]
    assert fused_graph.nodes[0].outputs == (graph.nodes[0].outputs[0], *graph.nodes[2].outputs)
    assert fused_graph.nodes[0].attrs["base"] == 1e4
    assert_same_bits(graph, lower(graph, OPS, MACHINE))


@pytest.mark.parametrize("graph", [rope_block(share=True), rope_block(output=True), rope_block(base=5e5)])
def test_fuse_leaves_what_others_read_and_what_disagrees(graph: Graph) -> None:
    assert names(fuse(graph, HERE)) == names(graph)


def test_fuse_needs_a_kernel_for_the_tokens() -> None:
    assert "delta_layer" in names(fuse(lower(delta(16), OPS, MACHINE, until="dedupe"), HERE))
    assert "delta_layer" not in names(fuse(lower(delta(17), OPS, MACHINE, until="dedupe"), HERE))


def test_fuse_prefers_the_longest_pattern() -> None:
    def scaled(name: str, text: str) -> Op:
        signature = "x: f32[T, N], w: f32[N], u: f32[T, N], eps: float -> y: f32[T, N]"
        known = (OPS["rms_norm"], OPS["add"], OPS["swiglu"])
        return fused(name, signature, text, known, doc=name, kernels=OPS["rms_norm"].kernels)

    short = scaled("short", "a: rms_norm(x, w, eps)\ny: add(a, u)")
    long = scaled("long", "a: rms_norm(x, w, eps)\nb: add(a, u)\ny: swiglu(b, u)")
    b = Builder()
    x = b.input("x", "f32", 1, 64)
    norm = b.call("rms_norm", x, b.weight("n", "f32", 64), eps=1e-5)
    graph = b.graph(y=b.call("swiglu", b.call("add", norm, x), x))
    assert names(fuse(graph, Context(OPS | {"a_short": short, "long": long}, MACHINE))) == ["long"]
    assert names(fuse(graph, Context(OPS | {"short": short}, MACHINE))) == ["short", "swiglu"]


@pytest.mark.parametrize("tokens", [1, 2, 5, 16, 17])
def test_a_delta_block_fuses_and_stacks(tokens: int) -> None:
    graph = delta(tokens)
    program = lower(graph, OPS, MACHINE)
    assert_same_bits(lower(graph, OPS, MACHINE, until="expand"), program, pos=9)
    if tokens <= 16:
        assert [c.op.name for c in program.calls] == ["rms_norm", "gemv", "gemv_f32", "delta_layer", "gemv"]
        assert [c.segment for c in program.calls] == [0, 1, 1, 2, 3]
        assert program.calls[3].label == "delta_layer+quantize"


@pytest.mark.parametrize("tokens", [1, 2, 5, 17])
def test_a_gated_attention_block_is_six_calls(tokens: int) -> None:
    graph = gated_attention(tokens)
    program = lower(graph, OPS, MACHINE)
    assert ["+".join(c.op.name for c in (call, *call.epilogues)) for call in program.calls] == [
        "rms_norm+quantize",
        "gemv",
        "gemv",
        "qk_norm_rope_store",
        "attend+sigmoid_gate+quantize",
        "gemv+add",
    ]
    assert [c.segment for c in program.calls] == [0, 1, 1, 2, 3, 4]
    assert_same_bits(lower(graph, OPS, MACHINE, until="expand"), program, pos=4)


def test_fuse_keeps_an_update_after_the_readers_of_the_old_state() -> None:
    b = Builder(ops=SHALLOW)
    q, k, pos = b.input("q", "f32", 1, 4, 32), b.input("k", "f32", 1, 2, 32), b.inputs["pos"]
    keys, values = b.state("k", "f16", 64, 2, 32), b.state("v", "f16", 64, 2, 32)
    rotated = b.call("rope", q, pos, base=1e4, width=32, pairs="halves")
    before = b.call("attend", rotated, keys, values, pos)
    turned = b.call("rope", k, pos, base=1e4, width=32, pairs="halves")
    keys, values = b.calls("store", turned, k, keys, values, pos)
    graph = b.graph(y=before, z=b.call("attend", q, keys, values, pos))
    assert names(fuse(graph, HERE)) == ["rope", "attend", "rope", "store", "attend"]
    assert_same_bits(graph, lower(graph, SHALLOW, MACHINE))
