"""AMD GPUs, through the package hip-python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.backends.device import NoDevice
from graphrun.core.errors import BackendError
from graphrun.core.target import Target

A = np.ndarray[Any, Any]
ARCHITECTURE = "gfx1201"
THREADS = 256
BANDWIDTH = 640e9  # bytes a second, by the maker's data sheet
TICK = 1e-8  # seconds, of the constant clock
POLLS = 1 << 19  # of a word in the second cache, with a pause of 64 cycles
SLOW_GROUPS = (253, 256)  # grids that this chip was reported to run at half their speed
PACKAGE = "pip install 'graphrun[hip]' brings it"
ROCM = "ROCm 7 brings it (rocm.docs.amd.com); where it is not in /opt/rocm, set ROCM_PATH to its folder"
GROUPS = "rocminfo shows what ROCm sees; a user must be in the groups render and video to open /dev/kfd"


def bindings() -> Any:
    """AMD's Python bindings of the HIP library; raises NoDevice where they are not installed."""
    try:
        from rocm.bindings import hip
    except ImportError:
        raise NoDevice("the hip backend needs the package hip-python, version 10", PACKAGE) from None
    return hip


class HipDevice:
    """The first gfx1201 of the system, or the device of that number.

    Raises NoDevice where there is none or no way to reach it, BackendError where it cannot be used.
    """

    def __init__(self, number: int | None = None) -> None:
        self.hip = bindings()
        names = self._architectures()
        if number is None:
            number = names.index(ARCHITECTURE) if ARCHITECTURE in names else 0
        if not 0 <= number < len(names):
            raise NoDevice(f"there is no AMD GPU number {number}: ROCm sees {len(names)}", GROUPS)
        if names[number] != ARCHITECTURE:
            raise NoDevice(
                f"the AMD GPU number {number} is a {names[number]}; the hip backend has kernels for {ARCHITECTURE}",
                "--backend native runs on the processor",
            )
        self.number, self.thread = number, 0
        self._enter()
        properties = self._call("hipGetDeviceProperties", number)
        self.description = f"{_text(properties.name)} ({ARCHITECTURE})"
        free, _ = self._call("hipMemGetInfo")
        self.target = Target("hip", "gpu", int(free), BANDWIDTH, slow_groups=SLOW_GROUPS)
        self.blocks, self.polls, self.tick = 2 * int(properties.multiProcessorCount), POLLS, TICK
        self.events: tuple[Any, Any] | None = None

    def _architectures(self) -> list[str]:
        """The instruction set of every device."""
        try:
            error, count = self.hip.hipGetDeviceCount()
        except RuntimeError:  # the library is loaded by the first call
            raise NoDevice("the hip backend needs ROCm, whose libamdhip64.so was not found", ROCM) from None
        if int(error) != 0 or count == 0:
            reason = f" ({self._reason(error)})" if int(error) != 0 else ""
            raise NoDevice(f"ROCm is installed, but sees no AMD GPU{reason}", GROUPS)
        found = (self._call("hipGetDeviceProperties", number).gcnArchName for number in range(count))
        return [_text(name).split(":")[0] for name in found]

    def software(self) -> str:
        """Names and versions of what reaches the device."""
        version = int(self._call("hipRuntimeGetVersion"))
        number = f"{version // 10**7}.{version // 10**5 % 100}"
        return f"hip-python {metadata.version('hip-python')}, HIP {number} in {_library() or 'a library unknown'}"

    def module(self, image: bytes) -> Any:
        """A loaded code object."""
        self._enter()
        return self._call("hipModuleLoadData", image)

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a code object."""
        return self._call("hipModuleGetFunction", module, name.encode())

    def constant(self, module: Any, name: str) -> tuple[int, int]:
        """Address and bytes of a variable of a code object."""
        address, nbytes = self._call("hipModuleGetGlobal", module, name.encode())
        return int(address), int(nbytes)

    def allocate(self, nbytes: int) -> int:
        """Device memory."""
        self._enter()
        try:
            return int(self._call("hipMalloc", nbytes))
        except BackendError as error:
            free, _ = self._call("hipMemGetInfo")
            raise BackendError(
                f"{nbytes / 1e9:.2f} GB more do not fit the GPU, {free / 1e9:.2f} GB are free ({error.message})",
                "a smaller -c (context) needs less; --backend native uses the processor's memory",
            ) from None

    def free(self, address: int) -> None:
        """Give memory back."""
        self._enter()
        self._call("hipFree", address)

    def upload(self, address: int, array: A) -> None:
        """Copy a contiguous array to the device."""
        self._enter()
        self._call("hipMemcpy", address, array, array.nbytes, self.hip.hipMemcpyKind.hipMemcpyHostToDevice)

    def download(self, address: int, array: A) -> None:
        """Copy from the device into a contiguous array, after all launches."""
        self._enter()
        self._call("hipMemcpy", array, address, array.nbytes, self.hip.hipMemcpyKind.hipMemcpyDeviceToHost)

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""
        self._enter()
        self._call("hipMemset", address, 0, nbytes)

    def launch(self, function: Any, groups: int, lds: int, arguments: Sequence[int]) -> None:
        """Start workgroups of 256 threads with `lds` bytes of shared memory; arguments are 8 bytes each."""
        self._enter()
        extra = tuple(ctypes.c_uint64(a) for a in arguments)
        self._call("hipModuleLaunchKernel", function, groups, 1, 1, THREADS, 1, 1, lds, None, None, extra)

    def launch_together(self, function: Any, groups: int, lds: int, arguments: Sequence[int], threads: int) -> None:
        """The same of workgroups that are all there at once; BackendError where the device has no room for that."""
        self._enter()
        given = tuple(ctypes.c_uint64(a) for a in arguments)
        self._call("hipModuleLaunchCooperativeKernel", function, groups, 1, 1, threads, 1, 1, lds, None, given)

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        """Nothing: launches are made one by one."""
        return None

    def synchronise(self) -> None:
        """Wait for all launches."""
        self._enter()
        self._call("hipDeviceSynchronize")

    def timed(self, launches: Callable[[], None]) -> float:
        """Make launches and wait for them; returns the seconds that they took by the device's own clock."""
        self._enter()
        if self.events is None:
            self.events = self._call("hipEventCreate"), self._call("hipEventCreate")
        start, stop = self.events
        self._call("hipEventRecord", start, None)
        launches()
        self._call("hipEventRecord", stop, None)
        self._call("hipEventSynchronize", stop)
        return float(self._call("hipEventElapsedTime", start, stop)) / 1e3

    def _enter(self) -> None:
        """The current device belongs to the thread, and this one may be new."""
        thread = threading.get_ident()
        if thread != self.thread:
            self._call("hipSetDevice", self.number)
            self.thread = thread

    def _call(self, name: str, *arguments: Any) -> Any:
        """The results of a function without its error code; raises BackendError with HIP's text."""
        try:
            result = getattr(self.hip, name)(*arguments)
        except RuntimeError:  # it is looked up by its first call
            raise BackendError(f"ROCm's libamdhip64.so has no {name}", "the hip backend needs ROCm 7") from None
        error, *rest = result
        if int(error) != 0:
            raise BackendError(f"{name}: {self._reason(error)}")
        return rest[0] if len(rest) == 1 else tuple(rest)

    def _reason(self, error: Any) -> str:
        return _text(self.hip.hipGetErrorString(error)[-1])


def _library() -> str | None:
    """The file that was loaded, where the system tells."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    return next((line.split(None, 5)[5] for line in maps.splitlines() if "libamdhip64" in line), None)


def _text(raw: Any) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
