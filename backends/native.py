"""The native backend: a program is one command table, and a step one call into C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphrun.backends import engine, reference
from graphrun.backends.abi import is_matrix
from graphrun.backends.base import Given, Progress
from graphrun.backends.build import Say
from graphrun.backends.memory import require_room
from graphrun.backends.pack import CHUNK_BYTES, adding_up, encode, pack, release, values_of
from graphrun.backends.records import command_table
from graphrun.backends.reference import NUMPY, WeightKey, arena_view, weight_key
from graphrun.backends.replay import Replay
from graphrun.backends.steps import StepRunner
from graphrun.backends.tables import HostTable, HostTables
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Part, State, Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.signature import Tensor
from graphrun.core.target import Target
from graphrun.core.workers import Workers

A = np.ndarray[Any, Any]
POSITIONS = 16  # that a cache of keys keeps together
MOST_KEPT = 1 << 20  # bytes of snapshots copied before every step


class NativeBackend:
    """Compiled kernels on the processor's cores.

    `threads` counts all that compute, by default one for each physical core; `instructions` names an instruction
    set, by default the best. Raises BackendError where kernels cannot be built.
    """

    def __init__(self, threads: int | None = None, instructions: str | None = None, say: Say | None = None) -> None:
        self.threads = threads or engine.usable_cores()
        self.pool = engine.Pool(self.threads, engine.kernels(instructions, say))
        self.target = Target("native", "cpu", memory=reference.free_memory())

    def beside(self, weights: Iterable[Value], states: Iterable[State]) -> int:
        """Nothing: weights are packed once, and only so."""
        return 0

    def load(
        self, file: ModelFile, weights: Sequence[Value], states: Sequence[State], progress: Progress | None = None
    ) -> NativeRunner:
        """Pack the weights and allocate the states; raises BackendError if they do not fit."""
        distinct = {weight_key(v): v for v in weights}
        require_room(self.target, distinct.values(), states)
        panels = {k: engine.Panels(v.type.dtype, v.type.shape) for k, v in distinct.items() if len(v.type.shape) == 2}
        _fill(file, [(panels[k], v.parts) for k, v in distinct.items() if k in panels], self.threads, progress)
        arrays = {k: pack(file, v.parts, v.type) for k, v in distinct.items() if k not in panels}
        return NativeRunner(file, self.pool, panels, arrays, {s.name: _memory_of(s) for s in states})


def _fill(
    file: ModelFile, matrices: Sequence[tuple[engine.Panels, Sequence[Part]]], threads: int, progress: Progress | None
) -> None:
    """Convert all matrices, some rows at a time, each in any thread; progress counts bytes of the file."""
    jobs = [job for panels, parts in matrices for job in _jobs(file, panels, parts)]
    advance = adding_up(sum(raw.nbytes for *_, raw in jobs), progress)

    def work(some: Iterator[tuple[engine.Panels, str, int, A]]) -> None:
        for panels, kind, row, raw in some:
            panels.fill(row, encode(kind, panels.layout.name, raw))
            release(raw)
            advance(raw.nbytes)

    Workers(threads).share(work, jobs)


def _jobs(file: ModelFile, panels: engine.Panels, parts: Sequence[Part]) -> Iterator[tuple[engine.Panels, str, int, A]]:
    """(matrix, type, first row, stored rows) of every piece; a part of zeros needs none."""
    row = 0
    for part in parts:
        if part.tensor is not None:
            raw, kind = file.raw(part.tensor), file.tensors[part.tensor].type
            step = max(1, CHUNK_BYTES // raw.shape[1])
            for first in range(0, len(raw), step):
                yield panels, kind, row + first, raw[first : first + step]
        row += part.rows


def _memory_of(state: State) -> A:
    """Zeros for a state; caches hold whole groups of positions."""
    rows, *rest = state.type.shape
    if state.discipline == "append":
        rows = -(-rows // POSITIONS) * POSITIONS
    dtype = np.dtype(NUMPY[state.type.dtype.name])
    return engine.zeros(rows * int(np.prod(rest)) * dtype.itemsize).view(dtype).reshape(rows, *rest)


def _by_position(keys: A) -> A:
    """Keys as [position, head, channel], from [position / 16, head, channel, position % 16]."""
    positions, heads, dim = keys.shape
    tiles = keys.reshape(-1, heads, dim, POSITIONS)
    return tiles.transpose(0, 3, 1, 2).reshape(positions, heads, dim)


class NativeRunner(StepRunner["BoundProgram"]):
    """Weights by key, states by name, and one arena that all programs share."""

    def __init__(
        self,
        file: ModelFile,
        pool: engine.Pool,
        panels: Mapping[WeightKey, engine.Panels],
        arrays: dict[WeightKey, Any],
        memory: Mapping[str, A],
    ) -> None:
        super().__init__()
        self.notes: tuple[str, ...] = ()
        self.file = file
        self.pool = pool
        self.panels = panels
        self.arrays = arrays
        self.memory = memory
        self.keys: set[str] = set()  # states that hold keys, whose order is the kernels' own
        self.arena = engine.zeros(0)
        self.tables = HostTables()

    def bind(self, program: Program) -> BoundProgram:
        """The program as a command table over this runner's memory."""
        if program.arena > self.arena.size:
            self.arena = engine.zeros(program.arena)
            self.bound.clear()
        if program not in self.bound:
            self.bound[program] = BoundProgram(program, self)
        return self.bound[program]

    def _replay(self, program: Program, tokens: Sequence[int], pos: int, slot: int) -> Replay | None:
        """What it takes to run the step again, unless that is much to copy at every step."""
        kept = sum(s.type.nbytes // s.type.shape[0] for s in program.states if s.discipline == "snapshot")
        return Replay(program.states, self.memory, tokens, pos, slot) if self.watched or kept <= MOST_KEPT else None

    def _rows(self, state: State, rows: Sequence[int]) -> A:
        return self.states[state.name][rows]

    @property
    def states(self) -> dict[str, A]:
        """The states by name in the order of their types; copies where kernels keep another."""
        return {n: _by_position(a) if n in self.keys else a for n, a in self.memory.items()}

    def array(self, value: Value) -> A:
        """The f32 values of a weight that is not read as a matrix."""
        key = weight_key(value)
        if key not in self.arrays:
            self.arrays[key] = values_of(self.file, value)
        result: A = self.arrays[key]
        return result


class BoundProgram:
    """A program's command table and its input arrays."""

    def __init__(self, program: Program, runner: NativeRunner) -> None:
        self.program = program
        self.runner = runner
        self.inputs = {name: np.zeros(v.type.shape, NUMPY[v.type.dtype.name]) for name, v in program.inputs.items()}
        self.host_tables: set[HostTable] = set()
        self.table = command_table(program, runner.pool.kernels.index, self._address, self._host_table)

    def start(self, tokens: Sequence[int], pos: int, slot: int, given: Given) -> None:
        """Set the inputs."""
        assert 0 <= pos <= self.program.context - len(tokens)
        values: dict[str, Any] = {"tokens": tokens, "pos": pos, "slot": slot, **given}
        for name, array in self.inputs.items():
            array[...] = values[name]
        for table in self.host_tables:
            table.reach(pos + len(tokens))

    def run(self, calls: range) -> None:
        """Run calls by number: at once, unless each is timed."""
        pool, profile = self.runner.pool, self.runner.profile
        if profile is None:
            pool.run(self.table, calls.start, len(calls))
            return
        for index in calls:
            with profile.timing(self.program, index):
                pool.run(self.table, index, 1)

    def array(self, operand: Operand) -> Any:
        """The array or Q8 in the arena that an operand names."""
        return arena_view(self.runner.arena, operand)

    def _host_table(self, call: Call) -> int:
        table = self.runner.tables.of(call, self.program.context, self.runner.array)
        self.host_tables.add(table)
        return table.address

    def _address(self, operand: Operand, parameter: Tensor) -> int:
        value, runner = operand.value, self.runner
        if operand.place == "weight":
            if is_matrix(parameter):
                return runner.panels[weight_key(value)].address
            return int(runner.array(value).ctypes.data)
        if operand.place == "state":
            assert value.state is not None
            memory = runner.memory[value.state.name]
            if parameter.name == "kc" and value.state.discipline == "append":
                runner.keys.add(value.state.name)
        else:
            memory = self.inputs[value.root.name] if operand.place == "input" else runner.arena
        return int(memory.ctypes.data) + operand.offset
