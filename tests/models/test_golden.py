"""Every golden model against llama.cpp's own logits: token by token, in one batch, and rounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from hybrid import Files

from graphrun import load
from graphrun.model import Model

A = np.ndarray[Any, Any]
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
NAMES = sorted(MANIFEST["models"])
EXACT_LIMIT = 2e-5


def opened(files: Files, name: str, **options: Any) -> tuple[Model, dict[str, A]]:
    record = MANIFEST["models"][name]
    arrays = np.load(files.path(record["golden"]))
    return load(files.path(record["file"]), **options), {k: arrays[k] for k in arrays.files}


def reference(arrays: dict[str, A]) -> A:
    """Logits with exact activations; the F32 files' own logits are that."""
    return arrays.get("logits_f32act", arrays["logits_seq"])


def error(logits: A, golden: A) -> float:
    return float(np.abs(logits - golden).max() / np.abs(golden).max())


@pytest.mark.parametrize("name", NAMES)
def test_token_by_token(files: Files, name: str) -> None:
    model, arrays = opened(files, name, activations="exact")
    session = model.session()
    logits = np.stack([session.decode(int(t)) for t in arrays["tokens"]])
    assert error(logits, reference(arrays)) < EXACT_LIMIT


@pytest.mark.parametrize("name", NAMES)
def test_one_batch(files: Files, name: str) -> None:
    model, arrays = opened(files, name, activations="exact")
    logits = np.stack(list(model.session().score(arrays["tokens"].tolist())))
    assert error(logits, reference(arrays)) < EXACT_LIMIT


@pytest.mark.parametrize("name", NAMES)
def test_rounded_activations(files: Files, name: str) -> None:
    """Mean negative log likelihood of 95 scored positions within 2 % of llama.cpp's."""
    model, arrays = opened(files, name)
    tokens = MANIFEST["tokens96"]
    rows = np.stack(list(model.session().score(tokens))).astype(np.float64)[:-1]
    peak = rows.max(axis=1)
    nll = peak + np.log(np.exp(rows - peak[:, None]).sum(axis=1)) - rows[np.arange(95), tokens[1:]]
    assert nll.mean() == pytest.approx(arrays["nll96"].mean(), rel=0.02)
    assert np.corrcoef(nll, arrays["nll96"])[0, 1] > 0.99


@pytest.mark.parametrize("name", NAMES)
def test_greedy(files: Files, name: str) -> None:
    """Exact mode continues as llama.cpp does, up to the first choice that rounding could turn."""
    model, arrays = opened(files, name, activations="exact")
    session = model.session()
    logits = session.prefill(arrays["tokens"].tolist())
    exactly = set(MANIFEST["models"][name]["types"]) == {"F32"}
    margin = 1e-4 if exactly else 0.06  # of the largest logit: what rounded activations may move
    limit = margin * float(np.abs(reference(arrays)).max())
    compared = 0
    for expected, (first, second) in zip(arrays["greedy_ids"], arrays["greedy_top2"], strict=True):
        if first - second < limit:
            break
        assert int(np.argmax(logits)) == expected
        compared += 1
        logits = session.decode(int(expected))
    assert compared == 16 or not exactly


@pytest.mark.parametrize(
    "name", [n for n in NAMES if n.endswith(("F32", "Q4_0", "Q4_1", "Q8_0", "Q5_1", "K_M", "Q2_K"))]
)
def test_chunks_do_not_matter(files: Files, name: str) -> None:
    """Rounded activations: logits of chunks of any size are, bit for bit, those of tokens one by one."""
    model, arrays = opened(files, name)
    tokens = arrays["tokens"].tolist()
    session = model.session()
    single = np.stack([session.decode(t) for t in tokens])
    for size in (5, 17, 24):
        session = model.session()
        rows = [row for i in range(0, len(tokens), size) for row in session.score(tokens[i : i + size])]
        assert np.array_equal(np.stack(rows), single)


def test_every_type_is_covered() -> None:
    types = {t for record in MANIFEST["models"].values() for t in record["types"]}
    expected = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "IQ4_XS"}
    assert types >= expected | {"Q2_K", "Q4_K", "Q5_K", "Q6_K"}


def test_files_are_unchanged() -> None:
    import hashlib

    for record in MANIFEST["models"].values():
        path: Path = GOLDEN / record["file"]
        assert not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() == record["sha256"]
