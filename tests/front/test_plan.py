"""The memory plan against what loading really takes, and its verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny

from graphrun import load
from graphrun.core.ir import State, Value
from graphrun.model import Model
from graphrun.plan import memory_plan


@pytest.fixture(params=["f32", "f16", "q8_0", "q4_0"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    return load(tiny.llama(tmp_path / "m.gguf", weights=request.param), backend="numpy", context=64)


def loaded(model: Model) -> tuple[list[Value], list[State]]:
    """What the model asks its backend to load."""
    asked: list[tuple[list[Value], list[State]]] = []
    load_it = model.backend.load

    def spy(file: object, weights: list[Value], states: list[State], progress: object = None) -> object:
        asked.append((list(weights), list(states)))
        return load_it(model.file, weights, states)

    model.backend.load = spy  # type: ignore[method-assign, assignment]
    _ = model.runner
    return asked[0]


def test_plan_is_what_is_loaded(model: Model) -> None:
    plan = memory_plan(model)
    weights, states = loaded(model)
    distinct = {(v.parts, v.type): v.type.nbytes for v in weights}
    assert sum(s.nbytes for s in plan.weights) == sum(distinct.values())
    assert sum(s.nbytes for s in plan.states) == sum(s.type.nbytes for s in states)
    assert sum(s.count for s in plan.states) == len(states) == 2 * tiny.LAYERS


def test_every_tensor_is_counted(model: Model) -> None:
    assert sum(s.count for s in memory_plan(model).weights) == len(model.file.tensors)


def test_cache_grows_with_the_context(tmp_path: Path) -> None:
    path = tiny.llama(tmp_path / "m.gguf")
    small, large = (memory_plan(load(path, backend="numpy", context=context)) for context in (16, 64))
    states = [sum(s.nbytes for s in plan.states) for plan in (small, large)]
    assert states[1] == 4 * states[0] == 4 * 16 * 2 * tiny.LAYERS * tiny.G * 32 * np.dtype(np.float16).itemsize
    assert [s.nbytes for s in small.weights] == [s.nbytes for s in large.weights]


def test_arena_is_the_largest_step(model: Model) -> None:
    plan = memory_plan(model)
    assert plan.arena == max(p.arena for p in plan.programs)
    assert {p.name for p in plan.programs} == set(model.spec.steps)
    assert plan.total == sum(s.nbytes for s in (*plan.weights, *plan.states)) + plan.arena + plan.beside


def test_numpy_counts_the_operands_it_unpacks(model: Model) -> None:
    """4 bytes for every weight that is packed; none where they would take more than half of the memory."""
    weights = {(v.parts, v.type): v for v in model.program().weights if v.type.dtype.quantised}
    need = sum(4 * math.prod(v.type.shape) for v in weights.values())
    plan = memory_plan(model)
    assert plan.beside == need and (need == 0 or "unpacked weights" in str(plan))
    target = model.backend.target
    try:
        model.backend.target = replace(target, memory=need)
        assert memory_plan(model).beside == 0
    finally:
        model.backend.target = target


def test_no_weight_is_read(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def raw(name: str) -> None:
        raise AssertionError(f"{name} was read")

    monkeypatch.setattr(model.file, "raw", raw)
    assert memory_plan(model).total > 0


def test_verdict(model: Model) -> None:
    plan = memory_plan(model)
    exact = replace(plan, target=replace(plan.target, memory=plan.total))
    short = replace(plan, target=replace(plan.target, memory=plan.total - 1))
    assert exact.fits and exact.verdict.startswith("fits: ")
    assert not short.fits and short.verdict.startswith("does not fit: ")
    assert str(short).splitlines()[-1] == short.verdict
    assert f"{plan.total:,}" in str(plan)
