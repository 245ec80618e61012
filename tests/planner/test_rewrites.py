"""Passes on small graphs: what expand, dedupe and absorb do, and what they must leave alone."""

from __future__ import annotations

from dataclasses import replace

from handmade import MACHINE, Builder, llama
from interpret import assert_same_bits

from graphrun.core.ir import Graph, Value
from graphrun.core.op import Op, op
from graphrun.ops import OPS
from graphrun.planner.absorb import absorb
from graphrun.planner.context import Context
from graphrun.planner.dedupe import dedupe
from graphrun.planner.expand import expand
from graphrun.planner.lower import lower

HERE = Context(OPS, MACHINE)
SHALLOW = OPS | {"attend": replace(OPS["attend"], epilogues=("quantize",))}
DEEP = OPS | {"attend": replace(OPS["attend"], epilogues=("sigmoid_gate", "quantize"))}


def names(graph: Graph) -> list[str]:
    """Ops with their epilogues, views left out."""
    graph.verify()
    return ["+".join(n.op.name for n in (node, *node.epilogues)) for node in graph.nodes if not node.op.view]


def start(tokens: int = 1, width: int = 64) -> tuple[Builder, Value]:
    b = Builder(tokens)
    return b, b.input("x", "f32", tokens, width)


def test_expand_takes_the_body_that_fits_the_weight() -> None:
    b, x = start()
    y = b.call("linear", x, b.weight("w", "q8_0", 64, 64), b.weight("b", "f32", 64), name="y")
    z = b.call("linear", y, b.weight("v", "f32", 64, 64), name="z")
    graph = expand(b.graph(z=z), HERE)
    assert names(graph) == ["quantize", "gemv", "gemv_f32"]
    assert graph.nodes[1].outputs == (y,)
    assert [v.name if v else None for v in graph.nodes[1].inputs] == ["y", "w", "b"]
    assert graph.nodes[2].inputs[2] is None
    exact = expand(b.graph(z=z), Context(OPS, MACHINE, exact=True))
    assert names(exact) == ["gemv_f32", "gemv_f32"]


def test_dedupe_keeps_one_of_each() -> None:
    b, x = start()
    first, second = b.call("heads", x, n=2), b.call("heads", x, n=2)
    other = b.call("heads", x, n=4)
    norm = b.weight("n", "f32", 32)
    a, c = b.call("rms_norm", first, norm, eps=1e-5), b.call("rms_norm", second, norm, eps=1e-5)
    d = b.call("rms_norm", first, norm, eps=1e-6)
    twice = b.call("flat", c)
    graph = dedupe(b.graph(y=b.call("add", b.call("flat", a), twice), d=d, o=other, c=c), HERE)
    assert names(graph) == ["rms_norm", "rms_norm", "add"]
    assert graph.outputs["c"] is a
    total = graph.nodes[-1]
    assert total.inputs[0] is total.inputs[1]
    assert all(v is not None and v.root is a for v in total.inputs)


def test_dedupe_never_merges_updates_of_states() -> None:
    b = Builder()
    k = b.input("k", "f32", 1, 2, 32)
    for scope in ("0.a", "1.a"):
        b.scope = scope
        keys, values = b.calls(
            "store", k, k, b.state("k", "f16", 64, 2, 32), b.state("v", "f16", 64, 2, 32), b.inputs["pos"]
        )
    assert names(dedupe(b.graph(y=b.call("attend", k, keys, values, b.inputs["pos"])), HERE)) == [
        "store",
        "store",
        "attend",
    ]


def products(b: Builder, x: Value) -> Value:
    return b.call("gemv_f32", x, b.weight(f"w{len(b.nodes)}", "f32", 64, 64))


def test_absorb_takes_the_residual_in_either_position() -> None:
    for flip in (False, True):
        b, x = start()
        y = products(b, x)
        graph = absorb(b.graph(h=b.call("add", *((y, x) if flip else (x, y)))), HERE)
        assert names(graph) == ["gemv_f32+add"]
        assert graph.nodes[0].epilogues[0].inputs == (x, y)


def test_absorb_leaves_a_product_with_another_reader() -> None:
    b, x = start()
    y = products(b, x)
    h = b.call("add", x, y)
    assert names(absorb(b.graph(h=h, z=b.call("add", h, y)), HERE)) == ["gemv_f32", "add", "add"]


def test_absorb_leaves_a_product_that_is_an_output() -> None:
    b, x = start()
    y = products(b, x)
    assert names(absorb(b.graph(h=b.call("add", x, y), y=y), HERE)) == ["gemv_f32", "add"]


def test_absorb_leaves_a_sum_with_itself() -> None:
    b, x = start()
    y = products(b, x)
    assert names(absorb(b.graph(h=b.call("add", y, y)), HERE)) == ["gemv_f32", "add"]


def test_absorb_gives_the_sum_of_two_products_to_the_later() -> None:
    b, x = start()
    first = products(b, x)
    second = products(b, b.call("rms_norm", first, b.weight("n", "f32", 64), eps=1e-5))
    assert names(absorb(b.graph(h=b.call("add", first, second)), HERE)) == ["gemv_f32", "rms_norm", "gemv_f32+add"]


def test_absorb_moves_a_node_behind_what_its_epilogue_reads() -> None:
    b, x = start()
    y = products(b, x)
    residual = b.call("rms_norm", x, b.weight("n", "f32", 64), eps=1e-5)
    graph = absorb(b.graph(h=b.call("add", residual, y)), HERE)
    assert names(graph) == ["rms_norm", "gemv_f32+add"]


