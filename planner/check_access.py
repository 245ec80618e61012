"""Accesses: the bytes that a call reads and writes, and how messages name calls and values."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from graphrun.core.ir import Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.types import DType


class Access(NamedTuple):
    """A call reads or writes bytes lo .. hi - 1 of the arena, or of the tensor that `root` is.

    `inner` says that an absorbed op reads what its own call has made.
    """

    operand: Operand
    root: Value
    place: str
    lo: int
    hi: int
    write: bool = False
    inner: bool = False

    def rows(self) -> tuple[list[int], list[int]]:
        """Starts and ends of its runs of neighbouring bytes, in ascending order of starts."""
        type_ = self.operand.type
        run, starts = _rows(type_.dtype, type_.shape, self.operand.strides)
        lo = [self.operand.offset + start for start in starts]
        return lo, [start + run for start in lo]


def access(operand: Operand, write: bool = False, inner: bool = False) -> Access:
    """The access to an operand."""
    lo = operand.offset
    return Access(operand, operand.value.root, operand.place, lo, lo + operand.nbytes, write, inner)


def accesses(call: Call) -> list[Access]:
    """Everything a call touches in memory, in order: reads of each op, then its results that are stored."""
    made = {o.value for part in (call, *call.epilogues) for o in part.outputs}
    found = []
    for part in (call, *call.epilogues):
        found += [access(o, False, o.value.root in made) for o in part.inputs if o is not None and o.place != "none"]
        found += [access(o, True) for o in part.outputs if o.place != "none"]
    return found


@lru_cache(maxsize=256)
def _rows(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Bytes of each run, and where the runs start."""
    run = dtype.block_bytes
    starts = [0]
    for n, step in reversed(list(zip((*shape[:-1], -(-shape[-1] // dtype.block)), strides, strict=True))):
        if step == run and len(starts) == 1:
            run *= n
        elif n > 1:
            starts = [start + k * step for k in range(n) for start in starts]
    return run, tuple(sorted(starts))


def call_text(program: Program, index: int) -> str:
    """`call 5 (gemv_q8_0+add of 0.ffn, llama.yaml:12:7)`."""
    call = program.calls[index]
    return f"call {index} ({call.label} of {call.scope or 'the head'}, {call.span})"


def value_text(value: Value) -> str:
    """A value's name with its block."""
    return f"{value.scope}.{value.name}" if value.scope else value.name


def span_text(touched: Access) -> str:
    """Which bytes of what memory."""
    state = touched.root.state
    where = {"arena": "of the arena", "weight": "of the weight", "input": "of the input"}.get(touched.place)
    return f"bytes {touched.lo} to {touched.hi} {where or f'of state {state.name if state else touched.root.name}'}"
