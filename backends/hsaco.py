"""What a code object for gfx1201 says of its kernels: registers, memory, spills, code size, waves per SIMD."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphrun.backends.msgpack import Malformed, unpack
from graphrun.core.errors import BackendError

# Of a workgroup processor of gfx1201: two compute units of two SIMDs.
SIMD_VGPRS, VGPR_GRANULE, MOST_WAVES = 1536, 24, 16  # a wave's registers are a multiple of the granule
UNITS, UNIT_SIMDS, LDS_BYTES, LDS_GRANULE = 2, 2, 1 << 17, 512
WAVE = 32

PREFIX, TABLE = "call_", "gr_table"
ENTRY = struct.Struct("<40sII")  # gr_entry of kernels/gpu/entries.c: name, layout, shared memory
NOTE, SYMBOL = struct.Struct("<III"), struct.Struct("<IBBHQQ")
DESCRIPTOR_BYTES, RSRC1_AT = 64, 48
SECTION_NOTE, SECTION_SYMBOLS, METADATA = 7, 11, 32


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel. `lds` are the bytes of shared memory of a workgroup of `threads`, `scratch` bytes of a thread.

    `vgprs` and `sgprs` are those used; `allocated` the VGPRs that a wave is given by its descriptor.
    """

    name: str
    threads: int
    vgprs: int
    allocated: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds: int
    scratch: int
    code: int

    @property
    def waves(self) -> int:
        """Waves per SIMD when whole workgroups fill the device."""
        return occupancy(self.vgprs, self.lds, self.threads)


def occupancy(vgprs: int, lds: int, threads: int) -> int:
    """Waves per SIMD that registers and shared memory leave room for; a workgroup is placed on one compute unit."""
    registers = -(-max(vgprs, 1) // VGPR_GRANULE) * VGPR_GRANULE
    waves = -(-threads // WAVE)
    groups = UNITS * (min(MOST_WAVES, SIMD_VGPRS // registers) * UNIT_SIMDS // waves)
    if lds:
        groups = min(groups, LDS_BYTES // (-(-lds // LDS_GRANULE) * LDS_GRANULE))
    return groups * waves // (UNITS * UNIT_SIMDS)


def kernels(image: bytes) -> tuple[KernelFacts, ...]:
    """The kernels of a code object in its own order, without the prefix of their entries.

    Raises BackendError for bytes that are not a code object with its notes and symbols.
    """
    try:
        elf = Elf(image)
        listed = elf.metadata["amdhsa.kernels"]
        return tuple(_facts(elf, given) for given in listed)
    except (Malformed, struct.error, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BackendError(f"this is not a code object for gfx1201: {error}") from None


def _facts(elf: Elf, given: Mapping[str, Any]) -> KernelFacts:
    symbol = str(given[".name"])
    name = symbol.removeprefix(PREFIX)
    _, code = elf.symbols[symbol]
    descriptor = elf.bytes_of(str(given[".symbol"]), DESCRIPTOR_BYTES)
    (rsrc1,) = struct.unpack_from("<I", descriptor, RSRC1_AT)
    sizes = {key: _count(given, key) for key in given if isinstance(given[key], int)}
    return KernelFacts(
        name,
        sizes[".max_flat_workgroup_size"],
        sizes[".vgpr_count"],
        ((rsrc1 & 63) + 1) * 8,
        sizes[".sgpr_count"],
        sizes[".vgpr_spill_count"],
        sizes[".sgpr_spill_count"],
        sizes[".group_segment_fixed_size"] + elf.shared.get(name, 0),
        sizes[".private_segment_fixed_size"],
        code,
    )


def _count(given: Mapping[str, Any], key: str) -> int:
    value = int(given[key])
    if value < 0:
        raise Malformed(f"{key} is {value}")
    return value


class Elf:
    """The notes and symbols of an ELF file of 64 bits."""

    def __init__(self, image: bytes) -> None:
        if image[:6] != b"\x7fELF\x02\x01":
            raise Malformed("it does not begin as an ELF file of 64 bits")
        self.image = image
        (start,) = struct.unpack_from("<Q", image, 40)
        size, count = struct.unpack_from("<HH", image, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", image, start + size * i) for i in range(count)]
        self.sections = [_Section(h[1], h[3], h[4], h[5], h[6], h[9]) for h in headers]

    def slice(self, offset: int, size: int) -> bytes:
        if offset > len(self.image) or size > len(self.image) - offset:
            raise Malformed(f"{size} bytes at {offset} lie outside of the file")
        return self.image[offset : offset + size]

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """The note of the kernels."""
        for section in self.sections:
            if section.kind == SECTION_NOTE:
                for owner, kind, data in _notes(self.slice(section.offset, section.size)):
                    if (owner, kind) == (b"AMDGPU\0", METADATA):
                        found: Mapping[str, Any] = unpack(data)
                        return found
        raise Malformed("it has no note of kernels")

    @cached_property
    def symbols(self) -> Mapping[str, tuple[int, int]]:
        """Address and bytes of every symbol that a loader sees."""
        found = {}
        for section in self.sections:
            if section.kind == SECTION_SYMBOLS and section.entry == SYMBOL.size:
                names = self.sections[section.link] if section.link < len(self.sections) else None
                text = self.slice(names.offset, names.size) if names else b""
                for name, *_, address, size in SYMBOL.iter_unpack(self._whole(section)):
                    found[text[name : text.find(b"\0", name)].decode(errors="replace")] = address, size
        return found

    def _whole(self, section: _Section) -> bytes:
        return self.slice(section.offset, section.size // section.entry * section.entry)

    def bytes_of(self, symbol: str, least: int = 0) -> bytes:
        """What stands at a symbol's address."""
        address, size = self.symbols[symbol]
        for section in self.sections:
            if section.address and section.address <= address < section.address + section.size:
                return self.slice(section.offset + address - section.address, max(size, least))
        raise Malformed(f"{symbol} lies in no section")

    @cached_property
    def shared(self) -> Mapping[str, int]:
        """The bytes of shared memory that the table of kernels asks for, by kernel; none without a table."""
        if TABLE not in self.symbols:
            return {}
        return shared_of(self.bytes_of(TABLE))


def shared_of(table: bytes) -> dict[str, int]:
    """The bytes of shared memory by kernel that entries.c's table says; entries without a name are its end."""
    entries = ENTRY.iter_unpack(table[: len(table) // ENTRY.size * ENTRY.size])
    return {name.rstrip(b"\0").decode(errors="replace"): lds for name, _, lds in entries if name.rstrip(b"\0")}


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    address: int
    offset: int
    size: int
    link: int
    entry: int


def _notes(raw: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Owner, type and content of each note; parts are padded to 4 bytes."""
    at = 0
    while at + NOTE.size <= len(raw):
        owner, content, kind = NOTE.unpack_from(raw, at)
        begin = at + NOTE.size
        data = begin + (owner + 3) // 4 * 4
        yield raw[begin : begin + owner], kind, raw[data : data + content]
        at = data + (content + 3) // 4 * 4
