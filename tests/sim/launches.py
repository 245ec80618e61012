"""Kernels written for tests, the simulator's own functions, and how both are called."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.backends.build import cache_folder, compiler
from graphrun.backends.device import Memory
from graphrun.backends.gpu import GpuBackend
from sim.gpu_code import FLAGS, compile_kernels
from sim.simulator import ZIG, rocm_folder

BOUNDS, WAITS, LDS, COUNT, RANDOM_ORDER, WEAK, PERTURB, POISON, GROUPS = (1 << n for n in range(9))
STRICT = BOUNDS | WAITS | LDS | POISON
LIMIT = 50_000_000
COUNTERS = (
    *("instructions", "salu", "valu", "vopd", "trans", "dot4", "wmma", "smem", "vmem_load", "vmem_store", "atomics"),
    *("lds", "branches", "barriers", "waits", "lines", "needed_lines", "load_bytes", "store_bytes"),
    *("bank_conflicts", "stale_reads"),
)
THREADS = 256
SOURCES = Path(__file__).parent / "kernels"


class Simulator:
    """The library's own functions."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(rocm_folder() / "lib" / "libamdhip64.so"))
        self.options(STRICT)

    def options(self, options: int, seed: int = 0, limit: int = LIMIT) -> None:
        self.library.sim_options(ctypes.c_uint32(options), ctypes.c_uint64(seed), ctypes.c_uint64(limit))

    def counters(self) -> dict[str, int]:
        found = (ctypes.c_uint64 * len(COUNTERS))()
        self.library.sim_counters(found)
        return dict(zip(COUNTERS, found, strict=True))

    def memory(self, nbytes: int) -> None:
        """How much the card has."""
        self.library.sim_memory(ctypes.c_uint64(nbytes))

    def last_error(self) -> str:
        text = ctypes.create_string_buffer(2400)
        self.library.sim_last_error(text, ctypes.c_uint64(len(text)))
        return text.value.decode()


def code_object(name: str) -> bytes:
    """The kernels of kernels/NAME.c, compiled unless the cache has what the same text gave."""
    texts = [path.read_bytes() for path in (SOURCES / f"{name}.c", SOURCES / "kernel.h")]
    key = hashlib.sha256(b"\0".join([*texts, " ".join(FLAGS).encode(), compiler().version.encode()])).hexdigest()[:20]
    target = cache_folder() / f"gfx1201sim-{name}-{key}.hsaco"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            relocatable, linked = Path(folder) / "k.o", Path(folder) / "k.hsaco"
            compile_kernels(SOURCES / f"{name}.c", relocatable, "-c")
            subprocess.run([*ZIG, "ld.lld", "-shared", str(relocatable), "-o", str(linked)], check=True)
            os.replace(linked, target)
    return target.read_bytes()


def launch(gpu: GpuBackend, module: Any, name: str, groups: int, lds: int, *values: int) -> None:
    gpu.device.launch(gpu.device.function(module, name), groups, lds, values)


def launch_together(gpu: GpuBackend, module: Any, name: str, groups: int, *values: Any) -> Any:
    """A cooperative launch; the error code."""
    function = gpu.device.function(module, name)
    places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    hip = gpu.device.hip  # type: ignore[attr-defined]
    return hip.hipModuleLaunchCooperativeKernel(function, groups, 1, 1, THREADS, 1, 1, 0, None, places)[0]


def read(memory: Memory) -> np.ndarray[Any, Any]:
    return memory.read(0, memory.nbytes).view(np.uint32)
