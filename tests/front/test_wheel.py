"""Wheels: compiled kernels inside that load where there is no compiler, and pure ones where none could be had."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ROOT

from graphrun.backends import build, codeobject
from graphrun.core.errors import BackendError

FOLDERS = ("graphrun", "core", "ops", "planner", "backends", "graphs", "kernels")
BACKEND = "import sys; sys.path.insert(0, 'backends'); import prebuild; print(prebuild.build_{}(sys.argv[1]))"
ALONE = "import sys; sys.modules['ziglang'] = None\n"  # as if it were not installed
USE = """
import ctypes, graphrun
from graphrun.backends import build
from graphrun.core.errors import BackendError
try:
    build.compiler()
except BackendError:
    print("no compiler")
for unit in (build.ENGINE, *build.SETS):
    path = build.library(unit)
    ctypes.CDLL(str(path))
    print(path)
from graphrun.doctor import findings, healthy
found = list(findings())
print(healthy(found), [f.detail for f in found if f.what == "compiler"])
model = graphrun.load(sys.argv[1])
print(type(model.backend).__name__, model.session().decode(5).argmax())
"""


GPU = {codeobject.shipped_name(c, s) for c in codeobject.CHIPS for s in codeobject.SOURCES}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as an sdist has it."""
    try:
        version = metadata.version("setuptools")
    except metadata.PackageNotFoundError:
        pytest.skip("setuptools is not installed")
    if int(version.split(".")[0]) < 77:
        pytest.skip(f"setuptools {version} is older than what builds this package")
    folder = tmp_path_factory.mktemp("tree")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    made = built(folder, "sdist", folder / "dist")
    with tarfile.open(made) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def python(*arguments: object, cwd: Path, **environment: str) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(tree: Path, what: str, into: Path, before: str = "", **environment: str) -> Path:
    """What the build backend makes of a tree."""
    into.mkdir(exist_ok=True)
    lines = python("-c", before + BACKEND.format(what), into, cwd=tree, **environment).splitlines()
    return into / lines[-1]


def libraries(wheel: Path) -> dict[str, bytes]:
    """The libraries inside by name."""
    with zipfile.ZipFile(wheel) as archive:
        found = [n for n in archive.namelist() if n.startswith("graphrun/kernels/prebuilt/")]
        return {n.rsplit("/", 1)[1]: archive.read(n) for n in found}


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    """Made by pip from the sdist."""
    try:
        build.compiler()
    except BackendError as error:
        pytest.skip(str(error))
    folder = source.parent / "wheel"
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    python("-m", "pip", "wheel", ".", *options, "-w", folder, cwd=source)
    (made,) = folder.iterdir()
    return made


def test_a_wheel_has_the_libraries_of_all_instruction_sets(wheel: Path) -> None:
    platform = wheel.name.removesuffix(".whl").split("-", 2)[2]
    target = build.portable()
    assert platform.startswith("py3-none-") and not platform.endswith("-any")
    if target is not None and build.compiler().zig:
        assert platform == f"py3-none-{target[1]}"
    units = (build.ENGINE, *build.SETS)
    kernels = set(libraries(wheel)) - GPU
    assert kernels == {build.shipped_name(u) for u in units}


def test_a_wheel_has_kernels_for_gpus(wheel: Path) -> None:
    if not build.compiler().zig:
        pytest.skip("only ziglang compiles them")
    found = libraries(wheel)
    image, text = (found[codeobject.shipped_name(c)] for c in (codeobject.GFX1201, codeobject.SM_90))
    assert image[:4] == b"\x7fELF" and b"call_rms_norm" in image
    assert b".target sm_90" in text and b"call_rms_norm" in text
    assert found.keys() >= GPU and all(b"mega_table" in found[name] for name in GPU if name.startswith("mega"))


def test_the_platform_is_true(wheel: Path) -> None:
    """No library wants a newer glibc than the name says."""
    named = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    if named is None:
        pytest.skip("the name makes no promise")
    for name, content in libraries(wheel).items():
        if name in GPU:
            continue
        wanted = [(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", content)]
        assert wanted and max(wanted) <= (int(named[1]), int(named[2])), name


def test_native_without_a_compiler(wheel: Path, golden: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    model = golden / "models" / "llama-s.Q4_0.gguf"
    cache = tmp_path / "cache"
    environment = {"PATH": "", "PYTHONPATH": str(tmp_path / "site"), "XDG_CACHE_HOME": str(cache)}
    lines = python("-c", ALONE + USE, model, cwd=tmp_path, **environment).splitlines()
    assert lines[0] == "no compiler"
    assert [Path(line).parent for line in lines[1:-2]] == [tmp_path / "site/graphrun/kernels/prebuilt"] * (
        1 + len(build.SETS)
    )
    assert lines[-2].startswith("True ['not needed")
    assert lines[-1].split()[0] == "NativeBackend" and not cache.exists()


def test_pure_without_a_compiler(source: Path, tmp_path: Path) -> None:
    made = built(source, "wheel", tmp_path, ALONE, PATH="")
    assert made.name.endswith("-py3-none-any.whl") and libraries(made) == {}
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert {"graphrun/kernels/cpu/dense.c", "graphrun/core/errors.py", "graphrun/graphs/llama.yaml"} <= set(names)


def test_an_editable_install_is_pure(source: Path, tmp_path: Path) -> None:
    made = built(source, "editable", tmp_path)
    assert made.name.endswith("-py3-none-any.whl") and libraries(made) == {}
