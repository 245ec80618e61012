"""The C libraries through ctypes: instruction sets, kernel tables, weight panels, and the pool of threads."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.backends import build
from graphrun.backends.abi import HEADER, LAYOUTS, RECORD_BYTES
from graphrun.backends.build import Say
from graphrun.core.errors import BackendError
from graphrun.core.types import DType

A = np.ndarray[Any, Any]

PANEL = 16
MAX_THREADS = 1024


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("scales", c_void_p),
        ("stride", c_uint64),
        ("layout", c_uint32),
        ("rows", c_uint32),
        ("cols", c_uint32),
        ("lanes", c_uint32),
        ("lane", c_uint8 * 32),
        ("merges", c_uint8 * 32),
    )


class _Entry(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("layout", c_uint32), ("run", c_void_p))


class Kernels:
    """The kernel table of an instruction set: `index[name]` is (place in the table, checksum of its struct)."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        library = _load(path)
        self.table = ctypes.addressof(_Entry.in_dll(library, "gr_kernels"))
        self.index: dict[str, tuple[int, int]] = {}
        while (entry := _Entry.from_address(self.table + ctypes.sizeof(_Entry) * len(self.index))).name:
            self.index[entry.name.decode()] = (len(self.index), entry.layout)
        self._library = library


class Panels:
    """A weight matrix in the order in which kernels read it; `address` is that of its gr_matrix."""

    def __init__(self, layout: DType, shape: tuple[int, int]) -> None:
        self.layout = layout
        self._matrix = _Matrix(layout=LAYOUTS.index(layout.name), rows=shape[0], cols=shape[1])
        library().gr_plan_matrix(ctypes.byref(self._matrix))
        self.nbytes = -(-shape[0] // PANEL) * self._matrix.stride
        self._memory = zeros(self.nbytes)
        self._matrix.data = self._memory.ctypes.data
        self.address = ctypes.addressof(self._matrix)

    def fill(self, row: int, sections: Sequence[A]) -> None:
        """Rows from `row` on, given as the sections of core/layouts.py, words before scales: [rows, width]."""
        flat = [np.ascontiguousarray(s) for s in sections]
        assert row + len(flat[0]) <= self._matrix.rows
        addresses = (c_void_p * 4)(*(s.ctypes.data for s in flat))
        widths = (c_uint64 * 4)(*(s.strides[0] for s in flat))
        library().gr_pack(ctypes.byref(self._matrix), row, len(flat[0]), addresses, widths)


class Pool:
    """Threads that run command tables, one table at a time; made at the first use, and anew after a fork."""

    def __init__(self, threads: int, kernels: Kernels) -> None:
        self.threads = min(threads, MAX_THREADS)
        self.kernels = kernels
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        _pools.add(self)

    def run(self, records: A, first: int, count: int) -> None:
        """Run `count` records uint8[n, 256] from `first` on; raises BackendError if memory runs out."""
        with self._lock:
            if self._handle is None:
                self._handle = library().gr_pool_new(self.threads, self.kernels.table)
                if self._handle is None:
                    raise BackendError(f"{self.threads} threads could not be started", "give fewer with -t")
                self._finalizer = weakref.finalize(self, library().gr_pool_free, self._handle)
                self._finalizer.atexit = False  # a daemon thread may be inside a step then
            if library().gr_pool_run(self._handle, records[first:].ctypes.data, count):
                raise BackendError("memory ran out during a step", "a smaller chunk or context needs less")

    def read_limit(self, nbytes: int, runs: int = 5) -> float:
        """Bytes a second at which all threads together read memory of this size, the best of some runs."""
        data, sums = zeros(nbytes), np.zeros(8 * self.threads, np.uint64)
        data[:: mmap.PAGESIZE] = 1  # else all pages are one
        record = np.zeros((1, RECORD_BYTES), np.uint8)
        place = self.kernels.index["read"][0]
        raw = HEADER.pack(place, 0, 1, 0, 0) + struct.pack("<QQQ", data.ctypes.data, nbytes // 64, sums.ctypes.data)
        record[0, : len(raw)] = np.frombuffer(raw, np.uint8)
        times = []
        for _ in range(runs):
            begin = time.perf_counter()
            self.run(record, 0, 1)
            times.append(time.perf_counter() - begin)
        return nbytes / min(times)

    def forget(self) -> None:
        """In a forked child, which has none of the threads."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._handle, self._lock = None, threading.Lock()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in tuple(_pools):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def zeros(nbytes: int) -> A:
    """Zero bytes at the start of a page, in large pages where the system has them."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, max(nbytes, 1), **private)  # a forked child writes copies of its own
    if nbytes >= 1 << 21 and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8, nbytes)


@cache
def library() -> Any:
    """The engine, compiled if need be."""
    loaded = _load(build.library(build.ENGINE))
    loaded.gr_supported.argtypes = [c_int]
    loaded.gr_plan_matrix.argtypes = [c_void_p]
    loaded.gr_pack.argtypes = [c_void_p, c_uint32, c_uint32, POINTER(c_void_p), POINTER(c_uint64)]
    loaded.gr_pool_new.argtypes = [c_uint32, c_void_p]
    loaded.gr_pool_new.restype = c_void_p
    loaded.gr_pool_free.argtypes = [c_void_p]
    loaded.gr_pool_free.restype = None
    loaded.gr_pool_run.argtypes = [c_void_p, c_void_p, c_uint32]
    return loaded


def instruction_sets() -> Mapping[str, bool]:
    """Every instruction set that kernels are compiled for, worst first, and whether this processor has it."""
    return {unit.name: bool(library().gr_supported(i)) for i, unit in enumerate(build.SETS)}


def kernels(name: str | None = None, say: Say | None = None) -> Kernels:
    """The kernels of an instruction set, by default the best that this processor has.

    `say` is told what is compiled. Raises BackendError.
    """
    build.library(build.ENGINE, say=say)
    have = [n for n, usable in instruction_sets().items() if usable]
    name = name or have[-1]
    if name not in have:
        raise BackendError(f"this processor does not run {name} kernels", f"it has {', '.join(have)}")
    unit = next(u for u in build.SETS if u.name == name)
    return Kernels(name, build.library(unit, say=say))


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BackendError(f"the native backend cannot be loaded: {error}", f"remove {path}") from None


def usable_cores() -> int:
    """Physical cores that this process may run on; all that it may use where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    usable = os.sched_getaffinity(0)
    cores = set()
    for cpu in usable:
        try:
            cores.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            return len(usable)
    return max(1, len(cores))
