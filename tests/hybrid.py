"""The reference models of the hybrid architecture and its drafters: in the repository, or beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN

from graphrun import load
from graphrun.draft import MtpDrafter
from graphrun.model import Model

A = np.ndarray[Any, Any]
RECORDS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "hybrid.json").read_text())["models"]
MODELS = sorted(name for name in RECORDS if name.startswith("qwen35"))
WITH_MTP = [name for name in MODELS if name.startswith("qwen35-mtp")]
DRAFTERS = sorted(name for name in RECORDS if name.startswith("dflash"))
TOKENS96: list[int] = json.loads((GOLDEN / "manifest.json").read_text())["tokens96"]
LIMIT = 2e-5


class Files:
    """Finds reference files; those that are not in the repository may be missing, which skips the test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request

    def path(self, file: str) -> Path:
        here = GOLDEN / file
        if here.is_file():
            return here
        extra: Path = self.request.getfixturevalue("extra_golden")
        return extra / file

    def model(self, name: str, **options: Any) -> Model:
        return load(self.path(RECORDS[name]["file"]), **{"activations": "exact", **options})

    def arrays(self, name: str) -> dict[str, A]:
        stored = np.load(self.path(RECORDS[name]["golden"]))
        return {key: stored[key] for key in stored.files}


def tokens(arrays: dict[str, A]) -> list[int]:
    return [int(t) for t in arrays["tokens"]]


def error(found: A, golden: A) -> float:
    """Largest difference, relative to the largest golden value."""
    return float(np.abs(found - golden).max() / np.abs(golden).max())


def exact(arrays: dict[str, A], name: str) -> A:
    """The array of that name with exact activations; the F32 files' own is that."""
    if name == "logits":
        return arrays.get("logits_f32act", arrays["logits_seq"])
    return arrays.get(f"{name}_f32act", arrays[name])


def mtp_rows(drafter: MtpDrafter) -> tuple[A, A]:
    """Logits and hidden states of every row that waits in the drafter, each run by itself."""
    runner, rows = drafter.source.runner, list(drafter.queue)
    logits, hidden = [], []
    for position, (token, previous) in enumerate(rows):
        program = drafter.source.program("draft", 1)
        runner.step(program, [token], position, 0, {"previous": previous[None]})
        logits.append(runner.read("logits")[0])
        hidden.append(runner.read("hidden")[0])
    return np.stack(logits), np.stack(hidden)
