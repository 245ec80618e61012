"""Two small interpreters on numpy: a graph node by node, and a program call by call on the bytes of its arena."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import numpy as np

from graphrun.core.ir import Graph, Part, Value
from graphrun.core.program import Call, Operand, Program
from graphrun.core.quant import Q8, Matrix, q8_views
from graphrun.core.types import DType

A = np.ndarray[Any, Any]
NUMPY: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16, "i32": np.int32}


class Memory:
    """Random weights, the same for the same tensor name; states, zero at first; and input arrays."""

    def __init__(self, inputs: Mapping[str, A]) -> None:
        self.inputs = inputs
        self.states: dict[str, A] = {}
        self._weights: dict[Value, Any] = {}

    def outside(self, value: Value) -> Any:
        """The array of an input, a weight or a state."""
        if value.kind == "input":
            return self.inputs[value.name]
        if value.state is not None:
            full = value.state
            return self.states.setdefault(full.name, np.zeros(full.type.shape, NUMPY[full.type.dtype.name]))
        if value not in self._weights:
            self._weights[value] = _weight(value)
        return self._weights[value]


def _weight(value: Value) -> Any:
    if len(value.type.shape) != 2:
        return np.concatenate([_vector(p) for p in value.parts])
    rows, columns = value.type.shape
    whole = Matrix.zeros(value.type.dtype, (rows, columns))
    start = 0
    for part in value.parts:
        piece = _matrix(part, value.type.dtype, columns)
        for mine, theirs in zip(_all_sections(whole), _all_sections(piece), strict=True):
            mine[start : start + part.rows] = theirs
        start += part.rows
    assert start == rows
    return whole


def _all_sections(matrix: Matrix) -> tuple[A, ...]:
    words, scales = matrix.sections
    return words + scales


def _vector(part: Part) -> A:
    if part.tensor is None:
        return np.zeros(part.rows, np.float32)
    return _random(part).uniform(0.5, 1.5, part.rows).astype(np.float32)


def _random(part: Part) -> np.random.Generator:
    assert part.tensor is not None
    return np.random.default_rng(crc32(part.tensor.encode()))


def _matrix(part: Part, layout: DType, columns: int) -> Matrix:
    random = _random(part)
    matrix = Matrix.zeros(layout, (part.rows, columns))
    words, scales = matrix.sections
    if not layout.quantised:
        words[0][...] = random.normal(0, columns**-0.5, words[0].shape)
        return matrix
    for section in words:
        section[...] = random.integers(0, 1 << 32, section.shape, np.uint32)
    for section in scales:
        section[...] = np.asarray(random.uniform(0.0005, 0.002, section.shape), np.float16).view(np.uint16)
    if layout.name in ("q4_k", "q6_k"):
        scales[0][...] = random.integers(1, 32, scales[0].shape, np.uint16) * 257
    return matrix


def run_graph(graph: Graph, memory: Memory) -> dict[str, A]:
    """The graph's outputs, every node computed in turn by the numpy body of its op."""
    known: dict[Value, Any] = {}

    def get(value: Value) -> Any:
        return known[value] if value in known else memory.outside(value)

    for node in graph.nodes:
        given = zip(node.op.signature.input_names, node.inputs, strict=True)
        result = node.op(**{name: get(v) for name, v in given if v is not None}, **node.attrs)
        results = result if isinstance(result, tuple) and not isinstance(result, Q8) else (result,)
        known |= zip(node.outputs, results, strict=True)
    return {name: np.array(known[value]) for name, value in graph.outputs.items()}


def run_program(program: Program, memory: Memory, seed: int = 0) -> dict[str, A]:
    """The program's outputs. Calls of a segment run in random order, and bytes nobody may read are made NaN."""
    arena = np.full(program.arena, 0xFF, np.uint8)
    shuffle = random.Random(seed).shuffle
    segments: dict[int, list[Call]] = {}
    for call in program.calls:
        segments.setdefault(call.segment, []).append(call)
    for segment, calls in segments.items():
        dead = np.ones(program.arena, bool)
        for slot in program.slots:
            if slot.first < segment <= slot.last:
                dead[slot.offset : slot.offset + slot.size] = False
        arena[dead] = 0xFF
        shuffle(calls)
        for call in calls:
            _run_call(call, arena, memory)
    return {name: np.array(_array(operand, arena, memory)) for name, operand in program.outputs.items()}


def _run_call(call: Call, arena: A, memory: Memory) -> None:
    local: dict[Value, Any] = {}
    for part in (call, *call.epilogues):
        given = {
            name: _inside(operand, local) if operand.value.root in local else _array(operand, arena, memory)
            for name, operand in zip(part.op.signature.input_names, part.inputs, strict=True)
            if operand is not None
        }
        result = part.op(**given, **part.attrs)
        results = result if isinstance(result, tuple) and not isinstance(result, Q8) else (result,)
        for operand, array in zip(part.outputs, results, strict=True):
            local[operand.value] = array
            if operand.place == "arena":
                _store(_array(operand, arena, memory), array)


def _store(target: Any, array: Any) -> None:
    pairs: Iterator[tuple[A, A]] = zip(target, array, strict=True) if isinstance(array, Q8) else iter([(target, array)])
    for there, here in pairs:
        there[...] = here


def _inside(operand: Operand, local: Mapping[Value, Any]) -> Any:
    value, array = operand.value, local[operand.value.root]
    if isinstance(array, Q8) or value.view is None:
        return array
    return np.ndarray(value.type.shape, array.dtype, np.ascontiguousarray(array).data, value.offset, operand.strides)


def _array(operand: Operand, arena: A, memory: Memory) -> Any:
    kind = operand.type
    if operand.place in ("weight", "state") or (operand.place == "input" and operand.value.view is None):
        return memory.outside(operand.value)
    buffer = memory.outside(operand.value.root).data if operand.place == "input" else arena.data
    assert operand.place in ("arena", "input"), f"{operand.value} is nowhere"
    if kind.dtype.name == "q8":
        rows = int(np.prod(kind.shape[:-1]))
        return q8_views(np.ndarray((rows, kind.shape[-1] // 32 * 40), np.uint8, buffer, operand.offset))
    return np.ndarray(kind.shape, NUMPY[kind.dtype.name], buffer, operand.offset, operand.strides)


def assert_same_bits(graph: Graph, program: Program, pos: int = 3, seed: int = 0) -> None:
    """Outputs and states of a graph and of a program, bit for bit, in two steps at the same position."""
    raw, lowered = (Memory(_inputs(graph, pos, seed)) for _ in range(2))
    for run in range(2):
        expected, found = run_graph(graph, raw), run_program(program, lowered, seed + run)
        assert expected.keys() == found.keys()
        for name, array in expected.items():
            assert array.shape == found[name].shape
            assert array.tobytes() == found[name].tobytes(), f"{name} differs"
        assert raw.states.keys() == lowered.states.keys()
        for name, state in raw.states.items():
            assert state.tobytes() == lowered.states[name].tobytes(), f"state {name} differs"


def _inputs(graph: Graph, pos: int, seed: int) -> dict[str, A]:
    random = np.random.default_rng(seed)
    arrays: dict[str, A] = {}
    for name, value in graph.inputs.items():
        shape = value.type.shape
        floats = value.type.dtype.name == "f32"
        drawn: A = np.asarray(random.normal(0, 1, shape) if floats else random.integers(0, 64, shape))
        arrays[name] = drawn.astype(NUMPY[value.type.dtype.name])
    arrays["slot"] = np.array([5], np.int32)
    arrays["pos"] = np.array([pos], np.int32)
    return arrays
