"""The C kernels as shared libraries: those of the package, else compiled at first use and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path

from graphrun.core.errors import BackendError

FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-sanitize=all",
    "-Wall",
    "-Wno-unused-function",
    "-Wno-psabi",
)
OLDEST_GCC = 12  # the first with _Float16 and the vector operations that kernels use
# What zig compiles for, and the platform of a wheel with that inside; elsewhere for this very system, and no wheel.
PORTABLE = {
    ("linux", "x86_64"): ("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64"),
    ("linux", "aarch64"): ("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"),
    ("darwin", "x86_64"): ("x86_64-macos.11.0", "macosx_11_0_x86_64"),
    ("darwin", "arm64"): ("aarch64-macos.11.0", "macosx_11_0_arm64"),
    ("win32", "amd64"): ("x86_64-windows-gnu", "win_amd64"),
}
INSTALL = "pip install ziglang brings a compiler; --backend numpy needs none"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Unit:
    """A library: its source, and flags for the instruction set as zig and as other compilers spell them."""

    name: str
    source: str
    zig: str = ""
    march: tuple[str, ...] = ()


ENGINE = Unit("engine", "library.c")
X86 = (
    Unit("generic", "kernels.c", "baseline", ("-march=x86-64",)),
    Unit("avx2", "kernels.c", "x86_64_v3", ("-march=x86-64-v3",)),
    Unit("avxvnni", "kernels.c", "x86_64_v3+avxvnni", ("-march=x86-64-v3", "-mavxvnni")),
    Unit("avx512", "kernels.c", "x86_64_v4+avx512vnni", ("-march=x86-64-v4", "-mavx512vnni")),
    Unit(
        "amx",
        "kernels.c",
        "x86_64_v4+avx512vnni+amx_tile+amx_int8",
        ("-march=x86-64-v4", "-mavx512vnni", "-mamx-tile", "-mamx-int8"),
    ),
)
ARM = (
    Unit("generic", "kernels.c", "generic", ("-march=armv8-a",)),
    Unit("dotprod", "kernels.c", "generic+v8_2a+dotprod", ("-march=armv8.2-a+dotprod",)),
    Unit("i8mm", "kernels.c", "generic+v8_2a+dotprod+i8mm", ("-march=armv8.2-a+dotprod+i8mm",)),
)
# Instruction sets by their number in kernels/cpu/engine.c, better ones last.
FAMILIES = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}
SETS = FAMILIES.get(platform.machine().lower(), (Unit("generic", "kernels.c"),))


@dataclass(frozen=True, slots=True)
class Compiler:
    """How to call a C compiler; `version` is part of what a library is cached by."""

    command: tuple[str, ...]
    version: str
    zig: bool

    def flags(self, unit: Unit) -> tuple[str, ...]:
        if not self.zig:
            return (*(f for f in FLAGS if "sanitize" not in f), *unit.march)
        target = portable()
        return (*FLAGS, *(("-target", target[0]) if target else ()), *((f"-mcpu={unit.zig}",) if unit.zig else ()))


def portable() -> tuple[str, str] | None:
    """The entry of PORTABLE for this system, unless its C library is another."""
    if sys.platform == "linux" and platform.libc_ver()[0] != "glibc":
        return None
    return PORTABLE.get((sys.platform, platform.machine().lower()))


@lru_cache(maxsize=1)
def compiler() -> Compiler:
    """The compiler of the package ziglang, else the system's clang or gcc; BackendError if there is none."""
    if find_spec("ziglang") is not None:
        return Compiler((sys.executable, "-m", "ziglang", "cc"), f"ziglang {metadata.version('ziglang')}", True)
    found = []
    for name in ("clang", "cc", "gcc"):
        path = shutil.which(name)
        if path is None:
            continue
        line = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
        if "clang" in line or _gcc_major(path) >= OLDEST_GCC:
            return Compiler((path,), line, False)
        found.append(line)
    reason = f"{found[0]} is too old" if found else "there is no C compiler"
    raise BackendError(f"the native backend cannot be built: {reason}", INSTALL)


