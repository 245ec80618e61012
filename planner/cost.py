"""What a call costs: bytes moved, floating point operations, and the least time a machine could take for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphrun.core.program import Call, Operand, Program
from graphrun.core.signature import evaluate
from graphrun.planner.select import dimensions


@dataclass(frozen=True, slots=True)
class Cost:
    """`seconds` is the roofline: the longer of moving the bytes and computing, 0 where the machine is unknown."""

    bytes: int
    flops: int
    seconds: float


def cost(program: Program, call: Call, positions: int | None = None) -> Cost:
    """The cost of a call of a program when `positions` of the cache are in use, by default the whole context.

    Bytes are those of the op's tensors and of absorbed ops' that reach memory; an op that reads only part of its
    inputs says how much (`Op.reads`).
    """
    used = min(program.context, positions or program.context)
    moved = flops = 0
    for part in (call, *call.epilogues):
        types = tuple(None if o is None else o.type for o in part.inputs)
        sizes = dict(dimensions(part.op, types, part.attrs, program.tokens))
        sizes |= {"C": min(sizes["C"], used)} if "C" in sizes else {}
        flops += evaluate(part.op.flops, sizes) * sizes["..."]
        moved += sum(_read(part, used)) if part.op.reads is None else evaluate(part.op.reads, sizes)
        moved += sum(o.type.nbytes for o in part.outputs if o.place not in ("none", "state"))
    target = program.target
    transfer = moved / target.bandwidth if target.bandwidth else 0.0
    compute = flops / target.flops if target.flops else 0.0
    return Cost(moved, flops, max(transfer, compute))


def total(program: Program, positions: int | None = None) -> Cost:
    """The cost of a step, calls one after the other."""
    costs = [cost(program, call, positions) for call in program.calls]
    return Cost(sum(c.bytes for c in costs), sum(c.flops for c in costs), sum(c.seconds for c in costs))


def weight_bytes(call: Call) -> int:
    """Bytes of weights that a call reads; rows picked from a table are not counted."""
    return sum(value.type.nbytes for value in call.weights) if call.op.reads is None else 0


def _read(call: Call, used: int) -> Iterator[int]:
    """Bytes of each input; of a cache, those of the positions in use."""
    for parameter, operand in zip(call.op.signature.inputs, call.inputs, strict=True):
        if operand is None or operand.place == "none":
            continue
        capacity = _capacity(operand, parameter.dims)
        yield operand.type.nbytes * min(used, capacity) // capacity


def _capacity(operand: Operand, dims: tuple[str, ...]) -> int:
    return operand.type.shape[dims.index("C")] if "C" in dims else 1
