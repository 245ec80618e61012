"""One GGUF file opened and checked: header, metadata and tensor table. A split model has several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphrun.core.gguf_file import map_file
from graphrun.core.gguf_meta import MAX_KEYS, Metadata, key_place, read_metadata
from graphrun.core.gguf_read import Cursor
from graphrun.core.gguf_tensors import MAX_TENSORS, Stored, read_tensors

VERSIONS = (2, 3)  # the layouts are the same
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
HEADER_BYTES = 24


@dataclass(frozen=True)
class Part:
    """One file: `data` maps it as read-only bytes; offsets of `tensors` count from byte `start`."""

    path: Path
    metadata: Metadata
    tensors: dict[str, Stored]
    start: int
    data: NDArray[np.uint8]

    def bytes_of(self, tensor: Stored) -> NDArray[np.uint8]:
        first = self.start + tensor.offset
        return self.data[first : first + tensor.info.nbytes]


def read_part(path: Path) -> Part:
    """Map and check the file `path`; raises ModelError naming the file and the field."""
    data = map_file(path)
    cursor = Cursor(path, data)
    n_tensors, n_keys = _read_header(cursor)
    metadata = read_metadata(cursor, n_keys)
    tensors, start = read_tensors(cursor, n_tensors, _alignment(cursor, metadata))
    return Part(path, metadata, tensors, start, np.frombuffer(data, np.uint8))


def _read_header(cursor: Cursor) -> tuple[int, int]:
    """The counts of tensors and of keys."""
    if cursor.left < HEADER_BYTES:
        raise cursor.past_end(0, HEADER_BYTES, "header")
    cursor.skip(4, "header")
    version = cursor.u32("header")
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version > 0xFFFF and swapped <= 0xFFFF:
        raise cursor.error(
            "header",
            f"big-endian GGUF (version {swapped} byte-swapped), but only little-endian files are read",
            "convert it with gguf-convert-endian",
        )
    if version not in VERSIONS:
        raise cursor.error("header", f"GGUF version {version} is not supported, only 2 and 3")
    counts = {"tensor": cursor.u64("header"), "key": cursor.u64("header")}
    for (kind, count), limit in zip(counts.items(), (MAX_TENSORS, MAX_KEYS), strict=True):
        if count > len(cursor.data) // 8:
            raise cursor.error("header", f"{kind} count {count} cannot fit in a file of {len(cursor.data)} bytes")
        if count > limit:
            raise cursor.error("header", f"{kind} count {count} exceeds the limit of {limit}")
    return counts["tensor"], counts["key"]


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    if metadata.type_of(key) != "u32":
        raise cursor.error(key_place(key), f"is of type {metadata.type_of(key)}, but must be u32")
    alignment = metadata[key]
    assert isinstance(alignment, int)
    if alignment.bit_count() != 1 or alignment > MAX_ALIGNMENT:
        raise cursor.error(key_place(key), f"alignment {alignment} is not a power of two in 1..{MAX_ALIGNMENT}")
    return alignment
