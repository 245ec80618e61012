"""The DFlash drafter against llama.cpp: features, block logits, candidates and their scores, drafts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hybrid import DRAFTERS, LIMIT, RECORDS, Files, error, tokens

from graphrun import load
from graphrun.core.errors import UsageError
from graphrun.draft import DFlashDrafter, walk
from graphrun.model import Model

A = np.ndarray[Any, Any]
TARGET = "models/qwen35-mtp.F32.gguf"
HEADS = "models/qwen35-heads.F32.gguf"  # only what a drafter borrows: embedding and output of TARGET
ROUNDED = 0.05  # of llama.cpp's logits with rounded activations


def drafter(files: Files, name: str, target: str = HEADS) -> DFlashDrafter:
    model = load(files.path(target), activations="exact")
    return DFlashDrafter(model, files.path(RECORDS[name]["file"]))


def test_features_are_layer_inputs(files: Files) -> None:
    arrays, drafts = files.arrays("dflash.F32"), drafter(files, "dflash.F32", TARGET)
    model = load(files.path(TARGET), activations="exact")
    model.tap(drafts.targets)
    list(model.session().score(tokens(arrays)))
    found = np.concatenate([model.runner.read(f"input.{i}") for i in drafts.targets], axis=1)
    assert error(found, arrays["features"]) < LIMIT


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("pieces", [[24], [1] * 24, [5, 19]])
def test_block_after_a_context(name: str, pieces: list[int], files: Files) -> None:
    """However the context was cut; the ring of the windowed layer has 32 rows."""
    arrays, drafts = files.arrays(name), drafter(files, name)
    done = 0
    for count in pieces:
        part = slice(done, done + count)
        drafts.remember(done, tokens(arrays)[part], arrays["features"][part])
        done += count
    found = drafts.draft(int(arrays["block_tokens"][0]), 7)
    logits = drafts.source.runner.read("logits")
    assert error(logits, arrays["block_logits"]) < (LIMIT if name == "dflash.F32" else ROUNDED)
    assert found == arrays["draft_ids"].tolist()


def test_lattice(files: Files) -> None:
    """Candidates are the same sets, and the scores of every pair agree."""
    arrays, drafts = files.arrays("dflash.F32"), drafter(files, "dflash.F32")
    drafts.remember(0, tokens(arrays), arrays["features"])
    drafts.draft(int(arrays["block_tokens"][0]), 7)
    ids, scores = (drafts.source.runner.read(name) for name in ("ids", "scores"))
    golden_ids = arrays["lattice_ids"][1:]
    places = [[row.tolist().index(i) for i in golden] for row, golden in zip(ids[1:], golden_ids, strict=True)]
    before = [list(range(ids.shape[1])), *places]
    for t, place in enumerate(places, 1):
        assert error(scores[t][np.ix_(before[t - 1], place)], arrays["lattice_scores"][t]) < LIMIT


def test_walk_follows_the_best_pair() -> None:
    ids = np.array([[0, 0], [5, 6], [7, 8]], np.int32)
    scores = np.array([[[0, 0], [0, 0]], [[1, 3], [1, 3]], [[9, 0], [2, 2.5]]], np.float32)
    assert walk(ids, scores) == [6, 8]
    assert walk(ids, scores, p_min=0.7) == [6]
    assert walk(ids, scores, p_min=0.9) == []


def test_second_block_with_a_session(files: Files) -> None:
    """A session tells the drafter of every token that stays, also of verified ones."""
    arrays = files.arrays("dflash.F32")
    model = load(files.path(TARGET), activations="exact")
    drafts = DFlashDrafter(model, files.path("models/dflash.F32.gguf"))
    session = model.session(drafts)
    session.prefill(tokens(arrays))
    first, second = int(arrays["block_tokens"][0]), int(arrays["block2_tokens"][0])
    guesses = drafts.draft(first, 7)
    session.verify([first, *guesses])
    session.keep(1)
    assert drafts.pos == session.pos == 25
    drafts.draft(second, 7)
    assert error(drafts.source.runner.read("logits"), arrays["block2_logits"]) < LIMIT


def test_long_context_wraps_the_ring(files: Files) -> None:
    """A context of 100 positions gives the block of a drafter that saw only what its window reaches, and more."""
    arrays = files.arrays("dflash.Q8_0")
    rng = np.random.default_rng(0)
    features = rng.standard_normal((100, arrays["features"].shape[1]), dtype=np.float32)
    whole, pieces = drafter(files, "dflash.Q8_0"), drafter(files, "dflash.Q8_0")
    whole.remember(0, [0] * 100, features)
    for start in range(0, 100, 10):
        pieces.remember(start, [0] * 10, features[start : start + 10])
    blocks = [d.draft(5, 7) for d in (whole, pieces)]
    logits = [d.source.runner.read("logits") for d in (whole, pieces)]
    assert error(logits[0], logits[1]) < LIMIT
    assert blocks[0] == blocks[1]


def test_block_ends_with_the_context(files: Files) -> None:
    model = load(files.path(HEADS), activations="exact", context=27)
    drafts = DFlashDrafter(model, files.path("models/dflash.Q8_0.gguf"))
    arrays = files.arrays("dflash.Q8_0")
    drafts.remember(0, tokens(arrays), arrays["features"])
    assert len(drafts.draft(3, 7)) == 2
    drafts.remember(24, [3, 4], arrays["features"][:2])
    assert drafts.draft(3, 7) == []


def test_a_drafter_alone_does_not_decode(files: Files) -> None:
    model = Model.open(files.path("models/dflash.Q8_0.gguf"))
    with pytest.raises(UsageError, match="no step 'decode'"):
        model.program("decode")
