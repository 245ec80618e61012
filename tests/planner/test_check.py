"""The program checks refuse programs with one thing wrong, and say what, where and in which lines."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from damage import double_write, overlap, uncovered, with_call, without_barrier
from handmade import MACHINE, Builder, delta, gated_attention, llama

from graphrun.core.errors import ProgramError
from graphrun.core.ir import Graph
from graphrun.core.op import Kernel, fused
from graphrun.core.program import Operand, Program
from graphrun.core.types import tensor
from graphrun.ops import OPS
from graphrun.planner.check import check
from graphrun.planner.check_access import accesses
from graphrun.planner.check_races import check_races
from graphrun.planner.check_values import check_values
from graphrun.planner.lower import lower

MIXED = {"wv": "q6_k", "up": "f32", "down": "q6_k"}


def _llama(tokens: int, **more: Any) -> Graph:
    return llama(2, tokens, embd=256, heads=8, ff=512, dtype="q4_k", types=MIXED, **more)


@cache
def programs() -> tuple[Program, ...]:
    graphs = [_llama(1, bias=True), _llama(5, tied=True), _llama(40, rows="last"), delta(1), delta(8), delta(40)]
    graphs += [gated_attention(1), gated_attention(3)]
    return tuple(lower(g, OPS, MACHINE) for g in graphs)


def refused(program: Program) -> str:
    """The message of the refusal, "" if there is none."""
    try:
        check(program, OPS)
    except ProgramError as error:
        return str(error)
    return ""


def test_whole_programs_pass() -> None:
    for program in programs():
        found = check(program, OPS)
        assert found.reads > len(program.calls) and found.tiles >= len(program.calls)
        assert found.buffers == len(program.slots) and found.values > found.reads


DAMAGE = {
    "overlap": lambda program, rng: overlap(program, rng)[0],
    "missing barrier": without_barrier,
    "double write": double_write,
    "uncovered tile": uncovered,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_hundred_injected_mistakes_are_refused(kind: str) -> None:
    rng = random.Random(kind)
    messages = [refused(DAMAGE[kind](programs()[i % len(programs())], rng)) for i in range(100)]
    assert [m for m in messages if not m] == []
    lines = [m for m in messages if re.search(r"hand\.yaml:\d+:7", m)]
    assert len(lines) == 100 or kind == "double write"


def test_overlaps_are_found_without_the_plan() -> None:
    """The symbolic arena and the races see an overlap by themselves, unless nothing reads the bytes any more."""
    rng = random.Random(4)
    unseen = []
    for i in range(100):
        program, (a, b) = overlap(programs()[i % len(programs())], rng)
        try:
            check_races(program, [accesses(c) for c in program.calls])
            check_values(program, OPS)
        except ProgramError:
            continue
        unseen.append((a, b))
    assert len(unseen) < 10


def test_a_missing_barrier_names_both_calls() -> None:
    program = lower(_llama(1), OPS, MACHINE)
    calls = [replace(c, segment=max(0, c.segment - 1)) for c in program.calls]
    slots = [replace(s, first=max(0, s.first - 1), last=max(0, s.last - 1)) for s in program.slots]
    broken = replace(program, calls=tuple(calls), slots=tuple(slots), segments=program.segments - 1)
    assert refused(broken) == (
        "hand: call 0 (embed of the head, dir/hand.yaml:1:7) writes h, bytes 1280 to 2304 of the arena, while call 1"
        " (rms_norm+quantize of 0.attention, dir/hand.yaml:2:7) of the same segment 0 reads h, bytes 1280 to 2304 of"
        " the arena"
    )


def test_a_state_is_shared_by_no_two_calls_of_a_segment() -> None:
    b = Builder()
    k, pos = b.input("k", "f32", 1, 2, 32), b.inputs["pos"]
    keys, values = b.state("keys", "f16", 64, 2, 32), b.state("values", "f16", 64, 2, 32)
    stored = b.calls("store", k, k, keys, values, pos)
    program = lower(b.graph(y=b.call("attend", k, *stored, pos)), OPS, MACHINE)
    calls = tuple(replace(c, segment=0) for c in program.calls)
    slots = tuple(replace(s, first=0, last=0) for s in program.slots)
    message = refused(replace(program, calls=calls, slots=slots, segments=1))
    assert "writes kc, bytes 0 to 8192 of state keys, while call 1 (attn_split of the head" in message


def shared_rows(shift: int, rows: int = 5) -> Program:
    """Two products of one segment whose rows lie side by side, the second `shift` bytes further left."""
    b = Builder(rows)
    x = b.call("quantize", b.input("x", "f32", rows, 256))
    y = b.call("gemv", x, b.weight("a", "q8_0", 64, 256), name="y")
    z = b.call("gemv", x, b.weight("b", "q4_k", 32, 256), name="z")
    program = lower(b.graph(y=y, z=z), OPS, MACHINE)
    first, second = (c.outputs[0] for c in program.calls[1:])
    step = 4 * (64 + 32)
    program = with_call(program, 1, outputs=(replace(first, strides=(step, 4)),))
    wide = replace(second, offset=first.offset + 256 - shift, strides=(step, 4))
    return with_call(program, 2, outputs=(wide,))


def test_rows_of_several_tokens_are_compared_one_by_one() -> None:
    apart = shared_rows(0)
    assert apart.calls[1].segment == apart.calls[2].segment
    assert check_races(apart, [accesses(c) for c in apart.calls]) > 0
    touching = shared_rows(4)
    with pytest.raises(ProgramError, match="call 1 .* writes y, bytes .* while call 2 .* writes z, bytes") as error:
        check_races(touching, [accesses(c) for c in touching.calls])
    assert len(re.findall(r"hand\.yaml:\d:7", str(error.value))) == 2


def test_rows_are_the_bytes_that_numpy_touches() -> None:
    rng = random.Random(1)
    value = Builder().input("x", "f32", 1)
    for _ in range(200):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
        strides, step = [], 4
        for n in reversed(shape):
            strides.append(step)
            step = (step * n + 4 * rng.randint(0, 2)) if rng.random() < 0.7 else step * n
        operand = Operand("arena", value, tensor("f32", *shape), 12, tuple(reversed(strides)))
        call = replace(programs()[0].calls[0], inputs=(), outputs=(operand,), epilogues=())
        (access,) = accesses(call)
        painted = {12 + k for k in _offsets(shape, operand.strides)}
        lo, hi = access.rows()
        assert {x for a, b in zip(lo, hi, strict=True) for x in range(a, b)} == painted
        assert (access.lo, access.hi) == (min(painted), max(painted) + 1) and lo == sorted(lo)


def _offsets(shape: tuple[int, ...], strides: tuple[int, ...]) -> set[int]:
    offsets = {0}
    for n, step in zip(shape, strides, strict=True):
        offsets = {o + k * step for o in offsets for k in range(n)}
    return {o + byte for o in offsets for byte in range(4)}


def _swapped(program: Program, index: int) -> Program:
    inputs = program.calls[index].inputs
    return with_call(program, index, inputs=(inputs[1], inputs[0], *inputs[2:]))


def test_a_program_of_another_graph_is_refused() -> None:
    program = lower(llama(1), OPS, MACHINE)
    labels = [c.label for c in program.calls]
    swiglu, norm = labels.index("swiglu+quantize"), labels.index("rms_norm+quantize")
    other = refused(_swapped(program, swiglu))
    assert other == (
        "hand: output hidden: call 8 (swiglu+quantize of 0.ffn, dir/hand.yaml:19:7) has gemv of 0.ffn.up where"
        " the graph (dir/hand.yaml:17:7) has gemv of 0.ffn.gate"
    )
    eps = with_call(program, norm, attrs={"eps": 1e-6})
    assert "call 1 (rms_norm+quantize of 0.attention, dir/hand.yaml:2:7) has rms_norm where the graph" in refused(eps)
    assert "has gemv of output where the graph (dir/hand.yaml:23:7) has gemv of token_embd" in refused(
        replace(program, graph=llama(1, tied=True))
    )
    missing = replace(program, outputs={"logits": program.outputs["logits"]})
    assert "output hidden, output token is made by the program or by its graph, but not by both" in refused(missing)


def test_every_change_of_an_input_is_refused() -> None:
    """Any read of another value, weight or state of the same type, and any other attribute."""
    rng = random.Random(3)
    for program in programs():
        everything = [o for c in program.calls for o in c.inputs if o is not None]
        for index, call in enumerate(program.calls):
            for k, operand in enumerate(call.inputs):
                others = [o for o in everything if operand and o.type == operand.type and o.value is not operand.value]
                if operand is None or not others:
                    continue
                inputs = [*call.inputs]
                inputs[k] = rng.choice(others)
                assert _same(inputs[k], operand) or refused(with_call(program, index, inputs=tuple(inputs)))


def _same(a: Operand | None, b: Operand) -> bool:
    """Whether two operands are of the same bytes; graphs of these tests have twin values."""
    assert a is not None
    return a.place == b.place == "weight" and a.value.parts == b.value.parts


def test_rounded_activations_are_refused_where_they_must_be_exact() -> None:
    program = lower(llama(1), OPS, MACHINE)
    assert "where the graph (dir/hand.yaml" in refused(replace(program, exact=True))
    exact = lower(llama(1), OPS, MACHINE, exact=True)
    assert refused(exact) == "" == refused(replace(exact, exact=False))


def test_an_old_version_of_a_state_cannot_be_read() -> None:
    b = Builder()
    k, pos = b.input("k", "f32", 1, 2, 32), b.inputs["pos"]
    states = [b.state(name, "f16", 64, 2, 32) for name in ("keys", "values")]
    before = b.call("attend", k, *states, pos, name="before")
    stored = b.calls("store", k, k, *states, pos)
    after = b.call("attend", k, *stored, pos, name="after")
    program = lower(b.graph(before=before, after=after), OPS, MACHINE)
    assert refused(program) == ""
    order = [1, 0, 2]
    calls = tuple(replace(program.calls[i], segment=s) for s, i in enumerate(order))
    slots = tuple(replace(s, first=0) for s in program.slots)
    message = refused(replace(program, calls=calls, slots=slots))
    assert re.search(r"call 1 \(attn_split .* reads keys, bytes 0 to 8192 of state keys, which another call", message)


def test_reads_before_writes_and_odd_segments_are_refused() -> None:
    program = lower(llama(1), OPS, MACHINE)
    late = (*program.calls[1:3], program.calls[0], *program.calls[3:])
    segments = replace(program, calls=late)
    assert refused(segments) == "hand: the segments of the calls do not count from 0 to 12"
    ordered = tuple(replace(c, segment=i) for i, c in enumerate(late))
    assert re.match(
        r"hand: call 0 .* reads h, .*, before it is written; call 2 .* writes it later",
        refused(replace(program, calls=ordered)),
    )
    rest = tuple(replace(c, segment=i) for i, c in enumerate(program.calls[1:]))
    gone = replace(program, calls=rest, segments=len(rest))
    assert "before it is written; no call writes it" in refused(gone)


def test_an_access_outside_its_buffer_is_refused() -> None:
    program = lower(llama(1), OPS, MACHINE)
    inputs = program.calls[1].inputs
    assert inputs[0] is not None
    past = with_call(program, 1, inputs=(replace(inputs[0], offset=inputs[0].offset + 4), *inputs[1:]))
    assert re.search(r"call 1 .* reads h, bytes \d+ to \d+ of the arena, which has bytes \d+ to \d+$", refused(past))
    slots = tuple(replace(s, last=s.first) for s in program.slots)
    assert "which has no bytes of the arena in that segment" in refused(replace(program, slots=slots))


def test_a_fused_op_may_have_views_inside() -> None:
    head_norm = fused(
        "head_norm",
        "x: f32[T, N], w: f32[D], n: int, eps: float -> y: f32[T, n, N // n]",
        "h: heads(x, n)\ny: rms_norm(h, w, eps)",
        (OPS["heads"], OPS["rms_norm"]),
        doc="y = each head of x, normed.",
        kernels=(Kernel("head_norm", groups="T * n", tile="T: 1, n: 1"),),
    )
    b = Builder(3, ops=OPS | {"head_norm": head_norm})
    x = b.input("x", "f32", 3, 64)
    y = b.call("rms_norm", b.call("heads", x, n=2), b.weight("w", "f32", 32), eps=1e-5)
    program = lower(b.graph(y=y), b.ops, MACHINE)
    assert [c.label for c in program.calls] == ["head_norm"]
    other = with_call(program, 0, attrs={"n": 2, "eps": 1e-6})
    with pytest.raises(ProgramError, match="output y: call 0 .* has rms_norm where the graph"):
        check(other, b.ops)
