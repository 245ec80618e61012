"""Whole lowerings: the same bits as the graph, the number of calls, and what each stage leaves."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Any

import pytest
from handmade import MACHINE, Builder, llama
from hypothesis import given, settings
from hypothesis import strategies as st
from interpret import assert_same_bits

from graphrun.core.errors import GraphError, ProgramError, UsageError
from graphrun.core.ir import Graph, Value
from graphrun.core.program import Program
from graphrun.core.types import DTYPES
from graphrun.ops import OPS
from graphrun.planner.lower import PASSES, STAGES, lower

to_program = partial(lower, ops=OPS, target=MACHINE)


def check_meaning(graph: Graph, *, exact: bool = False) -> None:
    """The program means what its graph does; `linear` rounds activations, so that is compared once it says where."""
    reference = graph if exact else lower(graph, OPS, MACHINE, until="expand")
    assert_same_bits(reference, lower(graph, OPS, MACHINE, exact=exact))


def labels(program: Program) -> list[str]:
    return [call.label for call in program.calls]


@pytest.mark.parametrize("tokens", [1, 2, 5, 17])
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_0"])
def test_a_program_computes_what_its_graph_computes(tokens: int, dtype: str) -> None:
    check_meaning(llama(2, tokens, dtype=dtype, bias=tokens % 2 == 0, rows="last"), exact=dtype == "f32")


@pytest.mark.parametrize("tokens", [1, 2, 5, 17])
def test_mixed_layouts_compute_the_same(tokens: int) -> None:
    types = {"wv": "q6_k", "down": "q6_k", "up": "f32", "output": "q6_k"}
    graph = llama(2, tokens, embd=256, ff=256, heads=8, dim=32, dtype="q4_k", types=types, tied=True, bias=True)
    check_meaning(graph)


@pytest.mark.parametrize("tokens", [1, 5])
def test_exact_activations_compute_with_plain_products(tokens: int) -> None:
    graph = llama(1, tokens, dtype="q8_0")
    program = lower(graph, OPS, MACHINE, exact=True)
    assert not {"quantize", "gemv"} & {op.op.name for c in program.calls for op in (c, *c.epilogues)}
    check_meaning(graph, exact=True)


def test_a_llama_layer_is_nine_calls() -> None:
    program = to_program(llama(2))
    assert labels(program) == [
        "embed",
        *2
        * [
            "rms_norm+quantize",
            "gemv_q8_0",
            "rope_store",
            "attn_split+quantize",
            "gemv_q8_0+add",
            "rms_norm+quantize",
            "gemv_q8_0",
            "swiglu+quantize",
            "gemv_q8_0+add",
        ],
        "rms_norm+quantize",
        "gemv_q8_0",
        "argmax",
    ]
    assert [c.label for c in program.select(layer=1)] == labels(program)[10:19]


def test_qwen25_half_a_billion_decodes_in_220_calls() -> None:
    sizes: dict[str, Any] = {"embd": 896, "ff": 4864, "heads": 14, "kv": 2, "dim": 64, "vocab": 151936}
    program = to_program(llama(24, **sizes, bias=True, tied=True, dtype="q8_0", context=4096))
    assert len(program.calls) == 220
    assert program.segments == 220
    assert program.nodes == 24 * 20 + 4
    kernels = Counter(call.kernel.name for call in program.calls)
    assert kernels["gemv_q8_0"] == 4 * 24 + 1
    assert program.arena == program.bound


def test_products_of_two_layouts_share_a_segment() -> None:
    program = to_program(llama(1, embd=256, heads=8, dim=32, ff=256, dtype="q4_k", types={"wv": "q6_k"}))
    assert len(program.calls) == program.segments + 1
    first, second = program.calls[2:4]
    assert (first.segment, first.label) == (second.segment, "gemv_q4_k")
    assert second.label == "gemv_q6_k"


def test_prefill_uses_kernels_for_many_tokens() -> None:
    program = to_program(llama(1, 40, rows="last"))
    assert labels(program)[2:5] == ["gemm_q8_0", "rope_store", "attn_flash+quantize"]
    assert labels(program)[-4:] == ["rms_norm", "quantize", "gemv_q8_0", "argmax"]


def test_stages_are_the_passes_and_each_is_a_graph() -> None:
    graph = llama(1)
    assert STAGES == ("expand", "dedupe", "fuse", "absorb", "stack", "order", "select")
    counts = {}
    for stage in STAGES:
        after = lower(graph, OPS, MACHINE, until=stage)
        assert isinstance(after, Graph)
        after.verify()
        counts[stage] = sum(not node.op.view for node in after.nodes)
    assert counts["expand"] > counts["dedupe"] > counts["fuse"] > counts["absorb"] > counts["stack"] == counts["select"]
    assert len(PASSES) == len(STAGES)


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(UsageError, match=r"there is no pass 'fused'\n  hint: did you mean 'fuse'\?"):
        lower(llama(1), OPS, MACHINE, until="fused")


def test_lowering_leaves_its_graph_alone() -> None:
    graph = llama(1)
    before = graph.nodes, dict(graph.outputs)
    first, second = to_program(graph), to_program(graph)
    assert (graph.nodes, dict(graph.outputs)) == before
    assert labels(first) == labels(second)
    assert [(s.offset, s.size) for s in first.slots] == [(s.offset, s.size) for s in second.slots]


def test_a_step_too_large_for_the_arena_says_how_to_shrink_it() -> None:
    b = Builder(tokens=1 << 20)
    h = b.call("embed", b.inputs["tokens"], b.weight("w", "q8_0", 64, 2048))
    with pytest.raises(ProgramError, match=r"needs \d+ bytes of arena.*\n  hint: .*smaller chunk"):
        to_program(b.graph(h=b.call("add", h, b.call("rms_norm", h, b.weight("n", "f32", 2048), eps=1e-5))))


def test_a_weight_that_no_product_reads_is_refused_at_its_line() -> None:
    b = Builder()
    h = b.call("embed", b.inputs["tokens"], b.weight("w", "q8_0", 64, 64))
    y = b.call("linear", h, b.weight("odd", "f16", 64, 64))
    with pytest.raises(GraphError, match=r"dir/hand.yaml:2:7: linear cannot read odd, which is f16\[64, 64\]"):
        to_program(b.graph(y=y))


def test_a_27b_model_lowers_in_well_under_a_second() -> None:
    graph = llama(64, embd=5120, ff=17408, heads=24, kv=4, dim=256, vocab=248320, dtype="q4_k")
    seconds = []
    for _ in range(3):
        began = time.process_time()
        assert len(to_program(graph).calls) == 64 * 9 + 4
        seconds.append(time.process_time() - began)
    assert min(seconds) < 1.0  # about 0.3 s; quadratic passes take several


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random blocks of sums, norms, gates, products and views, with random outputs."""
    b = Builder(draw(st.sampled_from([1, 2, 5, 17])))
    width = 64
    values = [
        b.input("x", "f32", b.tokens, width),
        b.call("embed", b.inputs["tokens"], b.weight("e", "q8_0", 64, width)),
    ]

    def pick() -> Value:
        return draw(st.sampled_from(values[-6:]))

    for step in range(draw(st.integers(1, 14))):
        b.scope = f"{step // 5}.block"
        match draw(
            st.sampled_from(["add", "norm", "swiglu", "gate", "linear", "linear", "linear", "halves", "regroup"])
        ):
            case "add":
                made = b.call("add", pick(), pick())
            case "norm":
                made = b.call("rms_norm", pick(), b.weight(f"n{step}", "f32", width), eps=1e-5)
            case "swiglu":
                made = b.call("swiglu", pick(), pick())
            case "gate":
                made = b.call("sigmoid_gate", pick(), pick())
            case "linear":
                layout = draw(st.sampled_from(["q8_0", "q4_0", "f32"]))
                bias = b.weight(f"b{step}", "f32", width) if draw(st.booleans()) else None
                made = b.call("linear", pick(), b.weight(f"w{step}", layout, width, width), bias)
            case "halves":
                both = b.call("linear", pick(), b.weight(f"w{step}", "q8_0", 2 * width, width))
                made, gate = b.calls("halves", b.call("heads", both, n=2))
                made = b.call("flat", b.call("sigmoid_gate", made, gate))
            case _:
                made = b.call("flat", b.call("heads", pick(), n=4))
        values.append(made)
    outputs = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=3, unique=True))
    return b.graph(**{f"out{i}": v for i, v in enumerate([*outputs, values[-1]])})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs())
def test_random_graphs_compute_the_same_when_lowered(graph: Graph) -> None:
    check_meaning(graph)


def test_every_layout_has_kernels_for_every_number_of_tokens() -> None:
    for dtype in (d for d in DTYPES.values() if d.quantised):
        for tokens in (1, 2, 16, 17, 600):
            b = Builder(tokens)
            x = b.input("x", "f32", tokens, 256)
            program = to_program(b.graph(y=b.call("linear", x, b.weight("w", dtype.name, 64, 256))))
            assert program.calls[-1].kernel.weight == dtype.name
