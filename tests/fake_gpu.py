"""A GPU that computes nothing: memory of the host, bounds that are checked, and a record of what was launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphrun.backends.abi import HEADER, RECORD_BYTES, layout
from graphrun.backends.device import ENTRY
from graphrun.core.errors import BackendError
from graphrun.core.target import Target
from graphrun.ops import OPS

A = np.ndarray[Any, Any]
POISON = 0xFF
TABLE = [(k.name, layout(op).checksum) for op in OPS.values() for k in op.kernels]


class FakeDevice:
    """Every address that is copied, cleared or launched with must lie in live memory.

    `launched` are (kernel, workgroups, index of the call); the launch of number `fails_at` fails.
    """

    description = "a GPU that computes nothing"
    blocks = polls = 0
    tick = 1e-9

    def __init__(self, memory: int = 1 << 30, missing: Sequence[str] = ()) -> None:
        self.target = Target("fake", "gpu", memory)
        self.live: dict[int, A] = {}
        self.launched: list[tuple[str, int, int]] = []
        self.waits = 0
        self.fails_at: int | None = None
        self.broken = False
        entries = [(name.encode(), checksum, 64) for name, checksum in TABLE if name not in missing]
        self.names = {f"call_{name.decode()}": index for index, (name, *_) in enumerate(entries)}
        self.table = self.allocate((len(entries) + 1) * ENTRY.itemsize)
        self.upload(self.table, np.array([*entries, (b"", 0, 0)], ENTRY))

    def software(self) -> str:
        return "no software"

    def module(self, image: bytes) -> Any:
        return image

    def function(self, module: Any, name: str) -> Any:
        assert name in self.names
        return name

    def constant(self, module: Any, name: str) -> tuple[int, int]:
        assert name == "gr_table"
        return self.table, self.live[self.table].size

    def allocate(self, nbytes: int) -> int:
        assert nbytes > 0
        memory = np.full(nbytes, POISON, np.uint8)
        address = int(memory.ctypes.data)
        self.live[address] = memory
        return address

    def free(self, address: int) -> None:
        if self.broken:
            raise BackendError("the device is lost")
        del self.live[address]

    def upload(self, address: int, array: A) -> None:
        assert array.flags.c_contiguous
        self.at(address, array.nbytes)[...] = array.reshape(-1).view(np.uint8)

    def download(self, address: int, array: A) -> None:
        assert array.flags.c_contiguous
        if self.broken:
            raise BackendError("the device is lost")
        array.reshape(-1).view(np.uint8)[...] = self.at(address, array.nbytes)

    def clear(self, address: int, nbytes: int) -> None:
        self.at(address, nbytes)[...] = 0

    def launch(self, function: Any, groups: int, lds: int, arguments: Sequence[int]) -> None:
        if self.broken or self.fails_at == len(self.launched):
            self.broken = True
            raise BackendError("an illegal memory access was encountered")
        record, scratch = arguments
        place, _, recorded, call, _ = HEADER.unpack(self.at(record, RECORD_BYTES)[: HEADER.size].tobytes())
        assert place == self.names[function] and recorded == groups > 0 and lds == 64
        assert not self.at(scratch, 4).any()
        self.launched.append((function.removeprefix("call_"), groups, call))

    def launch_together(self, function: Any, groups: int, lds: int, arguments: Sequence[int], threads: int) -> None:
        raise AssertionError("it has no resident kernel")

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        return None

    def synchronise(self) -> None:
        self.waits += 1

    def timed(self, launches: Callable[[], None]) -> float:
        launches()
        return 0.001

    def at(self, address: int, nbytes: int) -> A:
        """The bytes there; they must be part of one allocation."""
        for start, memory in self.live.items():
            if start <= address and address + nbytes <= start + memory.size:
                return memory[address - start : address - start + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address:#x} are not allocated")
