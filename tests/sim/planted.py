"""Kernels of the package with a bug put into their source or their machine code, and what a run of one says."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arguments import Arguments, Case
from conftest import ROOT
from gpu_bench import GpuBench
from kernel_cases import KERNELS, check

from graphrun.backends.codeobject import GFX1201, compile_to
from graphrun.backends.device import Kernels
from graphrun.backends.gpu import GpuBackend
from graphrun.core.errors import BackendError
from sim import simulator as single
from sim.gpu_code import functions
from sim.launches import Simulator

OTHER_BITS = "other bits than numpy's"
NOP = bytes.fromhex("000080bf")


@dataclass(frozen=True)
class Edit:
    """A text that stands once in a file of kernels/gpu, and what takes its place."""

    file: str
    old: str
    new: str


def kernels_with(edits: Sequence[Edit], names: Sequence[str], source: str = "entries.c") -> bytes:
    """The code object of some kernels of table.h with edited sources."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "kernels"
        shutil.copytree(ROOT / "kernels", folder)
        for edit in edits:
            path = folder / "gpu" / edit.file
            text = path.read_text()
            assert text.count(edit.old) == 1, edit
            path.write_text(text.replace(edit.old, edit.new))
        table = folder / "gpu" / "table.h"
        wanted = tuple(f"KERNEL({name}," for name in names)
        lines = [line for line in table.read_text().splitlines() if line.startswith(wanted)]
        assert len(lines) == len(names)
        table.write_text("\n".join([*lines, ""]))
        made = Path(temporary) / "planted.hsaco"
        compile_to(made, GFX1201, str(folder / "gpu" / source))
        return made.read_bytes()


@dataclass(frozen=True)
class Place:
    """An instruction of a kernel, and where it stands in the code object."""

    text: str
    at: int


def instructions(image: bytes, kernel: str) -> Iterator[Place]:
    """Those of a kernel of table.h."""
    body = functions(image)[f"call_{kernel}"]
    start, at = image.index(body), 0
    while at < len(body):
        size, text, _ = single.decode(body, at)
        yield Place(text, start + at)
        at += size or 4


def without(image: bytes, *places: Place) -> bytes:
    """The code object with s_nop in the place of instructions of 4 bytes."""
    for place in places:
        image = image[: place.at] + NOP + image[place.at + 4 :]
    return image


def alarm(
    gpu: GpuBackend, simulator: Simulator, image: bytes, name: str, case: Case, given: Arguments, counters: int = 0
) -> str:
    """What the simulator, the bench or the comparison with numpy says of one call of a kernel; "" if all is well.

    `counters` is what scratch memory holds in the place of zeros.
    """
    op, kernel = KERNELS[name]
    bench = GpuBench(op, kernel.name, given)
    bench.before = counters
    try:
        bench.run_on(gpu.device, Kernels(gpu.device, image), kernel)
    except BackendError:
        return simulator.last_error()
    except AssertionError as error:
        return str(error)
    try:
        check(op, bench, given, case)
    except AssertionError:
        return OTHER_BITS
    return ""
