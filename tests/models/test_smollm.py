"""SmolLM2-135M, a real model, against llama.cpp: exact logits, greedy text and perplexity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from gguf import GGMLQuantizationType
from requantise import requantise

from graphrun import load
from graphrun.backends.native import NativeBackend
from graphrun.model import Model

A = np.ndarray[Any, Any]
DATA = GOLDEN / "smollm"
RECORD = json.loads((DATA / "smollm.json").read_text())
TEXT = json.loads((DATA / "tokens.json").read_text())["text_ids"]
MARGIN = 0.3


@pytest.fixture(scope="module", params=["Q4_1", "Q8_0", "Q4_0"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    if kind == "Q4_1":
        return load(smollm, backend="auto")
    target = tmp_path_factory.mktemp("smollm") / f"{kind}.gguf"
    return load(requantise(smollm, target, GGMLQuantizationType[kind]), backend="auto")


def log_probabilities(rows: A, following: list[int]) -> A:
    """f64[len(rows)]: log softmax of each row at the token that follows it."""
    wide = rows.astype(np.float64)
    peak = wide.max(axis=1)
    chosen = wide[np.arange(len(wide)), following]
    return np.asarray(chosen - peak - np.log(np.exp(wide - peak[:, None]).sum(axis=1)))


def test_exact_logits(smollm: Path) -> None:
    """256 positions: the best five logits, and all 49,152 at position 15, within 2e-5 of the largest."""
    golden = np.load(DATA / "f32act.npz")
    session = load(smollm, activations="exact").session()
    rows = np.stack(list(session.score(TEXT[:256])))
    best, ids = golden["Q4_1.top5_logits"], golden["Q4_1.top5_ids"]
    assert np.abs(np.take_along_axis(rows, ids, axis=1) - best).max() / np.abs(best).max() < 2e-5
    whole = golden["Q4_1.logits_pos15"]
    assert np.abs(rows[15] - whole).max() / np.abs(whole).max() < 2e-5
    assert np.abs(log_probabilities(rows[:-1], TEXT[1:256]) - golden["Q4_1.logprob"]).max() < 2e-4


def test_perplexity(kind: str, model: Model) -> None:
    """Perplexity of 1,023 scored positions within 1 % of llama.cpp's on the same file."""
    session, scores = model.session(), []
    for position, row in enumerate(session.score(TEXT[:1024])):
        if position < 1023:
            scores.append(log_probabilities(row[None], [TEXT[position + 1]])[0])
    assert np.exp(-np.mean(scores)) == pytest.approx(RECORD["files"][kind]["ppl_first_1024"], rel=0.01)


@pytest.mark.parametrize("prompt", range(5))
def test_greedy_text(kind: str, model: Model, prompt: int) -> None:
    """After every prefix of llama.cpp's text the best token is llama.cpp's, wherever its lead exceeds MARGIN.

    Both engines round activations, by other rules, which moves a difference of two logits by up to 0.3; so small a
    lead decides nothing, but few of the tokens have one.
    """
    record = RECORD["files"][kind]["greedy"][prompt]
    start, ids = record["prompt_ids"], record["ids"]
    rows = np.stack(list(model.session().score(start + ids[:-1])))[len(start) - 1 :]
    equal = rows.argmax(axis=1) == np.array(ids)
    assert equal[np.array(record["margins"]) > MARGIN].all()
    assert equal.sum() >= len(ids) - 6


def test_numpy_gives_the_same_bits(kind: str, model: Model) -> None:
    """In a chunk on the numpy backend, and one by one on the fastest: equal logits."""
    if kind == "Q4_1" and isinstance(model.backend, NativeBackend):
        pytest.skip("test_same_bits.py compares a longer text of this file")
    tokens = TEXT[:10]
    session = model.session()
    single = np.stack([session.decode(t) for t in tokens])
    batch = np.stack(list(load(model.file.path, backend="numpy").session().score(tokens)))
    assert np.array_equal(batch, single)
