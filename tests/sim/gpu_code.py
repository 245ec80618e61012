"""Code of the package's kernels for gfx1201: functions of an object file, and the compiler's own listing of them."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from graphrun.backends.assembly import LISTING
from graphrun.backends.codeobject import GFX1201, code_object

INCLUDE = Path(str(find_spec("ziglang").origin)).parent / "lib" / "include"  # type: ignore[union-attr]
FLAGS = (
    *(
        "-x",
        "c",
        "-std=gnu11",
        "-nogpulib",
        "-nostdinc",
        "-isystem",
        str(INCLUDE),
    ),
    *("-O3", "-ffp-contract=off", "-ffreestanding", "-Wall", "-Wno-unused-function"),
    *("--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"),
)
INSTRUCTION = re.compile(r"(s|v|ds|global|flat|scratch|buffer)_\w+")
FUNCTION = 2  # STT_FUNC


def compile_kernels(source: Path, output: Path, *more: str) -> bytes:
    command = [sys.executable, "-m", "ziglang", "clang", *FLAGS, *more, str(source), "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    return output.read_bytes()


@lru_cache(maxsize=1)
def kernels() -> tuple[dict[str, bytes], dict[str, list[str]]]:
    """Machine code by function, and the mnemonics of the listing by function, of every kernel of the package."""
    return functions(code_object(GFX1201)), mnemonics(code_object(LISTING).decode())


def functions(elf: bytes) -> dict[str, bytes]:
    """The code of each function of a relocatable or linked 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", elf, 40)
    (count,) = struct.unpack_from("<H", elf, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, start + 64 * n) for n in range(count)]
    found: dict[str, bytes] = {}
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, index, value, size = struct.unpack_from("<IBBHQQ", elf, at)
            if info & 15 != FUNCTION:
                continue
            home = sections[index]
            begin = home[4] + value - home[3]
            found[elf[names + name : elf.index(b"\0", names + name)].decode()] = elf[begin : begin + size]
    return found


def mnemonics(listing: str) -> dict[str, list[str]]:
    """Of each function of a listing by clang -S, as `mnemonic` below spells them."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in listing.splitlines():
        text = line.split(";")[0].strip()
        label = re.fullmatch(r"([A-Za-z_]\w*):", text)
        if label:
            name = label[1]
        elif text.startswith(".Lfunc_end"):
            name = ""
        elif name and INSTRUCTION.match(text):
            found.setdefault(name, []).append(mnemonic(text))
    return found


def mnemonic(text: str) -> str:
    """Without suffixes of the encoding; both of a dual instruction."""
    return "+".join(re.sub(r"(_e64)?(_(e32|e64|dpp|dpp8))?$", "", half.split()[0]) for half in text.split("::"))
