"""Stacking, ordering, and the choice of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from handmade import MACHINE, Builder, llama
from interpret import assert_same_bits

from graphrun.core.errors import ProgramError
from graphrun.core.ir import Graph, Node, Part, Value
from graphrun.core.op import Op, op
from graphrun.core.target import Target
from graphrun.ops import OPS
from graphrun.planner.context import Context
from graphrun.planner.lower import lower
from graphrun.planner.order import order
from graphrun.planner.segments import segments
from graphrun.planner.stack import stack

HERE = Context(OPS, MACHINE)


def products(layouts: Sequence[str], *, rows: int = 64, width: int = 256, tokens: int = 2, biases: str = "") -> Graph:
    """Products of one input; letter i of `biases` is b where product i has one."""
    b = Builder(tokens)
    x = b.call("quantize", b.input("x", "f32", tokens, width))
    made = {}
    for i, layout in enumerate(layouts):
        bias = b.weight(f"b{i}", "f32", rows + i) if biases[i : i + 1] == "b" else None
        made[f"y{i}"] = b.call("gemv", x, b.weight(f"w{i}", layout, rows + i, width), bias, name=f"y{i}")
    return b.graph(**made)


def stacked(graph: Graph) -> list[Node]:
    after = stack(graph, HERE)
    after.verify()
    return [n for n in after.nodes if n.op.name == "gemv"]


def test_products_of_one_input_become_one() -> None:
    graph = products(["q8_0", "q8_0", "q8_0"], biases="-b-")
    after = stack(graph, HERE)
    (joint,) = (n for n in after.nodes if n.op.name == "gemv")
    weight, bias = joint.inputs[1:]
    assert weight is not None and bias is not None
    assert (weight.name, str(weight.type)) == ("w0+w1+w2", "q8_0[195, 256]")
    assert weight.parts == (Part("w0", 64), Part("w1", 65), Part("w2", 66))
    assert bias.parts == (Part(None, 64), Part("b1", 65), Part(None, 66))
    assert [(v.root, v.offset, v.strides) for v in after.outputs.values()] == [
        (joint.outputs[0], 0, (195 * 4, 4)),
        (joint.outputs[0], 64 * 4, (195 * 4, 4)),
        (joint.outputs[0], 129 * 4, (195 * 4, 4)),
    ]
    assert_same_bits(graph, lower(graph, OPS, MACHINE))


def test_products_without_biases_get_none() -> None:
    (joint,) = stacked(products(["q8_0", "q8_0"]))
    assert joint.inputs[2] is None


def test_layouts_are_not_mixed() -> None:
    kinds = [n.inputs[1].type.dtype.name for n in stacked(products(["q4_k", "q6_k", "q4_k"])) if n.inputs[1]]
    assert kinds == ["q4_k", "q6_k"]


@pytest.mark.parametrize(
    ("rows", "width", "layout"), [(131072, 64, "q8_0"), (140000, 8192, "q4_k"), (131072, 64, "q4_0")]
)
def test_stacks_keep_to_the_sizes_whose_addresses_are_proved(rows: int, width: int, layout: str) -> None:
    assert len(stacked(products([layout, layout], rows=rows, width=width))) == 2
    assert len(stacked(products([layout, layout], rows=1000, width=width))) == 1


def test_a_full_stack_is_followed_by_another() -> None:
    assert len(stacked(products(["q8_0"] * 4, rows=100000, width=64))) == 2


def test_a_weight_with_two_readers_stays_alone() -> None:
    b = Builder()
    x = b.call("quantize", b.input("x", "f32", 1, 64))
    z = b.call("quantize", b.input("z", "f32", 1, 64))
    tied = b.weight("w", "q8_0", 64, 64)
    graph = b.graph(
        a=b.call("gemv", x, tied), b=b.call("gemv", x, b.weight("v", "q8_0", 64, 64)), c=b.call("gemv", z, tied)
    )
    assert len(stacked(graph)) == 3


def test_a_product_with_an_epilogue_stays_alone() -> None:
    b = Builder()
    x = b.input("x", "f32", 1, 64)
    xq = b.call("quantize", x)
    sums = [b.call("add", x, b.call("gemv", xq, b.weight(f"w{i}", "q8_0", 64, 64))) for i in range(2)]
    after = lower(b.graph(a=sums[0], b=sums[1]), OPS, MACHINE, until="stack")
    assert [len(n.epilogues) for n in after.nodes if n.op.name == "gemv"] == [1, 1]


@op("x: f32[T, N] -> y: f32[N, T]", view=True)
def turned(x: Any) -> Any:
    """y = x, all of its elements regrouped."""
    return x.reshape(x.shape[1], x.shape[0])


def test_a_slice_that_cannot_be_regrouped_is_not_made() -> None:
    ops: dict[str, Op] = OPS | {"turned": turned}
    b = Builder(2, ops=ops)
    x = b.call("quantize", b.input("x", "f32", 2, 64))
    y, z = (b.call("gemv", x, b.weight(name, "q8_0", 64, 64)) for name in ("y", "z"))
    other = b.call("quantize", b.input("o", "f32", 2, 64))
    u, v = (b.call("gemv", other, b.weight(name, "q8_0", 64, 64)) for name in ("u", "v"))
    graph = b.graph(y=b.call("turned", y), z=z, u=u, v=v)
    assert [n.outputs[0].type.shape[1] for n in stacked(graph)] == [64, 64, 128]
    assert_same_bits(graph, lower(graph, ops, MACHINE))


def test_views_of_slices_of_slices_are_strided() -> None:
    b = Builder(3)
    x = b.call("quantize", b.input("x", "f32", 3, 64))
    q = b.call("gemv", x, b.weight("q", "q8_0", 128, 64))
    k = b.call("gemv", x, b.weight("k", "q8_0", 64, 64))
    left, right = b.calls("halves", b.call("heads", q, n=2))
    graph = b.graph(y=b.call("sigmoid_gate", left, right), k=b.call("heads", k, n=2), right=right)
    program = lower(graph, OPS, MACHINE)
    assert program.outputs["right"].strides == (192 * 4, 64 * 4, 4)
    base = program.calls[1].outputs[0].offset
    assert program.outputs["right"].offset == base + 32 * 4
    assert program.outputs["k"].offset == base + 128 * 4
    assert_same_bits(graph, program)


def test_independent_products_stand_together() -> None:
    b = Builder()
    x = b.input("x", "f32", 1, 64)
    made: dict[str, Value] = {}
    for name, layout in (("a", "q8_0"), ("b", "q4_0"), ("c", "f32")):
        y = b.call("linear", x, b.weight(name, layout, 64, 64))
        made[name] = b.call("rms_norm", y, b.weight(f"n{name}", "f32", 64), eps=1e-5)
    made["d"] = b.call("linear", made["a"], b.weight("d", "f32", 64, 64))
    program = lower(b.graph(**made), OPS, MACHINE)
    products = ["gemv", "gemv", "gemv_f32"]
    assert [c.op.name for c in program.calls] == ["quantize", *products, *["rms_norm"] * 3, "gemv_f32"]
    assert [c.segment for c in program.calls] == [0, 1, 1, 1, 2, 3, 4, 5]


def test_order_is_stable_where_nothing_forces_it() -> None:
    graph = llama(2)
    raw = [n for n in order(graph, HERE).nodes if not n.op.view]
    assert raw == [n for n in graph.nodes if not n.op.view]


def test_a_chain_of_products_shares_no_segment() -> None:
    b = Builder()
    y = b.input("x", "f32", 1, 64)
    for i in range(3):
        y = b.call("gemv_f32", y, b.weight(f"w{i}", "f32", 64, 64))
    assert segments(b.graph(y=y).nodes) == [0, 1, 2]


def test_select_names_what_is_missing() -> None:
    cuda = Target("card", "cuda", memory=1 << 30)
    odd = replace(OPS["swiglu"], kernels=(replace(OPS["swiglu"].kernels[0], tokens=(1, 4)),))
    b = Builder(5, ops=OPS | {"swiglu": odd})
    x = b.input("x", "f32", 5, 64)
    graph = b.graph(y=b.call("swiglu", x, x))
    with pytest.raises(ProgramError, match="dir/hand.yaml:1:7: swiglu has no kernel for 5 tokens"):
        lower(graph, b.ops, cuda)
    assert lower(graph, b.ops, MACHINE).calls[0].kernel.name == "swiglu"


def test_slow_grids_are_avoided() -> None:
    b = Builder()
    x = b.input("x", "f32", 1, 64)
    graph = b.graph(y=b.call("gemv_f32", x, b.weight("w", "f32", 2040, 64)))
    slow = replace(MACHINE, slow_groups=(253, 256))
    assert lower(graph, OPS, MACHINE).calls[0].groups == 255
    assert lower(graph, OPS, slow).calls[0].groups == 257
