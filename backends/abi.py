"""The C struct of every op, from its signature: what one 256-byte record of a command table holds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from graphrun.core.op import Op
from graphrun.core.signature import Attr, Tensor
from graphrun.core.types import DTYPES

Kind = Literal["pointer", "size", "int", "float"]

RECORD_BYTES = 256
HEADER = struct.Struct("<HHIII")  # kernel, flags, groups, index of the call, 0
LAYOUTS = ("f32", "q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "i8_a")  # numbered as in kernels/gr.h
BARRIER = 1  # flag: every record before the next one must have finished before that starts
FORMATS: dict[Kind, str] = {"pointer": "Q", "size": "I", "int": "i", "float": "d"}
C_TYPES: dict[Kind, str] = {"size": "uint32_t", "int": "int32_t", "float": "double"}
WIDE = ("pointer", "float")  # members of 8 bytes
POINTERS = {
    t: f"{c} GR_GLOBAL *" for t, c in {"f32": "float", "f16": "gr_half", "i32": "int32_t", "q8": "uint8_t"}.items()
}
TOKENS = ("T", "R", "...")  # a tensor of this first dimension may be a view with any row stride


@dataclass(frozen=True, slots=True)
class Field:
    """A member of the struct: those of 8 bytes first, so there are no holes."""

    name: str
    kind: Kind
    c_type: str


@dataclass(frozen=True)
class Layout:
    """The members of one op's struct, after the header."""

    op: str
    fields: tuple[Field, ...]

    @cached_property
    def packer(self) -> struct.Struct:
        return struct.Struct("<" + "".join(FORMATS[f.kind] for f in self.fields))

    @cached_property
    def checksum(self) -> int:
        """Differs between layouts; a library says for which it was compiled."""
        return zlib.crc32(" ".join(f"{f.name}:{f.kind}" for f in self.fields).encode())

    def pack(self, values: dict[str, int | float]) -> bytes:
        """The members as bytes; members without a value are 0."""
        assert values.keys() <= {f.name for f in self.fields}, f"{self.op}: {sorted(values)}"
        return self.packer.pack(*(values.get(f.name, 0) for f in self.fields))

    def declaration(self) -> str:
        """The C definition of the struct and of its checksum."""
        members = "".join(f"  {f.c_type}{'' if f.c_type.endswith('*') else ' '}{f.name};\n" for f in self.fields)
        return (
            f"typedef struct {{\n  gr_header header;\n{members}}} gr_{self.op};\n"
            f'_Static_assert(sizeof(gr_{self.op}) <= {RECORD_BYTES}, "one record");\n'
            f"#define GR_LAYOUT_{self.op} 0x{self.checksum:08x}u\n"
        )


@cache
def layout(op: Op) -> Layout:
    """The struct of an op.

    For every tensor a pointer, null if it is absent or not stored. Tensors over tokens have byte strides: `x_row`
    between tokens and `x_col` between heads. A weight matrix points to a gr_matrix. Sizes are the signature's
    letters, `rows` and `cols` for leading dimensions "...", and `type_S` is 1 where the type letter S is f16.
    `table` is what the op's function of this name gives, from position 0 on.
    An epilogue E has the tensors `E_in` and `E_out`, quantize only the second. A choice is the index of its word.
    """
    signature = op.signature
    results = [o for o in signature.outputs if isinstance(o, Tensor)]
    tensors = [*signature.inputs, *results]
    extra = [t for e in op.epilogues for t in epilogue_tensors(e)]
    pointers = [Field(t.name, "pointer", _pointer(t)) for t in (*tensors, *extra)]
    pointers += [Field("table", "pointer", POINTERS["f32"])] if op.table else []
    strides = [_word(f"{t.name}_{way}") for t in (*tensors, *extra) for way in ways(t)]
    names = {a.name for a in signature.attrs}
    sizes = [_word(name) for name in dict.fromkeys(_sizes(tensors)) if name not in names]
    attrs = [_attribute(a) for a in signature.attrs]
    fields = (*pointers, *strides, *sizes, *attrs)
    return Layout(op.name, tuple(sorted(fields, key=lambda f: f.kind not in WIDE)))


def epilogue_tensors(name: str) -> tuple[Tensor, ...]:
    """What a struct holds for an op that may be absorbed: a second operand and a result, or a quantised copy."""
    if name == "quantize":
        return (Tensor("quantize_out", "q8", ("T", "N")),)
    return Tensor(f"{name}_in", "f32", ("...", "N")), Tensor(f"{name}_out", "f32", ("...", "N"))


def ways(tensor: Tensor) -> tuple[str, ...]:
    """The strides that a tensor's struct has."""
    if is_matrix(tensor) or tensor.state or tensor.dims[0] not in TOKENS:
        return ()
    return ("row", "col")[: 2 if tensor.dims[0] == "..." else len(tensor.dims) - 1]


def is_matrix(tensor: Tensor) -> bool:
    """Whether a parameter is a weight matrix of any layout."""
    return tensor.dtype not in DTYPES and len(tensor.dims) == 2


def type_letters(tensors: Iterable[Tensor]) -> tuple[str, ...]:
    """The letters that stand for the element type of a cache."""
    return tuple(dict.fromkeys(t.dtype for t in tensors if t.dtype not in DTYPES and not is_matrix(t)))


def header(ops: Iterable[Op]) -> str:
    """The text of kernels/ops.h."""
    lines = ["// One struct per op, written from its signature by graphrun.backends.abi; its meaning is in ops/."]
    lines += ["// clang-format off", "#pragma once"]
    parts = ["\n" + layout(o).declaration() for o in ops if o.kernels]
    return "\n".join([*lines, '#include "gr.h"', *parts])


def _pointer(tensor: Tensor) -> str:
    if is_matrix(tensor):
        return "const gr_matrix GR_MATRIX *"
    return POINTERS.get(tensor.dtype, "void GR_GLOBAL *")


def _word(name: str) -> Field:
    return Field(name, "size", C_TYPES["size"])


def _sizes(tensors: list[Tensor]) -> Iterator[str]:
    for tensor in tensors:
        for dim in tensor.dims:
            if dim == "...":
                yield from ("rows", "cols")
            elif dim.isalpha():
                yield dim
    yield from (f"type_{letter}" for letter in type_letters(tensors))


def _attribute(attr: Attr) -> Field:
    kind: Kind = "float" if attr.kind == "float" else "int"
    return Field(attr.name, kind, C_TYPES[kind])
