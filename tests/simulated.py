"""A gfx1201 in software, reached by the package hip-python as a card would be."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import pytest
from sim.launches import STRICT, Simulator
from sim.simulator import HIP_LIBRARY, rocm_folder

from graphrun import backends
from graphrun.backends import engine
from graphrun.backends.codeobject import GFX1201, code_object
from graphrun.backends.gpu import GpuBackend
from graphrun.backends.resident import Resident

BLOCKS, POLLS = 4, 20000  # of the resident kernel: the more there are, the more of them only wait


@cache
def missing() -> str:
    """Why the simulator cannot run here, "" if it can."""
    if sys.platform != "linux" or platform.machine().lower() not in ("x86_64", "amd64"):
        return "the simulator is made for Linux on x86_64"
    if not engine.instruction_sets().get("avx2"):
        return "the simulator needs a processor with AVX2"
    return ""


@cache
def _load() -> str:
    """Load the simulator under the name by which hip-python looks for ROCm's library; why that failed, "" if not."""
    try:
        ctypes.CDLL(str(rocm_folder() / "lib" / HIP_LIBRARY))
    except OSError as error:  # of a system with an older libc
        return f"the simulator cannot be loaded: {error}"
    return ""


@contextmanager
def gfx1201() -> Iterator[GpuBackend]:
    """The hip backend on it; afterwards no test of this process sees a device, so that auto stays native."""
    hip = pytest.importorskip("rocm.bindings.hip", reason="hip-python is not installed")
    if reason := missing() or _load():
        pytest.skip(reason)
    count = getattr(hip, "seen", hip.hipGetDeviceCount)
    hip.seen, hip.hipGetDeviceCount = count, count
    try:
        found = backends.open("hip")
        assert isinstance(found, GpuBackend) and found.resident
        Simulator().options(STRICT, limit=0)  # whatever tests before have set
        found.stay(Resident(found.device, partial(code_object, GFX1201), BLOCKS, POLLS))
        yield found
    finally:
        hip.hipGetDeviceCount = lambda: (hip.hipError_t.hipErrorNoDevice, 0)
