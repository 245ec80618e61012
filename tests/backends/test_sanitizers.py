"""The kernel tests on kernels built with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from graphrun.backends import engine

SANITIZED = """
import sys
import pytest
from graphrun.backends import build
options = ("-O1", "-g", "-fno-sanitize-recover=all", "-fsanitize=address,undefined", "-fno-omit-frame-pointer")
build.FLAGS = tuple(f for f in build.FLAGS if f not in ("-O3", "-fno-sanitize=all")) + options
build.compiler = lambda: build.Compiler(("gcc",), "sanitized", False)
build.cache_folder = lambda: build.Path(sys.argv[1])
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def runtime(name: str) -> str:
    """The path of a library that comes with gcc; skips the test where there is none."""
    try:
        asked = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("gcc is not installed")
    path = Path(asked.stdout.strip())
    if not path.is_absolute():
        pytest.skip(f"gcc has no {name}")
    return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="the runtime is loaded before Python")
def test_kernels_are_clean(tmp_path: Path) -> None:
    """Every read and write stays inside its tensor; no overflow, no misaligned or null access."""
    best = [name for name, usable in engine.instruction_sets().items() if usable][-1]
    preload = " ".join((runtime("libasan.so"), runtime("libubsan.so")))
    environment = {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}
    tests = [str(ROOT / "tests" / "ops" / "test_kernels.py"), "-k", f"{best} and not threads"]
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(tmp_path), *tests],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout
