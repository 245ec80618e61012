"""Terms: what values are made of, each known by one number, so that equal numbers mean equal computations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate
from typing import Any

from graphrun.core.equations import Equation
from graphrun.core.errors import Span
from graphrun.core.ir import Value, View, dense_strides
from graphrun.core.op import Op
from graphrun.core.signature import AttrValue, SignatureError
from graphrun.core.types import F32, TensorType
from graphrun.core.view import view_layouts
from graphrun.planner.pattern import Pattern, pattern

# Channel m of these results depends on x and on row m of w and b only, so a stack of weights makes a stack of results.
ROWWISE = frozenset({"gemv", "gemv_f32"})
COMMUTATIVE = frozenset({"add", "mul"})
NOWHERE = Span("", 0, 0)

Key = tuple[Any, ...]
Typed = tuple[int, TensorType]  # a region and its type
Piece = tuple[int, int]  # a term and its channels
Rows = tuple[Any, int]  # a tensor of the file, None for zeros, and its rows


class Terms:
    """Numbers of terms. A term is a whole tensor, a region is part of one: offset, shape and strides in bytes.

    A fused op is its equations, a row-wise product of stacked weights the stack of the products of each. Once `mark`
    is set, an op that has expansions is the first of them that is among the terms below it; with `exact` those that
    round are not tried.
    """

    def __init__(self, ops: Mapping[str, Op], exact: bool) -> None:
        self.ops, self.exact = ops, exact
        self.mark = 0
        self.keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self._pieces: dict[int, tuple[Piece, ...]] = {}

    def number(self, *key: Any) -> int:
        """The number of a term or region."""
        found = self._numbers.setdefault(key, len(self.keys))
        if found == len(self.keys):
            self.keys.append(key)
        return found

    def outside(self, value: Value) -> int:
        """A weight, by the tensors its rows come from; an input or a state as it is before the step, by name."""
        if value.kind == "weight":
            return self.number("weight", value.parts or value, value.type)
        return self.number("state", value.state.name) if value.state else self.number("input", value.name)

    def region(self, term: int, offset: int, type_: TensorType, strides: Sequence[int]) -> int:
        """Part of a term; of a stack, only the pieces it touches count."""
        shape = type_.shape
        steps = tuple(step if n > 1 else 0 for n, step in zip(shape, strides, strict=True))
        pieces = self._pieces.get(term, ())
        if len(pieces) > 1:
            term, offset, steps = self._within(term, pieces, offset, shape, steps)
        return self.number("region", term, offset, shape, steps)

    def _within(
        self, term: int, pieces: Sequence[Piece], offset: int, shape: tuple[int, ...], steps: tuple[int, ...]
    ) -> tuple[int, int, tuple[int, ...]]:
        """The same region in the stack of the pieces it touches."""
        size = F32.block_bytes
        width = size * sum(rows for _, rows in pieces)
        token, first = divmod(offset, width)
        last = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True) if step < width)
        if last >= width or any(step > width and step % width for step in steps):
            return term, offset, steps
        start, before, touched = 0, 0, []
        for piece in pieces:
            end = start + size * piece[1]
            if end <= first:
                before = end
            elif start <= last:
                touched.append(piece)
            start = end
        narrow = size * sum(rows for _, rows in touched)
        steps = tuple(step // width * narrow if step >= width else step for step in steps)
        return self.stack(touched), token * narrow + first - before, steps

    def stack(self, pieces: Sequence[Piece]) -> int:
        """Products side by side; one by itself is itself."""
        term = pieces[0][0] if len(pieces) == 1 else self.number("stack", *pieces)
        self._pieces[term] = tuple(pieces)
        return term

    def known(self, term: int) -> bool:
        """Whether a term, or every piece of it, was there at the mark."""
        return all(piece < self.mark for piece, _ in self._pieces.get(term, ((term, 0),)))

    def apply(self, op: Op, inputs: Sequence[Typed | None], attrs: Mapping[str, AttrValue]) -> tuple[int, ...]:
        """The terms of an op's results."""
        if op.fuses is not None:
            return self._interpret(op, pattern(op, op.fuses), inputs, attrs)
        if op.name in ROWWISE:
            return (self._product(op, inputs),)
        if self.mark and (found := self._expand(op, inputs, attrs)):
            return found
        given = [None if x is None else x[0] for x in inputs]
        if op.name in COMMUTATIVE:
            given.sort(key=lambda region: region or 0)
        term = self.number(op.name, tuple(attrs.get(a.name, a.default) for a in op.signature.attrs), *given)
        outputs = op.signature.outputs
        return (term,) if len(outputs) == 1 else tuple(self.number("result", term, k) for k in range(len(outputs)))

    def _expand(self, op: Op, inputs: Sequence[Typed | None], attrs: Mapping[str, AttrValue]) -> tuple[int, ...]:
        """The terms of the first expansion that is known, else of the first that may be; none without one."""
        found = []
        for expansion in op.expansions:
            if not (self.exact and expansion.rounds):
                with suppress(SignatureError):  # one for weights of another type
                    found.append(self._interpret(op, pattern(op, expansion.body), inputs, attrs))
        return next((results for results in found if all(map(self.known, results))), found[0] if found else ())

    def _product(self, op: Op, inputs: Sequence[Typed | None]) -> int:
        """The stack of the products with each tensor that the weight, or the bias, is stacked from."""
        x, w, b = inputs
        assert x is not None and w is not None
        rows = w[1].shape[0]
        weights, biases = self._tensors(w), [(None, rows)] if b is None else self._tensors(b)
        if not weights or not biases:
            return self.number(op.name, *(i and i[0] for i in inputs))
        pieces = []
        for start, end in _cuts(weights, biases):
            parts = _at(weights, start), _at(biases, start) if _at(biases, start)[0] else None
            term = self.number(op.name, x[0], *parts, end - start, w[1].shape[1:], w[1].dtype)
            pieces.append((term, end - start))
        return self.stack(pieces)

    def _tensors(self, weight: Typed) -> list[Rows]:
        """What a weight is stacked from; empty for a value that is not a whole weight."""
        _, term, offset, *_ = self.keys[weight[0]]
        kind, source, *_ = self.keys[term]
        rows = weight[1].shape[0]
        if kind != "weight" or offset:
            return []
        parts = source if isinstance(source, tuple) else ()
        return [(p.tensor, p.rows) for p in parts] if sum(p.rows for p in parts) == rows else [(source, rows)]

    def _interpret(
        self, op: Op, body: Pattern, inputs: Sequence[Typed | None], attrs: Mapping[str, AttrValue]
    ) -> tuple[int, ...]:
        """The terms of an op's results when it is computed by equations."""
        bound: dict[str, Typed | AttrValue | None] = dict(zip(op.signature.input_names, inputs, strict=True))
        bound |= {a.name: attrs.get(a.name, a.default) for a in op.signature.attrs}
        terms: dict[str, int] = {}
        for line in body.equations:
            for name, term, made in self._line(line, bound):
                terms[name], bound[name] = term, made
        return tuple(terms[name] for name in body.results)

    def _line(self, line: Equation, bound: Mapping[str, Typed | AttrValue | None]) -> list[tuple[str, int, Typed]]:
        """Names, terms and regions that an equation makes."""
        op = self.ops[line.op]
        given = {p: bound[a] for p, a in zip(op.signature.parameter_names, line.arguments, strict=False)}
        inputs = [x if isinstance(x := given.get(name), tuple) else None for name in op.signature.input_names]
        attrs = {a.name: a.default if (v := given.get(a.name)) is None else v for a in op.signature.attrs}
        plain = tuple((name, v) for name, v in attrs.items() if v is not None and not isinstance(v, tuple))
        types = _types(op, tuple(None if x is None else x[1] for x in inputs), plain)
        if op.view:
            assert inputs[0] is not None
            return [
                (n, *self._view(op, inputs[0], t, k, plain))
                for k, (n, t) in enumerate(zip(line.outputs, types, strict=True))
            ]
        terms = self.apply(op, inputs, dict(plain))
        return [
            (name, term, (self.region(term, 0, t, _dense(t)), t))
            for name, term, t in zip(line.outputs, terms, types, strict=True)
        ]

    def _view(
        self, op: Op, base: Typed, type_: TensorType, k: int, attrs: tuple[tuple[str, AttrValue], ...]
    ) -> tuple[int, Typed]:
        """The term and the region of result k of a view op inside an equation."""
        _, term, start, _, steps = self.keys[base[0]]
        whole = Value("", base[1], "node", NOWHERE)
        seen = Value("", base[1], "node", NOWHERE, view=View(whole, 0, steps))
        layouts = view_layouts(op, seen, dict(attrs))
        assert layouts is not None, f"{op.name} would have to copy"
        offset, strides = layouts[k]
        return term, (self.region(term, start + offset, type_, strides), type_)


def _cuts(a: Sequence[Rows], b: Sequence[Rows]) -> list[tuple[int, int]]:
    """First and last row of the stretches within which neither list starts another tensor."""
    ends = sorted({*accumulate(rows for _, rows in a), *accumulate(rows for _, rows in b)})
    return list(zip([0, *ends], ends, strict=False))


def _at(parts: Sequence[Rows], row: int) -> tuple[Any, int]:
    """The tensor that a row comes from, and which of its rows it is."""
    for tensor, rows in parts:
        if row < rows:
            return tensor, row
        row -= rows
    raise AssertionError("a product has as many biases as rows")


_dense = lru_cache(maxsize=4096)(dense_strides)


@lru_cache(maxsize=4096)
def _types(
    op: Op, types: tuple[TensorType | None, ...], attrs: tuple[tuple[str, AttrValue], ...]
) -> tuple[TensorType, ...]:
    """Types of an op's results."""
    pairs = zip(op.signature.input_names, types, strict=True)
    return op.signature.infer({name: t for name, t in pairs if t is not None}, dict(attrs))
