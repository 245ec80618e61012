"""Weights and states of a graph, bound to the tensors of a model file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from graphrun.core.errors import GraphError
from graphrun.core.ir import Discipline, Part, Value
from graphrun.core.quant import layout
from graphrun.core.types import DTYPES, F32, TensorType
from graphrun.graphs.declare import StateDecl, WeightDecl
from graphrun.graphs.header import FileHeader, TensorHeader, nearest
from graphrun.graphs.params import Sink
from graphrun.graphs.scalars import Evaluator, Result, describe


def bind(
    weights: Mapping[str, WeightDecl],
    header: FileHeader,
    names: Mapping[str, Result],
    scope: str,
    sink: Sink,
) -> dict[str, Value | None]:
    """A value for each weight, None for an absent optional one; mistakes go to `sink` and have no value."""
    found: dict[str, Value | None] = {}
    for name, declared in weights.items():
        try:
            shape = tuple(Evaluator(names).size(dim) for dim in declared.dims.items)
            found[name] = _weight(name, declared, shape, header, {**names, **found}, scope)
        except GraphError as error:
            sink(error)
    return found


def _weight(
    name: str,
    declared: WeightDecl,
    shape: tuple[int, ...],
    header: FileHeader,
    names: Mapping[str, Result],
    scope: str,
) -> Value | None:
    tensor = tensor_name(declared, names)
    info = header.tensors.get(tensor)
    if info is None:
        return _stand_in(declared, shape, tensor, header, names)
    if tuple(info.shape) != shape:
        found = f"{info.type}{list(info.shape)}"
        raise GraphError(declared.dims.span, f"{tensor} is {found}, this says {list(shape)}")
    try:
        type_ = _type(info)
    except ValueError as error:
        raise GraphError(declared.span, f"{tensor}: {error}") from None
    parts = (Part(tensor, shape[0]),)
    return Value(str(name), type_, "weight", declared.span, scope, parts=parts)


def _type(info: TensorHeader) -> TensorType:
    """Matrices keep a layout of their own, everything else is read as f32."""
    shape = tuple(info.shape)
    kept = _layout(info.type, math.prod(shape[:-1]), shape[-1])  # refuses unknown types
    return TensorType(kept if len(shape) == 2 else F32, shape)


_layout = lru_cache(maxsize=256)(layout)  # layers repeat the same few shapes


def tensor_name(declared: WeightDecl, names: Mapping[str, Result]) -> str:
    """The tensor's name with its holes filled."""
    result = str(declared.tensor)
    for hole in declared.names:
        result = result.replace(f"{{{hole.name}}}", describe(Evaluator(names).scalar(hole)))
    return result


def _stand_in(
    declared: WeightDecl, shape: tuple[int, ...], tensor: str, header: FileHeader, names: Mapping[str, Result]
) -> Value | None:
    if declared.other is None:
        raise GraphError(declared.span, f"the model file has no tensor '{tensor}'", nearest(tensor, header.tensors))
    value = Evaluator(names).value(declared.other)
    if not isinstance(value, Value):
        return None
    if value.type.shape != shape:
        message = f"{declared.other.name} stands in for {tensor} and is {value.type}, this says {list(shape)}"
        raise GraphError(declared.dims.span, message)
    return value


@dataclass(frozen=True)
class StateSizes:
    """What the leading dimension of a state is made of: the cache's positions, and the longest step that may be
    rolled back."""

    context: int
    rollback: int

    def shape(self, discipline: Discipline, dims: tuple[int, ...]) -> tuple[int, ...]:
        """append: a row per position. ring: its first dimension counts the past rows that are read; room for a
        rolled back step is added, to whole units of 32 rows, but a row per position is always enough. snapshot: a
        copy per token of such a step."""
        if discipline == "append":
            return self.context, *dims
        if discipline == "ring":
            return min(-(-(dims[0] + self.rollback) // 32) * 32, max(self.context, 32)), *dims[1:]
        return self.rollback, *dims


def state_type(state: StateDecl, names: Mapping[str, Result], sizes: StateSizes, exact: bool) -> TensorType:
    """The whole type of a state; exact ones are f32 whatever is written."""
    dims = tuple(Evaluator(names).size(dim) for dim in state.dims.items)
    return TensorType(F32 if exact else DTYPES[state.dtype], sizes.shape(state.discipline, dims))
