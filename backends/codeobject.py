"""The GPU kernels as code objects: AMD machine code and NVIDIA's PTX, compiled at first use."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path

from graphrun.backends.build import INSTALL, Say, cache_folder, digest, made_once, run_compiler, shipped, short_hash
from graphrun.core.errors import BackendError

FLAGS = ("-x", "c", "-std=gnu11", "-nogpulib", "-nostdinc", "-O3", "-ffp-contract=off", "-ffreestanding", "-Wall")
UPDATE = "pip install -U ziglang brings a newer compiler; wheels of graphrun have these kernels inside"
# C has no way to say how many threads a kernel is started with, from which the driver knows its registers.
STAYS, STAYING = re.compile(r"(\.entry mega\([^)]*\)\s*)"), r"\1.maxntid 512, 1, 1\n"
SOURCES = ("entries.c", "mega_one.c", "mega_few.c")
QUIET = ("-Wno-unused-function",)


@dataclass(frozen=True, slots=True)
class Chip:
    """A target of the GPU kernels: its name, clang's flags, and the file that a device loads."""

    name: str
    flags: tuple[str, ...]
    suffix: str


GFX1201 = Chip("gfx1201", ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-c"), ".hsaco")
SM_90 = Chip("sm_90", ("--target=nvptx64-nvidia-cuda", "-march=sm_90", "-S"), ".ptx")
CHIPS = (GFX1201, SM_90)


def code_object(chip: Chip, source: str = "entries.c", *, cache: Path | None = None, say: Say | None = None) -> bytes:
    """The kernels of a source file for a chip; from the package, the cache, or the compiler, which `say` is told of.

    Raises BackendError with the compiler's first lines where that fails.
    """
    name = shipped_name(chip, source)
    found = shipped(name)
    if found is not None:
        return found.read_bytes()
    version = _compiler_version()
    target = (cache or cache_folder()) / f"{chip.name}-{short_hash(name, version, *FLAGS, *chip.flags)}{chip.suffix}"

    def make() -> None:
        if say:
            say(f"compiling {chip.name} kernels with {version}, once ...")
        compile_to(target, chip, source)

    made_once(target, f"{chip.name}.lock", make, f"the {chip.name} kernels cannot be built")
    return target.read_bytes()


def shipped_name(chip: Chip, source: str = "entries.c") -> str:
    """The file name of kernels inside the package, if a wheel brought them."""
    return f"{Path(source).stem}-{chip.name}-{source_hash()}{chip.suffix}"


def compile_to(target: Path, chip: Chip, source: str, extra: Sequence[str] = ()) -> None:
    """Compile a file of kernels/gpu under a temporary name and move it to `target`; raises BackendError."""
    with (
        resources.as_file(resources.files("graphrun.kernels")) as kernels,
        tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as temporary,
    ):
        made, linked = Path(temporary) / f"made{chip.suffix}", Path(temporary) / "linked"
        _run(made, "clang", *flags(chip), *extra, str(kernels / "gpu" / source))
        if chip.suffix == ".ptx":
            made.write_text(STAYS.sub(STAYING, made.read_text()))
        if chip.suffix == ".hsaco":
            _run(linked, "ld.lld", "-shared", str(made))
            made = linked
        os.replace(made, target)


def flags(chip: Chip) -> tuple[str, ...]:
    """Clang's flags; the headers of C itself are those that come with ziglang."""
    assert find_spec("ziglang") is not None
    headers = resources.files("ziglang") / "lib" / "include"
    return (*FLAGS, *QUIET, "-isystem", str(headers), *chip.flags)


def _run(made: Path, tool: str, *arguments: str) -> None:
    run_compiler([sys.executable, "-m", "ziglang", tool, *arguments, "-o", str(made)], made, "GPU kernels", UPDATE)


def _compiler_version() -> str:
    if find_spec("ziglang") is None:
        raise BackendError("GPU kernels cannot be built: the package ziglang is missing", INSTALL)
    return f"ziglang {metadata.version('ziglang')}"


def source_hash() -> str:
    """A digest of every file that code objects are made of."""
    return digest("gpu")
