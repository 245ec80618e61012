"""The native backend's load: progress, memory given back, and what a step that cannot be seen again says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_hybrid

from graphrun import load
from graphrun.backends import native, pack
from graphrun.core.errors import BackendError, ProgramError
from graphrun.core.gguf import ModelFile

MIB = 1 << 20


def mapped() -> int:
    """Bytes of files that this process holds in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssFile:"))


@pytest.mark.skipif(sys.platform != "linux", reason="memory of files is counted apart on Linux only")
def test_pages_of_the_file_are_given_back(tmp_path: Path) -> None:
    big = np.random.default_rng(0).standard_normal((8192, 1024), np.float32)
    file = ModelFile.open(tiny.llama(tmp_path / "m.gguf", tensors={"big": big}))
    raw = file.raw("big")
    assert raw.nbytes == 32 * MIB
    before = mapped()
    total = int(raw.sum(dtype=np.int64))
    assert mapped() - before > 30 * MIB
    for first in range(0, len(raw), 1000):
        pack.release(raw[first : first + 1000])
    assert mapped() - before < 2 * MIB
    assert int(raw.sum(dtype=np.int64)) == total, "what was given back is read anew"


def test_release_of_other_memory() -> None:
    """Arrays that no file backs stay as they are."""
    values = np.arange(100, dtype=np.uint8)
    pack.release(values[10:20])
    assert values.tolist() == list(range(100))


def test_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = tiny.llama(tmp_path / "m.gguf", weights="q8_0")
    model = load(path, backend="native", threads=2, progress=lambda done, total: seen.append((done, total)))
    _ = model.runner
    stored = sum(t.nbytes for t in model.file.tensors.values() if len(t.shape) == 2)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert {total for _, total in seen} == {stored} and seen[-1][0] == stored


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_the_call_that_made_a_value_not_finite(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named where the states before the step are kept; where they are not, the error says so and names none."""
    monkeypatch.setattr(native, "MOST_KEPT", kept)
    weights = np.full(tiny_hybrid.E, np.nan, np.float32)
    path = tiny_hybrid.qwen35(tmp_path / "m.gguf", tensors={"output_norm.weight": weights})
    model = load(path, backend="native", threads=1, context=64)
    with pytest.raises(ProgramError) as error:
        model.session().decode(3)
    if kept:
        assert "rms_norm" in error.value.message and error.value.hint is None
    else:
        assert "made by a call unknown: the states that the step began with were not kept" in error.value.message
        assert error.value.hint is not None and "--backend numpy" in error.value.hint
        with pytest.raises(BackendError, match="not kept"):
            model.runner.buffers(0)
    model.runner.watched = True
    with pytest.raises(ProgramError, match="rms_norm"):
        model.session().decode(3)


def test_a_step_that_was_not_the_last_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MOST_KEPT", 0)
    model = load(tiny_hybrid.qwen35(tmp_path / "m.gguf"), backend="native", threads=1, context=64)
    assert model.runner.first_bad_call(model.program("decode"), [3], 0) is None
    assert not model.runner.watched
