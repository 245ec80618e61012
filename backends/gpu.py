"""Programs on a GPU: weights, states and one arena in device memory, and a launch for every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from graphrun.backends.abi import RECORD_BYTES, is_matrix
from graphrun.backends.base import Given, Progress
from graphrun.backends.device import Device, DeviceRows, Kernels, Memory
from graphrun.backends.device_weights import DeviceTable, DeviceWeights
from graphrun.backends.memory import require_room
from graphrun.backends.pack import adding_up
from graphrun.backends.records import command_table
from graphrun.backends.reference import NUMPY, arena_view, weight_key
from graphrun.backends.replay import Replay
from graphrun.backends.resident import OFF, Resident, ResidentSteps
from graphrun.backends.steps import StepRunner
from graphrun.core.errors import BackendError
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import State, Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.signature import Tensor

A = np.ndarray[Any, Any]
COUNTERS = 1 << 14  # words at the start of scratch memory that are 0 between calls, as in kernels/gpu/gr.h
ALIGNMENT = 64  # of inputs
WHICH = "--profile waits for every call, and names the one that fails"


class GpuBackend:
    """A GPU with the kernels that were compiled for it."""

    def __init__(self, device: Device, image: bytes) -> None:
        self.device = device
        self.target, self.description = device.target, device.description
        self.kernels = Kernels(device, image)
        self.resident: Resident | None = None

    def stay(self, resident: Resident | None) -> None:
        """Run whole steps in one launch each, where there is a resident kernel."""
        self.resident = resident
        if resident:
            self.target = replace(self.target, resident_groups=resident.blocks)

    def beside(self, weights: Iterable[Value], states: Iterable[State]) -> int:
        """Nothing: weights are packed once, and only so."""
        return 0

    def load(
        self, file: ModelFile, weights: Sequence[Value], states: Sequence[State], progress: Progress | None = None
    ) -> GpuRunner:
        """Pack and upload one weight after the other, and allocate the states; BackendError if they do not fit."""
        distinct = {weight_key(v): v for v in weights}
        require_room(self.target, distinct.values(), states)
        parts = (p for v in distinct.values() for p in v.parts if p.tensor is not None)
        total = sum(file.tensors[str(p.tensor)].nbytes for p in parts)
        loaded = DeviceWeights(self.device, file, distinct.values(), adding_up(total, progress))
        return GpuRunner(self, loaded, states)


class GpuRunner(StepRunner["BoundProgram"]):
    """Weights by key and states by name in device memory, and one arena that all programs share."""

    def __init__(self, backend: GpuBackend, weights: DeviceWeights, states: Sequence[State]) -> None:
        super().__init__()
        self.notes: tuple[str, ...] = ()
        self.device, self.kernels, self.weights = backend.device, backend.kernels, weights
        self.resident = backend.resident
        self.types = {s.name: s for s in states}
        self.memory = {s.name: Memory.zeros(self.device, s.type.nbytes) for s in states}
        self.arena = Memory(self.device, 0)
        self.scratch = Memory.zeros(self.device, 4 * COUNTERS)

    def bind(self, program: Program) -> BoundProgram:
        """The program as records in device memory over this runner's memory."""
        words = COUNTERS + max((c.scratch for c in program.calls), default=0)
        if program.arena > self.arena.nbytes:
            self._finish()  # what is bound so far reads the old arena
            self.device.synchronise()
            self.bound.clear()
            self.arena = Memory(self.device, 0)  # the old one goes first
            self.arena = Memory.zeros(self.device, program.arena)
        if 4 * words > self.scratch.nbytes:
            self.device.synchronise()
            self.scratch = Memory.zeros(self.device, 4 * words)
            self.bound.clear()
        if program not in self.bound:
            self.bound[program] = BoundProgram(program, self)
        return self.bound[program]

    def read(self, output: str) -> A:
        """A copy of an output of the last step."""
        self._finish()
        assert self.last is not None
        try:
            found = super().read(output)
        except BackendError as error:
            raise BackendError(f"a call of {self.last.program.name} failed: {error.message}", WHICH) from None
        self.last.check()
        return found

    def _replay(self, program: Program, tokens: Sequence[int], pos: int, slot: int) -> Replay | None:
        """What it takes to run the step again: nothing, or rows that are copied to the host only where asked for."""
        if not self.watched and any(s.discipline != "append" for s in program.states):
            return None
        rows = {s.name: DeviceRows(self.memory[s.name], s) for s in program.states}
        return Replay(program.states, rows, tokens, pos, slot)

    def _rows(self, state: State, rows: Sequence[int]) -> A:
        return DeviceRows(self.memory[state.name], state)[rows].reshape(len(rows), *state.type.shape[1:])

    @property
    def states(self) -> dict[str, A]:
        """Copies of the states by name, in the order of their types."""
        return {
            name: self.memory[name].read(0, s.type.nbytes).view(NUMPY[s.type.dtype.name]).reshape(s.type.shape)
            for name, s in self.types.items()
        }


