"""A gfx1201 in software, reached by the package hip-python as a card would be."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from sim import simulator

from graphrun import backends
from graphrun.backends.gpu import GpuBackend


@cache
def _load() -> None:
    """Load the simulator under the name by which hip-python looks for ROCm's library, if it has not found that."""
    folder = getattr(simulator, "rocm_folder", None)
    if folder is None:
        pytest.skip("the simulator executes instructions, but cannot launch kernels yet")
    ctypes.CDLL(str(folder() / "lib" / "libamdhip64.so"))


@contextmanager
def gfx1201() -> Iterator[GpuBackend]:
    """The hip backend on it; afterwards no test of this process sees a device, so that auto stays native."""
    hip = pytest.importorskip("rocm.bindings.hip")
    _load()
    count = getattr(hip, "seen", hip.hipGetDeviceCount)
    hip.seen, hip.hipGetDeviceCount = count, count
    try:
        found = backends.open("hip")
        assert isinstance(found, GpuBackend)
        yield found
    finally:
        hip.hipGetDeviceCount = lambda: (hip.hipError_t.hipErrorNoDevice, 0)
