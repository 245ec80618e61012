"""The numpy backend: call after call, each by its op's numpy body - the living meaning of a program."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from graphrun.backends.base import Given, Progress
from graphrun.backends.memory import require_room
from graphrun.backends.pack import adding_up, pack
from graphrun.backends.replay import Replay
from graphrun.backends.steps import StepRunner
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Part, State, Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.quant import Q8, Matrix, q8_views
from graphrun.core.target import Target
from graphrun.core.workers import Workers, using

A = np.ndarray[Any, Any]
NUMPY = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
WeightKey = tuple[tuple[Part, ...], str]


def weight_key(value: Value) -> WeightKey:
    """Weights with equal keys hold the same bytes, whichever program names them."""
    return value.parts, value.type.dtype.name


class NumpyBackend:
    """Runs on the processor through numpy; `threads` workers share the rows of a matrix."""

    def __init__(self, threads: int | None = None) -> None:
        self.workers = Workers(threads)
        self.target = Target("numpy", "numpy", memory=free_memory())

    def load(
        self, file: ModelFile, weights: Sequence[Value], states: Sequence[State], progress: Progress | None = None
    ) -> NumpyRunner:
        """Pack the weights and allocate the states; raises BackendError if they do not fit."""
        distinct = {weight_key(v): v for v in weights}
        loaded = require_room(self.target, distinct.values(), states)
        stored = sum(file.tensors[p.tensor].nbytes for parts, _ in distinct for p in parts if p.tensor is not None)
        advance = adding_up(stored, progress)
        packed = {
            key: pack(file, v.parts, v.type, workers=self.workers, on_bytes=advance) for key, v in distinct.items()
        }
        memory = {s.name: np.zeros(s.type.shape, NUMPY[s.type.dtype.name]) for s in states}
        return NumpyRunner(packed, memory, self._expand(packed.values(), loaded), self.workers)

    def beside(self, weights: Iterable[Value], states: Iterable[State]) -> int:
        """Bytes of f32 operands that are kept beside packed weights, where half of the memory holds all."""
        values = {weight_key(v): v for v in weights}.values()
        need = sum(4 * math.prod(v.type.shape) for v in values if v.type.dtype.quantised)
        loaded = sum(v.type.nbytes for v in values) + sum(s.type.nbytes for s in states)
        return need if need + loaded <= self.target.memory / 2 else 0

    def _expand(self, weights: Iterable[Matrix | A], loaded: int) -> tuple[str, ...]:
        """Keep operands as f32 where half of the memory holds them; returns the note if it does not."""
        matrices = [w for w in weights if isinstance(w, Matrix) and w.layout.quantised]
        need = sum(m.expanded_nbytes for m in matrices)
        if need + loaded > self.target.memory / 2:
            return (f"weights are unpacked anew at every step: keeping them as f32 would take {need / 1e9:.1f} GB",)
        for matrix in matrices:
            matrix.expand()
        return ()


class NumpyRunner(StepRunner["BoundProgram"]):
    """Weights by key, states by name, and one arena that all programs share."""

    def __init__(
        self,
        weights: Mapping[WeightKey, Matrix | A],
        states: Mapping[str, A],
        notes: tuple[str, ...],
        workers: Workers,
    ) -> None:
        super().__init__(watched=True)
        self.notes = notes
        self.workers = workers
        self.weights = weights
        self.states = states
        self.arena = np.zeros(0, np.uint8)

    def bind(self, program: Program) -> BoundProgram:
        """The program with every operand resolved to an array."""
        if program.arena > self.arena.size:
            self.arena = np.zeros(program.arena, np.uint8)
            self.bound.clear()
        if program not in self.bound:
            self.bound[program] = BoundProgram(program, self)
        return self.bound[program]

    def _replay(self, program: Program, tokens: Sequence[int], pos: int, slot: int) -> Replay:
        return Replay(program.states, self.states, tokens, pos, slot)

    def _rows(self, state: State, rows: Sequence[int]) -> A:
        return self.states[state.name][rows]


class BoundProgram:
    """A program whose operands are arrays: views of the arena, packed weights, states and inputs."""

    def __init__(self, program: Program, runner: NumpyRunner) -> None:
        self.program = program
        self.runner = runner
        self.inputs = {name: np.zeros(v.type.shape, NUMPY[v.type.dtype.name]) for name, v in program.inputs.items()}
        self.calls = [self._bind(call) for call in program.calls]

    def start(self, tokens: Sequence[int], pos: int, slot: int, given: Given) -> None:
        """Set the inputs."""
        values: dict[str, Any] = {"tokens": tokens, "pos": pos, "slot": slot, **given}
        for name, array in self.inputs.items():
            array[...] = values[name]

    def run(self, calls: range) -> None:
        """Run calls by number."""
        with unchecked(), using(self.runner.workers):
            profile = self.runner.profile
            for index in calls:
                with profile.timing(self.program, index) if profile else nullcontext():
                    self.calls[index]()

    def array(self, operand: Operand) -> Any:
        """The array, Matrix or Q8 that an operand names."""
        value = operand.value
        if operand.place == "weight":
            return self.runner.weights[weight_key(value)]
        if operand.place == "state":
            assert value.state is not None
            return self.runner.states[value.state.name]
        if operand.place == "input":
            return self.inputs[value.root.name]
        return arena_view(self.runner.arena, operand)

    def _bind(self, call: Call) -> Callable[[], None]:
        steps = [self._bind_one(part) for part in (call, *call.epilogues)]
        if len(steps) == 1:
            only = steps[0]
            return lambda: only({})

        def run() -> None:
            local: dict[Value, Any] = {}
            for step in steps:
                step(local)

        return run

    def _bind_one(self, call: Call) -> Callable[[dict[Value, Any]], None]:
        """One op of a call; operands that live only inside the call pass through `local`."""
        fixed: dict[str, Any] = dict(call.attrs)
        inner: list[tuple[str, Operand]] = []
        for name, operand in zip(call.op.signature.input_names, call.inputs, strict=True):
            if operand is not None and operand.place == "none":
                inner.append((name, operand))
            elif operand is not None:
                fixed[name] = self.array(operand)
        outputs = [(o, None if o.place in ("none", "state") else self.array(o)) for o in call.outputs]
        function = call.op.function

        def run(local: dict[Value, Any]) -> None:
            given = {name: inner_view(local[o.value.root], o) for name, o in inner}
            result = function(**fixed, **given)
            for (operand, memory), array in zip(outputs, result if len(outputs) > 1 else (result,), strict=True):
                local[operand.value] = array
                if memory is not None:
                    store(memory, array)

        return run


def unchecked() -> np.errstate:
    """Without numpy's warnings: whether logits are finite is looked at after the step."""
    return np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore")


