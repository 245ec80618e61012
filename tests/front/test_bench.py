"""Speeds are printed in the usual forms, and only of a backend whose tokens are right."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from typer.testing import CliRunner

from graphrun import backends, doctor
from graphrun.backends import build, engine
from graphrun.backends.native import NativeRunner
from graphrun.bench import Report, Row, Setting, bench, locks, settings
from graphrun.bench_table import FORMS, table
from graphrun.cli import app
from graphrun.core.errors import BackendError, ProgramError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model, graph_of


@pytest.fixture
def model(tmp_path: Path) -> Model:
    file = ModelFile.open(tiny.llama(tmp_path / "tiny.gguf"))
    return Model(file, graph_of(file, None), backends.open("native", threads=2), context=64)


def test_settings() -> None:
    found = settings([512, 0], [128], [(64, 16)])
    assert [str(s) for s in found] == ["pp512", "tg128", "pp64+tg16"]
    assert [str(s) for s in settings([], [0], [], [8, 0, 2])] == ["verify8", "verify2"]
    for prompt in ([], [0], [-1]):
        with pytest.raises(UsageError, match="nothing to measure"):
            settings(prompt, [0], [])


def test_commands(model: Model) -> None:
    path = str(model.file.path)
    done = CliRunner().invoke(
        app, ["bench", path, "-p", "8", "-n", "4", "-pg", "4,2", "-r", "2", "-o", "csv", "-c", "64"]
    )
    assert done.exit_code == 0, done.output
    assert [row["test"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["pp8", "tg4", "pp4+tg2"]
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0
    for wrong in (["-p", "8,x"], ["-pg", "4"], ["-o", "xml"], ["-p", "0", "-n", "0"]):
        failed = CliRunner().invoke(app, ["bench", path, *wrong])
        assert failed.exit_code != 0


def test_verify_steps(model: Model) -> None:
    report = bench(model, settings([], [4], [], [2, 3]), 2)
    decode, *verified = report.rows
    assert decode.ratio is None and [str(r.setting) for r in verified] == ["verify2", "verify3"]
    for row in verified:
        assert len(row.speeds) == len(row.ratios) == 2 and row.ratio and row.ratio > 0 and row.bandwidth is None
    md = table(report, "md").splitlines()
    assert md[0].split("|")[-2].strip() == "in decode steps" and md[3].split("|")[-2].strip()
    assert json.loads(table(report, "json"))[1]["n_verify"] == 2
    for count in (model.rollback + 1, 8):  # more than can be taken back, or than the context holds
        with pytest.raises(UsageError, match="verify"):
            bench(model, settings([], [], [], [count]), 1)


def test_the_share_is_that_of_each_turns_own_limit() -> None:
    row = Row(Setting(0, 8), (1.0, 4.0, 2.0), 1000, (2000.0, 8000.0, 2000.0))
    assert row.share == 0.5  # of 0.5, 0.5 and 1
    assert Row(Setting(0, 8), (1.0,), 1000).share is None and Row(Setting(8, 0), (1.0,), 1000, (1.0,)).share is None


def test_every_form(model: Model) -> None:
    report = bench(model, settings([20], [5], [(10, 3)]), 3)
    assert [str(r.setting) for r in report.rows] == ["pp20", "tg5", "pp10+tg3"]
    assert all(len(r.speeds) == 3 and min(r.speeds) > 0 for r in report.rows)
    assert report.limit is not None and report.limit > 1e8 and report.threads == 2
    texts = {form: table(report, form) for form in FORMS}
    records: list[list[dict[str, Any]]] = [
        json.loads(texts["json"]),
        [json.loads(line) for line in texts["jsonl"].splitlines()],
        list(csv.DictReader(io.StringIO(texts["csv"]))),
    ]
    for found in records:
        assert [r["test"] for r in found] == ["pp20", "tg5", "pp10+tg3"]
        assert float(found[1]["median_ts"]) == pytest.approx(report.rows[1].median, abs=1e-3)
        assert found[0]["weights_gb_s"] == "" and float(found[1]["weights_gb_s"]) >= 0
    lines = texts["md"].splitlines()
    assert len({len(line) for line in lines[:5]}) == 1, "columns are aligned"
    assert report.locks["decode"] in texts["md"] and "greedy tokens are numpy's" in texts["md"]
    with pytest.raises(UsageError, match="no form 'xml'"):
        table(report, "xml")


def test_medians_and_deviations() -> None:
    row = Row(Setting(0, 8), (1.0, 4.0, 2.0), 1000)
    assert row.median == 2.0 and row.deviation == pytest.approx(np.std([1, 2, 4], ddof=1)) and row.bandwidth == 2000
    assert Row(Setting(8, 0), (1.0,), 1000).bandwidth is None and Row(Setting(8, 0), (1.0,), 1).deviation == 0


def test_no_speed_of_wrong_tokens(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    read = NativeRunner.read
    monkeypatch.setattr(NativeRunner, "read", lambda self, name: -read(self, name))
    with pytest.raises(ProgramError, match="no speed of a wrong result"):
        bench(model, [Setting(0, 1)], 1)


def test_what_does_not_fit(model: Model) -> None:
    with pytest.raises(UsageError, match="does not fit the context of 64"):
        bench(model, [Setting(60, 5)], 1)


def test_a_report_without_a_limit(model: Model) -> None:
    report = Report("m", 1 << 20, "numpy", 1, locks(model), None, (Row(Setting(0, 8), (2.0,), 1000),))
    assert "read limit" not in table(report, "md") and " % " not in table(report, "md")


def test_a_healthy_machine() -> None:
    found = list(doctor.findings())
    assert doctor.healthy(found)
    sets = [name for name, usable in engine.instruction_sets().items() if usable]
    assert [f.detail.split()[0] for f in found if f.what == "native"] == sets
    assert all(str(f).startswith("ok") for f in found if f.needed)


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise BackendError("there is no C compiler", "pip install ziglang")

    monkeypatch.setattr(build, "compiler", missing)
    found = list(doctor.findings())
    assert not doctor.healthy(found)
    assert not found[-1].ok and "pip install ziglang" in str(found[-1]) and str(found[-1]).startswith("missing")


def test_wrong_kernels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_same_product", lambda pool, kind: kind != "q6_k")
    found = list(doctor.findings())
    assert not doctor.healthy(found)
    assert "products of q6_k are not numpy's" in str(found[-1])
