"""The examples and the README's example run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GOLDEN, ROOT

MODEL = str(GOLDEN / "models" / "llama-s.Q4_0.gguf")


def python(*args: str, stdin: str = "", cwd: Path = ROOT) -> str:
    """The stdout of a Python program that must succeed."""
    done = subprocess.run(
        [sys.executable, *args], input=stdin, capture_output=True, encoding="utf-8", cwd=cwd, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_op_by_hand() -> None:
    out = python("examples/op_by_hand.py")
    assert "rope_store stands for\nq2: rope(" in out
    assert out.count(": True\n") == 2 and "False" not in out


def test_perplexity(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("in the tin on the inn " * 40, encoding="utf-8")
    lines = python("examples/perplexity.py", MODEL, str(text), "64").splitlines()
    scored = [int(re.fullmatch(r"ppl: (\d+) tokens scored, .*", line)[1]) for line in lines]  # type: ignore[index]
    assert scored == [31 * (i + 1) for i in range(len(lines))] and len(lines) > 2


def test_chat() -> None:
    out = python("examples/chat.py", MODEL, stdin="in the\n/exit\n")
    assert out.startswith("> ") and len(out) > 10


def test_readme_example(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(Path(MODEL).read_bytes())
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(code) == 1
    assert python("-c", code[0], cwd=tmp_path)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_paths_in_documents_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:graphrun|core|graphs|ops|planner|backends|kernels|tests|examples|\.ci)/[\w./]*)", text)
    missing = [p for p in paths if not (ROOT / p).exists() and "new" not in p]
    assert paths and not missing
