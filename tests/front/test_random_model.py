"""Files of random weights: sizes of the real models, and small ones of each kind run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

import graphrun
from graphrun.core.errors import UsageError
from graphrun.core.gguf import ModelFile

SCRIPT = ROOT / "examples" / "random_model.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("random_model", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


MADE: Any = script()


def small(name: str) -> Any:
    """The same kind of model with few channels."""
    shape = MADE.MODELS[name]
    delta = replace(shape.delta, key_heads=2, value_heads=8, state=32) if shape.delta else None
    sizes = {"channels": 256, "feed_forward": 256, "heads": 4, "kv_heads": 2, "head": 64, "vocabulary": 320}
    return replace(shape, layers=8, delta=delta, context=64, **sizes)


@pytest.mark.parametrize("name", MADE.MODELS)
def test_small_ones_run(name: str, tmp_path: Path) -> None:
    path, seen = tmp_path / "m.gguf", []
    MADE.write(path, name, small(name), lambda done, total: seen.append((done, total)))
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"] and seen[-1][0] == seen[-1][1]
    file = ModelFile.open(path)
    assert {n: t.type for n, t in file.tensors.items()} == {
        t.name: t.kind.name.lower() for t in MADE.tensors(small(name))
    }
    model = graphrun.load(path, context=64)
    session = model.session()
    logits = session.prefill(model.tokenizer.encode("to be"))
    assert np.isfinite(logits).all() and 0.1 < logits.std() < 10
    assert np.isfinite(session.decode(7)).all()


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("smollm2-135m", 0.09), ("qwen2.5-0.5b", 0.35), ("qwen2.5-1.5b", 0.93), ("qwen3.5-0.8b", 0.80), ("27b", 16.5)],
)
def test_sizes_are_those_of_the_real_files(name: str, gigabytes: float) -> None:
    (shape,) = (shape for key, shape in MADE.MODELS.items() if name in key)
    assert sum(t.nbytes for t in MADE.tensors(shape)) / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = MADE.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(MADE.shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    name = "smollm2-135m-q4_0"
    with pytest.raises(UsageError, match="do not fit"):
        MADE.write(tmp_path / "m.gguf", name, MADE.MODELS[name])
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    name = "smollm2-135m-q4_0"
    with pytest.raises(KeyboardInterrupt):
        MADE.write(tmp_path / "m.gguf", name, small(name), stop)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="cannot be written"):
        MADE.write(tmp_path / "missing" / "m.gguf", name, small(name))


def test_the_command() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--list"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and [line.split()[0] for line in done.stdout.splitlines()] == list(MADE.MODELS)
