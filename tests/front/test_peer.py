"""Two engines measured in turns, and the arguments of that command."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest
import tiny

from graphrun import backends, peer
from graphrun.bench import Setting
from graphrun.core.errors import UsageError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model, graph_of

INSTALLED = importlib.util.find_spec("llama_cpp") is not None


class Other:
    """An engine that only notes what it was asked to run."""

    def __init__(self) -> None:
        self.runs: list[tuple[list[int], bool]] = []

    def run(self, tokens: Sequence[int], single: bool) -> None:
        self.runs.append((list(tokens), single))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    file = ModelFile.open(tiny.llama(tmp_path / "tiny.gguf"))
    return Model(file, graph_of(file, None), backends.open("native", threads=1), context=64)


@pytest.mark.parametrize("setting", [Setting(9, 0), Setting(0, 5)])
def test_both_run_the_same_tokens_in_turns(model: Model, setting: Setting) -> None:
    other = Other()
    found = peer.compare(model, other, setting, 3)
    assert len(found.ours) == len(found.theirs) == len(found.ratios) == 3
    assert len(other.runs) == 4 and all(run == other.runs[0] for run in other.runs), "one more warms up"
    tokens, single = other.runs[0]
    assert len(tokens) == setting.length and single == (setting.generated > 0)
    assert len(found.limits) == (3 if single else 0) and all(limit > 1e8 for limit in found.limits)


def test_cells() -> None:
    found = peer.Comparison(Setting(0, 8), (2.0, 6.0, 4.0), (1.0, 4.0, 8.0), 10**9, (4e9, 12e9, 4e9))
    assert found.cells() == ["tg8", "4.0", "4.0", "1.50", "0.50", "2.00", "4.00", "50 %"]
    assert len(found.cells()) + 2 == len(peer.HEAD)
    assert peer.Comparison(Setting(8, 0), (2.0,), (1.0,)).cells()[-2:] == ["", ""]


@pytest.mark.parametrize("wrong", [["-t", "0"], ["-t", "x"], ["-r", "0"], ["-p", "0", "-n", "0"], ["-t", "513"]])
def test_wrong_arguments(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peer.main(["model.gguf", *wrong])
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.skipif(INSTALLED, reason="llama-cpp-python is installed")
def test_without_the_other_engine(model: Model) -> None:
    with pytest.raises(UsageError, match="make peer"):
        peer.LlamaCpp(model.file.path, 1, 64)


@pytest.mark.skipif(not INSTALLED, reason="needs llama-cpp-python")
def test_with_the_other_engine(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    peer.main([str(model.file.path), "-p", "8", "-n", "4", "-t", "1", "-r", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[3].strip() for line in lines[2:4]] == ["pp8", "tg4"]
