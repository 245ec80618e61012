"""The simulator as a shared library, built at first use and kept in the user's cache, and gfx1201 assembly."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from graphrun.backends.build import cache_folder, compiler, made_once, run_compiler, short_hash

HERE = Path(__file__).parent
X86 = platform.machine().lower() in ("x86_64", "amd64")
HIP_LIBRARY, OTHER_NAME = "libamdhip64.so", "libgfx1201s.so"  # of equal length
GLIBC = ("-target", "x86_64-linux-gnu.2.36")  # that of any system since 2022
FLAGS = (
    *(("-march=x86_64_v3",) if X86 else ()),
    *(GLIBC if X86 and sys.platform == "linux" else ()),
    *("-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-sanitize=all"),
    *("-fno-strict-aliasing", "-Wall", "-Wno-psabi", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared"),
    f"-Wl,-soname,{HIP_LIBRARY}",
)
ZIG = (sys.executable, "-m", "ziglang")
VCC, M0, EXEC, SCC = 106, 125, 126, 253
LANES, VGPRS = 32, 256


def rocm_folder() -> Path:
    """A folder for ROCM_PATH, whose lib/libamdhip64.so runs kernels on this simulator; compiled once for each text."""
    folder = cache_folder() / f"gfx1201sim-{_key()}"
    target = folder / "lib" / HIP_LIBRARY

    def make() -> None:
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            made = Path(temporary) / target.name
            command = [*ZIG, "cc", *FLAGS, *map(str, sorted(HERE.glob("*.c"))), "-o", str(made), "-lm"]
            run_compiler(command, made, "the simulator", "")
            os.replace(made, target)

    made_once(target, f"{target.name}.lock", make, "the simulator cannot be built")
    return folder


def library() -> Path:
    """The same code by a name under which hip-python does not find it, with a state of its own."""
    source = rocm_folder() / "lib" / HIP_LIBRARY
    target = source.with_name(OTHER_NAME)

    def make() -> None:
        made = target.with_suffix(".new")
        made.write_bytes(source.read_bytes().replace(HIP_LIBRARY.encode() + b"\0", OTHER_NAME.encode() + b"\0"))
        os.replace(made, target)

    made_once(target, f"{target.name}.lock", make, "the simulator cannot be built")
    return target


def _key() -> str:
    text = [path.read_bytes().decode() for path in sorted([*HERE.glob("*.c"), *HERE.glob("*.h")])]
    return short_hash(*text, " ".join(FLAGS), compiler().version)


class Machine(ctypes.Structure):
    """Registers before and after `run`: the structure of harness.c."""

    _fields_ = [
        ("s", ctypes.c_uint32 * 256),
        ("v", (ctypes.c_uint32 * LANES) * VGPRS),
        ("lds", ctypes.c_uint8 * 65536),
        ("lds_bytes", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("scratch_bytes", ctypes.c_uint32),
        ("steps", ctypes.c_uint32),
        ("error", ctypes.c_char * 2048),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.s[EXEC] = 0xFFFFFFFF
        self.lds_bytes = 65536


class Registers(ctypes.Structure):
    _fields_ = [("reg", ctypes.c_uint16), ("count", ctypes.c_uint8)]


class Second(ctypes.Structure):
    _fields_ = [("op", ctypes.c_uint16), ("dst", ctypes.c_uint16), ("src", ctypes.c_uint16 * 2)]


class Instruction(ctypes.Structure):
    """`inst` of sim.h."""

    _fields_ = [
        *[(name, ctypes.c_uint16) for name in ("op", "dst", "sdst")],
        ("src", ctypes.c_uint16 * 3),
        *[(name, ctypes.c_uint8) for name in "format words neg abs opsel opsel_hi neg_hi omod clamp dpp".split()],
        *[(name, ctypes.c_uint8) for name in "scope th offset0 offset1 dwords scaled".split()],
        *[(name, ctypes.c_uint32) for name in ("literal", "dpp_word")],
        ("imm", ctypes.c_int32),
        ("at", ctypes.c_uint32),
        ("second", Second),
        ("reads", Registers * 6),
        ("scalar_reads", Registers * 6),
        ("writes", ctypes.c_uint8),
        ("scalar_writes", ctypes.c_uint8),
    ]


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(library()))
    lib.run_one.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(Machine)]
    size = ctypes.c_uint64
    lib.decode_text.argtypes = [ctypes.c_char_p, size, size, ctypes.POINTER(Instruction), ctypes.c_char_p, size]
    lib.op_name.restype = ctypes.c_char_p
    lib.simulator_state.restype = ctypes.c_void_p
    return lib


def run(code: bytes, machine: Machine) -> None:
    """Runs machine code on the registers of `machine`, in place. Raises RuntimeError with the simulator's message."""
    if load().run_one(code, len(code), ctypes.byref(machine)):
        raise RuntimeError(machine.error.decode())


def decode(code: bytes, offset: int = 0) -> tuple[int, str, Instruction]:
    """(bytes, text, fields) of the instruction at `offset`; 0 bytes if it is none."""
    out, line = Instruction(), ctypes.create_string_buffer(256)
    size = load().decode_text(code, len(code), offset, ctypes.byref(out), line, 256)
    return size, line.value.decode(), out


def try_assemble(lines: Iterable[str]) -> list[bytes | None]:
    """Machine code of each line by LLVM's assembler, None where it is no instruction of gfx1201."""
    wanted = list(lines)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "lines.s"
        source.write_text("\n".join(wanted) + "\n")
        target = ("-triple", "amdgcn-amd-amdhsa", "-target-cpu", "gfx1201", "-filetype", "asm", "-show-encoding")
        done = subprocess.run(
            [*ZIG, "clang", "-cc1as", *target, str(source)], capture_output=True, text=True, check=False
        )
    wrong = {int(n) for n in re.findall(r"lines\.s:(\d+):\d+: error", done.stderr)}
    found = re.findall(r"encoding: \[([0-9a-fx,]+)\]", done.stdout)
    assert len(found) + len(wrong) == len(wanted), done.stderr[:2000]
    codes = iter(bytes(int(byte, 16) for byte in text.split(",")) for text in found)
    return [None if n + 1 in wrong else next(codes) for n in range(len(wanted))]


@lru_cache(maxsize=4096)
def assemble(text: str) -> bytes:
    """Machine code of one or more lines without labels."""
    codes = try_assemble(text.strip().split("\n"))
    assert None not in codes, text
    return b"".join(code for code in codes if code)


@lru_cache(maxsize=64)
def assemble_all(lines: tuple[str, ...]) -> dict[str, bytes]:
    """Machine code of each line, by one call of the assembler."""
    codes = dict(zip(lines, try_assemble(lines), strict=True))
    return {line: code or assemble(line) for line, code in codes.items()}
