"""Tables that the host computes for kernels, such as the sines and cosines of rotary positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphrun.backends.engine import zeros
from graphrun.core.op import Op

STEP = 256  # positions computed together


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
