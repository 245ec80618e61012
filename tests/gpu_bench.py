"""Calls of one op made from arguments, run by a GPU's kernel on device memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from arguments import Arguments, is_matrix
from kernel_calls import TABLE_ROWS, A, Bench

from graphrun.backends.abi import HEADER, RECORD_BYTES, layout, ways
from graphrun.backends.device import Device, DeviceMatrix, Kernels
from graphrun.backends.device import Memory as DeviceMemory
from graphrun.backends.gpu import COUNTERS
from graphrun.backends.records import record
from graphrun.core.op import Kernel
from graphrun.core.program import Operand
from graphrun.core.quant import Matrix
from graphrun.core.signature import Tensor, evaluate
from graphrun.planner.select import dimensions

GUARD_WORDS = 64
GUARD = 0xA5A5A5A5


class GpuBench(Bench):
    """One call of an op; matrices are flat and caches plain. `run` it, then read `results` and `states` by name."""

    before = 0  # what the counters hold before the call

    def run_on(self, device: Device, kernels: Kernels, kernel: Kernel) -> None:
        """Run the call once, with as many workgroups and as much scratch memory as the kernel asks for."""
        place, checksum = kernels.index[kernel.name]
        shape = layout(self.call.op)
        assert checksum == shape.checksum, "kernels/ops.h is not current"
        types = tuple(None if o is None else o.type for o in self.call.inputs)
        sizes = dimensions(self.call.op, types, self.call.attrs, 1)
        self._upload(device)
        raw = HEADER.pack(place, 1, 1, 0, 0) + record(self.call, shape, self._address, self._table)
        table = DeviceMemory.of(device, np.frombuffer(raw.ljust(RECORD_BYTES, b"\0"), np.uint8))
        words = COUNTERS + evaluate(kernel.scratch, sizes)
        scratch = np.zeros(words + GUARD_WORDS, np.uint32)
        scratch[:COUNTERS] = self.before
        scratch[words:] = GUARD
        memory = DeviceMemory.of(device, scratch)
        groups = evaluate(kernel.groups, sizes)
        device.launch(kernels.functions[place], groups, kernels.lds[place], (table.address, memory.address))
        device.synchronise()
        device.download(memory.address, scratch)
        assert (scratch[words:] == GUARD).all(), "memory behind the scratch memory was written"
        assert not scratch[:COUNTERS].any(), "counters were left behind"
        for name, held in self.device_memory.items():
            device.download(held.address, self.states[name] if name in self.states else self.memory[name].bytes)

    def state(self, parameter: Tensor, positions: int) -> A:
        return self.states[parameter.name]

    def _upload(self, device: Device) -> None:
        arrays = {n: m.bytes for n, m in self.memory.items()} | self.states
        self.device_memory = {n: DeviceMemory.of(device, a) for n, a in arrays.items()}
        self.matrices = {v: DeviceMatrix(device, m) for v, m in self.fixed.items() if isinstance(m, Matrix)}
        if self.call.op.table is not None:
            rows = self.call.op.table(0, TABLE_ROWS, {**self.call.attrs, **self.vectors})
            self.device_table = DeviceMemory.of(device, rows)

    def _input(self, parameter: Tensor, given: Arguments) -> Operand:
        value, type_ = given.values[parameter.name], given.types[parameter.name]
        if is_matrix(parameter):
            return self._whole(parameter.name, type_, "weight", value)
        if parameter.state or parameter.name in ("kc", "vc"):
            self.states[parameter.name] = value.copy()
            return self._whole(parameter.name, type_, "state", self.states[parameter.name])
        operand = self._new(parameter.name, type_, bool(ways(parameter)))
        self.memory[parameter.name].set(value)
        return operand

    def _table(self, call: Any) -> int:
        return self.device_table.address

    def _address(self, operand: Operand, parameter: Tensor) -> int:
        if operand.value in self.matrices:
            return self.matrices[operand.value].address
        names = [n for n, m in self.memory.items() if m.value is operand.value]
        return self.device_memory[names[0] if names else operand.value.name].address
