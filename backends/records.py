"""Command tables: a program's calls as 256-byte records, read by kernels on every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphrun.backends.abi import (
    BARRIER,
    HEADER,
    RECORD_BYTES,
    Layout,
    epilogue_tensors,
    is_matrix,
    layout,
    type_letters,
    ways,
)
from graphrun.core.errors import BackendError, ProgramError
from graphrun.core.ir import dense_strides
from graphrun.core.program import Call, Operand, Program
from graphrun.core.signature import Tensor

A = np.ndarray[Any, Any]
INT32 = range(-(1 << 31), 1 << 31)
Values = dict[str, int | float]
Address = Callable[[Operand, Tensor], int]  # where an operand is; weights and arrays by the parameter's kind
Tables = Callable[[Call], int]  # where the table of a call is whose op has one
KernelIndex = Mapping[str, tuple[int, int]]  # name -> place in the kernel table, checksum of its struct


def command_table(program: Program, kernels: KernelIndex, address: Address, tables: Tables) -> A:
    """uint8[calls, 256], a barrier after each segment; BackendError for a call that no kernel computes."""
    table = np.zeros((len(program.calls), RECORD_BYTES), np.uint8)
    last = {call.segment: index for index, call in enumerate(program.calls)}
    for index, call in enumerate(program.calls):
        name, shape = call.kernel.name, layout(call.op)
        place, checksum = kernels.get(name, (0, 0))
        if checksum != shape.checksum:
            problem = "was compiled for another signature" if name in kernels else "does not exist"
            raise BackendError(
                f"{call.span}: kernel {name} of op {call.op.name} {problem}", "--backend numpy runs any op"
            )
        flags = BARRIER if last[call.segment] == index else 0
        raw = HEADER.pack(place, flags, call.groups, index, 0) + record(call, shape, address, tables)
        table[index, : len(raw)] = np.frombuffer(raw, np.uint8)
    return table


def record(call: Call, shape: Layout, address: Address, tables: Tables) -> bytes:
    """The members of a call's struct."""
    signature = call.op.signature
    results = [(t, o) for t, o in zip(signature.outputs, call.outputs, strict=True) if isinstance(t, Tensor)]
    given = [(t, o) for t, o in zip(signature.inputs, call.inputs, strict=True) if o is not None]
    values: Values = {}
    for parameter, operand in (*given, *results):
        _tensor(call, parameter, operand, address, values)
    tensors = [*signature.inputs, *(t for t, _ in results)]
    for letter in type_letters(tensors):
        values[f"type_{letter}"] = int(any(o.type.dtype.name == "f16" for t, o in given if t.dtype == letter))
    if call.op.table:
        values["table"] = tables(call)
    for epilogue in call.epilogues:
        _epilogue(call, epilogue, address, values)
    for attr in signature.attrs:
        value = call.attrs[attr.name]
        if isinstance(value, int) and value not in INT32:
            if call.op.table is None:
                raise ProgramError(f"{call.op.name}: {attr.name} = {value} is beyond 32 bits ({call.span})")
            value = 0  # it went into the op's table, and kernels read that
        values[attr.name] = attr.choices.index(str(value)) if attr.choices else value  # type: ignore[assignment]
    return shape.pack(values)


def sizes(call: Call) -> dict[str, int | float]:
    """The dimensions of a call by the letters of its op's signature."""
    values: Values = {}
    for parameter, operand in zip(call.op.signature.inputs, call.inputs, strict=True):
        if operand is not None:
            _sizes(parameter, operand, call.attrs, values)
    return values


def _tensor(call: Call, parameter: Tensor, operand: Operand, address: Address, values: Values) -> None:
    """Pointer, strides and sizes of one tensor."""
    _sizes(parameter, operand, call.attrs, values)
    if operand.place == "none":
        return
    values[parameter.name] = address(operand, parameter)
    if not is_matrix(parameter):
        _strides(call, parameter, operand, values)


def _sizes(parameter: Tensor, operand: Operand, attrs: Mapping[str, Any], values: Values) -> None:
    shape, dims = operand.type.shape, parameter.dims
    if dims[0] == "...":
        lead = shape[: len(shape) - len(dims) + 1]
        assert len(lead) <= 2, f"{operand.value} has {len(lead)} leading dimensions"
        values["rows"], values["cols"] = (*lead, 1, 1)[:2]
        dims, shape = dims[1:], shape[len(lead) :]
    values.update((dim, size) for dim, size in zip(dims, shape, strict=True) if dim.isalpha() and dim not in attrs)


def _strides(call: Call, parameter: Tensor, operand: Operand, values: Values) -> None:
    """Byte strides of the leading dimensions; the last must be dense, and so must all where kernels take none."""
    names, steps = ways(parameter), operand.strides
    inner = dense_strides(operand.type)[-1]
    dense = steps[-1] == inner or operand.type.shape[-1] == 1
    if not names:
        dense = all(
            a == b or n == 1 for a, b, n in zip(steps, dense_strides(operand.type), operand.type.shape, strict=True)
        )
    if not dense or (len(steps) > len(names) + 1 and names):
        raise BackendError(f"{call.span}: {call.op.name} reads {operand.value.name} with steps of {steps} bytes")
    values.update((f"{parameter.name}_{way}", step) for way, step in zip(names, steps[:-1], strict=False))


def _epilogue(call: Call, epilogue: Call, address: Address, values: Values) -> None:
    """The second operand and the result of an absorbed op; what it reads of this call has no place."""
    *before, result = epilogue_tensors(epilogue.op.name)
    others = [o for o in epilogue.inputs if o is not None and o.value.root not in _made(call)]
    assert len(others) == len(before) and len(epilogue.outputs) == 1, f"{call.label} cannot be a record"
    for parameter, operand in zip((*before, result), (*others, epilogue.outputs[0]), strict=True):
        if operand.place != "none":
            values[parameter.name] = address(operand, parameter)
            _strides(call, parameter, operand, values)


def _made(call: Call) -> set[Any]:
    return {o.value for c in (call, *call.epilogues) for o in c.outputs}
