"""GPU backends on machines without GPUs: what is compiled, and what a user is told."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphrun import backends
from graphrun.backends.codeobject import GFX1201, SM_90, Chip, code_object, compile_to
from graphrun.cli import app
from graphrun.core.errors import BackendError
from graphrun.ops import OPS

KERNELS = sorted({k.name for op in OPS.values() for k in op.kernels})
MOST_VGPRS = 192  # of a kernel that a resident one calls, two workgroups to a compute unit


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the compiler makes for gfx1201, as text with the metadata of every kernel."""
    path = tmp_path_factory.mktemp("gpu") / "kernels.s"
    flags = tuple("-S" if f == "-c" else f for f in GFX1201.flags)
    compile_to(path, Chip("gfx1201", flags, ".s"), "entries.c", ("-Werror",))
    return path.read_text()


def test_every_kernel_is_there(assembly: str, tmp_path: Path) -> None:
    """A program can name no kernel that a code object lacks."""
    ptx = code_object(SM_90, cache=tmp_path).decode()
    assert sorted(re.findall(r"\.entry call_(\w+)", ptx)) == KERNELS
    assert sorted(re.findall(r"\.name:\s+call_(\w+)", assembly)) == KERNELS


def test_registers_and_memory(assembly: str) -> None:
    """No kernel spills vector registers or has memory of its own, and two workgroups fit on a compute unit."""
    facts = {
        key: [int(n) for n in re.findall(rf"\.{key}:\s+(\d+)", assembly)]
        for key in ("vgpr_count", "vgpr_spill_count", "private_segment_fixed_size")
    }
    assert all(len(numbers) == len(KERNELS) for numbers in facts.values())
    assert max(facts.pop("vgpr_count")) <= MOST_VGPRS
    assert all(set(numbers) == {0} for numbers in facts.values()), facts


def test_registers_are_not_indexed(assembly: str) -> None:
    """An array in registers whose loop is not unrolled is read by relative moves, one at a time."""
    assert "v_movrel" not in assembly


@pytest.mark.parametrize("layout", ["q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "i8_a"])
def test_products_load_wide_and_multiply_fours(layout: str, assembly: str) -> None:
    """One token: at least eight dot products of four for each of two blocks in flight, by loads of 16 bytes."""
    body = assembly.split(f"\ncall_gemv_{layout}:")[1].split(".end_amdhsa_kernel")[0]
    dots = len(re.findall(r"v_dot4_i32_iu8", body))
    assert dots >= 16
    assert "global_load_b128" in body and "scratch_" not in body


def test_a_second_compilation_is_not_needed(tmp_path: Path) -> None:
    said: list[str] = []
    first = code_object(GFX1201, "rows.c", cache=tmp_path, say=said.append)
    assert code_object(GFX1201, "rows.c", cache=tmp_path, say=said.append) == first
    assert len(said) == 1 and "gfx1201" in said[0] and first[:4] == b"\x7fELF"


@pytest.mark.parametrize(("name", "package"), [("hip", "rocm.bindings"), ("cuda", "cuda.bindings")])
def test_a_missing_package_is_one_line(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendError, match="needs the package") as caught:
        backends.open(name)
    assert "pip install" in str(caught.value.hint)
    result = CliRunner().invoke(app, ["run", "demo", "--backend", name, "-p", "x"])
    assert result.exit_code != 0 and result.output.startswith("error: ") and len(result.output.splitlines()) == 2


def test_auto_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("rocm.bindings", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, package, None)
    said: list[str] = []
    assert backends.open("auto", threads=1, say=said.append).target.name == "native"
    assert not [line for line in said if "running" in line]
