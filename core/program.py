"""What the planner makes and backends run: a fixed list of calls over one arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from graphrun.core.errors import Span
from graphrun.core.ir import Graph, State, Value
from graphrun.core.op import Kernel, Op
from graphrun.core.signature import AttrValue
from graphrun.core.target import Target
from graphrun.core.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Slot:
    """Bytes of the arena that hold one value, and the segments [first, last] during which they do."""

    value: Value
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Operand:
    """Where a call finds a tensor.

    `place` is "arena" (at `offset`), "weight", "state" or "input" (whole, found by `value`), or "none" for a
    value that lives only inside a call. `strides` are bytes per step of each dimension; for q8 data the last
    dimension is stored as one 40-byte group per 32 channels and the strides are those of the rows.
    """

    place: str
    value: Value
    type: TensorType
    offset: int
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last."""
        return _extent(self.type.dtype, self.type.shape, self.strides)


@lru_cache(maxsize=4096)
def _extent(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    counts = (*shape[:-1], -(-shape[-1] // dtype.block))
    return sum((n - 1) * step for n, step in zip(counts, strides, strict=True)) + dtype.block_bytes


@dataclass(frozen=True, eq=False)
class Call:
    """One op with its kernel and its operands; `epilogues` run on its results before they are stored.

    An epilogue has no launch of its own: its kernel is named like its op and its groups are 0. An absorbed sum
    reads (residual, result), whichever way round the graph had them. `scratch` counts the 4-byte words in which the
    workgroups of a GPU's kernel hand over parts of a result.
    """

    op: Op
    kernel: Kernel
    inputs: tuple[Operand | None, ...]
    attrs: Mapping[str, AttrValue]
    outputs: tuple[Operand, ...]
    epilogues: tuple[Call, ...]
    segment: int
    groups: int
    scope: str
    span: Span
    scratch: int = 0

    @cached_property
    def label(self) -> str:
        """Kernel and absorbed ops, as `gemv_q4_k+add`."""
        return "+".join([self.kernel.name, *(e.op.name for e in self.epilogues)])

    @cached_property
    def stored(self) -> tuple[Operand, ...]:
        """Results that reach memory."""
        return tuple(o for c in (self, *self.epilogues) for o in c.outputs if o.place != "none")

    @cached_property
    def named(self) -> dict[str, Operand]:
        """Results that reach memory by the names of their values, numbered where two have one name."""
        found: dict[str, Operand] = {}
        for operand in self.stored:
            name, count = operand.value.name, 1
            while name in found:
                count += 1
                name = f"{operand.value.name}.{count}"
            found[name] = operand
        return found

    @cached_property
    def weights(self) -> tuple[Value, ...]:
        operands = (i for c in (self, *self.epilogues) for i in c.inputs)
        return tuple(o.value for o in operands if o is not None and o.place == "weight")


@dataclass(frozen=True, eq=False)
class Program:
    """A lowered step: calls in order, their segments, and the arena they share.

    `nodes` counts the graph's nodes before lowering; `bound` is the least any arena could need: the largest
    sum of slot sizes alive in one segment. `graph` is the graph before any pass and `exact` whether its activations
    must not be rounded: what the program is checked against.
    """

    name: str
    tokens: int
    context: int
    target: Target
    calls: tuple[Call, ...]
    segments: int
    slots: tuple[Slot, ...]
    arena: int
    bound: int
    nodes: int
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Operand]
    weights: tuple[Value, ...]
    states: tuple[State, ...]
    graph: Graph
    exact: bool

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one step reads, embedding rows not counted."""
        return sum(v.type.nbytes for c in self.calls if c.op.reads is None for v in c.weights)

    def select(self, *, layer: int | None = None) -> tuple[Call, ...]:
        """Calls of one layer, or all of them."""
        if layer is None:
            return self.calls
        return tuple(c for c in self.calls if c.scope.split(".", 1)[0] == str(layer))
