"""Steps for the resident kernel: what of a program it runs in one launch, with which barriers, and as which table.

A program's segments are the kernel's: a barrier follows each. A norm or gate that only products of the next segment
read needs none: every block makes those activations for itself, in the segment of the products, where that changes
nothing that they or others of that segment read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from graphrun.backends.abi import is_matrix
from graphrun.backends.device import A
from graphrun.backends.records import sizes
from graphrun.core.ir import Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.signature import Tensor
from graphrun.core.types import Q8

STAGE = np.dtype(  # gr_stage of kernels/gpu/mega.c
    [("kernel", "<u2"), ("flags", "<u2"), ("groups", "<u4"), ("first", "<u4"), ("before", "<u4")]
    + [("words", "<u8"), ("scales", "<u8"), ("rows", "<u4"), ("nb", "<u4"), ("barriers", "<u4"), ("zero", "<u4")]
    + [("call", "u1", 256), ("maker", "u1", 256)]
)
ENDS, WAITS, PRODUCT, LATE = 1, 2, 4, 8
KEPT, PLAIN = 0, 1
MAKERS = {"rms_norm": 2, "swiglu": 3, "sigmoid_gate": 4, "quantize": 5}  # what blocks make for themselves
FINISHED = {"attn_split": 6, "delta_layer": 7}  # and what they finish, by kernel
PRODUCTS = {"q4_0": (1, 4), "q4_1": (2, 4), "q8_0": (3, 2), "q4_k": (4, 4), "q6_k": (5, 2), "i8_a": (6, 2)}
LINE_BYTES = 24576  # of quantised activations in shared memory, at most
MADE_CHANNELS = 8192  # at most: more than that is better made once
TAPS = 8  # of a convolution that it takes at once
TOKENS = 16  # of the longest step that it runs
Address = Callable[[Value], tuple[int, int]]  # where the words and scales of a weight matrix are


@dataclass(frozen=True, slots=True)
class Step:
    """A call as the resident kernel runs it: its index, and that of the call that makes its activations, if any."""

    call: int
    maker: int | None
    kept: bool  # its activations are those of the product before
    begins: bool  # the first of its segment
    ends: bool
    late: bool = False  # products finish it


@dataclass(frozen=True, slots=True)
class Launch:
    """Calls that run in one launch of the resident kernel, or one call by its own kernel."""

    steps: tuple[Step, ...]
    single: int | None = None

    @property
    def barriers(self) -> int:
        """How often its blocks wait for each other."""
        return max(sum(s.ends for s in self.steps) - 1, 0)


def launches(program: Program, resident: Callable[[str], bool]) -> list[Launch]:
    """The launches of a step. A segment that has a call without a body in the resident kernel is launched call by
    call; `resident` tells of a kernel by name whether it has one."""
    segments = [list(found) for _, found in groupby(range(len(program.calls)), lambda i: program.calls[i].segment)]
    whole = [all(resident(program.calls[i].kernel.name) for i in calls) for calls in segments]
    makers = _makers(program, segments)
    found: list[Launch] = []
    run: list[Step] = []
    maker: int | None = None  # of the segment's activations
    for number, calls in enumerate(segments):
        first = calls[0]
        made, maker = maker, None
        if not whole[number]:
            found += [Launch(tuple(run))] * bool(run) + [Launch((), i) for i in calls]
            run = []
            continue
        if first in makers and whole[number + 1]:
            maker = first
        if maker is None or program.calls[first].kernel.name in FINISHED:
            run.extend(_steps(program, calls, made, late=maker is not None))
    return found + [Launch(tuple(run))] * bool(run)


def _steps(program: Program, calls: Sequence[int], maker: int | None, late: bool) -> Iterator[Step]:
    before: Operand | None = None
    for index in calls:
        x = program.calls[index].inputs[0] if is_product(program.calls[index]) else None
        kept = x is not None and before is not None and (x.value.root, x.offset) == (before.value.root, before.offset)
        yield Step(index, maker, kept, index == calls[0], index == calls[-1], late)
        before = x


def is_product(call: Call) -> bool:
    """Whether waves of the resident kernel take the rows of this product of one token."""
    x = call.inputs[0]
    if call.op.name != "gemv" or call.kernel.weight not in PRODUCTS or x is None:
        return False
    tokens, channels = x.type.shape
    return tokens == 1 and Q8.nbytes((channels,)) <= LINE_BYTES and x.place == "arena"


def _makers(program: Program, segments: Sequence[Sequence[int]]) -> set[int]:
    """Calls that blocks may make, or finish, for themselves: only products of the next segment read what they store."""
    readers: dict[object, list[int]] = {}
    for index, call in enumerate(program.calls):
        for operand in _reads(call):
            readers.setdefault(operand.value.root, []).append(index)
    kept = {o.value.root for o in program.outputs.values()}
    found: set[int] = set()
    for calls, after in zip(segments, segments[1:], strict=False):
        call = program.calls[calls[0]]
        stored = [o for o in call.stored if o.place == "arena"]
        if len(calls) > 1 or len(stored) != 1 or stored[0].type.dtype != Q8 or stored[0].value.root in kept:
            continue
        if not (_can_be_made(call, stored[0]) or (call.kernel.name in FINISHED and _can_be_finished(call))):
            continue
        if readers.get(stored[0].value.root) != list(after) or not all(is_product(program.calls[i]) for i in after):
            continue
        if not any(_overlap(r, w) for r in _reads(call) for i in after for w in program.calls[i].stored):
            found.add(calls[0])
    return found


def _can_be_made(call: Call, result: Operand) -> bool:
    """Whether it makes one quantised row from dense rows of its size that lie at multiples of 16 bytes."""
    channels = result.type.shape[-1]
    if call.op.name not in MAKERS or channels > MADE_CHANNELS or _size(result) != channels:
        return False
    sources = [o for o in call.inputs if o is not None and o.place != "weight"]
    simple = len(call.epilogues) == (call.op.name != "quantize")
    return simple and all(_aligned(o) and _size(o) == channels for o in sources)


def _can_be_finished(call: Call) -> bool:
    """Whether blocks can finish attention, or the delta rule, of one token: heads are whole blocks of channels."""
    dims = sizes(call)
    if dims["T"] != 1 or dims["D"] % Q8.block or (call.op.name == "delta_layer" and dims["K"] > min(dims["S"], TAPS)):
        return False
    read = call.inputs if call.op.name == "delta_layer" else [o for e in call.epilogues for o in e.inputs]
    return all(_aligned(o) for o in read if o is not None and o.place == "arena")


def _aligned(operand: Operand) -> bool:
    return operand.place == "arena" and all(n % 16 == 0 for n in (operand.offset, *operand.strides[:-1]))


def _size(operand: Operand) -> int:
    return int(np.prod(operand.type.shape))


def _reads(call: Call) -> list[Operand]:
    return [o for c in (call, *call.epilogues) for o in c.inputs if o is not None and o.place == "arena"]


def _overlap(a: Operand, b: Operand) -> bool:
    """Whether two operands share bytes of the arena, taken from first to last."""
    return a.place == b.place == "arena" and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def table(
    program: Program,
    steps: Sequence[Step],
    records: A,
    places: Mapping[str, int],
    matrix: Address,
    blocks: int,
    waves: int,
) -> A:
    """STAGE[calls] of a launch: `records` are the program's, `places` numbers of kernels, `waves` those of a block.

    The workgroups or waves of a segment's calls follow each other over the blocks, so that all have as much to do.
    """
    found = np.zeros(len(steps), STAGE)
    barriers = taken = 0
    for number, (stage, step) in enumerate(zip(found, steps, strict=True)):
        call = program.calls[step.call]
        if step.begins:
            taken = 0
        stage["flags"] = ENDS * (step.ends and number + 1 < len(steps)) | WAITS * (step.begins and number > 0)
        stage["first"], stage["barriers"], stage["call"] = taken % blocks, barriers, records[step.call]
        stage["flags"] |= LATE * step.late
        if is_product(call):
            taken += _product(stage, step, call, matrix, blocks * waves)
            if step.maker is not None and not step.kept:
                maker = program.calls[step.maker]
                stage["before"] = FINISHED.get(maker.kernel.name) or MAKERS[maker.op.name]
                stage["maker"] = records[step.maker]
        else:
            stage["kernel"], stage["groups"] = places[call.kernel.name], call.groups
            taken += call.groups
        barriers += step.ends
    return found


def _product(stage: Any, step: Step, call: Call, matrix: Address, waves: int) -> int:
    """Fill in a product's members; returns how many waves it takes."""
    weight = _matrix_of(call)
    layout, most = PRODUCTS[str(call.kernel.weight)]
    rows, columns = weight.type.shape
    stage["flags"] |= PRODUCT
    at_once = 1 if rows <= waves else most
    stage["kernel"], stage["groups"], stage["before"] = (
        2 * layout + (at_once > 1),
        at_once,
        KEPT if step.kept else PLAIN,
    )
    (stage["words"], stage["scales"]), stage["rows"], stage["nb"] = matrix(weight.value), rows, columns // Q8.block
    return -(-rows // at_once)


def _matrix_of(call: Call) -> Operand:
    """The operand of a product that is its weight matrix."""
    parameters = zip(call.op.signature.inputs, call.inputs, strict=True)
    return next(o for p, o in parameters if isinstance(p, Tensor) and is_matrix(p) and o is not None)


def line_bytes(program: Program) -> int:
    """Bytes of shared memory for the activations of the program's products."""
    channels = [c.inputs[0].type.shape[-1] for c in program.calls if is_product(c) and c.inputs[0] is not None]
    return -(-Q8.nbytes((max(channels, default=0),)) // 16) * 16
