"""`graphrun verify`: the certificate, and what it says of a core that was changed or a program that is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import tiny
from typer.testing import CliRunner

from graphrun import load, proved
from graphrun.cli import app
from graphrun.core.errors import ProgramError
from graphrun.core.op import Op
from graphrun.core.program import Program
from graphrun.planner.certificate import lock
from graphrun.planner.check import Checks
from graphrun.proved import SOURCES, Record, source_hash


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.llama(tmp_path_factory.mktemp("verify") / "m.gguf", weights="q8_0"))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_the_committed_record_is_about_this_source() -> None:
    record = Record.read()
    assert record.holds, "the core or its laws have changed: python -m tests.prove --record"
    assert len(record.laws) > 50 and set(record.laws.values()) <= {"bits", "polynomial", "range", "address"}
    assert record.goals.keys() == {"plan_check", "check_lists"}
    assert {"schedule_result", "checked_program_computes"} <= {n for found in record.theorems.values() for n in found}


def test_a_model_has_a_line_for_each_step(model: str) -> None:
    code, out = run(model)
    assert code == 0
    locks = dict(re.findall(r"^ +(\w+ +\d+) .* ([0-9a-f]{16})$", out, re.MULTILINE))
    opened = load(model, backend="numpy")
    assert lock(opened.program("decode", 1)) in locks.values()
    assert lock(opened.program("prefill", 256)) in locks.values()
    assert "proved for exactly this source" in out and out.endswith("every check passed\n")
    assert out == run("-m", model, "--graph", "llama")[1]
    assert re.search(r"checks took \d+\.\d{3} s\n$", run(model, "--time")[1])


def test_without_a_model_no_program_is_checked() -> None:
    code, out = run("--graph", "llama")
    assert code == 0 and out.endswith("no program was checked: name a model\n")
    assert "z3 " in out and "bitwuzla " in out and "why3 " in out and "coq " in out


def test_a_changed_core_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    record = replace(Record.read(), source="0" * 64)
    monkeypatch.setattr(Record, "read", lambda: record)
    code, out = run()
    assert code == 1 and f"this source ({source_hash()[:16]}) differs from what was proved ({'0' * 16})" in out


def test_the_hash_is_of_the_text_of_every_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def copied(change: str = "", ends: bytes = b"\n") -> str:
        for package, name in SOURCES:
            text = (files(package) / name).read_bytes()
            folder = tmp_path / package
            folder.mkdir(exist_ok=True)
            (folder / name).write_bytes(text.replace(b"\n", ends) + (b"#" if name == change else b""))
        with monkeypatch.context() as patched:
            patched.setattr(proved, "files", lambda package: tmp_path / package)
            return source_hash()

    hashes = {copied(name) for _, name in SOURCES}
    assert len(hashes) == len(SOURCES) and source_hash() not in hashes
    assert copied() == copied(ends=b"\r\n") == source_hash()


def test_a_refused_program_ends_the_command(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(program: Program, ops: Mapping[str, Op]) -> Checks:
        raise ProgramError(f"{program.name}: call 1 reads what call 2 writes")

    monkeypatch.setattr("graphrun.verify.check", refuse)
    code, out = run(model)
    assert code == 1 and "decode: call 1 reads what call 2 writes" in out


def test_dumps_and_plans_show_the_lock(model: str) -> None:
    wanted = lock(load(model, backend="numpy").program("decode"))
    runner = CliRunner()
    assert f"lock {wanted}" in runner.invoke(app, ["dump", model]).output
    assert json.loads(runner.invoke(app, ["dump", model, "--json"]).output)["lock"] == wanted
    assert f"decode 1 {wanted}" in runner.invoke(app, ["plan", model]).output