class BoundProgram:
    """A program's records and inputs in device memory."""

    def __init__(self, program: Program, runner: GpuRunner) -> None:
        self.program, self.runner, self.device = program, runner, runner.device
        self.kernels = runner.kernels
        self.offsets: dict[str, int] = {}
        size = 0
        for name, value in program.inputs.items():
            self.offsets[name] = size
            size += -(-value.type.nbytes // ALIGNMENT) * ALIGNMENT
        self.host_inputs = np.zeros(max(size, ALIGNMENT), np.uint8)
        self.inputs = Memory.zeros(self.device, self.host_inputs.size)
        self.host_tables: set[DeviceTable] = set()
        self.places = [self.kernels.index.get(c.kernel.name, (0, 0))[0] for c in program.calls]
        table = command_table(program, self.kernels.index, self._address, self._host_table)
        self.table = Memory.of(self.device, table)
        self.steps: ResidentSteps | None = None  # its launches, where calls do not have one each
        if runner.resident:
            self.steps = ResidentSteps.of(runner.resident, program, table, runner.weights.matrix)
        self.pos = 0  # of the step's first token
        self.launched = False
        self.repeat: Callable[[], None] | None = None  # makes all launches again

    def start(self, tokens: Sequence[int], pos: int, slot: int, given: Given) -> None:
        """Set the inputs: one copy."""
        assert 0 <= pos <= self.program.context - len(tokens)
        values: dict[str, Any] = {"tokens": tokens, "pos": pos, "slot": slot, **given}
        for name, value in self.program.inputs.items():
            shape, dtype = value.type.shape, np.dtype(NUMPY[value.type.dtype.name])
            np.ndarray(shape, dtype, self.host_inputs.data, self.offsets[name])[...] = values[name]
        self.device.upload(self.inputs.address, self.host_inputs)
        self.pos = pos
        for table in self.host_tables:
            table.reach(pos + len(tokens))

    def run(self, calls: range) -> None:
        """Launch these calls, in order; where steps are watched or timed, wait for each. BackendError names a call.

        A whole program is recorded when it runs for the second time, where devices can do that.
        """
        if self._waits or len(calls) < len(self.program.calls):
            self._launch_each(calls)
            return
        if self.steps:
            self.steps.run(self.runner.scratch.address, self.pos, self._launch)
            return
        if self.repeat is None and self.launched:
            self.repeat = self.device.record(partial(self._launch_each, calls))
        if self.repeat is None:
            self._launch_each(calls)
        else:
            self.repeat()
        self.launched = True

    def check(self) -> None:
        """Raise BackendError if the last step gave up waiting; steps like it then run call by call."""
        if not self.steps or not self.runner.resident or not self.runner.resident.failed():
            return
        text = self.runner.resident.give_up(self.steps)
        self.device.clear(self.runner.scratch.address, 4 * COUNTERS)
        for bound in self.runner.bound.values():
            if bound.steps and bound.steps.build is self.steps.build:
                bound.steps = None
        self.runner.notes += (f"slow: the resident kernel gave up a step of {self.program.name}; {OFF}",)
        raise BackendError(f"{self.program.name}: {text}", "the next step runs call by call")

    def _launch_each(self, calls: range) -> None:
        for index in calls:
            try:
                self._launch(index)
            except BackendError as error:
                call, sure = self.program.calls[index], self._waits
                which = "" if sure else "or one before it "
                text = f"call {index}, {call.label} of {call.scope or 'the head'}, {which}failed ({call.span})"
                raise BackendError(f"{self.program.name}: {text}: {error.message}", None if sure else WHICH) from None

    @property
    def _waits(self) -> bool:
        return self.runner.watched or self.runner.profile is not None

    def _launch(self, index: int) -> None:
        place = self.places[index]
        function, lds = self.kernels.functions[place], self.kernels.lds[place]
        arguments = (self.table.address + RECORD_BYTES * index, self.runner.scratch.address)
        start = partial(self.device.launch, function, self.program.calls[index].groups, lds, arguments)
        if self.runner.profile is not None:
            self.runner.profile.add(self.program, index, self.device.timed(start))
            return
        start()
        if self._waits:
            self.device.synchronise()

    def array(self, operand: Operand) -> Any:
        """A copy of the array or Q8 in the arena that an operand names."""
        raw = self.runner.arena.read(operand.offset, operand.nbytes)
        return arena_view(raw, Operand("arena", operand.value, operand.type, 0, operand.strides))

    def _host_table(self, call: Call) -> int:
        table = self.runner.weights.table(call, self.program.context)
        self.host_tables.add(table)
        return table.memory.address

    def _address(self, operand: Operand, parameter: Tensor) -> int:
        value, runner = operand.value, self.runner
        if operand.place == "weight":
            return runner.weights.address(value, is_matrix(parameter))
        if operand.place == "state":
            assert value.state is not None
            return runner.memory[value.state.name].address + operand.offset
        if operand.place == "input":
            return self.inputs.address + self.offsets[value.root.name] + operand.offset
        return runner.arena.address + operand.offset
