"""NVIDIA GPUs, through the driver and the package cuda-bindings; kernels are PTX that the driver compiles."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from graphrun.backends.device import NoDevice
from graphrun.core.errors import BackendError
from graphrun.core.target import Target

A = np.ndarray[Any, Any]
CAPABILITY = (9, 0)  # what the PTX is made for; newer ones run it too
THREADS = 256
STATIC_LDS = 48 << 10  # bytes of shared memory that no kernel has to ask for
LOG_BYTES = 8192
POLLS = 1 << 20  # of a word in the second cache, each about 0.6 us
INSTALL = "pip install 'graphrun[cuda]' brings cuda-bindings; the driver comes from nvidia.com/drivers"


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise NoDevice("the cuda backend needs the package cuda-bindings", INSTALL) from None
    return driver


class CudaDevice:
    """The GPU of that number; raises NoDevice where there is none, or an older one."""

    def __init__(self, number: int = 0) -> None:
        self.driver = _driver()
        try:
            self._call("cuInit", 0)
        except RuntimeError as error:  # the library is loaded by the first call
            raise NoDevice(f"the cuda backend needs NVIDIA's driver ({str(error).splitlines()[0]})", INSTALL) from None
        except BackendError as error:
            raise NoDevice(f"there is no NVIDIA GPU ({error.message})", "see nvidia-smi") from None
        if self._call("cuDeviceGetCount") <= number:
            raise NoDevice(f"NVIDIA's driver is installed, but there is no GPU number {number}", "see nvidia-smi")
        device = self._call("cuDeviceGet", number)
        attribute = self.driver.CUdevice_attribute
        major, minor, self.multiprocessors, clock, width = (
            int(self._call("cuDeviceGetAttribute", a, device))
            for a in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                attribute.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
                attribute.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
            )
        )
        name = self._call("cuDeviceGetName", 128, device).split(b"\0")[0].decode(errors="replace")
        if (major, minor) < CAPABILITY:
            wanted = ".".join(map(str, CAPABILITY))
            raise NoDevice(f"{name} has compute capability {major}.{minor}; the cuda backend needs {wanted}")
        self.context = self._call("cuDevicePrimaryCtxRetain", device)
        self._enter()
        self.description = f"{name} (sm_{major}{minor})"
        self.stream = self._call("cuStreamCreate", 0)  # ordered with copies, which use the stream of number 0
        free, _ = self._call("cuMemGetInfo")
        self.target = Target("cuda", "gpu", int(free), 2e3 * clock * width / 8)  # kHz, twice a clock; bits
        self.blocks, self.polls, self.tick = self.multiprocessors, POLLS, 1e-9
        self.events: tuple[Any, Any] | None = None

    def software(self) -> str:
        """Names and versions of what reaches the device."""
        version = int(self._call("cuDriverGetVersion"))
        number = f"{version // 1000}.{version % 1000 // 10}"
        return f"cuda-bindings {metadata.version('cuda-bindings')}, a driver for CUDA {number}"

    def module(self, image: bytes) -> Any:
        """Kernels from PTX; an error has the first lines of the compiler's log."""
        self._enter()
        log = b"\0" * LOG_BYTES  # which the driver writes into
        option = self.driver.CUjit_option
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        result = self.driver.cuModuleLoadDataEx(image + b"\0", 2, options, [log, LOG_BYTES])
        try:
            return self._check("cuModuleLoadDataEx", result)
        except BackendError as error:
            lines = log.split(b"\0")[0].decode(errors="replace").splitlines()[:5]
            raise BackendError("\n  ".join([error.message, *lines])) from None

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a module."""
        found = self._call("cuModuleGetFunction", module, name.encode())
        attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", found, attribute, 2 * STATIC_LDS)
        return found

    def constant(self, module: Any, name: str) -> tuple[int, int]:
        """Address and bytes of a variable of a module."""
        address, nbytes = self._call("cuModuleGetGlobal", module, name.encode())
        return int(address), int(nbytes)

    def allocate(self, nbytes: int) -> int:
        """Device memory."""
        self._enter()
        return int(self._call("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        """Give memory back."""
        self._enter()
        self._call("cuMemFree", address)

    def upload(self, address: int, array: A) -> None:
        """Copy a contiguous array to the device."""
        self._enter()
        self._call("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)

    def download(self, address: int, array: A) -> None:
        """Copy from the device into a contiguous array, after all launches."""
        self._enter()
        self._call("cuMemcpyDtoH", array.ctypes.data, address, array.nbytes)

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""
        self._call("cuMemsetD8", address, 0, nbytes)

    def launch(self, function: Any, groups: int, lds: int, arguments: Sequence[int]) -> None:
        """Start workgroups of 256 threads with `lds` bytes of shared memory; arguments are 8 bytes each."""
        self._call("cuLaunchKernel", function, groups, 1, 1, THREADS, 1, 1, lds, self.stream, _given(arguments), 0)

    def launch_together(self, function: Any, groups: int, lds: int, arguments: Sequence[int], threads: int) -> None:
        """The same of workgroups that are all there at once; BackendError where the device has no room for that."""
        self._enter()
        given = _given(arguments)
        self._call("cuLaunchCooperativeKernel", function, groups, 1, 1, threads, 1, 1, lds, self.stream, given)

    def record(self, launches: Callable[[], None]) -> Callable[[], None]:
        """The launches as one graph, which the driver starts at once."""
        self._enter()
        mode = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self.stream, mode)
        try:
            launches()
        finally:
            graph = self._call("cuStreamEndCapture", self.stream)
        return partial(self._replay, self._call("cuGraphInstantiate", graph, 0))

    def _replay(self, graph: Any) -> None:
        self._enter()
        self._call("cuGraphLaunch", graph, self.stream)

    def synchronise(self) -> None:
        """Wait for all launches."""
        self._enter()
        self._call("cuCtxSynchronize")

    def timed(self, launches: Callable[[], None]) -> float:
        """Make launches and wait for them; returns the seconds that they took by the device's own clock."""
        self._enter()
        if self.events is None:
            self.events = self._call("cuEventCreate", 0), self._call("cuEventCreate", 0)
        start, stop = self.events
        self._call("cuEventRecord", start, self.stream)
        launches()
        self._call("cuEventRecord", stop, self.stream)
        self._call("cuEventSynchronize", stop)
        return float(self._call("cuEventElapsedTime", start, stop)) / 1e3

    def _enter(self) -> None:
        """Contexts belong to threads; this one may be new."""
        self._call("cuCtxSetCurrent", self.context)

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._check(name, getattr(self.driver, name)(*arguments))

    def _check(self, name: str, result: Any) -> Any:
        """The results of a call without its error code; raises BackendError with the driver's text."""
        error, *rest = result
        if int(error) != 0:
            _, text = self.driver.cuGetErrorString(error)
            raise BackendError(f"{name}: {(text or b'unknown error').decode(errors='replace')}")
        return rest[0] if len(rest) == 1 else tuple(rest)


def _given(arguments: Sequence[int]) -> Any:
    """Arguments of a kernel, with their types."""
    return tuple(arguments), (ctypes.c_uint64,) * len(arguments)
