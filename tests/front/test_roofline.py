"""The example that says what a decode step must move: its sums, and counters of products on the simulator."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import ROOT

SCRIPT = ROOT / "examples" / "bench_roofline.py"


def run(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def rows(text: str) -> dict[str, list[str]]:
    """Cells by kernel of the one table."""
    lines = text.split("share", 1)[1].splitlines()[1:]
    return {name: cells for name, *cells in (re.split(r"\s{2,}", line.strip()) for line in lines if line)}


def test_bytes_and_times() -> None:
    """Weights of a real model of these shapes are 346 MB by what was published; activations and cache add little."""
    text = run("--no-counters", "--positions", "1", "qwen2.5-0.5b-q4_0")
    assert "no card ran this" in text and "Counters are not measured: they were not asked for." in text
    found = rows(text)
    *kernels, whole = found.values()
    assert [*found][-1] == "step" and found["gemv_q8_0"][4:] == ["not measured"] * 3
    assert sum(int(cells[0]) for cells in kernels) == int(whole[0]) == 220
    assert sum(float(cells[1]) for cells in kernels) == pytest.approx(float(whole[1]), abs=0.1)
    assert sum(float(cells[2]) for cells in kernels) == pytest.approx(float(whole[2]), abs=1)
    assert float(whole[1]) * 1e6 / 640e9 * 1e6 == pytest.approx(float(whole[2]), rel=1e-3)
    assert 346 < float(whole[1]) < 1.03 * 346
    assert float(rows(run("--no-counters", "qwen2.5-0.5b-q4_0"))["step"][1]) > float(whole[1])


def test_counters() -> None:
    if importlib.util.find_spec("rocm") is None:
        pytest.skip("hip-python is not installed")
    found = rows(run("qwen2.5-0.5b-q4_0"))
    for name in ("gemv_q4_0", "gemv_q8_0", "step"):
        loaded, lines, instructions = map(float, found[name][4:])
        assert loaded == 1 and 1 <= lines < 3 and 40 < instructions < 400
    assert len(found["swiglu"]) == 4


def test_an_unknown_model() -> None:
    assert "there is no model 'qwen'" in run("qwen", code=2)
