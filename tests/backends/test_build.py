"""Kernels are compiled once into the user's cache, by a compiler that is found, with errors that can be read."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphrun.backends import build
from graphrun.backends.build import Compiler, Unit
from graphrun.core.errors import BackendError

SMALL = Unit("engine", "library.c")


@pytest.fixture(autouse=True)
def fresh() -> None:
    build.compiler.cache_clear()


def test_compiled_once(tmp_path: Path) -> None:
    said: list[str] = []
    first = build.library(SMALL, cache=tmp_path, say=said.append)
    again = build.library(SMALL, cache=tmp_path, say=said.append)
    assert first == again and first.is_file() and len(said) == 1
    assert "compiling engine" in said[0]
    assert not list(tmp_path.glob("build-*")), "no temporary folder is left"


def test_many_processes_compile_one_library(tmp_path: Path) -> None:
    """Several at once: one compiles, the others wait for it."""
    said: list[str] = []
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(build.library(SMALL, cache=tmp_path, say=said.append)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found) == 3 and len(said) == 1


def test_the_key_names_sources_flags_and_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(target: Path, unit: Unit, tool: Compiler) -> None:
        target.write_text(tool.version)

    monkeypatch.setattr(build, "compile_to", fake)
    names = [build.library(SMALL, cache=tmp_path).name]
    other = Compiler(("cc",), "another compiler", False)
    for name, answer in (("compiler", other), ("source_hash", "0" * 16)):
        monkeypatch.setattr(build, name, lambda answer=answer: answer)
        names.append(build.library(SMALL, cache=tmp_path).name)
    names.append(build.library(build.SETS[0], cache=tmp_path).name)
    assert len(set(names)) == 4


def test_an_error_shows_the_compilers_lines(tmp_path: Path) -> None:
    bad = Unit("bad", "library.c")
    with pytest.raises(BackendError) as error:
        build.compile_to(tmp_path / "bad.so", bad, build.compiler(), ("-include", "no_such_header.h"))
    text = str(error.value)
    assert "compiling library.c (bad) failed" in text and "no_such_header.h" in text
    assert len(text.splitlines()) < 10 and not (tmp_path / "bad.so").exists()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BackendError, match="there is no C compiler") as error:
        build.compiler()
    assert error.value.hint is not None and "pip install ziglang" in error.value.hint


def test_an_old_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"--version": "cc (GCC) 9.4.0\n", "-dumpversion": "9\n"}

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, answers[command[1]], "")

    monkeypatch.setattr(build, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name != "clang" else None)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(BackendError, match="GCC. 9.4.0 is too old"):
        build.compiler()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="cannot be built"):
        build.library(SMALL, cache=tmp_path / "file" / "cache")


def test_cache_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / "graphrun"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert build.cache_folder() == tmp_path / "local" / "graphrun"


@pytest.mark.parametrize("unit", (build.ENGINE, *build.SETS), ids=lambda u: u.name)
def test_every_library_compiles_without_a_warning(unit: Unit, tmp_path: Path) -> None:
    """For processors that this one is not, too; machine code is made of all of them where a wheel is tested."""
    tool = build.compiler()
    quick = ("-flto", "-Xclang", "-disable-llvm-passes") if tool.zig else ("-O0",)
    build.compile_to(tmp_path / "library.o", unit, tool, ("-c", *quick, "-Wextra", "-Werror"))
