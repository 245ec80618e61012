"""Tables that the host computes for kernels, such as the sines and cosines of rotary positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphrun.backends.abi import is_matrix
from graphrun.backends.engine import zeros
from graphrun.backends.reference import weight_key
from graphrun.core.ir import Value
from graphrun.core.op import Op
from graphrun.core.program import Call

A = np.ndarray[Any, Any]
STEP = 256  # positions computed together
VECTORS = ("factors",)  # parameters that tables are made from


class HostTable:
    """What an op's `table` gives for the positions of a context, computed as far as steps have come."""

    def __init__(self, op: Op, given: Mapping[str, Any], context: int) -> None:
        assert op.table is not None
        self.make, self.given, self.filled = op.table, given, 0
        row = self.make(0, 1, given)
        count = -(-context // STEP) * STEP
        self.memory = zeros(count * row.nbytes).view(np.float32).reshape(count, *row.shape[1:])
        self.address = int(self.memory.ctypes.data)

    def reach(self, end: int) -> None:
        """Have the rows of positions before `end`."""
        while self.filled < end:
            self.memory[self.filled : self.filled + STEP] = self.make(self.filled, STEP, self.given)
            self.filled += STEP


class HostTables:
    """The tables of calls, one for all with the same attributes and vectors."""

    def __init__(self) -> None:
        self.made: dict[Any, HostTable] = {}

    def of(self, call: Call, context: int, array: Callable[[Value], A]) -> HostTable:
        """The table of a call, for the positions of a context; `array` gives a weight's f32 values."""
        named = zip(call.op.signature.inputs, call.inputs, strict=True)
        weights = {p.name: o.value for p, o in named if o and o.place == "weight" and not is_matrix(p)}
        vectors = {name: value for name, value in weights.items() if name in VECTORS}
        keys = frozenset((name, weight_key(value)) for name, value in vectors.items())
        key = (call.op.table, tuple(call.attrs.items()), keys, context)
        if key not in self.made:
            given = {**call.attrs, **{name: array(value) for name, value in vectors.items()}}
            self.made[key] = HostTable(call.op, given, context)
        return self.made[key]
