"""Scaled rotation: YaRN by its definition in turns, and what llama files may say about scaling."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from graphrun import load
from graphrun.core.errors import GraphError
from graphrun.ops.rope import rope

A = np.ndarray[Any, Any]
# base, width, original positions, factor, fast, slow
SCALINGS = [
    (10000.0, 128, 4096, 4.0, 32.0, 1.0),
    (1e6, 64, 32768, 8.0, 32.0, 1.0),
    (10000.0, 16, 256, 2.0, 32.0, 1.0),
    (5e5, 32, 8192, 40.0, 16.0, 2.0),
    (10000.0, 64, 16, 3.0, 32.0, 1.0),  # even the first pair turns fewer than `fast` times
    (100.0, 8, 1 << 20, 2.0, 32.0, 1.0),  # even the last pair turns more than `slow` times
]


def speeds(base: float, width: int, original: int, factor: float, fast: float, slow: float) -> list[float]:
    """Radians a position of each pair, after Peng et al. 2023 with the pairs' numbers as llama.cpp rounds them.

    A pair that turns at least `fast` times over the original positions keeps its speed, one that turns at most
    `slow` times is slowed down by the factor, those between are mixed in proportion to their number.
    """

    def turns(pair: int) -> float:
        return float(original * base ** (-2 * pair / width) / (2 * math.pi))

    low = max((pair for pair in range(width) if turns(pair) >= fast), default=0)
    high = min((pair for pair in range(width) if turns(pair) <= slow), default=width - 1)
    mixed = []
    for pair in range(width // 2):
        plain = turns(pair) * 2 * math.pi / original
        kept = 1.0 if pair <= low else 0.0 if pair >= high else 1 - (pair - low) / (high - low)
        mixed.append(plain * kept + plain / factor * (1 - kept))
    return mixed


def turned(width: int, positions: int, **scaling: Any) -> A:
    """Complex numbers [positions, pairs] into which rotation turns ones."""
    x = np.zeros((positions, 1, width), np.float32)
    x[..., : width // 2] = 1
    y = rope(x, np.array([5], np.int32), width=width, pairs="halves", **scaling)[:, 0]
    return np.asarray(y[:, : width // 2] + 1j * y[:, width // 2 :])


@pytest.mark.parametrize(("base", "width", "original", "factor", "fast", "slow"), SCALINGS)
def test_yarn_by_turns(base: float, width: int, original: int, factor: float, fast: float, slow: float) -> None:
    expected = speeds(base, width, original, factor, fast, slow)
    angle = (5 + np.arange(40))[:, None] * np.array(expected)
    found = turned(width, 40, base=base, factor=factor, yarn=1, original=original, fast=fast, slow=slow)
    assert np.abs(found - np.exp(1j * angle)).max() < 1e-6


@pytest.mark.parametrize("pairs", ["adjacent", "halves"])
def test_linear_scaling_divides_positions(pairs: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 2, 16), np.float32)
    known: dict[str, Any] = {"base": 1e4, "width": 16, "pairs": pairs}
    scaled = rope(x[:1], np.array([12], np.int32), factor=4.0, **known)
    assert np.array_equal(scaled, rope(x[:1], np.array([3], np.int32), **known))


def test_magnitude_stretches_the_rotated_channels() -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 16), np.float32)
    known: dict[str, Any] = {"pos": np.array([7], np.int32), "base": 1e4, "width": 8, "pairs": "halves"}
    plain, long = rope(x, **known), rope(x, **known, magnitude=1.5)
    assert np.allclose(long[..., :8], 1.5 * plain[..., :8], rtol=1e-6)
    assert np.array_equal(long[..., 8:], x[..., 8:])


def model(folder: Path, **keys: Any) -> Path:
    names = {f"llama.rope.scaling.{name}": value for name, value in keys.items()}
    return tiny.llama(folder / f"{len(list(folder.iterdir()))}.gguf", metadata=names, vocab=64)


def logits(path: Path) -> A:
    return load(path, activations="exact").session().prefill(list(range(24)))


def attributes(path: Path) -> dict[str, Any]:
    return dict(next(n.attrs for n in load(path).graph().nodes if n.op is rope))


YARN: dict[str, Any] = {"type": "yarn", "factor": 4.0, "original_context_length": 64}


def test_a_yarn_model_runs(tmp_path: Path) -> None:
    plain, linear = model(tmp_path), model(tmp_path, type="linear", factor=4.0)
    yarn, none = model(tmp_path, **YARN), model(tmp_path, type="none", factor=4.0)
    results = [logits(p) for p in (plain, linear, yarn)]
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(results, results[1:] + results[:1], strict=True))
    assert np.array_equal(logits(none), results[0])
    assert np.array_equal(logits(model(tmp_path, **YARN | {"factor": 1.0})), results[0])


def test_the_file_s_numbers_reach_the_op(tmp_path: Path) -> None:
    path = model(tmp_path, **YARN, yarn_beta_fast=16.0, yarn_beta_slow=2.0, attn_factor=0.5)
    found = attributes(path)
    assert (found["factor"], found["yarn"], found["original"]) == (4.0, 1, 64)
    assert (found["fast"], found["slow"]) == (16.0, 2.0)
    assert found["magnitude"] == pytest.approx(0.5 * (1 + 0.1 * math.log(4)))


def test_magnitude_is_one_without_yarn(tmp_path: Path) -> None:
    assert attributes(model(tmp_path, type="linear", factor=4.0))["magnitude"] == 1
    assert attributes(model(tmp_path, type="yarn", factor=1.0))["magnitude"] == 1


def test_the_trained_length_is_that_of_the_context_if_none_is_given(tmp_path: Path) -> None:
    assert attributes(model(tmp_path, type="yarn", factor=2.0))["original"] == 256


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "longrope", "factor": 4.0}, "scaling = 'longrope'"),
    ({"type": "dynamic"}, "scaling = 'dynamic'"),
    ({"type": "Yarn"}, "scaling = 'Yarn'"),
    ({"type": 7}, "scaling = 7"),
    ({"factor": 0.0}, "factor = 0"),
    ({"factor": -2.0}, "factor = -2"),
    ({"factor": math.nan}, "'llama.rope.scaling.factor'"),
    ({"factor": math.inf}, "'llama.rope.scaling.factor'"),
    ({**YARN, "yarn_ext_factor": 0.5}, "extrapolate = 0.5"),
    ({**YARN, "yarn_log_multiplier": 0.1}, "'llama.rope.scaling.yarn_log_multiplier'"),
    ({**YARN, "yarn_attn_factor": 2.0}, "'llama.rope.scaling.yarn_attn_factor'"),
    ({"alpha": 1000.0}, "'llama.rope.scaling.alpha'"),
]


@pytest.mark.parametrize(("keys", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_scaling_that_the_graph_does_not_express_is_refused(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    path = model(tmp_path, **keys)
    with pytest.raises(GraphError) as caught:
        load(path).graph()
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["rope_factors_long.weight", "rope_factors_short.weight"])
def test_factors_for_two_lengths_are_refused(tmp_path: Path, name: str) -> None:
    path = tiny.llama(tmp_path / "m.gguf", tensors={name: np.ones(16, np.float32)})
    with pytest.raises(GraphError, match=name):
        load(path).graph()


BAD_YARN: list[tuple[dict[str, Any], str]] = [
    ({"original_context_length": 0}, "original"),
    ({"original_context_length": -4}, "original"),
    ({"yarn_beta_fast": 0.0}, "fast"),
    ({"yarn_beta_slow": -1.0}, "slow"),
]


@pytest.mark.parametrize(("keys", "text"), BAD_YARN)
def test_numbers_that_yarn_cannot_use_are_refused(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    path = model(tmp_path, **YARN | keys)
    with pytest.raises(GraphError) as caught:
        load(path).session().decode(1)
    assert text in str(caught.value)


@pytest.mark.parametrize("base", [0.0, 1.0, -5.0, math.nan])
def test_a_base_that_turns_nothing_is_refused(tmp_path: Path, base: float) -> None:
    path = tiny.llama(tmp_path / "m.gguf", metadata={"llama.rope.freq_base": base})
    with pytest.raises(GraphError) as caught:
        load(path).session().decode(1)
    assert "base" in str(caught.value)
