"""Weights of a model file to the layouts that kernels read; shared by all backends.

Every conversion keeps every value. Rows are converted some at a time and their pages of the file given back, so host
memory holds little more than the packed matrix.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graphrun.core.blocks import BLOCKS, decode, dequantise, scales_k3, scales_k4
from graphrun.core.errors import ModelError
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Part, Value
from graphrun.core.quant import Matrix, supported
from graphrun.core.types import TensorType
from graphrun.core.workers import Workers

A = np.ndarray[Any, Any]
OnBytes = Callable[[int], None]

CHUNK_BYTES = 1 << 20  # of the file, converted at a time


def pack(
    file: ModelFile,
    parts: Sequence[Part],
    type_: TensorType,
    *,
    workers: Workers | None = None,
    on_bytes: OnBytes | None = None,
) -> Matrix | A:
    """The weight of this type, its parts stacked by rows: a Matrix, or an f32 array if it has not two dimensions.

    `on_bytes` is told how many bytes of the file were converted since its last call. Raises ModelError.
    """
    if len(type_.shape) != 2:
        return _array(file, parts, on_bytes).reshape(type_.shape)
    matrix = Matrix.zeros(type_.dtype, (type_.shape[0], type_.shape[1]), workers)
    words, scales = matrix.sections
    start = 0
    for part in parts:
        row = start
        for kind, raw in _chunks(file, part, on_bytes):
            packed = encode(kind, type_.dtype.name, raw)
            for section, values in zip(words + scales, packed, strict=True):
                section[row : row + len(raw)] = values
            row += len(raw)
        start += part.rows
    return matrix


def adding_up(total: int, progress: Callable[[int, int], None] | None) -> OnBytes:
    """What is told of bytes as they are converted, in any thread, and tells `progress` how many of `total` are done."""
    done, lock = 0, threading.Lock()

    def advance(nbytes: int) -> None:
        nonlocal done
        with lock:
            done += nbytes
            if progress:
                progress(done, total)

    return advance


def values_of(file: ModelFile, value: Value) -> A:
    """The f32 values of a weight, packed in whatever layout. Raises ModelError."""
    packed = pack(file, value.parts, value.type)
    return packed.f32() if isinstance(packed, Matrix) else packed


def _array(file: ModelFile, parts: Sequence[Part], on_bytes: OnBytes | None) -> A:
    """The values of all parts one after the other, f32[n]."""
    values: list[A] = []
    for part in parts:
        chunks = [dequantise(kind, raw).reshape(-1) for kind, raw in _chunks(file, part, on_bytes)]
        values += chunks or [np.zeros(part.rows, np.float32)]
    return np.concatenate(values)


def _chunks(file: ModelFile, part: Part, on_bytes: OnBytes | None) -> Iterator[tuple[str, A]]:
    """Type and stored rows of a part, some rows at a time; nothing for a part of zeros."""
    if part.tensor is None:
        return
    raw = file.raw(part.tensor)
    kind = file.tensors[part.tensor].type
    if kind not in BLOCKS:
        hint = f"supported types: {', '.join(supported())}"
        raise ModelError(file.path, f"tensor {part.tensor}", f"type {kind} is not supported", hint)
    step = max(1, CHUNK_BYTES // raw.shape[1])
    for first in range(0, len(raw), step):
        rows = raw[first : first + step]
        yield kind, rows
        release(rows)
        if on_bytes is not None:
            on_bytes(rows.nbytes)


def release(raw: A) -> None:
    """Give memory that maps these bytes of a file back to the system; they are read anew if asked for again."""
    owner: Any = raw
    while isinstance(owner, np.ndarray):
        owner = owner.base
    mapped = owner.obj if isinstance(owner, memoryview) else None
    if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
        offset = raw.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
        first = offset // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, first, offset + raw.nbytes - first)


def encode(kind: str, layout: str, raw: A) -> tuple[A, ...]:
    """Stored rows uint8[n, bytes] of a type as each section of an exact layout, words before scales: [n, width]."""
    if layout == "f32":
        return (dequantise(kind, raw),)
    blocks = raw.reshape(-1, BLOCKS[kind][1])
    packed = _ENCODE[layout](kind, blocks)
    return tuple(section.reshape(len(raw), -1) for section in packed)


def nibble_words(q: A) -> A:
    """Integers 0..15 u8[blocks, 32] as 4 words per block: weight j in nibble j // 16 of byte j % 16."""
    packed: A = (q[:, :16] | q[:, 16:] << 4).view(np.uint32)
    return packed


