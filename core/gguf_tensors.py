"""The tensor table of a GGUF file: names, types, shapes and checked places in the data section."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from graphrun.core.gguf_read import Cursor, shown

MAX_TENSORS = 1 << 15
MAX_NAME_BYTES = 64
MAX_DIMS = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as the file describes it.

    type: lower-case ggml name ("q4_0", "f32", "iq4_xs"), or "type<N>" for a number that has no name.
    shape: row-major, (rows, columns); a vector is (n,). GGUF stores the reverse.
    nbytes: bytes in the file; 0 for a type without a name.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor and its first byte, counted from the start of the data section."""

    info: TensorInfo
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.info.nbytes

    @property
    def known(self) -> bool:
        """False for a type number without a name, whose size cannot be told."""
        return self.info.nbytes > 0


def tensor_place(name: str) -> str:
    """How messages name a tensor."""
    return f"tensor {shown(name)}"


def align_up(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def read_tensors(cursor: Cursor, count: int, alignment: int) -> tuple[dict[str, Stored], int]:
    """Read `count` tensor infos; returns them by name and the start of the data section. Raises ModelError."""
    tensors: dict[str, Stored] = {}
    for index in range(count):
        name = cursor.name(f"tensor {index}", MAX_NAME_BYTES)
        where = tensor_place(name)
        if name in tensors:
            raise cursor.error(where, "appears twice")
        tensors[name] = _read_info(cursor, name, where)
        if tensors[name].offset % alignment:
            raise cursor.error(where, f"offset {tensors[name].offset} is not a multiple of the alignment {alignment}")
    start = align_up(cursor.pos, alignment)
    _check_places(cursor, tensors, len(cursor.data) - start)
    return tensors, start


def _read_info(cursor: Cursor, name: str, where: str) -> Stored:
    ndim = cursor.u32(where)
    if not 1 <= ndim <= MAX_DIMS:
        raise cursor.error(where, f"has {ndim} dimensions, but must have 1..{MAX_DIMS}")
    shape = tuple(cursor.u64(where) for _ in range(ndim))[::-1]
    if 0 in shape:
        raise cursor.error(where, f"shape {list(shape)} has a zero dimension")
    if math.prod(shape) >= 1 << 63:
        raise cursor.error(where, f"shape {list(shape)} has 2^63 elements or more")
    type_number, offset = cursor.u32(where), cursor.u64(where)
    try:
        ggml_type = GGMLQuantizationType(type_number)
    except ValueError:
        return Stored(TensorInfo(name, f"type{type_number}", shape, 0), offset)
    type_name = ggml_type.name.lower()
    block, block_bytes = GGML_QUANT_SIZES[ggml_type]
    if shape[-1] % block:
        raise cursor.error(where, f"has {shape[-1]} columns, but {type_name} needs a multiple of {block}")
    return Stored(TensorInfo(name, type_name, shape, math.prod(shape) // block * block_bytes), offset)


def _check_places(cursor: Cursor, tensors: dict[str, Stored], data_bytes: int) -> None:
    """Every tensor inside the data section, no two of them sharing a byte."""
    before: Stored | None = None
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.end)):
        where = tensor_place(tensor.info.name)
        if tensor.end > data_bytes:
            raise cursor.error(
                where,
                f"data ends at byte {tensor.end} of the data section, which has only {max(data_bytes, 0)} bytes",
                "the file is truncated or damaged: download it again",
            )
        if before is not None and tensor.offset < before.end:
            raise cursor.error(where, f"data overlaps {tensor_place(before.info.name)}")
        before = tensor