def _gcc_major(path: str) -> int:
    text = subprocess.run([path, "-dumpversion"], capture_output=True, text=True, check=False).stdout
    return int(text.split(".")[0]) if text[:1].isdigit() else 0


def library(unit: Unit, *, cache: Path | None = None, say: Say | None = None) -> Path:
    """The shared library of a unit; compiles it, which `say` is told, unless it is in the cache or the package.

    Raises BackendError with the compiler's first lines where that fails.
    """
    found = shipped(shipped_name(unit))
    if found is not None:
        return found
    tool = compiler()
    facts = (source_hash(), unit.name, *tool.flags(unit), tool.version, platform.system(), platform.machine())
    target = (cache or cache_folder()) / f"{unit.name}-{short_hash(*facts)}{_suffix()}"

    def make() -> None:
        if say:
            say(f"compiling {unit.name} kernels with {tool.version}")
        compile_to(target, unit, tool)

    made_once(target, f"{unit.name}.lock", make, "the native backend cannot be built")
    return target


def made_once(target: Path, lock: str, make: Callable[[], None], failure: str) -> None:
    """Have a file of the cache made unless it is there, by one process; BackendError if it cannot be written."""
    if target.is_file():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent / lock):
            if not target.is_file():
                make()
    except OSError as error:
        raise BackendError(f"{failure}: {error}", INSTALL) from None


def shipped(name: str) -> Path | None:
    """A compiled file inside the package, if a wheel brought it."""
    found = resources.files("graphrun.kernels") / "prebuilt" / name
    return found if isinstance(found, Path) and found.is_file() else None


def shipped_name(unit: Unit) -> str:
    """The file name of a unit's library inside the package."""
    return f"{unit.name}-{source_hash()}{_suffix()}"


def compile_to(target: Path, unit: Unit, tool: Compiler, extra: tuple[str, ...] = ()) -> None:
    """Compile a unit under a temporary name and move it to `target`; raises BackendError."""
    with resources.as_file(resources.files("graphrun.kernels")) as kernels, _folder(target.parent) as temporary:
        made = temporary / target.name
        command = [*tool.command, *tool.flags(unit), *extra, str(kernels / "cpu" / unit.source), "-o", str(made), "-lm"]
        run_compiler([*command, "-lpthread"], made, f"{unit.source} ({unit.name})", INSTALL)
        os.replace(made, target)


def run_compiler(command: Sequence[str], made: Path, what: str, hint: str) -> None:
    """Run a command in the folder of the file that it makes; BackendError with its first lines if it fails."""
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache_folder() / "zig")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=made.parent, check=False)
    if done.returncode != 0 or not made.is_file():
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        detail = "\n  ".join(lines[:5]) or f"exit status {done.returncode}"
        raise BackendError(f"compiling {what} failed:\n  {detail}", hint)


def source_hash() -> str:
    """A digest of every file that a library is made of."""
    return digest("cpu")


@lru_cache(maxsize=2)
def digest(folder: str) -> str:
    """A digest of the sources in a folder of kernels, and of those that all folders share."""
    root = resources.files("graphrun.kernels")
    found = hashlib.sha256()
    for place in (root, root / folder):
        for file in sorted((f for f in place.iterdir() if f.name.endswith((".c", ".h"))), key=lambda f: f.name):
            found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def short_hash(*facts: str) -> str:
    """What a file of the cache is named by, besides what it is."""
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:20]


def cache_folder() -> Path:
    """Where this system keeps a user's caches."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "graphrun"


def _suffix() -> str:
    return ".dll" if sys.platform == "win32" else ".dylib" if sys.platform == "darwin" else ".so"


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=parent, prefix="build-") as name:
        yield Path(name)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process compiles; where files cannot be locked several may, and the last one's result stays."""
    with path.open("w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        except ImportError:
            pass
        yield
