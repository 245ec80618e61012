"""Commands that look at models, graphs and ops without running anything."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import tiny
from conftest import GOLDEN
from typer.testing import CliRunner, Result

from graphrun import __version__, load
from graphrun.cli import app
from graphrun.graphs.spec import read_source
from graphrun.ops import OPS
from graphrun.planner.lower import STAGES

MODEL = str(GOLDEN / "models" / "llama-s.F32.gguf")


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def good(*args: object) -> str:
    """The stdout of a command that must succeed."""
    result = call(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def _yaml(name: str) -> str:
    return read_source(name)[0].decode()


class TestDump:
    @pytest.mark.parametrize("stage", ["graph", *STAGES])
    def test_every_stage(self, stage: str) -> None:
        assert "0.attention" in good("dump", MODEL, "--stage", stage)

    def test_program(self) -> None:
        program = load(MODEL).program("decode")
        lines = good("dump", MODEL).splitlines()
        assert f"-> {len(program.calls)} calls" in lines[0] and len(lines) == 1 + len(program.calls)
        layer = good("dump", MODEL, "--layer", 1).splitlines()
        assert len(layer) == 1 + len(program.select(layer=1))
        assert set(layer) <= set(lines) | {layer[0]} or all(" 1." in line for line in layer[1:])
        assert "Mflop" in good("dump", MODEL, "--cost")

    def test_the_graph_file_itself(self) -> None:
        assert good("dump", MODEL, "--stage", "spec").rstrip("\n") == _yaml("llama").rstrip("\n")

    def test_machine_forms(self) -> None:
        facts: dict[str, Any] = json.loads(good("dump", MODEL, "--json", "--step", "prefill", "--tokens", 7))
        program = load(MODEL).program("prefill", 7)
        assert (facts["tokens"], facts["arena"], len(facts["calls"])) == (7, program.arena, len(program.calls))
        assert good("dump", MODEL, "--dot").startswith("digraph")

    def test_only_the_header_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def raw(self: object, name: str) -> None:
            raise AssertionError(f"{name} was read")

        monkeypatch.setattr("graphrun.core.gguf.ModelFile.raw", raw)
        assert good("dump", MODEL) and good("plan", MODEL) and good("info", MODEL)


def test_plan(tmp_path: Path) -> None:
    svg = tmp_path / "arena.svg"
    out = good("plan", MODEL, "-c", 64, "--timeline", "--svg", svg)
    assert "fits: " in out and "f16[64, 2, 32]" in out
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert list(tmp_path.iterdir()) == [svg]


class TestCheck:
    def test_all_mistakes(self, tmp_path: Path) -> None:
        assert good("check", "llama") == good("check", "llama", MODEL) == "ok\n"
        path = tmp_path / "mine.yaml"
        path.write_text(_yaml("llama").replace("rms_norm(h, norm", "rms_nrom(h, nrom"), encoding="utf-8")
        result = call("check", path)
        places = re.findall(r"^error: .*mine\.yaml:(\d+):(\d+): ", result.stderr, re.MULTILINE)
        assert (result.exit_code, result.stdout) == (1, "")
        assert len(places) >= 2 and "did you mean 'rms_norm'?" in result.stderr

    def test_a_mistake_that_only_the_model_shows(self, tmp_path: Path) -> None:
        path = tiny.llama(tmp_path / "m.gguf", tensors={"blk.1.attn_k.weight": None})
        result = call("check", "llama", path)
        assert result.exit_code == 1 and "blk.1.attn_k.weight" in result.stderr


class TestOps:
    def test_all_are_listed(self) -> None:
        assert [line.split()[0] for line in good("ops").splitlines()] == list(OPS)

    @pytest.mark.parametrize("name", OPS)
    def test_each_is_explained(self, name: str) -> None:
        out, op = good("ops", name), OPS[name]
        assert out.startswith(f"{name}({op.signature})\n") and op.formula in out
        assert all(kernel.name in out for kernel in op.kernels)
        assert all(line in out for line in (op.fuses or "").splitlines())


class TestInfo:
    def test_facts(self) -> None:
        out = good("info", GOLDEN / "models" / "llama-k.Q4_K_M.gguf")
        for line in (
            "architecture +llama",
            "chat template +none",
            " +n_layer +1",
            " +q4_k +[0-9]+ +[0-9,]+ +as stored",
        ):
            assert re.search(f"^{line}$", out, re.MULTILINE), line

    def test_every_tensor(self) -> None:
        out = good("info", MODEL, "--tensors")
        assert all(name in out for name in load(MODEL).file.tensors)

    def test_an_unknown_architecture(self, tmp_path: Path) -> None:
        path = tiny.write(tmp_path / "m.gguf", "x", {"general.architecture": "new\x1b[2J"}, {"w": (4, 32)})
        out = good("info", path)
        assert "there is no graph for 'new\\x1b[2J'" in out and "\x1b" not in out
        result = call("run", path, "-p", "x")
        assert result.exit_code == 1 and "there is no graph for" in result.stderr


def test_help_and_version() -> None:
    assert good("--version") == f"graphrun {__version__}\n"
    for command in ("run", "chat", "dump", "plan", "check", "ops", "info"):
        assert command in good("--help")
        assert f"graphrun {command}" in good(command, "--help") or command in good(command, "-h")
