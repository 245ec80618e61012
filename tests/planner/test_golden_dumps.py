"""The programs of every graph as text, so that no refactoring changes one unseen."""

from __future__ import annotations

from pathlib import Path

import my_arch
import pytest
from conftest import GOLDEN, GoldenText

from graphrun import load
from graphrun.model import Model
from graphrun.planner.lower import STAGES
from graphrun.stages import stage_text

CONTEXT = 256
STEPS = {"decode": 1, "verify": 8, "prefill": 64}
PROGRAMS = [(name, step) for name in ("llama-s.Q4_0", "qwen2-k.Q4_K_M") for step in STEPS]
PROGRAMS += [("my_arch.q4_0", step) for step in ("decode", "prefill")]


def opened(name: str, folder: Path) -> Model:
    if name.startswith("my_arch"):
        path = my_arch.write(folder / f"{name}.gguf", layers=1, weights="q4_0")
        return load(path, graph=str(my_arch.GRAPH), backend="numpy", context=CONTEXT)
    return load(GOLDEN / "models" / f"{name}.gguf", backend="numpy", context=CONTEXT)


@pytest.mark.parametrize(("name", "step"), PROGRAMS)
def test_programs(name: str, step: str, tmp_path: Path, golden_text: GoldenText) -> None:
    golden_text.check(f"dumps/{name}.{step}.txt", stage_text(opened(name, tmp_path), step, STEPS[step]))


def test_exact_program(tmp_path: Path, golden_text: GoldenText) -> None:
    model = load(GOLDEN / "models" / "llama-s.Q4_0.gguf", backend="numpy", context=CONTEXT, activations="exact")
    golden_text.check("dumps/llama-s.Q4_0.decode.exact.txt", stage_text(model))


def test_stages(tmp_path: Path, golden_text: GoldenText) -> None:
    """A model of one layer before the first pass and after each."""
    model = opened("qwen2-k.Q4_K_M", tmp_path)
    texts = [f"== {stage}\n{stage_text(model, stage=stage)}" for stage in ("graph", *STAGES)]
    golden_text.check("dumps/qwen2-k.Q4_K_M.decode.stages.txt", "\n".join(texts))
