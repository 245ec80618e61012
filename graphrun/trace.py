"""A step seen call by call, as planned or as its graph says, with values that two lowerings of it share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from graphrun.backends.reference import NumpyBackend, NumpyRunner, unchecked, weight_key
from graphrun.backends.replay import written
from graphrun.core.errors import Span
from graphrun.core.ir import Graph, Node, Value, dense_strides
from graphrun.core.op import Op
from graphrun.core.program import Call, Operand, Program
from graphrun.core.quant import Q8
from graphrun.model import Model
from graphrun.planner.lower import lower
from graphrun.planner.pattern import pattern

A = np.ndarray[Any, Any]
Key = tuple[int, bool]  # number of a value in the graph before any pass, and whether it is a rounded copy


@dataclass(frozen=True, eq=False)
class Made:
    """A value that a call has left in memory; of a state, the rows that the step writes."""

    key: Key
    name: str
    array: A


@dataclass(frozen=True, eq=False)
class Place:
    """A call: its number, its label, the names of its ops and kernels, its block, its source, its tolerance."""

    index: int
    label: str
    names: frozenset[str]
    scope: str
    span: Span
    rtol: float


@dataclass(frozen=True, eq=False)
class Run:
    """What a step runs on."""

    tokens: Sequence[int]
    pos: int
    slot: int
    given: Mapping[str, A]


class Trace(Protocol):
    """A step that can be run call by call."""

    title: str

    @property
    def keys(self) -> frozenset[Key]:
        """Every value that a run leaves in memory at some time."""

    def run(self, run: Run) -> Iterator[tuple[Place, list[Made]]]:
        """Run the step; each call with what it made. To be exhausted before the next step."""


def numbered(graph: Graph) -> dict[Value, int]:
    """Every value of a graph by its number; what is a whole value seen in another shape has that value's number."""
    found: dict[Value, int] = {}
    for number, value in enumerate(v for node in graph.nodes for v in node.outputs):
        whole = value
        while whole.view is not None and _same_bytes(whole, whole.view.base):
            whole = whole.view.base
        found[value] = found.get(whole, number)
    return found


def _same_bytes(value: Value, base: Value) -> bool:
    dense = value.strides == dense_strides(value.type) and base.strides == dense_strides(base.type)
    return dense and value.type.nbytes == base.type.nbytes


class Planned:
    """A program on its model's backend."""

    def __init__(self, model: Model, program: Program) -> None:
        self.model, self.program = model, program
        self.title = f"{model.backend.target.name} {'exact' if model.exact else 'q8'}"
        self.numbers = numbered(program.graph)
        self.plan = [(_place(i, c, model.ops), list(self._wanted(c))) for i, c in enumerate(program.calls)]

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset(key for _, wanted in self.plan for _, key, *_ in wanted)

    def run(self, run: Run) -> Iterator[tuple[Place, list[Made]]]:
        """See Trace."""
        runner = self.model.runner
        runner.watched = True
        runner.step(self.program, run.tokens, run.pos, run.slot, run.given)
        for index, (place, wanted) in enumerate(self.plan):
            arrays = runner.buffers(index)
            made = []
            for result, key, name, part in wanted:
                if result in arrays:  # not every backend shows its states
                    made.append(Made(key, name, arrays[result] if part is None else _cut(arrays[result], part)))
            yield place, made

    def _wanted(self, call: Call) -> Iterator[tuple[str, Key, str, Operand | None]]:
        """Results in memory that the graph has too, by name of the result, key and the value's name in the graph.

        A joint result, which the graph has not, counts as the parts of it that are read later.
        """
        copies = {p.outputs[0].value: p.inputs[0] for p in (call, *call.epilogues) if p.op.name == "quantize"}
        for result, operand in call.named.items():
            value = operand.value
            rounded = copies.get(value)
            source = value if rounded is None else rounded.value
            if (number := self._number(source)) is not None:
                yield result, (number, rounded is not None), source.name, None
            for number, part in self._parts.get(value, {}).items():
                yield result, (number, False), part.value.name, part

    def _number(self, value: Value) -> int | None:
        return self.numbers.get(value, self._named.get((value.scope, value.name)) if value.view else None)

    @cached_property
    def _named(self) -> dict[tuple[str, str], int | None]:
        """Numbers by block and name; None for a name that several values have."""
        found: dict[tuple[str, str], int | None] = {}
        for value, number in self.numbers.items():
            key = (value.scope, value.name)
            found[key] = number if found.get(key, number) == number else None
        return found

    @cached_property
    def _parts(self) -> dict[Value, dict[int, Operand]]:
        """Parts of values that only the plan has, as joint products, by number: the operands that later calls read."""
        found: dict[Value, dict[int, Operand]] = {}
        for call in self.program.calls:
            for operand in (o for part in (call, *call.epilogues) for o in part.inputs if o is not None):
                root, number = operand.value.root, self._number(operand.value)
                if operand.place == "arena" and root not in self.numbers and number is not None:
                    found.setdefault(root, {}).setdefault(number, operand)
        return found


