"""Programs on a GPU: weights, states and one arena in device memory, and a launch for every call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphrun.backends.abi import RECORD_BYTES, is_matrix
from graphrun.backends.base import NOTHING, Given, Progress
from graphrun.backends.device import Device, DeviceMatrix, DeviceRows, Kernels, Memory
from graphrun.backends.memory import require_room
from graphrun.backends.pack import pack
from graphrun.backends.records import command_table
from graphrun.backends.reference import NUMPY, WeightKey, arena_view, weight_key
from graphrun.backends.replay import Replay, first_bad, written
from graphrun.backends.tables import HostTable
from graphrun.core.errors import BackendError
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import State, Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.quant import Q8, Matrix
from graphrun.core.signature import Tensor

A = np.ndarray[Any, Any]
COUNTERS = 1 << 14  # words at the start of scratch memory that are 0 between calls, as in kernels/gpu/gr.h
UNSEEN = ("the states that the step began with were not kept", "set runner.watched before it")
ALIGNMENT = 64  # of inputs
TABLE_VECTORS = ("factors",)  # parameters that tables are made from


class GpuBackend:
    """A GPU with the kernels that were compiled for it."""

    def __init__(self, device: Device, image: bytes) -> None:
        self.device = device
        self.target, self.description = device.target, device.description
        self.kernels = Kernels(device, image)

    def beside(self, weights: Iterable[Value], states: Iterable[State]) -> int:
        """Nothing: weights are packed once, and only so."""
        return 0

    def load(
        self, file: ModelFile, weights: Sequence[Value], states: Sequence[State], progress: Progress | None = None
    ) -> GpuRunner:
        """Pack and upload one weight after the other, and allocate the states; BackendError if they do not fit."""
        distinct = {weight_key(v): v for v in weights}
        require_room(self.target, distinct.values(), states)
        total, done = sum(_stored_bytes(file, v) for v in distinct.values()), 0

        def advance(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if progress:
                progress(done, total)

        matrices, arrays = {}, {}
        for key, value in distinct.items():
            packed = pack(file, value.parts, value.type, on_bytes=advance)
            if isinstance(packed, Matrix):
                matrices[key] = DeviceMatrix(self.device, packed)
            else:
                arrays[key] = packed
        memory = {s.name: Memory.zeros(self.device, s.type.nbytes) for s in states}
        return GpuRunner(self, file, matrices, arrays, memory)


def _stored_bytes(file: ModelFile, value: Value) -> int:
    return sum(file.raw(p.tensor).nbytes for p in value.parts if p.tensor is not None)


class GpuRunner:
    """Weights by key and states by name in device memory, and one arena that all programs share."""

    def __init__(
        self,
        backend: GpuBackend,
        file: ModelFile,
        matrices: Mapping[WeightKey, DeviceMatrix],
        arrays: dict[WeightKey, A],
        memory: Mapping[str, Memory],
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self.backend, self.device, self.file = backend, backend.device, file
        self.matrices, self.arrays, self.memory = matrices, arrays, memory
        self.vectors: dict[WeightKey, Memory] = {}
        self.host_tables: dict[Any, DeviceTable] = {}
        self.arena = Memory(self.device, 0)
        self.scratch = Memory.zeros(self.device, 4 * COUNTERS)
        self.bound: dict[Program, BoundProgram] = {}
        self.last: BoundProgram | None = None
        self.replay: Replay | None = None
        self.ran: tuple[tuple[int, ...], int, int] | None = None  # tokens, position and snapshot of the last step
        self.watched = False

    def bind(self, program: Program) -> BoundProgram:
        """The program as records in device memory over this runner's memory."""
        words = COUNTERS + max((c.scratch for c in program.calls), default=0)
        if program.arena > self.arena.nbytes:
            self.device.synchronise()
            self.arena = Memory.zeros(self.device, program.arena)
            self.bound.clear()
        if 4 * words > self.scratch.nbytes:
            self.device.synchronise()
            self.scratch = Memory.zeros(self.device, 4 * words)
        if program not in self.bound:
            self.bound[program] = BoundProgram(program, self)
        return self.bound[program]

    def step(self, program: Program, tokens: Sequence[int], pos: int, slot: int = 0, given: Given = NOTHING) -> None:
        """Run a program on `tokens` at positions pos, pos + 1, ... from snapshot `slot`."""
        self._finish()
        self.last = self.bind(program)
        self.replay = self._replay(program, tokens, pos, slot)
        self.ran = (tuple(tokens), pos, slot)
        self.last.start(tokens, pos, slot, given)
        self.last.run(range(len(program.calls)))

    def read(self, output: str) -> A:
        """A copy of an output of the last step."""
        assert self.last is not None
        self._finish()
        found: A = self.last.fetch(self.last.program.outputs[output])
        return found

    def first_bad_call(
        self, program: Program, tokens: Sequence[int], pos: int, slot: int = 0, given: Given = NOTHING
    ) -> int | None:
        """Index of the first call of the step whose result is not finite, or None; BackendError as for `buffers`."""
        bound = self.bind(program)
        if self.last is not bound or self.ran != (tuple(tokens), pos, slot):
            watched, self.watched = self.watched, True
            self.step(program, tokens, pos, slot, given)
            self.watched = watched
        if self.replay is None:
            raise BackendError(*UNSEEN)
        found = first_bad(self.replay, len(program.calls), bound.run, bound.stored)
        self._finish()
        return found

    def buffers(self, call: int) -> dict[str, A]:
        """Copies of what call number `call` of the last step stored, by the names of `Call.named`.

        The step runs once more up to that call. Raises BackendError where that is impossible: `watched` was not set
        before a step of a model with large recurrent states.
        """
        assert self.last is not None
        if self.replay is None:
            raise BackendError(*UNSEEN)
        self.last.run(self.replay.until(call))
        return self.last.copies(call, *self.replay.of)

    def _finish(self) -> None:
        """Run what is left of a step that is being seen again."""
        if self.last is not None and self.replay is not None:
            self.last.run(self.replay.rest(len(self.last.program.calls)))

    def _replay(self, program: Program, tokens: Sequence[int], pos: int, slot: int) -> Replay | None:
        """What it takes to run the step again, which is copied to the host only where that was asked for."""
        if not self.watched:
            return None
        rows = {s.name: DeviceRows(self.memory[s.name], s) for s in program.states}
        return Replay(program.states, rows, tokens, pos, slot)

    @property
    def states(self) -> dict[str, A]:
        """Copies of the states by name, as bytes."""
        return {name: memory.read(0, memory.nbytes) for name, memory in self.memory.items()}

    def host_table(self, call: Call, context: int) -> DeviceTable:
        """The table of a call, shared by calls with the same attributes and vectors."""
        named = zip(call.op.signature.inputs, call.inputs, strict=True)
        vectors = {p.name: o.value for p, o in named if o and o.place == "weight" and not is_matrix(p)}
        weights = frozenset((name, weight_key(v)) for name, v in vectors.items() if name in TABLE_VECTORS)
        key = (call.op.table, tuple(call.attrs.items()), weights, context)
        if key not in self.host_tables:
            given = {**call.attrs, **{name: self.array(vectors[name]) for name, _ in weights}}
            self.host_tables[key] = DeviceTable(self.device, HostTable(call.op, given, context))
        return self.host_tables[key]

    def array(self, value: Value) -> A:
        """The f32 values of a weight that is not read as a matrix."""
        key = weight_key(value)
        if key not in self.arrays:
            packed = pack(self.file, value.parts, value.type)
            self.arrays[key] = packed.f32() if isinstance(packed, Matrix) else packed
        return self.arrays[key]

    def vector(self, value: Value) -> Memory:
        """The same in device memory."""
        key = weight_key(value)
        if key not in self.vectors:
            self.vectors[key] = Memory.of(self.device, np.ascontiguousarray(self.array(value), np.float32))
        return self.vectors[key]


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


