"""Memory, LDS and the checks of both: single instructions on buffers of the test."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator

import pytest

from sim.simulator import LANES, Machine, assemble, load, run

BOUNDS, LDS = 1, 4
NOTHING = "outside every allocation"


@pytest.fixture
def options() -> Iterator[ctypes.c_uint32]:
    state = ctypes.c_uint32.from_address(load().simulator_state())  # the first member
    before = state.value
    yield state
    state.value = before


class Buffer:
    """Device memory of 1024 bytes that hold 0, 1, 2 ... 255, 0, 1 ..."""

    def __init__(self) -> None:
        self.room = (ctypes.c_uint8 * 1536)()
        self.address = (ctypes.addressof(self.room) + 255) // 256 * 256
        ctypes.memmove(self.address, bytes(range(256)) * 4, 1024)

    @property
    def data(self) -> bytes:
        return ctypes.string_at(self.address, 1024)


def machine(buffer: Buffer, stride: int) -> Machine:
    """s[2:3] the buffer, v0 lane * stride, v[10:11] the same as an address, v20.. data by lane."""
    m = Machine()
    m.s[2], m.s[3] = buffer.address & 0xFFFFFFFF, buffer.address >> 32
    for lane in range(LANES):
        m.v[0][lane] = lane * stride
        m.v[10][lane] = (buffer.address + lane * stride) & 0xFFFFFFFF
        m.v[11][lane] = (buffer.address + lane * stride) >> 32
        for k in range(4):
            m.v[20 + k][lane] = 0x91827300 + lane * 0x101 + k
            m.v[30 + k][lane] = 0xAAAABBBB
    return m


def words(data: bytes, count: int) -> list[int]:
    return list(struct.unpack(f"<{count}I", data[: 4 * count]))


LOADS: dict[str, tuple[int, Callable[[bytes, int], int]]] = {  # bytes, and the VGPR by memory and its old value
    "u8": (1, lambda d, old: d[0]),
    "i8": (1, lambda d, old: int.from_bytes(d[:1], "little", signed=True) & 0xFFFFFFFF),
    "u16": (2, lambda d, old: int.from_bytes(d[:2], "little")),
    "i16": (2, lambda d, old: int.from_bytes(d[:2], "little", signed=True) & 0xFFFFFFFF),
    "d16_b16": (2, lambda d, old: old & 0xFFFF0000 | int.from_bytes(d[:2], "little")),
    "d16_hi_b16": (2, lambda d, old: old & 0xFFFF | int.from_bytes(d[:2], "little") << 16),
    "d16_u8": (1, lambda d, old: old & 0xFFFF0000 | d[0]),
    "d16_hi_i8": (1, lambda d, old: old & 0xFFFF | (int.from_bytes(d[:1], "little", signed=True) & 0xFFFF) << 16),
}
DS_NAMES = {"d16_b16": "u16_d16", "d16_hi_b16": "u16_d16_hi", "d16_u8": "u8_d16", "d16_hi_i8": "i8_d16_hi"}


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("space", ["global", "address", "flat", "ds"])
def test_narrow_loads(name: str, space: str) -> None:
    buffer = Buffer()
    m = machine(buffer, 11)
    text = {
        "global": f"global_load_{name} v30, v0, s[2:3] offset:3",
        "address": f"global_load_{name} v30, v[10:11], off offset:3",
        "flat": f"flat_load_{name} v30, v[10:11] offset:3",
        "ds": f"ds_load_{DS_NAMES.get(name, name)} v30, v0 offset:3",
    }[space]
    ctypes.memmove(m.lds, buffer.data, 1024)
    run(assemble(text), m)
    rule = LOADS[name][1]
    assert list(m.v[30]) == [rule(buffer.data[11 * lane + 3 :], 0xAAAABBBB) for lane in range(LANES)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_wide_loads_and_stores(count: int) -> None:
    last = f"[30:{29 + count}]" if count > 1 else "30"
    data = f"[20:{19 + count}]" if count > 1 else "20"
    for space, address in (("global", "v0, s[2:3]"), ("flat", "v[10:11]"), ("ds", "v0")):
        buffer = Buffer()
        m = machine(buffer, 16)
        m.s[126] = 0x7FFF0001  # EXEC
        before = buffer.data
        ctypes.memmove(m.lds, before, 1024)
        store = {"global": f"v0, v{data}, s[2:3]", "flat": f"v[10:11], v{data}", "ds": f"v0, v{data}"}[space]
        load_text = f"{space}_load_b{32 * count} v{last}, {address}"
        run(assemble(f"{load_text} offset:4\n{space}_store_b{32 * count} {store}"), m)
        after = bytes(m.lds[:1024]) if space == "ds" else buffer.data
        for lane in range(LANES):
            active, at = m.s[126] >> lane & 1, 16 * lane
            old = words(before[at + 4 :], count) if active else [0xAAAABBBB] * count
            assert [m.v[30 + k][lane] for k in range(count)] == old
            new = [0x91827300 + lane * 0x101 + k for k in range(count)] if active else words(before[at:], count)
            assert words(after[at:], count) == new


@pytest.mark.parametrize("bits", [32, 64])
def test_two_addresses_of_lds(bits: int) -> None:
    size, n = bits // 8, bits // 32
    m = machine(Buffer(), size)
    first, second = ("v20", "v22") if n == 1 else ("v[20:21]", "v[22:23]")
    out = f"v[30:{29 + 2 * n}]"
    run(
        assemble(
            f"ds_store_2addr_b{bits} v0, {first}, {second} offset0:1 offset1:40\n"
            f"ds_load_2addr_b{bits} {out}, v0 offset0:40 offset1:1\n"
            f"ds_load_2addr_stride64_b{bits} v[40:{39 + 2 * n}], v0 offset0:0 offset1:1"
        ),
        m,
    )
    for k in range(n):
        assert list(m.v[30 + k]) == list(m.v[22 + k])
        assert list(m.v[30 + n + k]) == list(m.v[20 + k])
        assert m.v[40 + n + k][0] == int.from_bytes(bytes(m.lds[64 * size + 4 * k : 64 * size + 4 * k + 4]), "little")


ATOMICS: dict[str, Callable[[int, int], int]] = {  # by old value and operand
    "add_u32": lambda o, x: o + x,
    "sub_u32": lambda o, x: o - x,
    "and_b32": lambda o, x: o & x,
    "or_b32": lambda o, x: o | x,
    "xor_b32": lambda o, x: o ^ x,
    "min_u32": min,
    "max_u32": max,
    "min_i32": lambda o, x: min(o, x, key=lambda y: y ^ 0x80000000),
    "max_i32": lambda o, x: max(o, x, key=lambda y: y ^ 0x80000000),
    "inc_u32": lambda o, x: 0 if o >= x else o + 1,
    "dec_u32": lambda o, x: x if o == 0 or o > x else o - 1,
}


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name: str) -> None:
    kind, type_ = name.split("_")
    for text in (
        f"global_atomic_{name} v30, v0, v20, s[2:3] th:TH_ATOMIC_RETURN",
        f"ds_{kind}_rtn_{type_} v30, v0, v20",
    ):
        buffer = Buffer()
        m = machine(buffer, 0)  # all lanes at the same address, one after the other
        ctypes.memmove(m.lds, buffer.data, 1024)
        run(assemble(text), m)
        value, olds = words(buffer.data, 1)[0] if text[0] == "d" else 0x03020100, []
        for lane in range(LANES):
            olds.append(value)
            value = ATOMICS[name](value, 0x91827300 + lane * 0x101) & 0xFFFFFFFF
        after = bytes(m.lds[:4]) if text[0] == "d" else buffer.data
        assert list(m.v[30]) == olds
        assert words(after, 1) == [value]


def test_compare_and_swap() -> None:
    buffer = Buffer()
    m = machine(buffer, 4)
    for lane in range(LANES):
        m.v[21][lane] = words(buffer.data[4 * lane :], 1)[0] + lane % 2
    before = words(buffer.data, LANES)
    run(assemble("global_atomic_cmpswap_b32 v30, v0, v[20:21], s[2:3] th:TH_ATOMIC_RETURN"), m)
    assert list(m.v[30]) == before
    assert words(buffer.data, LANES) == [before[n] if n % 2 else m.v[20][n] for n in range(LANES)]


def test_float_and_wide_atomics() -> None:
    buffer = Buffer()
    m = machine(buffer, 0)
    ctypes.memmove(buffer.address, struct.pack("<fIQ", 1.0, 0, 2**32 - 5), 16)
    for lane in range(LANES):
        m.v[20][lane], m.v[21][lane] = struct.unpack("<I", struct.pack("<f", 0.5))[0], 0
    run(assemble("global_atomic_add_f32 v0, v20, s[2:3]\nglobal_atomic_add_u64 v0, v[20:21], s[2:3] offset:8"), m)
    total, _, wide = struct.unpack("<fIQ", buffer.data[:16])
    assert total == 17.0
    assert wide == 2**32 - 5 + 32 * 0x3F000000


def test_scalar_loads() -> None:
    buffer = Buffer()
    m = machine(buffer, 0)
    m.s[40] = 8
    run(
        assemble(
            "s_load_b256 s[8:15], s[2:3], 0x10\ns_load_b32 s20, s[2:3], s40 offset:0x4\ns_load_i8 s21, s[2:3], 0x83"
        ),
        m,
    )
    assert list(m.s[8:16]) == words(buffer.data[16:], 8)
    assert m.s[20] == words(buffer.data[12:], 1)[0]
    assert m.s[21] == 0xFFFFFF83


def test_scratch_of_each_lane() -> None:
    m = machine(Buffer(), 4)
    m.scratch_bytes = 256
    run(assemble("scratch_store_b64 v0, v[20:21], off offset:8\nscratch_load_b32 v30, v0, off offset:12"), m)
    assert list(m.v[30]) == list(m.v[21])
    m.scratch_bytes = 64
    with pytest.raises(RuntimeError, match=r"scratch_store_b32 at code\+0x0, .*of scratch"):
        run(assemble("scratch_store_b32 v0, v20, off"), m)


def test_permutes() -> None:
    m = machine(Buffer(), 4)
    m.s[126] = 0xFFFFFFFE
    for lane in range(LANES):
        m.v[1][lane] = 4 * (lane * 7 + 3)
    swap = "ds_swizzle_b32 v32, v20 offset:0x41f"  # the lane with its lowest bit flipped
    run(assemble(f"ds_bpermute_b32 v30, v1, v20\nds_permute_b32 v31, v1, v20\n{swap}"), m)
    data = [0 if lane == 0 else 0x91827300 + lane * 0x101 for lane in range(LANES)]
    for lane in range(1, LANES):
        assert m.v[30][lane] == data[(lane * 7 + 3) % 32]
        if (lane * 7 + 3) % 32:  # lane 0 receives nothing: EXEC
            assert m.v[31][(lane * 7 + 3) % 32] == data[lane]
        assert m.v[32][lane] == data[lane ^ 1]
    assert m.v[30][0] == 0xAAAABBBB


def test_bounds(options: ctypes.c_uint32) -> None:
    lib, buffer = load(), Buffer()
    add, remove = lib.allocation_add, lib.allocation_remove
    add.argtypes, remove.argtypes = [ctypes.c_uint64] * 2, [ctypes.c_uint64]
    options.value = BOUNDS
    add(buffer.address, buffer.address + 128)
    try:
        m = machine(buffer, 4)
        run(assemble("global_load_b32 v30, v0, s[2:3]"), m)
        for text in (
            "global_load_b64 v[30:31], v0, s[2:3]",
            "global_store_b8 v0, v20, s[2:3] offset:-1",
            "s_load_b64 s[8:9], s[2:3], 0x7c",
        ):
            with pytest.raises(RuntimeError, match=NOTHING):
                run(assemble(text), m)
    finally:
        assert remove(buffer.address)
    assert not remove(buffer.address)
    with pytest.raises(
        RuntimeError, match=r"global_load_b32 at code\+0x0, workgroup \(0,0,0\) wave 0: access of 4 bytes at 0x"
    ):
        run(assemble("global_load_b32 v30, v0, s[2:3]"), m)


def test_lds_bounds_and_first_store(options: ctypes.c_uint32) -> None:
    m = machine(Buffer(), 4)
    m.lds_bytes = 128
    with pytest.raises(RuntimeError, match=r"LDS\+0x80"):
        run(assemble("ds_store_b32 v0, v20 offset:4"), m)
    options.value = LDS
    run(assemble("ds_store_b32 v0, v20\nds_load_b32 v30, v0"), m)
    with pytest.raises(RuntimeError, match="that nothing has written"):
        run(assemble("ds_load_b32 v30, v0"), m)
