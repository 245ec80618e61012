"""The native backend: a program is one command table, and a step one call into C."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphrun.backends import engine, reference
from graphrun.backends.abi import is_matrix
from graphrun.backends.base import NOTHING, Given, Progress
from graphrun.backends.build import Say
from graphrun.backends.memory import require_room
from graphrun.backends.pack import CHUNK_BYTES, encode, pack, release
from graphrun.backends.profile import Profile
from graphrun.backends.records import command_table
from graphrun.backends.reference import NUMPY, WeightKey, arena_view, weight_key
from graphrun.backends.replay import Replay, first_bad, written
from graphrun.backends.tables import HostTable
from graphrun.core.errors import BackendError
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Part, State, Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.quant import Q8
from graphrun.core.signature import Tensor
from graphrun.core.target import Target
from graphrun.core.workers import Workers

A = np.ndarray[Any, Any]
POSITIONS = 16  # that a cache of keys keeps together
MOST_KEPT = 1 << 20  # bytes of snapshots copied before every step
UNSEEN = ("the states that the step began with were not kept", "set runner.watched before it")
TABLE_VECTORS = ("factors",)  # parameters that tables are made from


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
    total, done, lock = sum(raw.nbytes for *_, raw in jobs), 0, threading.Lock()

    def work(some: Iterator[tuple[engine.Panels, str, int, A]]) -> None:
        nonlocal done
        for panels, kind, row, raw in some:
            panels.fill(row, encode(kind, panels.layout.name, raw))
            release(raw)
            with lock:
                done += raw.nbytes
                if progress:
                    progress(done, total)

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


class NativeRunner:
    """Weights by key, states by name, and one arena that all programs share."""

    def __init__(
        self,
        file: ModelFile,
        pool: engine.Pool,
        panels: Mapping[WeightKey, engine.Panels],
        arrays: dict[WeightKey, Any],
        memory: Mapping[str, A],
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self.file = file
        self.pool = pool
        self.panels = panels
        self.arrays = arrays
        self.memory = memory
        self.keys: set[str] = set()  # states that hold keys, whose order is the kernels' own
        self.arena = engine.zeros(0)
        self.host_tables: dict[Any, HostTable] = {}
        self.bound: dict[Program, BoundProgram] = {}
        self.last: BoundProgram | None = None
        self.replay: Replay | None = None
        self.ran: tuple[tuple[int, ...], int, int] | None = None  # tokens, position and snapshot of the last step
        self.watched = False  # keep what is needed to see any step again
        self.profile: Profile | None = None

    def bind(self, program: Program) -> BoundProgram:
        """The program as a command table over this runner's memory."""
        if program.arena > self.arena.size:
            self.arena = engine.zeros(program.arena)
            self.bound.clear()
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
        self._run(range(len(program.calls)))

    def read(self, output: str) -> A:
        """A copy of an output of the last step."""
        assert self.last is not None
        self._finish()
        operand = self.last.program.outputs[output]
        result: A = arena_view(self.arena, operand).copy()
        return result

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
        found = first_bad(self.replay, len(program.calls), self._run, bound.stored)
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
        self._run(self.replay.until(call))
        return self.last.copies(call, *self.replay.of)

    def _run(self, calls: range) -> None:
        assert self.last is not None
        if self.profile is None:
            self.pool.run(self.last.table, calls.start, len(calls))
            return
        for index in calls:
            with self.profile.timing(self.last.program, index):
                self.pool.run(self.last.table, index, 1)

    def _finish(self) -> None:
        """Run what is left of a step that is being seen again."""
        if self.last is not None and self.replay is not None:
            self._run(self.replay.rest(len(self.last.table)))

    def _replay(self, program: Program, tokens: Sequence[int], pos: int, slot: int) -> Replay | None:
        """What it takes to run the step again, unless that is much to copy at every step."""
        kept = sum(s.type.nbytes // s.type.shape[0] for s in program.states if s.discipline == "snapshot")
        return Replay(program.states, self.memory, tokens, pos, slot) if self.watched or kept <= MOST_KEPT else None

    @property
    def states(self) -> dict[str, A]:
        """The states by name in the order of their types; copies where kernels keep another."""
        return {n: _by_position(a) if n in self.keys else a for n, a in self.memory.items()}

    def host_table(self, call: Call, context: int) -> HostTable:
        """The table of a call, shared by calls with the same attributes and vectors."""
        named = zip(call.op.signature.inputs, call.inputs, strict=True)
        vectors = {p.name: o.value for p, o in named if o and o.place == "weight" and not is_matrix(p)}
        weights = frozenset((name, weight_key(v)) for name, v in vectors.items() if name in TABLE_VECTORS)
        key = (call.op.table, tuple(call.attrs.items()), weights)
        if key not in self.host_tables:
            given = {**call.attrs, **{name: self.array(vectors[name]) for name, _ in weights}}
            self.host_tables[key] = HostTable(call.op, given, context)
        return self.host_tables[key]

    def array(self, value: Value) -> A:
        """The f32 values of a weight that is not read as a matrix."""
        key = weight_key(value)
        if key not in self.arrays:
            self.arrays[key] = pack(self.file, value.parts, value.type).f32()  # type: ignore[union-attr]
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

    def stored(self, index: int) -> list[A]:
        """Views of the results of a call in the arena; of quantised ones the scales."""
        arrays = (self.array(o) for o in self.program.calls[index].stored if o.place == "arena")
        return [a.d if isinstance(a, Q8) else a for a in arrays]

    def copies(self, index: int, tokens: Sequence[int], pos: int, slot: int) -> dict[str, A]:
        """Copies of the results of a call, of states the rows that a step of these tokens writes."""
        result: dict[str, A] = {}
        for name, operand in self.program.calls[index].named.items():
            state = operand.value.state
            if operand.place == "state" and state is not None:
                result[name] = self.runner.states[state.name][written(state, len(tokens), pos, slot)]
                continue
            array = self.array(operand)
            quantised = isinstance(array, Q8)
            result[name] = (array.q * array.d[..., None]).reshape(operand.type.shape) if quantised else array.copy()
        return result

    def array(self, operand: Operand) -> Any:
        """The array or Q8 in the arena that an operand names."""
        return arena_view(self.runner.arena, operand)

    def _host_table(self, call: Call) -> int:
        table = self.runner.host_table(call, self.program.context)
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