class BoundProgram:
    """A program's records and inputs in device memory."""

    def __init__(self, program: Program, runner: GpuRunner) -> None:
        self.program, self.runner, self.device = program, runner, runner.device
        self.kernels = runner.backend.kernels
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

    def start(self, tokens: Sequence[int], pos: int, slot: int, given: Given) -> None:
        """Set the inputs: one copy."""
        assert 0 <= pos <= self.program.context - len(tokens)
        values: dict[str, Any] = {"tokens": tokens, "pos": pos, "slot": slot, **given}
        for name, value in self.program.inputs.items():
            shape, dtype = value.type.shape, np.dtype(NUMPY[value.type.dtype.name])
            np.ndarray(shape, dtype, self.host_inputs.data, self.offsets[name])[...] = values[name]
        self.device.upload(self.inputs.address, self.host_inputs)
        for table in self.host_tables:
            table.reach(pos + len(tokens))

    def run(self, calls: range) -> None:
        """Launch these calls, in order."""
        for index in calls:
            place = self.places[index]
            arguments = (self.table.address + RECORD_BYTES * index, self.runner.scratch.address)
            groups = self.program.calls[index].groups
            self.device.launch(self.kernels.functions[place], groups, self.kernels.lds[place], arguments)

    def fetch(self, operand: Operand) -> Any:
        """A copy of the array or Q8 in the arena that an operand names."""
        steps = zip(operand.strides[:-1], operand.type.shape[:-1], strict=True)
        last = operand.type.shape[-1]
        width = last // 32 * 40 if operand.type.dtype.name == "q8" else last * operand.strides[-1]
        nbytes = sum(step * (count - 1) for step, count in steps) + width
        raw = self.runner.arena.read(operand.offset, nbytes)
        return arena_view(raw, Operand("arena", operand.value, operand.type, 0, operand.strides))

    def stored(self, index: int) -> list[A]:
        """Copies of the results of a call in the arena; of quantised ones the scales."""
        arrays = (self.fetch(o) for o in self.program.calls[index].stored if o.place == "arena")
        return [a.d if isinstance(a, Q8) else a for a in arrays]

    def copies(self, index: int, tokens: Sequence[int], pos: int, slot: int) -> dict[str, A]:
        """Copies of the results of a call, of states the rows that a step of these tokens writes."""
        result: dict[str, A] = {}
        for name, operand in self.program.calls[index].named.items():
            state = operand.value.state
            if operand.place == "state" and state is not None:
                rows = written(state, len(tokens), pos, slot)
                found = DeviceRows(self.runner.memory[state.name], state)[rows]
                result[name] = found.reshape(len(rows), *state.type.shape[1:])
                continue
            array = self.fetch(operand)
            quantised = isinstance(array, Q8)
            result[name] = (array.q * array.d[..., None]).reshape(operand.type.shape) if quantised else array
        return result

    def _host_table(self, call: Call) -> int:
        table = self.runner.host_table(call, self.program.context)
        self.host_tables.add(table)
        return table.memory.address

    def _address(self, operand: Operand, parameter: Tensor) -> int:
        value, runner = operand.value, self.runner
        if operand.place == "weight":
            matrix = is_matrix(parameter)
            return runner.matrices[weight_key(value)].address if matrix else runner.vector(value).address
        if operand.place == "state":
            assert value.state is not None
            return runner.memory[value.state.name].address + operand.offset
        if operand.place == "input":
            return self.inputs.address + self.offsets[value.root.name] + operand.offset
        return runner.arena.address + operand.offset
