"""Where the time went: every call of every step is counted, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from typer.testing import CliRunner

from graphrun import load
from graphrun.backends.profile import Profile
from graphrun.cli import app
from graphrun.profile import profile_table, profiled


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_every_call_is_counted(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load(tiny.llama(tmp_path / "tiny.gguf"), backend=backend, threads=1)
    plain = model.session()
    expected = [plain.prefill([3, 4, 5]).tobytes(), plain.decode(6).tobytes(), plain.decode(7).tobytes()]
    with profiled(model):
        profile = model.runner.profile
        assert profile is not None
        session = model.session()
        assert [session.prefill([3, 4, 5]).tobytes(), *(session.decode(t).tobytes() for t in (6, 7))] == expected
    assert model.runner.profile is None
    runs = {program.name: [count for count, _ in timed] for program, timed in profile.calls.items()}
    assert runs == {
        "prefill": [1] * len(model.program("prefill", 3).calls),
        "decode": [2] * len(model.program("decode", 1).calls),
    }
    assert all(seconds > 0 for timed in profile.calls.values() for _, seconds in timed)
    shown = capsys.readouterr().err.strip().splitlines()
    assert shown == profile_table(profile).splitlines()
    rows = [line.split() for line in shown[1:]]
    assert rows[-1][0] == "all" and int(rows[-1][1]) == sum(sum(counts) for counts in runs.values())
    assert sum(int(row[1]) for row in rows[:-1]) == int(rows[-1][1])
    assert sum(float(row[3]) for row in rows[:-1]) == pytest.approx(100, abs=0.1 * len(rows))
    times = [float(row[2]) for row in rows[:-1]]
    assert times == sorted(times, reverse=True)


def test_no_step_has_run() -> None:
    assert profile_table(Profile()) == "no call has run"


@pytest.mark.parametrize("command", [["run", "--tokens", "3,4", "-n", "3"], ["bench", "-p", "4", "-n", "2", "-r", "1"]])
def test_commands(command: list[str], tmp_path: Path) -> None:
    """The table goes to stderr, what the command prints stays."""
    name, *options = command
    path = str(tiny.llama(tmp_path / "tiny.gguf"))
    result = CliRunner().invoke(app, [name, path, *options, "--backend", "native", "--profile"])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stderr.splitlines() if line]
    assert ["kernel", "calls", "ms", "%", "us/call", "GB/s"] in lines and "us/call" not in result.stdout
    assert any(line[0] == "argmax" for line in lines) and any(line[0] == "all" for line in lines)
