"""A model's weights in a GPU's memory: matrices, vectors, and the tables that the host computes for kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphrun.backends.device import Device, DeviceMatrix, Memory
from graphrun.backends.engine import usable_cores
from graphrun.backends.pack import pack, values_of
from graphrun.backends.reference import WeightKey, weight_key
from graphrun.backends.tables import HostTable, HostTables
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Value
from graphrun.core.program import Call
from graphrun.core.quant import Matrix
from graphrun.core.workers import Workers

A = np.ndarray[Any, Any]


class DeviceTable:
    """A host's table in device memory, as far as steps have come."""

    def __init__(self, device: Device, table: HostTable) -> None:
        self.table, self.sent = table, 0
        self.memory = Memory(device, table.memory.nbytes)

    def reach(self, end: int) -> None:
        """Have the rows of positions before `end`."""
        self.table.reach(end)
        if self.table.filled > self.sent:
            rows = self.table.memory[self.sent : self.table.filled]
            self.memory.device.upload(self.memory.address + self.sent * rows[0].nbytes, rows)
            self.sent = self.table.filled


class DeviceWeights:
    """Matrices are packed and uploaded at once, one after the other; vectors and tables when a program wants them."""

    def __init__(
        self, device: Device, file: ModelFile, weights: Iterable[Value], on_bytes: Callable[[int], None]
    ) -> None:
        self.device, self.file = device, file
        self.matrices: dict[WeightKey, DeviceMatrix] = {}
        self.arrays: dict[WeightKey, A] = {}
        self.vectors: dict[WeightKey, Memory] = {}
        self.host_tables = HostTables()
        self.tables: dict[HostTable, DeviceTable] = {}
        workers = Workers(usable_cores())
        for value in weights:
            packed = pack(file, value.parts, value.type, workers=workers, on_bytes=on_bytes)
            if isinstance(packed, Matrix):
                self.matrices[weight_key(value)] = DeviceMatrix(device, packed)
            else:
                self.arrays[weight_key(value)] = packed

    def table(self, call: Call, context: int) -> DeviceTable:
        """The table of a call, shared by calls with the same attributes and vectors."""
        table = self.host_tables.of(call, context, self.array)
        if table not in self.tables:
            self.tables[table] = DeviceTable(self.device, table)
        return self.tables[table]

    def address(self, value: Value, matrix: bool) -> int:
        """Where the weight is that is read as a matrix or else as f32 values."""
        key = weight_key(value)
        if matrix:
            return self.matrices[key].address
        if key not in self.vectors:
            self.vectors[key] = Memory.of(self.device, np.ascontiguousarray(self.array(value), np.float32))
        return self.vectors[key].address

    def matrix(self, value: Value) -> tuple[int, int]:
        """Where the words and the scales of a weight matrix are."""
        found = self.matrices[weight_key(value)]
        return found.words.address, found.scales.address

    def array(self, value: Value) -> A:
        """The f32 values of a weight that is not read as a matrix."""
        key = weight_key(value)
        if key not in self.arrays:
            self.arrays[key] = values_of(self.file, value)
        return self.arrays[key]
