"""What is read of code objects is what the compiler says of them; damaged ones are refused."""

from __future__ import annotations

import re
import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrun.backends.assembly import LISTING
from graphrun.backends.codeobject import GFX1201, code_object, compile_to
from graphrun.backends.hsaco import KernelFacts, kernels, occupancy
from graphrun.backends.msgpack import Malformed, unpack
from graphrun.core.errors import BackendError

SOURCE = """\
#define KERNEL __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(64, 128))) void
typedef __attribute__((address_space(1))) int *pointer;
static __attribute__((address_space(3), loader_uninitialized)) int shared[100];
KERNEL call_small(pointer p) { p[0] = 1; }
KERNEL call_local(pointer p) {
  volatile int held[40];
  for (int i = 0; i < 40; i++) held[i] = p[i];
  p[0] = held[p[1]];
}
KERNEL call_shared(pointer p) {
  shared[p[0]] = p[1];
  __builtin_amdgcn_s_barrier();
  p[2] = shared[p[3]];
}
__attribute__((amdgpu_num_vgpr(16))) KERNEL call_spilling(pointer p) {
  int id = __builtin_amdgcn_workitem_id_x(), held[64];
  for (int i = 0; i < 64; i++) held[i] = p[64 * id + i];
  __builtin_amdgcn_s_barrier();
  for (int i = 0; i < 64; i++) p[64 * id + i] = held[i] * held[63 - i];
}
typedef struct { char name[40]; unsigned layout, lds; } entry;
__attribute__((used, visibility("protected"))) const __attribute__((address_space(1))) entry gr_table[] = {
  {"small", 7, 2048}, {"", 0, 0}};
"""


@cache
def small() -> bytes:
    """The code object of SOURCE."""
    with TemporaryDirectory() as folder:
        source, made = Path(folder) / "k.c", Path(folder) / "k.hsaco"
        source.write_text(SOURCE)
        compile_to(made, GFX1201, str(source))
        return made.read_bytes()


def test_planted_kernels() -> None:
    found = {k.name: k for k in kernels(small())}
    assert list(found) == ["small", "local", "shared", "spilling"]
    plain = found["small"]
    assert (plain.threads, plain.scratch, plain.vgpr_spills, plain.sgpr_spills) == (128, 0, 0, 0)
    assert plain.lds == 2048 and 0 < plain.vgprs <= plain.allocated < 16 and 0 < plain.code < 100
    assert found["local"].scratch >= 160 and found["local"].vgpr_spills == 0
    assert found["shared"].lds == 400
    assert found["spilling"].vgpr_spills > 40 and found["spilling"].scratch > 160 and found["spilling"].vgprs <= 16


def test_the_compiler_says_the_same() -> None:
    """Its listing has a comment with most of the facts behind each kernel."""
    listing = code_object(LISTING).decode()
    found = kernels(code_object(GFX1201))
    said = re.findall(
        r"\.amdhsa_kernel call_(\w+)\n.*?codeLenInByte = (\d+)\n; TotalNumSgprs: (\d+)\n; NumVgprs: (\d+)\n"
        r"; ScratchSize: (\d+)\n.*?; Occupancy: (\d+)\n",
        listing,
        re.DOTALL,
    )
    assert [(k.name, k.code, k.sgprs, k.vgprs, k.scratch) for k in found] == [
        (name, *map(int, numbers[:-1])) for name, *numbers in said
    ]
    for k, numbers in zip(found, said, strict=True):
        most = int(numbers[-1])  # without shared memory, and not for whole workgroups
        assert k.waves <= most == occupancy(k.vgprs, 0, 64)
        assert k.vgprs <= k.allocated < k.vgprs + 8 and k.threads == 256


@pytest.mark.parametrize(
    ("vgprs", "lds", "waves"),
    [
        *((1, 0, 16), (96, 0, 16), (97, 0, 12), (120, 0, 12), (192, 0, 8), (193, 0, 4), (256, 0, 4)),
        *((1, 1 << 13, 16), (1, 1 << 14, 16), (1, (1 << 14) + 1, 14), (1, 1 << 15, 8), (1, 1 << 16, 4)),
        (192, 1 << 16, 4),
    ],
)
def test_waves_of_whole_workgroups(vgprs: int, lds: int, waves: int) -> None:
    """1536 VGPRs a SIMD in multiples of 24; 8 waves of a workgroup share two SIMDs; 128 kB for four SIMDs."""
    assert occupancy(vgprs, lds, 256) == waves


def test_what_is_not_a_code_object() -> None:
    image = small()
    for damaged in (b"", b"\x7fELF", image[:64], image[:5000], b"X" + image[1:], image.replace(b"AMDGPU", b"NVIDIA")):
        with pytest.raises(BackendError, match="not a code object"):
            kernels(damaged)
    for old, new in ((b".vgpr_count", b".vgpr_kount"), (b"call_local.kd", b"call_nocal.kd")):
        with pytest.raises(BackendError, match="not a code object"):
            kernels(image.replace(old, new, 1))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damage_is_found_or_does_no_harm(data: st.DataObject) -> None:
    image = bytearray(small())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(image) - 1) | st.integers(0, 4096))
        image[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    end = data.draw(st.just(len(image)) | st.integers(0, len(image)))
    try:
        assert all(isinstance(k, KernelFacts) for k in kernels(bytes(image[:end])))
    except BackendError as error:
        assert error.message.startswith("this is not a code object")


WIDTHS = (
    ((0xCC, ">B"), (0xCD, ">H"), (0xCE, ">I"), (0xCF, ">Q")),
    ((0xD0, ">b"), (0xD1, ">h"), (0xD2, ">i"), (0xD3, ">q")),
)


def packed(value: Any, wide: bool) -> bytes:
    """A value as MessagePack, sizes in the shortest form or in one that is longer than they need."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        if not wide and -32 <= value < 128:
            return struct.pack(">b", value)
        forms = [(k, f) for k, f in WIDTHS[value < 0] if _fits(value, f)]
        kind, form = forms[-1 if wide else 0]
        return bytes([kind]) + struct.pack(form, value)
    if isinstance(value, str):
        text = value.encode()
        short = bytes([0xA0 + len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])
        return (struct.pack(">BI", 0xDB, len(text)) if wide else short) + text
    items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
    narrow, long = (0x80, 0xDF) if isinstance(value, dict) else (0x90, 0xDD)
    head = struct.pack(">BI", long, len(value)) if wide or len(value) > 15 else bytes([narrow + len(value)])
    return head + b"".join(packed(item, wide) for item in items)


def _fits(value: int, form: str) -> bool:
    try:
        struct.pack(form, value)
    except struct.error:
        return False
    return True


LEAVES = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=40)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
)


@given(VALUES, st.booleans())
def test_messages(value: Any, wide: bool) -> None:
    assert unpack(packed(value, wide)) == value


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xc1", b"\xcb12345678", b"\xa5four", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff\xa1k", b"\x91" * 99],
)
def test_messages_that_are_none(raw: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(raw)
