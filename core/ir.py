"""The typed graph that passes rewrite: values, nodes, and the rules every pass must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal

import networkx as nx

from graphrun.core.errors import GraphError, Span
from graphrun.core.op import Kernel, Op
from graphrun.core.signature import AttrValue, SignatureError, require
from graphrun.core.types import TensorType

Discipline = Literal["append", "ring", "snapshot"]
Kind = Literal["node", "weight", "state", "input"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a stacked weight that come from one tensor of the file; `tensor` None means rows of zeros."""

    tensor: str | None
    rows: int


@dataclass(frozen=True, eq=False)
class State:
    """Memory that outlives a step: its name ("3.attention.keys"), how it rolls back, and its whole type."""

    name: str
    discipline: Discipline
    type: TensorType


@dataclass(frozen=True, eq=False)
class View:
    """A value that is part of another: byte offset from its start and byte strides of each dimension."""

    base: Value
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph, known by identity; written by one node, or given from outside.

    `scope` is the block instance it belongs to ("0.attention"); `parts` says where a weight's rows come from;
    `state` is the memory a state version lives in; `view` is set when no bytes of its own hold it.
    """

    name: str
    type: TensorType
    kind: Kind
    span: Span
    scope: str = ""
    parts: tuple[Part, ...] = ()
    state: State | None = None
    view: View | None = None

    def __repr__(self) -> str:
        return f"Value({self.scope + '.' if self.scope else ''}{self.name}: {self.type})"

    @property
    def root(self) -> Value:
        """The value whose bytes hold this one."""
        return self.view.base.root if self.view else self

    @property
    def offset(self) -> int:
        """Bytes from the start of the root to the start of this value."""
        return self.view.base.offset + self.view.offset if self.view else 0

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes per step of each dimension; the last dimension of a block type steps by whole blocks."""
        return self.view.strides if self.view else dense_strides(self.type)


@dataclass(frozen=True, eq=False)
class Node:
    """An op applied to values, `inputs` in signature order with None for an absent optional one.

    `epilogues` are nodes that run inside this one, in order; each reads an output of this node or of an
    earlier epilogue. `kernel` is set once it has been selected.
    """

    op: Op
    inputs: tuple[Value | None, ...]
    attrs: Mapping[str, AttrValue]
    outputs: tuple[Value, ...]
    scope: str
    span: Span
    epilogues: tuple[Node, ...] = ()
    kernel: Kernel | None = None

    def __repr__(self) -> str:
        return f"{'+'.join(n.op.name for n in (self, *self.epilogues))}@{self.scope}"

    @cached_property
    def reads(self) -> tuple[Value, ...]:
        """Every value read from outside this node."""
        made = set(self.writes)
        read = (v for n in (self, *self.epilogues) for v in n.inputs if v is not None)
        return tuple(v for v in read if v.root not in made)

    @cached_property
    def updates(self) -> tuple[Value, ...]:
        """The state versions that this node, without its epilogues, turns into their next versions."""
        names = {o for o in self.op.signature.outputs if isinstance(o, str)}
        if not names:
            return ()
        pairs = zip(self.op.signature.inputs, self.inputs, strict=True)
        return tuple(v for p, v in pairs if p.name in names and v is not None)

    @cached_property
    def writes(self) -> tuple[Value, ...]:
        """Every value made here, the absorbed ones included."""
        return self.outputs + tuple(v for n in self.epilogues for v in n.outputs)

    def rename(self, new: Mapping[Value, Value]) -> Node:
        """The same node reading `new[v]` wherever it read v."""
        if not any(v in new for n in (self, *self.epilogues) for v in n.inputs if v is not None):
            return self
        inputs = tuple(None if v is None else new.get(v, v) for v in self.inputs)
        return replace(self, inputs=inputs, epilogues=tuple(n.rename(new) for n in self.epilogues))

    @cached_property
    def typed(self) -> bool:
        """True; the first access raises GraphError unless output types follow from the signature."""
        _verify_types(self)
        return True


