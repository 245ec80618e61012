"""The kernel tests on kernels built with the sanitizers of addresses and undefined behaviour."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitized import passes

from graphrun.backends import engine

SETS = [name for name, usable in engine.instruction_sets().items() if usable]
BAD_ADDRESSES = "-O0 -g1 -fno-sanitize-recover=all -fsanitize=address,undefined"  # -O1 takes minutes to compile


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.usefixtures("all_sanitizers")
def test_addresses_and_behaviour(instructions: str, tmp_path: Path) -> None:
    """Every read and write stays inside its tensor; no overflow, no misaligned or null access."""
    libraries, marks = ("libasan.so", "libubsan.so"), (b"__asan_report", b"__ubsan_handle")
    passes(tmp_path, BAD_ADDRESSES, libraries, f"{instructions} and not threads", marks)