def store(memory: Any, result: Any) -> None:
    """Copy a result, an array or a Q8, to its place."""
    if isinstance(memory, Q8):
        for target, source in zip(memory, result, strict=True):
            target[...] = source
    else:
        memory[...] = result


def arena_view(arena: A, operand: Operand) -> Any:
    """The part of the arena that an operand names, as an array or a Q8."""
    kind = operand.type
    if kind.dtype.name == "q8":
        rows = int(np.prod(kind.shape[:-1]))
        nbytes = kind.shape[-1] // 32 * 40
        stride = operand.strides[-2] if len(kind.shape) > 1 else nbytes
        raw = np.ndarray((rows, nbytes), np.uint8, arena.data, operand.offset, (stride, 1))
        return q8_views(raw)
    return np.ndarray(kind.shape, NUMPY[kind.dtype.name], arena.data, operand.offset, operand.strides)


def inner_view(array: Any, operand: Operand) -> Any:
    """An operand that is a result of the same call, or a view of one."""
    value = operand.value
    if value.view is None:
        return array
    dense = np.ascontiguousarray(array)
    return np.ndarray(value.type.shape, dense.dtype, dense.data, value.view.offset, value.view.strides)


def free_memory() -> int:
    """Bytes of memory that this machine has available, by /proc/meminfo where there is one, else the physical size."""
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
