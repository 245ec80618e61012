"""The kernel tests on kernels built with a sanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SANITIZED = """
import sys
import pytest
from graphrun.backends import build
build.FLAGS = tuple(f for f in build.FLAGS if f != "-O3")
build.compiler = lambda: build.Compiler(("gcc", *sys.argv[2].split()), "sanitized", False)
build.cache_folder = lambda: build.Path(sys.argv[1])
sys.exit(pytest.main(["-q", "-x", "-s", "-p", "no:cacheprovider", *sys.argv[3:]]))
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


def passes(folder: Path, options: str, libraries: tuple[str, ...], tests: str, marks: tuple[bytes, ...]) -> None:
    """Run some kernel tests on libraries built with these options, which `marks` in them prove."""
    if sys.platform != "linux":
        pytest.skip("the runtime is loaded before Python")
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(map(runtime, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "halt_on_error=1",
    }
    file = str(ROOT / "tests" / "ops" / "test_kernels.py")
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(folder), options, file, "-k", tests],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=900,
        check=False,
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer of this gcc does not know this kernel's address space")
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout
    built = [path.read_bytes() for path in folder.glob("*.so")]
    assert len(built) == 2 and all(mark in code for code in built for mark in marks)
