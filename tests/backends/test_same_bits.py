"""The native backend computes the bits of the numpy backend: whole models, exact activations, and long texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import Arguments, Case, arguments
from conftest import GOLDEN
from kernel_calls import Bench

from graphrun import load
from graphrun.backends import engine
from graphrun.core.quant import Q8
from graphrun.core.types import LAYOUTS, TensorType
from graphrun.model import Activations, Model
from graphrun.ops import OPS

A = np.ndarray[Any, Any]
MODELS = json.loads((GOLDEN / "manifest.json").read_text())["models"]
DENSE = sorted(n for n in MODELS if n.endswith((".F32", ".F16", ".BF16")))
SETS = [name for name, usable in engine.instruction_sets().items() if usable]
PROMPT = [504, 3575, 282, 4649, 314]
LENGTH, CHUNK = 160, 48


def opened(path: Path, backend: str, activations: Activations = "q8") -> Model:
    return load(path, backend=backend, activations=activations, context=512)


def some(given: Arguments, tokens: slice) -> Arguments:
    """The same product for some of the tokens."""
    x, count = given.values["x"], len(range(*tokens.indices(given.types["x"].shape[0])))
    part = Q8(*(p[tokens] for p in x)) if isinstance(x, Q8) else x[tokens]
    type_ = TensorType(given.types["x"].dtype, (count, given.types["x"].shape[1]))
    return Arguments({**given.values, "x": part}, {**given.types, "x": type_}, given.attrs)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("layout", ["f32", *(d.name for d in LAYOUTS)])
def test_products_of_any_tokens(layout: str, instructions: str) -> None:
    """1 to 16 tokens together, and more: each has the bits that it has alone, which are numpy's."""
    op, pool = OPS["gemv_f32" if layout == "f32" else "gemv"], engine.Pool(2, engine.kernels(instructions))
    given = arguments(op, Case(40, layout, "f32", True, 0))

    def product(tokens: slice) -> A:
        part = some(given, tokens)
        count = part.types["x"].shape[0]
        kernel = next(k for k in op.kernels if k.weight == layout and k.tokens[0] <= count <= k.tokens[1])
        bench = Bench(op, kernel.name, part)
        bench.run(pool)
        result: A = bench.result("y").copy()
        return result

    alone = np.concatenate([product(slice(t, t + 1)) for t in range(40)])
    assert alone.tobytes() == op(**given.values).tobytes()
    for count in (*range(2, 18), 31, 32, 33, 40):
        assert product(slice(0, count)).tobytes() == alone[:count].tobytes(), count


@pytest.mark.parametrize("name", DENSE)
def test_exact_activations(name: str) -> None:
    """f32 weights are summed in one order, so that there is nothing to tolerate; chunks of all kinds."""
    path = GOLDEN / MODELS[name]["file"]
    if not path.exists():
        pytest.skip(f"no {path.name}")
    tokens = [int(t) for t in np.random.default_rng(0).integers(3, 250, 60)]
    rows = []
    for backend in ("native", "numpy"):
        session = opened(path, backend, "exact").session()
        parts = [session.score(part) for part in (tokens[:1], tokens[1:7], tokens[7:40], tokens[40:])]
        rows.append(np.stack([row for part in parts for row in part]))
    assert np.array_equal(rows[0], rows[1])


def test_text_of_a_real_model(smollm: Path) -> None:
    """The native backend's greedy text of SmolLM2 is numpy's, and all logits of every position have the same bits.

    numpy reads the text in chunks, which gives the bits of single tokens (see test_smollm.py).
    """
    session = opened(smollm, "native").session()
    logits, text = [session.prefill(PROMPT)], []
    for _ in range(LENGTH):
        text.append(int(np.argmax(logits[-1])))
        logits.append(session.decode(text[-1]))
    reader, whole, rows = opened(smollm, "numpy").session(), PROMPT + text, []
    for start in range(0, len(whole), CHUNK):
        rows += list(reader.score(whole[start : start + CHUNK]))
    expected = np.stack(rows[len(PROMPT) - 1 :])
    assert expected[:-1].argmax(axis=1).tolist() == text
    assert np.array_equal(np.stack(logits), expected)
