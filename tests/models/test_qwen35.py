"""Every qwen35 reference model against llama.cpp: trunk, hidden states, MTP layer and draft chain."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hybrid import LIMIT, MODELS, RECORDS, TOKENS96, WITH_MTP, Files, error, exact, mtp_rows, tokens

from graphrun.draft import MtpDrafter


@pytest.mark.parametrize("name", MODELS)
def test_token_by_token(name: str, files: Files) -> None:
    session, arrays = files.model(name).session(), files.arrays(name)
    logits = np.stack([session.decode(t) for t in tokens(arrays)])
    assert error(logits, exact(arrays, "logits")) < LIMIT


@pytest.mark.parametrize("name", MODELS)
def test_one_batch(name: str, files: Files) -> None:
    """24 tokens at once go through the chunked delta rule."""
    model, arrays = files.model(name), files.arrays(name)
    logits = np.stack(list(model.session().score(tokens(arrays))))
    assert error(logits, exact(arrays, "logits")) < LIMIT
    if set(RECORDS[name]["types"]) == {"F32"}:  # llama.cpp's hidden states of other files have rounded activations
        assert error(model.runner.read("hidden"), arrays["h_nextn"]) < LIMIT


@pytest.mark.parametrize("name", MODELS)
def test_verified_in_pieces(name: str, files: Files) -> None:
    session, arrays = files.model(name).session(), files.arrays(name)
    ids, logits, done = tokens(arrays), [], 0
    for count in (2, 7, 15):
        logits.append(session.verify(ids[done : done + count]))
        session.keep(count)
        done += count
    assert error(np.concatenate(logits), exact(arrays, "logits")) < LIMIT


@pytest.mark.parametrize("name", MODELS)
def test_rounded_activations(name: str, files: Files) -> None:
    """Mean negative log likelihood of 95 scored positions within 2 % of llama.cpp's."""
    model, arrays = files.model(name, activations="q8"), files.arrays(name)
    rows = np.stack(list(model.session().score(TOKENS96))).astype(np.float64)[:-1]
    peak = rows.max(axis=1)
    nll = peak + np.log(np.exp(rows - peak[:, None]).sum(axis=1)) - rows[np.arange(95), TOKENS96[1:]]
    assert nll.mean() == pytest.approx(arrays["nll96"].mean(), rel=0.02)
    assert np.corrcoef(nll, arrays["nll96"])[0, 1] > 0.99


@pytest.mark.parametrize("name", MODELS)
def test_greedy(name: str, files: Files) -> None:
    """The same continuation, up to the first choice that llama.cpp's rounding of activations could turn."""
    session, arrays = files.model(name).session(), files.arrays(name)
    logits = session.prefill(tokens(arrays))
    compared = 0
    for expected, (first, second) in zip(arrays["greedy_ids"], arrays["greedy_top2"], strict=True):
        if first - second < (1e-3 if set(RECORDS[name]["types"]) == {"F32"} else 0.5):
            break
        assert int(np.argmax(logits)) == expected
        compared += 1
        logits = session.decode(int(expected))
    assert compared == 16 or set(RECORDS[name]["types"]) != {"F32"}


@pytest.mark.parametrize("name", WITH_MTP)
def test_mtp_rows(name: str, files: Files) -> None:
    """Row p reads token p and the trunk's hidden state of position p - 1, zeros for the first."""
    model, arrays = files.model(name), files.arrays(name)
    drafter = MtpDrafter(model)
    model.session(drafter).prefill(tokens(arrays))
    logits, hidden = mtp_rows(drafter)
    assert error(logits, exact(arrays, "mtp_logits")) < LIMIT
    if set(RECORDS[name]["types"]) == {"F32"}:
        assert error(hidden, arrays["mtp_h"]) < LIMIT


@pytest.mark.parametrize("name", WITH_MTP)
def test_draft_chain(name: str, files: Files) -> None:
    """Six guesses, each from the hidden state of the guess before."""
    model, arrays = files.model(name), files.arrays(name)
    drafter = MtpDrafter(model)
    model.session(drafter).prefill(tokens(arrays))
    first = RECORDS[name]["mtp_draft_first_token"]
    found = drafter.draft(first, 6)
    margins = np.sort(arrays["mtp_draft_logits"], axis=1)
    sure = margins[:, -1] - margins[:, -2] > 0.5
    certain = 6 if set(RECORDS[name]["types"]) == {"F32"} else int(np.argmin([*sure, False]))
    assert found[:certain] == arrays["mtp_draft_ids"].tolist()[:certain]
    if set(RECORDS[name]["types"]) == {"F32"}:
        assert error(model.runner.read("logits")[0], arrays["mtp_draft_logits"][-1]) < LIMIT


@pytest.mark.parametrize("name", RECORDS)
def test_file_is_unchanged(name: str, files: Files) -> None:
    record = RECORDS[name]
    assert hashlib.sha256(files.path(record["file"]).read_bytes()).hexdigest() == record["sha256"]