def _cut(whole: A, operand: Operand) -> A:
    """The part of a joint value, whose copy is `whole`, that an operand reads."""
    value = operand.value
    found: A = np.ndarray(value.type.shape, whole.dtype, whole.data, value.offset, value.strides)
    return found


def _place(index: int, call: Call, ops: Mapping[str, Op]) -> Place:
    parts = (call, *call.epilogues)
    names = {p.op.name for p in parts} | {p.kernel.name for p in parts}
    return Place(index, call.label, frozenset(names), call.scope, call.span, max(tolerance(p.op, ops) for p in parts))


def tolerance(op: Op, ops: Mapping[str, Op]) -> float:
    """The relative tolerance of an op, for a fused one at least that of the ops it replaces."""
    inner = pattern(op, op.fuses).equations if op.fuses else ()
    return max([op.rtol, *(ops[line.op].rtol for line in inner)])


class AsWritten:
    """A graph before any pass, each node by the numpy body of its op; products round where their expansion does."""

    title = "the graph as written"

    def __init__(self, model: Model, program: Program, before: AsWritten | None = None) -> None:
        """`before` is the same step for another number of tokens, whose states go on."""
        graph, target = program.graph, model.backend.target
        self.graph = graph if model.exact else lower(graph, model.ops, target, exact=False, until="expand")
        self.numbers = numbered(graph)
        self.memory: NumpyRunner = before.memory if before else self._load(model)

    def _load(self, model: Model) -> NumpyRunner:
        return NumpyBackend().load(model.file, self.graph.weights, self.graph.states)

    @cached_property
    def keys(self) -> frozenset[Key]:
        found = (self._key(node, value) for node in self.graph.nodes for value in node.outputs)
        return frozenset(key for key in found if key is not None)

    def run(self, run: Run) -> Iterator[tuple[Place, list[Made]]]:
        """See Trace."""
        known: dict[Value, Any] = {}
        numbers = {"tokens": run.tokens, "pos": [run.pos], "slot": [run.slot]}
        for name, value in self.graph.inputs.items():
            known[value] = np.array(numbers[name], np.int32) if name in numbers else run.given[name]
        for index, node in enumerate(self.graph.nodes):
            self._compute(node, known)
            made = []
            for value in node.outputs:
                key = self._key(node, value)
                if key is not None:
                    made.append(Made(key, value.name, _shown(value, known[value], run)))
            place = Place(index, node.op.name, frozenset([node.op.name]), node.scope, node.span, node.op.rtol)
            yield place, made

    def _compute(self, node: Node, known: dict[Value, Any]) -> None:
        given = {}
        for name, value in zip(node.op.signature.input_names, node.inputs, strict=True):
            if value is not None:
                given[name] = known[value] if value in known else self._outside(value)
        with unchecked():
            result = node.op(**given, **node.attrs)
        known |= zip(node.outputs, result if len(node.outputs) > 1 else (result,), strict=True)

    def _outside(self, value: Value) -> Any:
        if value.state is not None:
            return self.memory.states[value.state.name]
        return self.memory.weights[weight_key(value)]

    def _key(self, node: Node, value: Value) -> Key | None:
        rounded = node.op.name == "quantize"
        source = node.inputs[0] if rounded else value
        number = None if source is None else self.numbers.get(source)
        return None if number is None else (number, rounded)


def _shown(value: Value, array: Any, run: Run) -> A:
    """The array of a value as `Runner.buffers` gives it."""
    if isinstance(array, Q8):
        dequantised: A = (array.q * array.d[..., None]).reshape(value.type.shape)
        return dequantised
    if value.state is not None:
        rows: A = array[written(value.state, len(run.tokens), run.pos, run.slot)]
        return rows
    copied: A = np.array(array)
    return copied
