"""GPU kernels as code objects: compiled once, shipped in wheels, errors in one place."""

from __future__ import annotations

import importlib.resources
import importlib.util
from pathlib import Path

import pytest

from graphrun.backends import codeobject
from graphrun.backends.codeobject import CHIPS, GFX1201, SM_90, code_object, compile_to, shipped_name
from graphrun.core.errors import BackendError

SOURCE = """\
__attribute__((amdgpu_kernel)) void call_one(__attribute__((address_space(1))) int *p) { *p = 1; }
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of kernels with one small source."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "entries.c").write_text(SOURCE)
    monkeypatch.setattr(importlib.resources, "files", lambda name: tmp_path if "kernels" in name else _ziglang())
    monkeypatch.setattr(codeobject, "source_hash", lambda: "0123")
    return tmp_path


def _ziglang() -> Path:
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def test_compiled_once(package: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first, again = (code_object(GFX1201, cache=tmp_path / "cache", say=said.append) for _ in range(2))
    assert first == again and first[:4] == b"\x7fELF" and b"call_one" in first
    assert len(said) == 1 and said[0].startswith("compiling gfx1201 kernels with ziglang")
    assert not list((tmp_path / "cache").glob("build-*"))


def test_what_the_package_brings_is_taken(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler."""
    monkeypatch.setattr(codeobject, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="the package ziglang is missing"):
        code_object(SM_90, cache=tmp_path / "cache")
    (package / "prebuilt").mkdir()
    (package / "prebuilt" / shipped_name(SM_90)).write_bytes(b"text")
    assert code_object(SM_90, cache=tmp_path / "cache") == b"text"
    assert shipped_name(SM_90) == "entries-sm_90-0123.ptx" and len({shipped_name(c) for c in CHIPS}) == len(CHIPS)


def test_a_mistake_in_the_source_is_shown(package: Path, tmp_path: Path) -> None:
    (package / "gpu" / "entries.c").write_text(SOURCE + "int broken(void) { return nothing; }\n" * 9)
    with pytest.raises(BackendError) as caught:
        code_object(GFX1201, cache=tmp_path / "cache")
    lines = caught.value.message.splitlines()
    assert lines[0] == "compiling GPU kernels failed:" and "nothing" in lines[1] and len(lines) <= 6
    assert "ziglang" in str(caught.value.hint)
    assert not [p for p in (tmp_path / "cache").iterdir() if p.suffix == ".hsaco"]


def test_a_cache_that_cannot_be_written(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="the gfx1201 kernels cannot be built: .*file"):
        code_object(GFX1201, cache=tmp_path / "file")


def test_other_sources_and_flags(package: Path, tmp_path: Path) -> None:
    """A cache has one file for each chip and source."""
    (package / "gpu" / "other.c").write_text(SOURCE.replace("call_one", "call_two"))
    found = code_object(GFX1201, "other.c", cache=tmp_path / "cache")
    assert b"call_two" in found and b"call_one" not in found
    assert b"call_one" in code_object(GFX1201, cache=tmp_path / "cache")
    with pytest.raises(BackendError, match="failed"):
        compile_to(tmp_path / "made", GFX1201, "other.c", ("-Dvoid=nonsense",))