def field_words(q: A) -> A:
    """Bits 4 and 5 of u8[blocks, 32] as a word per half: byte i holds weights i, i + 4, i + 8, i + 12, lowest first."""
    high = (q >> 4 & 3).reshape(-1, 2, 4, 4)
    packed: A = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).view(np.uint32)
    return packed


def _unsigned(kind: str, blocks: A, zero: int = 0) -> A:
    """q + zero as u8[blocks of 32, 32]."""
    q = decode(kind, blocks).q
    return (q + np.int8(zero)).view(np.uint8).reshape(-1, 32)


def _q4_0(kind: str, blocks: A) -> tuple[A, ...]:
    return _fields(blocks, 2, 16).view(np.uint32), _halves(blocks, 0)


def _q4_1(kind: str, blocks: A) -> tuple[A, ...]:
    return _fields(blocks, 4, 16).view(np.uint32), _pairs(blocks)


def _q8_0(kind: str, blocks: A) -> tuple[A, ...]:
    words = _fields(blocks, 2, 32).view(np.uint32) if kind == "q8_0" else _words(decode(kind, blocks).q.reshape(-1, 32))
    return words, _halves(blocks, 0)


def _q4_k(kind: str, blocks: A) -> tuple[A, ...]:
    scale, minimum = scales_k4(blocks[:, 4:16])
    codes = scale.astype(np.uint16) | minimum.astype(np.uint16) << 8
    return nibble_words(_unsigned(kind, blocks)), codes, _pairs(blocks)


def _q6_k(kind: str, blocks: A) -> tuple[A, ...]:
    """From q6_k, or from q3_k, whose scales and integers are smaller."""
    q = _unsigned(kind, blocks, 32)
    scale = np.ascontiguousarray(blocks[:, 192:208] if kind == "q6_k" else scales_k3(blocks[:, 96:108]))
    return nibble_words(q & 15), field_words(q), scale.view(np.uint16), _halves(blocks, 208 if kind == "q6_k" else 108)


def _i8_a(kind: str, blocks: A) -> tuple[A, ...]:
    q, s, m = decode(kind, blocks)
    m = np.zeros_like(s) if m is None else m
    halves = [np.repeat(v.reshape(-1), q.shape[2] // 16).reshape(-1, 2) for v in (s, m)]
    return _words(q.reshape(-1, 32)), np.concatenate(halves, axis=1)


def _words(packed: A) -> A:
    """Bytes [blocks, n] as u32[blocks, n // 4]."""
    return np.ascontiguousarray(packed).view(np.uint32)


def _pairs(blocks: A) -> A:
    """The two f16 that a block starts with, u16[blocks, 2]."""
    return _fields(blocks, 0, 4).view(np.uint16).reshape(-1, 2)


def _halves(blocks: A, at: int) -> A:
    """The f16 at byte `at` of each block, u16[blocks]."""
    return _fields(blocks, at, 2).view(np.uint16)


def _fields(blocks: A, at: int, count: int) -> A:
    """Bytes at .. at + count - 1 of each block, void[blocks]; copying each at once is much faster than byte by byte."""
    parts = {"names": ["field"], "formats": [f"V{count}"], "offsets": [at], "itemsize": blocks.shape[1]}
    return np.ascontiguousarray(blocks.reshape(-1).view(np.dtype(parts))["field"])  # type: ignore[call-overload]


_ENCODE: dict[str, Callable[[str, A], tuple[A, ...]]] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q8_0": _q8_0,
    "q4_k": _q4_k,
    "q6_k": _q6_k,
    "i8_a": _i8_a,
}
