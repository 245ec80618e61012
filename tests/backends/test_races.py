"""The kernel tests on kernels built with the sanitizer of threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitized import passes

from graphrun.backends import engine

SETS = [name for name, usable in engine.instruction_sets().items() if usable]
RACES = "-O0 -g1 -fsanitize=thread"


@pytest.mark.usefixtures("all_sanitizers")
def test_races(tmp_path: Path) -> None:
    """What threads share they hand over by the pool's signals: any number of threads, every op."""
    passes(tmp_path, RACES, ("libtsan.so",), f"{SETS[1 % len(SETS)]} and threads", (b"__tsan_write",))
