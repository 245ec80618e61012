"""An architecture that is only a graph file: examples/my_arch.yaml against a forward pass in plain float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import my_arch
import numpy as np
import pytest
from gguf import GGUFReader
from my_arch import BASE, EPS, LAYERS, D, G, H

from graphrun import load
from graphrun.check import mistakes
from graphrun.core.errors import ModelError
from graphrun.model import Model

A = np.ndarray[Any, Any]
TOKENS = [17, 3, 255, 3, 90, 41, 41, 200, 7, 128, 64, 5]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return my_arch.write(tmp_path_factory.mktemp("my_arch") / "my_arch.gguf")


def opened(path: Path, **options: Any) -> Model:
    return load(path, graph=str(my_arch.GRAPH), **options)


def norm(x: A, w: A) -> A:
    return np.asarray(x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + EPS) * w)


def rotate(x: A) -> A:
    """x[T, heads, D] as complex numbers: channel j is the real part, channel j + D/2 the imaginary."""
    angle = np.arange(len(x))[:, None] * BASE ** (-np.arange(0, D, 2) / D)
    turned = (x[..., : D // 2] + 1j * x[..., D // 2 :]) * np.exp(1j * angle)[:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def forward(path: Path, tokens: list[int]) -> A:
    """Logits f64[T, vocabulary] of the whole sequence at once."""
    tensors = {t.name: np.asarray(t.data, np.float64) for t in GGUFReader(path).tensors}
    h, causal = tensors["token_embd.weight"][tokens], np.tri(len(tokens), dtype=bool)
    for i in range(LAYERS):
        w = {name[len(f"blk.{i}.") : -len(".weight")]: t for name, t in tensors.items() if name.startswith(f"blk.{i}.")}
        x = norm(h, w["attn_norm"])
        q = rotate(norm((x @ w["attn_q"].T).reshape(-1, H, D), w["attn_q_norm"]))
        k = rotate(norm((x @ w["attn_k"].T).reshape(-1, G, D), w["attn_k_norm"]))
        v = (x @ w["attn_v"].T).reshape(-1, G, D)
        k, v = (np.repeat(a, H // G, axis=1) for a in (k, v))
        scores = np.where(causal, np.einsum("thd,shd->hts", q, k) / np.sqrt(D), -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        y = np.einsum("hts,shd->thd", p / p.sum(axis=-1, keepdims=True), v).reshape(len(h), -1)
        h = h + y @ w["attn_output"].T
        x = norm(h, w["ffn_norm"])
        gate = x @ w["ffn_gate"].T
        h = h + (gate / (1 + np.exp(-gate)) * (x @ w["ffn_up"].T)) @ w["ffn_down"].T
    return np.asarray(norm(h, tensors["output_norm.weight"]) @ tensors["output.weight"].T)


def test_logits(path: Path) -> None:
    expected = forward(path, TOKENS)
    session = opened(path, activations="exact").session()
    logits = np.stack([session.decode(t) for t in TOKENS])
    assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()


def test_prefill(path: Path) -> None:
    expected = forward(path, TOKENS)[-1]
    logits = opened(path, activations="exact").session().prefill(TOKENS)
    assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()


def test_rounded_activations_stay_near(tmp_path: Path) -> None:
    path = my_arch.write(tmp_path / "m.gguf", weights="q8_0")
    exact, rounded = (opened(path, activations=a).session().prefill(TOKENS) for a in ("exact", "q8"))
    assert 0 < np.abs(rounded - exact).max() < 0.1 * np.abs(exact).max()


def test_generation(path: Path) -> None:
    """Greedy text is the best token of the logits of each prefix."""
    model, ids = opened(path), TOKENS[:4]
    text = "".join(model.generate(ids, max_tokens=8))
    for _ in range(8):
        best = int(np.argmax(model.session().prefill(ids)))
        if best in model.tokenizer.stop_ids:
            break
        ids.append(best)
    stream = model.tokenizer.stream()
    assert text == "".join(map(stream.push, ids[4:])) + stream.flush()
    assert len(ids) > 4


def test_the_norms_are_fused_with_the_rotation(path: Path) -> None:
    assert "qk_norm_rope_store" in {call.label for call in opened(path).program().calls}


def test_nothing_is_wrong_with_it(path: Path) -> None:
    assert mistakes(str(my_arch.GRAPH), None) == mistakes(str(my_arch.GRAPH), path) == []


def test_it_is_short() -> None:
    assert len(my_arch.GRAPH.read_text().splitlines()) <= 60


def test_without_its_graph_file_the_error_says_what_to_do(path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no graph for 'my_arch' .*--graph"):
        load(path)
