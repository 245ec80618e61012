"""Costs against sums made by hand."""

from __future__ import annotations

from dataclasses import replace

from handmade import MACHINE, Builder, llama

from graphrun.core.program import Program
from graphrun.ops import OPS
from graphrun.planner.cost import Cost, cost, total, weight_bytes
from graphrun.planner.lower import lower

PROGRAM = lower(llama(1, embd=64, heads=4, kv=2, dim=32, ff=96, vocab=80, context=64), OPS, MACHINE)


def of(label: str, program: Program = PROGRAM, positions: int | None = None) -> Cost:
    return cost(program, next(c for c in program.calls if c.label == label), positions)


def test_a_product_reads_its_input_and_the_blocks_of_its_weight() -> None:
    weight = (4 + 2 + 2) * 32 * 64 // 32 * 34
    assert of("gemv_q8_0") == Cost(64 // 32 * 40 + weight + 256 * 4, 2 * 256 * 64, (80 + weight + 1024) / 1e12)
    assert weight_bytes(PROGRAM.calls[2]) == weight


def test_an_absorbed_sum_reads_the_residual_and_stores_once() -> None:
    weight = 64 * 128 // 32 * 34
    assert of("gemv_q8_0+add").bytes == 128 // 32 * 40 + weight + 64 * 4 + 64 * 4
    assert of("gemv_q8_0+add").flops == 2 * 64 * 128 + 64


def test_attention_counts_the_positions_in_use() -> None:
    row = 2 * 2 * 32 * 2
    outside = 4 * 32 * 4 + 4 + 128 // 32 * 40
    assert of("attn_split+quantize").bytes == outside + 64 * row
    assert of("attn_split+quantize", positions=10).bytes == outside + 10 * row
    assert of("attn_split+quantize", positions=10).flops == 4 * 4 * 10 * 32 + 4 * 128
    assert of("attn_split+quantize", positions=1000) == of("attn_split+quantize")


def test_an_embedding_reads_its_rows_only() -> None:
    assert of("embed").bytes == 2 * 64 * 4
    assert weight_bytes(PROGRAM.calls[0]) == 0


def test_leading_dimensions_multiply() -> None:
    b = Builder(5)
    x = b.input("x", "f32", 5, 4, 32)
    program = lower(b.graph(y=b.call("rms_norm", x, b.weight("w", "f32", 32), eps=1e-5)), OPS, MACHINE)
    assert of("rms_norm", program).flops == 4 * 32 * 20


def test_the_roofline_is_the_longer_time_or_zero_where_unknown() -> None:
    fast = replace(PROGRAM, target=replace(MACHINE, bandwidth=1e30, flops=1e3))
    assert of("gemv_q8_0", fast).seconds == 2 * 256 * 64 / 1e3
    assert of("gemv_q8_0", replace(PROGRAM, target=replace(MACHINE, bandwidth=0.0, flops=0.0))).seconds == 0


def test_a_step_costs_the_sum_of_its_calls() -> None:
    parts = [cost(PROGRAM, call, 7) for call in PROGRAM.calls]
    assert total(PROGRAM, 7).bytes == sum(p.bytes for p in parts)
    assert total(PROGRAM).bytes > total(PROGRAM, 7).bytes > PROGRAM.weight_bytes
