"""Random arguments for any op, from its signature alone: arrays, matrices of every layout, states and attributes."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from quant_cases import FULL, matrix, random_rows

from graphrun.core.op import Op
from graphrun.core.quant import Q8, Matrix, quantise
from graphrun.core.signature import Attr, AttrValue, SignatureError, Tensor, evaluate, require
from graphrun.core.types import DTYPES, F32, LAYOUTS, TensorType

A = np.ndarray[Any, Any]

NUMPY: Mapping[str, type[np.generic]] = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
SIZES = {"N": 64, "M": 32, "H": 4, "G": 2, "D": 32, "C": 32, "V": 48, "K": 4, "S": 32, "L": 8, "U": 4}
OTHER = 8  # a letter that is not in the table
WIDE = 256  # channels where a weight may come in blocks of so many
WHOLE, REAL = (16, 2, 1), (0.5, 8.0)  # values for attributes without a default: the first that the op allows
POSITION, SMALL = 3, 4  # the first position of a step; other i32 values lie below SMALL


@dataclass(frozen=True)
class Case:
    """How the open parts of a signature are filled: tokens, weights' layout, caches' type, optional inputs, choices."""

    tokens: int
    layout: str
    cache: str
    optional: bool
    choice: int

    def __str__(self) -> str:
        return f"T={self.tokens}-{self.layout}-{self.cache}-{self.choice}{'-optional' * self.optional}"


def is_matrix(parameter: Tensor) -> bool:
    """Whether the parameter is a weight matrix: of any type or any quantised type, and two dimensions."""
    return parameter.dtype not in DTYPES and len(parameter.dims) == 2


def cases(op: Op) -> Iterator[Case]:
    """Every layout, cache type, choice and use of optional inputs that the signature allows, for some tokens."""
    weights = [p for p in op.signature.inputs if is_matrix(p)]
    caches = any(p.dtype not in DTYPES for p in op.signature.inputs if not is_matrix(p))
    layouts = [d.name for d in LAYOUTS] + ["f32"] * all(p.dtype != "Q" for p in weights)
    choices = max((len(a.choices) for a in op.signature.attrs), default=0)
    yield from (
        Case(*values)
        for values in product(
            (1, 3, 20),
            layouts if weights else ["f32"],
            ["f16", "f32"] if caches else ["f32"],
            [True, False] if any(p.optional for p in op.signature.inputs) else [False],
            range(max(choices, 1)),
        )
    )


@dataclass(frozen=True)
class Arguments:
    """Values by parameter name, and the types of the tensors among them."""

    values: dict[str, Any]
    types: dict[str, TensorType]
    attrs: dict[str, AttrValue]

    def in_order(self, op: Op) -> tuple[TensorType | None, ...]:
        return tuple(self.types.get(name) for name in op.signature.input_names)


def arguments(op: Op, case: Case, seed: int = 0) -> Arguments:
    """Random arguments; matrices and states included."""
    rng = np.random.default_rng(seed)
    attrs, sizes = _sizes(op, case)
    types = {p.name: _type(p, case, sizes) for p in op.signature.inputs if not p.optional or case.optional}
    values = {name: _value(name, type_, rng, _parameter(op, name)) for name, type_ in types.items()}
    return Arguments({**values, **attrs}, types, attrs)


def _parameter(op: Op, name: str) -> Tensor:
    return next(p for p in op.signature.inputs if p.name == name)


def _sizes(op: Op, case: Case) -> tuple[dict[str, AttrValue], dict[str, int]]:
    """Attributes and dimensions for which the op's conditions hold."""
    attrs = op.signature.attrs
    for numbers in product(*((WHOLE if a.kind == "int" else REAL) if a.default is None else (0,) for a in attrs)):
        values = {a.name: _attribute(a, case, number) for a, number in zip(attrs, numbers, strict=True)}
        whole = {name: value for name, value in values.items() if isinstance(value, int)}
        sizes = _solve(op, _letters(op, case) | whole)
        try:
            require(op.requires, {**sizes, **{k: v for k, v in values.items() if isinstance(v, float)}})
        except SignatureError:
            continue
        return values, sizes
    raise AssertionError(f"no sizes fit {op.name}: {op.requires}")


def _attribute(attr: Attr, case: Case, number: int | float) -> AttrValue:
    if attr.choices:
        return attr.choices[case.choice % len(attr.choices)]
    return number if attr.default is None else attr.default


def _letters(op: Op, case: Case) -> dict[str, int]:
    letters = {d for p in op.signature.inputs for d in p.dims if d != "..." and not d.isdigit()}
    sizes = {letter: SIZES.get(letter, OTHER) for letter in letters} | {"T": case.tokens, "R": case.tokens}
    return sizes | ({"N": WIDE} if any(map(is_matrix, op.signature.inputs)) else {})


def _solve(op: Op, sizes: dict[str, int]) -> dict[str, int]:
    """Take `letter == expression` among the conditions as what the letter is."""
    for text in filter(None, op.requires.split(",")):
        condition = ast.parse(text.strip(), mode="eval").body
        if isinstance(condition, ast.Compare) and isinstance(condition.left, ast.Name):
            if isinstance(condition.ops[0], ast.Eq) and condition.left.id in sizes:
                sizes[condition.left.id] = evaluate(ast.unparse(condition.comparators[0]), sizes)
    return sizes


def _type(parameter: Tensor, case: Case, sizes: Mapping[str, int]) -> TensorType:
    lead = (case.tokens, 2) if case.tokens > 1 else (1,)
    shape = tuple(n for d in parameter.dims for n in (lead if d == "..." else (int(sizes.get(d, d)),)))
    name = case.layout if is_matrix(parameter) else case.cache
    return TensorType(DTYPES.get(parameter.dtype) or DTYPES[name], shape)


def _value(name: str, type_: TensorType, rng: np.random.Generator, parameter: Tensor) -> Any:
    if is_matrix(parameter):
        return _matrix(type_, rng)
    if type_.dtype.name == "i32":
        return np.full(type_.shape, POSITION, np.int32) if name == "pos" else _integers(type_, rng)
    spread = np.float32(1 if len(type_.shape) > 1 else 0.1)  # a vector may be an exponent of many steps
    values = rng.standard_normal(type_.shape, np.float32) * spread
    return quantise(values) if type_.dtype.name == "q8" else values.astype(NUMPY[type_.dtype.name])


def _integers(type_: TensorType, rng: np.random.Generator) -> A:
    return rng.integers(0, SMALL, type_.shape, np.int32)


def _matrix(type_: TensorType, rng: np.random.Generator) -> Matrix:
    rows, columns = type_.shape
    if type_.dtype == F32:
        return Matrix.dense(rng.standard_normal((rows, columns), np.float32) / np.float32(math.sqrt(columns)))
    stored = FULL[type_.dtype.name]
    return matrix(stored, type_.dtype.name, random_rows(rng, stored, rows, columns, "plain"))


def parts_of(value: Any) -> tuple[A, ...]:
    """The arrays that hold an argument or a result."""
    if isinstance(value, Matrix):
        return value.words, value.scales
    return tuple(value) if isinstance(value, Q8) else (np.asarray(value),)


def results_of(op: Op, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the op makes of these arguments, one entry for each of its outputs."""
    result = op(**values)
    return result if len(op.signature.outputs) > 1 else (result,)


def copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with arrays of their own, so that a state may be updated again."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}
