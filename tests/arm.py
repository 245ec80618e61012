"""Kernels for 64-bit ARM, run by the user-mode emulator qemu-aarch64 on the memory of benches."""

from __future__ import annotations

import os
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from conftest import ROOT
from kernel_calls import Bench

from graphrun.backends import build, engine
from graphrun.backends.abi import HEADER, RECORD_BYTES, layout
from graphrun.backends.build import Unit

A = np.ndarray[Any, Any]

EMULATE = ROOT / "tests" / "backends" / "emulate"
CPU = ROOT / "kernels" / "cpu"
# The oldest processor that has each set and none of the later ones, by qemu's name.
PROCESSORS = {"generic": "cortex-a53", "dotprod": "cortex-a76", "i8mm": "max"}
ALIGNMENT = 64
OPTIONS = ("-std=gnu11", "-Os", "-ffp-contract=off", "-fno-math-errno", "-fno-sanitize=all", "-fno-stack-protector")
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-psabi")


def compile_driver(unit: Unit, kernels: Path, target: Path) -> Path:
    """The driver with a table of kernels, for the instruction set of `unit`; needs zig, whose headers it takes."""
    zig = [*build.compiler().command, "-target", "aarch64-linux-musl"]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(build.cache_folder() / "zig")}
    compiled = target.with_suffix(".o")
    flags = (*OPTIONS, *STRICT, f"-mcpu={unit.zig}", f"-I{CPU}", f'-DKERNELS="{kernels}"')
    for command in (
        [*zig, *flags, "-c", str(EMULATE / "driver.c"), "-o", str(compiled)],
        [*zig, "-nostdlib", "-static", str(compiled), "-o", str(target)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=target.parent, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
    return target


class Records:
    """Stands for a pool: a bench that it is given is not run, its record is kept."""

    def __init__(self, index: dict[str, tuple[int, int]]) -> None:
        self.kernels = self
        self.index = index
        self.kept: list[A] = []

    def run(self, table: A, first: int, count: int) -> None:
        self.kept.append(table[first : first + count].copy())


def run(driver: Path, processor: str, benches: Iterable[Bench], index: dict[str, tuple[int, int]], threads: int) -> A:
    """Run benches one after the other; their memory is then what the emulated processor left.

    Returns which instruction sets that processor says it has, bool[3].
    """
    benches = list(benches)
    records = Records(index)
    for bench in benches:
        bench.run(cast(engine.Pool, records))
    table = np.concatenate(records.kept)
    regions = sorted((*(r for b in benches for r in _regions(b)), table), key=_address)
    places = np.cumsum([0, *(-(-r.nbytes // ALIGNMENT) * ALIGNMENT for r in regions)]).tolist()
    starts = [_address(r) for r in regions]

    def place(address: int) -> int:
        i = bisect_right(starts, address) - 1
        assert 0 <= address - starts[i] <= regions[i].nbytes, "a pointer to memory that is not the bench's"
        return int(places[i]) + address - starts[i]

    image = np.zeros(places[-1], np.uint8)
    for at, region in zip(places, regions, strict=False):
        image[at : at + region.nbytes] = _bytes(region)
    pointers = np.array(
        [(place(at), place(int(target))) for at, target in _pointers(benches, table) if target], np.uint64
    )
    job = struct.pack("<5Q", len(image), len(pointers), place(_address(table)), len(table), threads)
    command = ["qemu-aarch64", "-cpu", processor, str(driver)]
    given = job + pointers.tobytes() + image.tobytes()
    done = subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0 and len(done.stdout) == 3 + len(image), (done.returncode, done.stderr[-2000:])
    after = np.frombuffer(done.stdout, np.uint8)
    for at, region in zip(places, regions, strict=False):
        if region is not table and not _holds_pointers(region, benches):
            _bytes(region)[...] = after[3 + at : 3 + at + region.nbytes]
    return after[:3].astype(bool)


def _address(region: A) -> int:
    return int(region.ctypes.data)


def _bytes(region: A) -> A:
    return region.reshape(-1).view(np.uint8)


def _panels(bench: Bench) -> Iterator[engine.Panels]:
    yield from (held for held in bench.fixed.values() if isinstance(held, engine.Panels))


def _regions(bench: Bench) -> Iterator[A]:
    """All memory that a bench's record leads to."""
    yield from (m.bytes for m in bench.memory.values())
    yield from bench.states.values()
    for panels in _panels(bench):
        yield panels._memory
        yield np.frombuffer(memoryview(panels._matrix), np.uint8)
    if hasattr(bench, "table"):
        yield bench.table


def _holds_pointers(region: A, benches: list[Bench]) -> bool:
    return _address(region) in {p.address for b in benches for p in _panels(b)}


def _pointers(benches: list[Bench], table: A) -> Iterator[tuple[int, int]]:
    """Addresses of the pointers in records and matrices, and what they point to."""
    for number, bench in enumerate(benches):
        fields = layout(bench.call.op).fields
        values = table[number, HEADER.size :].view(np.uint64)
        for i, field in enumerate(fields):  # those of 8 bytes come first
            if field.kind == "pointer":
                yield _address(table) + RECORD_BYTES * number + HEADER.size + 8 * i, int(values[i])
        for panels in _panels(bench):
            yield panels.address, int(panels._matrix.data or 0)
