"""What is asked of a GPU, and what lies in its memory: buffers, rows of states, weight matrices, kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from graphrun.backends.abi import LAYOUTS
from graphrun.backends.reference import NUMPY
from graphrun.core.errors import BackendError
from graphrun.core.ir import State
from graphrun.core.quant import Matrix
from graphrun.core.target import Target

A = np.ndarray[Any, Any]
ALIGNMENT = 256
ENTRY = np.dtype([("name", "S40"), ("layout", "<u4"), ("lds", "<u4")])  # of the kernels' table
MATRIX = np.dtype(  # gr_matrix of kernels/gr.h
    [("data", "<u8"), ("scales", "<u8"), ("stride", "<u8"), ("layout", "<u4"), ("rows", "<u4"), ("cols", "<u4")]
    + [("lanes", "<u4"), ("lane", "u1", 32), ("merges", "u1", 32)]
)


class NoDevice(BackendError):
    """There is no such device here, or not the software that reaches it."""


class Device(Protocol):
    """The dozen things asked of a GPU. Addresses are whole numbers; every function raises BackendError."""

    target: Target
    description: str
    blocks: int  # of the resident kernel that may be there together
    polls: int  # of a wait that takes about half a second
    tick: float  # seconds, of the clock that kernels read

    def software(self) -> str:
        """Names and versions of what reaches the device."""

    def module(self, image: bytes) -> Any:
        """A loaded code object."""

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a code object."""

    def constant(self, module: Any, name: str) -> tuple[int, int]:
        """Address and bytes of a variable of a code object."""

    def allocate(self, nbytes: int) -> int:
        """Device memory."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def upload(self, address: int, array: A) -> None:
        """Copy a contiguous array to the device."""

    def download(self, address: int, array: A) -> None:
        """Copy from the device into a contiguous array, after all launches."""

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""

    def launch(self, function: Any, groups: int, lds: int, arguments: Sequence[int]) -> None:
        """Start workgroups of 256 threads with `lds` bytes of shared memory; arguments are 8 bytes each."""

    def launch_together(self, function: Any, groups: int, lds: int, arguments: Sequence[int], threads: int) -> None:
        """The same of workgroups that are all there at once; BackendError where the device has no room for that."""

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        """What makes these launches again, with the same arguments, in less of the host's time; None: nothing does."""

    def synchronise(self) -> None:
        """Wait for all launches."""

    def timed(self, launches: Callable[[], None]) -> float:
        """Make launches and wait for them; returns the seconds that they took by the device's own clock."""


class Memory:
    """Device memory that goes back when its last user is gone."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.device, self.nbytes = device, nbytes
        self.address = device.allocate(max(nbytes, ALIGNMENT))

    def __del__(self) -> None:
        if hasattr(self, "address"):
            with suppress(BackendError):  # of a device that has failed before, and said so
                self.device.free(self.address)

    @classmethod
    def of(cls, device: Device, array: A) -> Memory:
        """A copy of an array."""
        made = cls(device, array.nbytes)
        if array.nbytes:
            device.upload(made.address, np.ascontiguousarray(array))
        return made

    @classmethod
    def zeros(cls, device: Device, nbytes: int) -> Memory:
        """Bytes of 0."""
        made = cls(device, nbytes)
        device.clear(made.address, max(nbytes, ALIGNMENT))
        return made

    def read(self, offset: int, nbytes: int) -> A:
        """A copy of some bytes."""
        found = np.empty(nbytes, np.uint8)
        self.device.download(self.address + offset, found)
        return found


class DeviceRows:
    """The rows of a state in device memory, read and written as those of an array [rows, n]."""

    def __init__(self, memory: Memory, state: State) -> None:
        self.memory, self.type = memory, state.type
        self.width = state.type.nbytes // state.type.shape[0]

    def __getitem__(self, rows: Sequence[int]) -> A:
        found = [self.memory.read(row * self.width, self.width) for row in rows]
        dtype = NUMPY[self.type.dtype.name]
        return np.stack(found).view(dtype) if found else np.empty((0, 0), dtype)

    def __setitem__(self, rows: Sequence[int], content: A) -> None:
        for row, values in zip(rows, content, strict=True):
            self.memory.device.upload(self.memory.address + row * self.width, np.ascontiguousarray(values))


def entries(device: Device, module: Any, name: str) -> list[tuple[str, int, int]]:
    """A table of kernels in a code object: name, checksum of the struct, and a number."""
    address, nbytes = device.constant(module, name)
    raw = np.empty(nbytes, np.uint8)
    device.download(address, raw)
    return [(bytes(e["name"]).decode(), int(e["layout"]), int(e["lds"])) for e in raw.view(ENTRY) if e["name"]]


class Kernels:
    """A code object's kernels: `index[name]` is (place in its table, checksum of its struct)."""

    def __init__(self, device: Device, image: bytes) -> None:
        self.module = device.module(image)
        found = entries(device, self.module, "gr_table")
        self.names = [name for name, _, _ in found]
        self.lds = [lds for _, _, lds in found]
        self.index = {name: (place, layout) for place, (name, layout, _) in enumerate(found)}
        self.functions = [device.function(self.module, f"call_{name}") for name in self.names]


class DeviceMatrix:
    """A weight matrix in device memory: its layout's flat words and scales, and the struct that kernels read."""

    def __init__(self, device: Device, matrix: Matrix) -> None:
        self.words, self.scales = Memory.of(device, matrix.words), Memory.of(device, matrix.scales)
        header = np.zeros(1, MATRIX)
        header["data"], header["scales"] = self.words.address, self.scales.address
        header["layout"], (header["rows"], header["cols"]) = LAYOUTS.index(matrix.layout.name), matrix.shape
        self.header = Memory.of(device, header.view(np.uint8))

    @property
    def address(self) -> int:
        return self.header.address
