"""The tree itself: links, packages, and how long files and functions are."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS: dict[str, str] = {name: folder for name, folder in SETUPTOOLS["package-dir"].items() if name != folder}
LONGEST_FILE, LONGEST_FUNCTION, LONGEST_C_FILE = 300, 40, 400
GENERATED = ("ie_core.h", "ops.h", "tables.h")


def sources(*endings: str) -> Iterator[Path]:
    """The project's own files with one of these endings, each once: links are not followed."""
    for top in (*FOLDERS.values(), "graphrun", "tests", "examples"):
        for folder, _, names in os.walk(ROOT / top):
            yield from (Path(folder) / n for n in sorted(names) if n.endswith(endings) and n not in GENERATED)


def too_long(limit: int, *endings: str) -> dict[str, int]:
    """Length of every file that is longer than the limit."""
    lengths = {p.relative_to(ROOT).as_posix(): len(p.read_text("utf-8").splitlines()) for p in sources(*endings)}
    assert lengths
    return {name: length for name, length in lengths.items() if length > limit}


def long_functions(text: str) -> dict[str, int]:
    """Length of every function that is too long, without its decorators."""
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = ((f.name, (f.end_lineno or 0) - f.lineno + 1) for f in functions)
    return {name: length for name, length in lengths if length > LONGEST_FUNCTION}


def test_links_are_the_installed_packages() -> None:
    """Where links are checked out as small text files, their content is compared."""
    links = {}
    for entry in (ROOT / "graphrun").iterdir():
        if entry.is_symlink():
            links[f"graphrun.{entry.name}"] = os.readlink(entry).replace("\\", "/")
        elif entry.is_file() and not entry.suffix:
            links[f"graphrun.{entry.name}"] = entry.read_text("utf-8").strip()
    assert links == {name: f"../{folder}" for name, folder in FOLDERS.items()}


def test_every_package_is_listed() -> None:
    """setuptools leaves out, in silence, what is not in the list."""
    found = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"graphrun", "tests"}
    assert {f"graphrun.{name}" for name in found} | {"graphrun"} == set(SETUPTOOLS["packages"])
    assert {"graphrun", *FOLDERS} == set(SETUPTOOLS["packages"])


def test_packages_are_flat() -> None:
    """A package within a package would have to be listed too."""
    assert [p for top in FOLDERS.values() for p in (ROOT / top).rglob("*.py") if p.parent.name != top] == []


def test_data_files_are_installed() -> None:
    for package, folder in FOLDERS.items():
        patterns = SETUPTOOLS["package-data"].get(package, ())
        installed = {p for pattern in patterns for p in (ROOT / folder).glob(pattern)}
        assert {p for p in (ROOT / folder).rglob("*.*") if p.suffix in (".yaml", ".h", ".c", ".json")} == installed


def test_files_are_short() -> None:
    assert too_long(LONGEST_FILE, ".py") == {}
    assert too_long(LONGEST_C_FILE, ".c", ".h", ".yaml") == {}


def test_functions_are_short() -> None:
    found = {path.relative_to(ROOT).as_posix(): long_functions(path.read_text("utf-8")) for path in sources(".py")}
    assert {name: long for name, long in found.items() if long} == {}


def test_a_long_function_is_seen() -> None:
    body = "    x = 1\n" * LONGEST_FUNCTION
    assert long_functions(f"class C:\n  def f(self):\n{body}") == {"f": LONGEST_FUNCTION + 1}
    assert long_functions(f"def f():\n{body}".replace("    x = 1\n", "", 1)) == {}
