"""AMD GPUs, through the package hip-python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphrun.core.errors import BackendError
from graphrun.core.target import Target

A = np.ndarray[Any, Any]
ARCHITECTURE = "gfx1201"
THREADS = 256
BANDWIDTH = 640e9  # bytes a second, by the maker's data sheet
SLOW_GROUPS = (253, 256)  # grids that this chip was reported to run at half their speed
INSTALL = "pip install 'graphrun[hip]' brings hip-python; ROCm 7 has the driver (rocm.docs.amd.com)"


def _hip() -> Any:
    try:
        from hip import hip
    except ImportError:
        raise BackendError("the hip backend needs the package hip-python", INSTALL) from None
    return hip


class HipDevice:
    """The first gfx1201 of the system, or the one of that number; raises BackendError where there is none."""

    def __init__(self, number: int | None = None) -> None:
        self.hip = _hip()
        self.number = self._choose() if number is None else number
        self._call("hipSetDevice", self.number)
        properties = self.hip.hipDeviceProp_t()
        self._check("hipGetDeviceProperties", self.hip.hipGetDeviceProperties(properties, self.number))
        architecture = _text(properties.gcnArchName).split(":")[0]
        if architecture != ARCHITECTURE:
            raise BackendError(
                f"device {self.number} is {architecture}; the hip backend has kernels for {ARCHITECTURE}"
            )
        self.description = f"{_text(properties.name)} ({architecture})"
        free, _ = self._call("hipMemGetInfo")
        self.target = Target("hip", "gpu", int(free), BANDWIDTH, slow_groups=SLOW_GROUPS)

    def _choose(self) -> int:
        """The number of the first device of the architecture, else of the first device."""
        try:
            count = self._call("hipGetDeviceCount")
        except RuntimeError as error:  # the library is loaded by the first call
            text = str(error).splitlines()[0]
            raise BackendError(
                f"the hip backend needs ROCm, whose libamdhip64.so was not found ({text})", INSTALL
            ) from None
        if count == 0:
            raise BackendError("ROCm is installed, but there is no AMD GPU that it can use", "see rocminfo")
        for number in range(count):
            properties = self.hip.hipDeviceProp_t()
            self._check("hipGetDeviceProperties", self.hip.hipGetDeviceProperties(properties, number))
            if _text(properties.gcnArchName).split(":")[0] == ARCHITECTURE:
                return number
        return 0

    def module(self, image: bytes) -> Any:
        """A loaded code object."""
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
        return int(self._call("hipMalloc", nbytes))

    def free(self, address: int) -> None:
        """Give memory back."""
        self._call("hipFree", address)

    def upload(self, address: int, array: A) -> None:
        """Copy a contiguous array to the device."""
        self._call("hipMemcpy", address, array, array.nbytes, self.hip.hipMemcpyKind.hipMemcpyHostToDevice)

    def download(self, address: int, array: A) -> None:
        """Copy from the device into a contiguous array, after all launches."""
        self._call("hipMemcpy", array, address, array.nbytes, self.hip.hipMemcpyKind.hipMemcpyDeviceToHost)

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""
        self._call("hipMemset", address, 0, nbytes)

    def launch(self, function: Any, groups: int, lds: int, arguments: Sequence[int]) -> None:
        """Start workgroups of 256 threads with `lds` bytes of shared memory; arguments are 8 bytes each."""
        extra = tuple(ctypes.c_uint64(a) for a in arguments)
        self._call("hipModuleLaunchKernel", function, groups, 1, 1, THREADS, 1, 1, lds, 0, None, extra)

    def synchronise(self) -> None:
        """Wait for all launches."""
        self._call("hipDeviceSynchronize")

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._check(name, getattr(self.hip, name)(*arguments))

    def _check(self, name: str, result: Any) -> Any:
        """The results of a call without its error code; raises BackendError with HIP's text."""
        error, *rest = result if isinstance(result, tuple) else (result,)
        if int(error) != 0:
            text = self.hip.hipGetErrorString(error)
            text = text[-1] if isinstance(text, tuple) else text
            raise BackendError(f"{name}: {_text(text)}")
        return rest[0] if len(rest) == 1 else tuple(rest)


def _text(raw: Any) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
