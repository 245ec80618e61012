"""Calls of one op made from arguments, run by a kernel on memory of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from arguments import NUMPY, Arguments, is_matrix

from graphrun.backends import engine
from graphrun.backends.abi import HEADER, RECORD_BYTES, layout, ways
from graphrun.backends.records import record
from graphrun.core.errors import Span
from graphrun.core.ir import Value, dense_strides
from graphrun.core.op import Kernel, Op
from graphrun.core.program import Call, Operand
from graphrun.core.quant import Matrix, q8_views
from graphrun.core.signature import Tensor
from graphrun.core.types import TensorType

A = np.ndarray[Any, Any]
SPAN = Span("test", 1, 1)
PADDING = 96  # bytes between rows of tokens, which no kernel may touch
GUARD = 0xA5
TABLE_ROWS = 64


class Memory:
    """A tensor with padding after each row; `operand` is how a call names it."""

    def __init__(self, name: str, type_: TensorType, padded: bool) -> None:
        self.type = type_
        q8 = type_.dtype.name == "q8"
        dense = dense_strides(type_)
        width = type_.shape[-1] // 32 * 40 if q8 else type_.shape[-1] * dense[-1]
        lead = type_.shape[:-1]
        self.padding = PADDING if padded and lead and not (q8 and len(lead) > 1) else 0
        row = (width if len(lead) < 2 else width * lead[-1]) + self.padding
        steps = (row, width)[: len(lead)] if len(lead) <= 2 else dense[:-1]
        self.bytes = np.full(
            max(1, row * (lead[0] if lead else 1) if len(lead) <= 2 else type_.nbytes), GUARD, np.uint8
        )
        self.strides = (*steps, dense[-1])
        self.value = Value(name, type_, "node", SPAN)
        self.operand = Operand("arena", self.value, type_, 0, self.strides)

    @property
    def array(self) -> Any:
        """A view: an array or a Q8."""
        if self.type.dtype.name == "q8":
            rows = int(np.prod(self.type.shape[:-1]))
            width = self.type.shape[-1] // 32 * 40
            return q8_views(np.ndarray((rows, width), np.uint8, self.bytes.data, 0, (self.strides[-2], 1)))
        return np.ndarray(self.type.shape, NUMPY[self.type.dtype.name], self.bytes.data, 0, self.strides)

    def set(self, value: Any) -> None:
        if self.type.dtype.name == "q8":
            for target, source in zip(self.array, value, strict=True):
                target[...] = source.reshape(target.shape)
        else:
            self.array[...] = value

    def untouched_between_rows(self) -> bool:
        """Whether the padding is as it was."""
        covered = np.zeros(self.bytes.size, bool)
        if len(self.type.shape) == 1 or len(self.type.shape) > 3:
            return True
        width = self.strides[0] - self.padding
        for row in range(self.type.shape[0]):
            covered[row * self.strides[0] : row * self.strides[0] + width] = True
        return bool((self.bytes[~covered] == GUARD).all())


def panels(matrix: Matrix) -> engine.Panels:
    """A matrix as kernels read it."""
    made = engine.Panels(matrix.layout, matrix.shape)
    words, scales = matrix.sections
    made.fill(0, (*words, *scales))
    return made


def tiled(keys: A) -> A:
    """A cache of keys [C, G, D] as kernels keep it: [C / 16, G, D, 16]."""
    positions, heads, dim = keys.shape
    whole = np.zeros((-(-positions // 16) * 16, heads, dim), keys.dtype)
    whole[:positions] = keys
    return np.ascontiguousarray(whole.reshape(-1, 16, heads, dim).transpose(0, 2, 3, 1))


def untiled(kept: A, positions: int) -> A:
    heads, dim = kept.shape[1:3]
    return kept.transpose(0, 3, 1, 2).reshape(-1, heads, dim)[:positions]


def is_tiled(parameter: Tensor) -> bool:
    return parameter.name == "kc" and parameter.dims[0] == "C"


class Bench:
    """One call of an op: `run` it, then read `results` and `states` by name.

    `absorbed` are ops with their other operands, run as epilogues in order; without `stored` the op's own first
    result exists only inside the call.
    """

    def __init__(
        self,
        op: Op,
        kernel: str,
        given: Arguments,
        absorbed: Sequence[tuple[Op, Mapping[str, Any]]] = (),
        stored: bool = True,
        padded: bool = True,
    ) -> None:
        self.memory: dict[str, Memory] = {}
        self.fixed: dict[Value, Any] = {}
        self.states: dict[str, A] = {}
        self.vectors = {n: given.values[n] for n in given.types if n == "factors"}
        inputs = tuple(self._input(p, given) if p.name in given.types else None for p in op.signature.inputs)
        types = op.signature.infer(given.types, given.attrs)
        tensors = [(t, k) for t, k in zip(op.signature.outputs, types, strict=True) if isinstance(t, Tensor)]
        outputs = {t.name: self._new(t.name, k, padded and bool(ways(t))) for t, k in tensors}
        first = next(iter(outputs.values()), None)
        if not stored and first is not None:
            outputs[next(iter(outputs))] = replace(first, place="none")
        calls = self._absorb(op, first, absorbed) if first is not None else ()
        places = dict(zip(op.signature.input_names, inputs, strict=True))
        made = tuple(places[o] if isinstance(o, str) else outputs[o.name] for o in op.signature.outputs)
        self.call = Call(op, Kernel(kernel), inputs, given.attrs, made, calls, 0, 1, "", SPAN)  # type: ignore[arg-type]

    def run(self, pool: engine.Pool) -> None:
        """Run the call once."""
        place, checksum = pool.kernels.index[self.call.kernel.name]
        shape = layout(self.call.op)
        assert checksum == shape.checksum, "kernels/ops.h is not current"
        raw = HEADER.pack(place, 1, 1, 0, 0) + record(self.call, shape, self._address, self._table)
        table = np.zeros((1, RECORD_BYTES), np.uint8)
        table[0, : len(raw)] = np.frombuffer(raw, np.uint8)
        pool.run(table, 0, 1)

    def result(self, name: str) -> Any:
        assert self.memory[name].untouched_between_rows(), f"{name}: bytes between rows were written"
        return self.memory[name].array

    def state(self, parameter: Tensor, positions: int) -> A:
        kept = self.states[parameter.name]
        return untiled(kept, positions) if is_tiled(parameter) else kept

    def _input(self, parameter: Tensor, given: Arguments) -> Operand:
        value, type_ = given.values[parameter.name], given.types[parameter.name]
        if is_matrix(parameter):
            return self._whole(parameter.name, type_, "weight", panels(value))
        if parameter.state or parameter.name in ("kc", "vc"):
            self.states[parameter.name] = tiled(value) if is_tiled(parameter) else value.copy()
            return self._whole(parameter.name, type_, "state", self.states[parameter.name])
        operand = self._new(parameter.name, type_, bool(ways(parameter)))
        self.memory[parameter.name].set(value)
        return operand

    def _new(self, name: str, type_: TensorType, padded: bool) -> Operand:
        self.memory[name] = Memory(name, type_, padded)
        return self.memory[name].operand

    def _whole(self, name: str, type_: TensorType, place: str, held: Any) -> Operand:
        value = Value(name, type_, "weight", SPAN)
        self.fixed[value] = held
        return Operand(place, value, type_, 0, dense_strides(type_))

    def _absorb(self, op: Op, first: Operand, absorbed: Sequence[tuple[Op, Mapping[str, Any]]]) -> tuple[Call, ...]:
        calls = []
        last = replace(first, place="none")
        for index, (extra, others) in enumerate(absorbed):
            operands = []
            for parameter in extra.signature.inputs:
                if parameter.name in others:
                    operands.append(self._new(f"{extra.name}.{parameter.name}", first.type, True))
                    self.memory[f"{extra.name}.{parameter.name}"].set(others[parameter.name])
                else:
                    operands.append(last)
            shape = first.type.shape
            flat = (shape[0], int(np.prod(shape[1:]))) if extra.name == "quantize" else shape
            (result,) = extra.signature.infer(
                {p.name: TensorType(first.type.dtype, flat) for p in extra.signature.inputs}, {}
            )
            out = self._new(f"{extra.name}.out", result, True)
            if index + 1 < len(absorbed) and not extra.tee:
                out = replace(out, place="none")
            calls.append(Call(extra, Kernel(extra.name), tuple(operands), {}, (out,), (), 0, 0, "", SPAN))
            last = last if extra.tee else replace(out, place="none")
        return tuple(calls)

    def _table(self, call: Call) -> int:
        assert call.op.table is not None
        self.table = call.op.table(0, TABLE_ROWS, {**call.attrs, **self.vectors})
        return int(self.table.ctypes.data)

    def _address(self, operand: Operand, parameter: Tensor) -> int:
        held = self.fixed.get(operand.value)
        if held is None:
            memory = next(m for m in self.memory.values() if m.value is operand.value)
            return int(memory.bytes.ctypes.data)
        return int(held.address if isinstance(held, engine.Panels) else held.ctypes.data)
