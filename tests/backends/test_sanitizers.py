"""The kernel tests on kernels built with the sanitizers of addresses and undefined behaviour."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitized import passes

from graphrun.backends import engine

SETS = [name for name, usable in engine.instruction_sets().items() if usable]
BAD_ADDRESSES = "-O0 -g1 -fno-sanitize-recover=all -fsanitize=address,undefined"  # -O1 takes minutes to compile


def addresses_and_behaviour(instructions: str, tmp_path: Path) -> None:
    libraries, marks = ("libasan.so", "libubsan.so"), (b"__asan_report", b"__ubsan_handle")
    passes(tmp_path, BAD_ADDRESSES, libraries, f"{instructions} and not threads", marks)


def test_addresses_and_behaviour(tmp_path: Path) -> None:
    """The second set: every read and write stays inside its tensor; no overflow, no misaligned or null access."""
    addresses_and_behaviour(SETS[1 % len(SETS)], tmp_path)


@pytest.mark.parametrize("instructions", sorted({SETS[0], SETS[-1]} - {SETS[1 % len(SETS)]}))
@pytest.mark.usefixtures("all_sanitizers")
def test_other_sets(instructions: str, tmp_path: Path) -> None:
    addresses_and_behaviour(instructions, tmp_path)