def test_a_tee_leaves_its_value_to_other_readers() -> None:
    b, x = start()
    norm = b.call("rms_norm", x, b.weight("n", "f32", 64), eps=1e-5)
    y = b.call("gemv", b.call("quantize", norm), b.weight("w", "q8_0", 64, 64))
    graph = absorb(b.graph(h=b.call("add", norm, y), norm=norm), HERE)
    assert names(graph) == ["rms_norm+quantize", "gemv+add"]


def test_absorb_follows_views_of_the_whole_but_not_of_a_part() -> None:
    b, x = start(tokens=2)
    norm = b.call("rms_norm", x, b.weight("n", "f32", 64), eps=1e-5)
    y = b.call("gemv", b.call("quantize", b.call("last", norm)), b.weight("w", "q8_0", 64, 64))
    assert names(absorb(b.graph(y=y), HERE)) == ["rms_norm", "quantize", "gemv"]
    program = lower(llama(1), OPS, MACHINE)
    assert "attn_split+quantize" in [c.label for c in program.calls]


def attend_and_gate(*, gate_first: bool) -> Graph:
    b = Builder()
    q, k = b.input("q", "f32", 1, 4, 32), b.input("k", "f32", 1, 2, 32)
    keys, values = b.calls(
        "store", k, k, b.state("k", "f16", 64, 2, 32), b.state("v", "f16", 64, 2, 32), b.inputs["pos"]
    )
    o = b.call("attend", q, keys, values, b.inputs["pos"])
    gate = b.call("rms_norm", q, b.weight("n", "f32", 32), eps=1e-5)
    y = b.call("flat", b.call("sigmoid_gate", *((gate, o) if gate_first else (o, gate))))
    return b.graph(y=b.call("gemv", b.call("quantize", y), b.weight("w", "q8_0", 64, 128)))


def test_absorb_makes_chains() -> None:
    graph = attend_and_gate(gate_first=False)
    shallow = absorb(rebuilt(graph, SHALLOW), Context(SHALLOW, MACHINE))
    assert names(shallow) == ["store", "attend", "rms_norm", "sigmoid_gate+quantize", "gemv"]
    b = rebuilt(graph, DEEP)
    assert names(absorb(b, Context(DEEP, MACHINE))) == ["store", "rms_norm", "attend+sigmoid_gate+quantize", "gemv"]
    assert_same_bits(b, lower(b, DEEP, MACHINE))


def test_absorb_does_not_swap_the_inputs_of_a_gate() -> None:
    b = rebuilt(attend_and_gate(gate_first=True), DEEP)
    assert names(absorb(b, Context(DEEP, MACHINE))) == ["store", "attend", "rms_norm", "sigmoid_gate+quantize", "gemv"]


def rebuilt(graph: Graph, ops: dict[str, Op]) -> Graph:
    """The same graph on another op table."""
    return graph.with_nodes([replace(n, op=ops[n.op.name]) for n in graph.nodes])


def test_absorb_never_takes_an_op_that_updates_a_state() -> None:
    @op("x: f32[T, N], s: state f32[T, N] -> s", kernels=OPS["add"].kernels)
    def keep(x: object, s: object) -> object:
        """s = x."""
        return x

    greedy = replace(OPS["rms_norm"], epilogues=("keep",))
    b = Builder(ops=OPS | {"keep": keep, "rms_norm": greedy})
    norm = b.call("rms_norm", b.input("x", "f32", 1, 64), b.weight("n", "f32", 64), eps=1e-5)
    kept = b.call("keep", norm, b.state("s", "f32", 1, 64))
    assert names(absorb(b.graph(y=b.call("add", kept, kept)), Context(b.ops, MACHINE))) == ["rms_norm", "keep", "add"]


def test_absorb_never_makes_a_node_wait_for_itself() -> None:
    ops = OPS | {"rms_norm": replace(OPS["rms_norm"], epilogues=("quantize", "add"))}
    b = Builder(ops=ops)
    norm = b.call("rms_norm", b.input("x", "f32", 1, 64), b.weight("n", "f32", 64), eps=1e-5)
    y = b.call("swiglu", b.call("gemv", b.call("quantize", norm), b.weight("w", "q8_0", 64, 64)), norm)
    graph = b.graph(y=b.call("add", norm, y))
    assert names(absorb(graph, Context(ops, MACHINE))) == ["rms_norm+quantize", "gemv", "swiglu", "add"]
    last = b.call("add", norm, b.call("gemv", b.call("quantize", norm), b.weight("v", "q8_0", 64, 64)))
    after = absorb(dedupe(b.graph(y=last), HERE), Context(ops, MACHINE))
    assert names(after)[0] == "rms_norm+quantize"


def cache(b: Builder) -> tuple[Value, Value]:
    return b.state("k", "f16", 64, 2, 32), b.state("v", "f16", 64, 2, 32)


def test_absorb_keeps_a_reader_of_a_state_before_its_update() -> None:
    b = Builder(ops=DEEP)
    q, k, pos = b.input("q", "f32", 1, 4, 32), b.input("k", "f32", 1, 2, 32), b.inputs["pos"]
    keys, values = cache(b)
    before = b.call("attend", q, keys, values, pos)
    keys, values = b.calls("store", k, k, keys, values, pos)
    after = b.call("attend", q, keys, values, pos)
    graph = b.graph(y=b.call("sigmoid_gate", before, after))
    assert names(absorb(graph, Context(DEEP, MACHINE))) == ["attend", "store", "attend", "sigmoid_gate"]
    assert_same_bits(graph, lower(graph, DEEP, MACHINE))