@dataclass(frozen=True, eq=False)
class Graph:
    """One step of a model for a fixed number of tokens: nodes in an order that respects their data."""

    name: str
    tokens: int
    context: int
    nodes: tuple[Node, ...]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    notes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def producers(self) -> dict[Value, Node]:
        return {v: n for n in self.nodes for v in n.writes}

    @cached_property
    def readers(self) -> dict[Value, list[Node]]:
        """Nodes that read a value, or a view of it, from outside."""
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(v.root for v in node.reads):
                readers.setdefault(value, []).append(node)
        return readers

    @cached_property
    def weights(self) -> list[Value]:
        """Weights that some node reads, in order of first use."""
        return list(dict.fromkeys(v for n in self.nodes for v in n.reads if v.kind == "weight"))

    @cached_property
    def states(self) -> list[State]:
        return list(dict.fromkeys(v.state for n in self.nodes for v in n.reads if v.state is not None))

    def with_nodes(self, nodes: list[Node] | tuple[Node, ...]) -> Graph:
        return replace(self, nodes=tuple(nodes))

    def nx(self) -> nx.DiGraph[int]:
        """Hazards between nodes, by index: an edge (a, b) says that a must have finished before b starts."""
        hazards: nx.DiGraph[int] = nx.DiGraph()
        hazards.add_nodes_from(range(len(self.nodes)))
        made: dict[Value, int] = {}
        for index, node in enumerate(self.nodes):
            made.update((value, index) for value in node.writes)
        version_readers: dict[Value, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for value in node.reads:
                if value.root in made:
                    hazards.add_edge(made[value.root], index, why=value.name)
                if value.state is not None:
                    version_readers.setdefault(value, []).append(index)
        for index, node in enumerate(self.nodes):
            for value in node.updates:
                for reader in version_readers.get(value, ()):
                    if reader != index:
                        hazards.add_edge(reader, index, why=value.name)
        return hazards

    def verify(self) -> None:
        """Raise GraphError unless types follow from signatures, each value is written once and before it
        is read, and each version of a state is updated at most once."""
        known: set[Value] = set(self.inputs.values())
        updated: set[Value] = set()
        for node in self.nodes:
            for part in (node, *node.epilogues):
                for value in part.inputs:
                    if value is not None and value.root.kind == "node" and value.root not in known:
                        raise GraphError(part.span, f"{part.op.name} reads {value.name} before it is computed")
                assert part.typed
                for value in part.updates:
                    if value in updated:
                        raise GraphError(part.span, f"{value.name} is updated twice from the same version")
                    updated.add(value)
                for value in part.outputs:
                    if value in known:
                        raise GraphError(part.span, f"{value.name} is computed twice")
                    known.add(value)
        for name, value in self.outputs.items():
            if value.root not in known:
                raise GraphError(value.span, f"output {name} is never computed")


def dense_strides(type_: TensorType) -> tuple[int, ...]:
    """Byte strides of a row-major tensor; the last dimension counts blocks."""
    strides, step = [], type_.dtype.block_bytes
    for position, size in enumerate(reversed(type_.shape)):
        strides.append(step)
        step *= size if position else -(-size // type_.dtype.block)
    return tuple(reversed(strides))


def infer(op: Op, inputs: tuple[Value | None, ...], attrs: Mapping[str, AttrValue]) -> tuple[TensorType, ...]:
    """Output types of an op on these inputs; raises SignatureError."""
    return _infer(op, tuple(None if v is None else v.type for v in inputs), tuple(attrs.items()))


@lru_cache(maxsize=4096)  # the layers of a model are alike
def _infer(
    op: Op, types: tuple[TensorType | None, ...], attrs: tuple[tuple[str, AttrValue], ...]
) -> tuple[TensorType, ...]:
    pairs = zip(op.signature.input_names, types, strict=True)
    given = {name: t for name, t in pairs if t is not None}
    outputs = op.signature.infer(given, dict(attrs))
    require(op.requires, {**op.signature.bind(given).dims, **{k: v for k, v in attrs if not isinstance(v, str)}})
    return outputs


def _verify_types(node: Node) -> None:
    try:
        expected = infer(node.op, node.inputs, node.attrs)
    except SignatureError as error:
        raise GraphError(node.span, f"{node.op.name}: {error}") from None
    for value, type_ in zip(node.outputs, expected, strict=True):
        if value.type != type_:
            raise GraphError(node.span, f"{node.op.name} makes {type_}, but {value.name} is {value.type}")
