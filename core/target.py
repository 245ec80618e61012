"""A machine as data: what planning has to know about the device a program will run on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A device.

    `memory` is the bytes a model may use, `bandwidth` bytes per second of its memory and `flops` its peak rate,
    both 0 where unknown; `kernels` names the family of C functions it runs ("numpy" runs any op's body).
    """

    name: str
    kernels: str
    memory: int
    bandwidth: float = 0.0
    flops: float = 0.0
    lanes: int = 32
    resident_groups: int = 0
    slow_groups: tuple[int, int] = (0, -1)

    def groups(self, n: int) -> int:
        """The grid size to launch for n workgroups, past the sizes this device is slow at."""
        low, high = self.slow_groups
        return high + 1 if low <= n <= high else n
