"""Attention over many splits of keys: its order written out, tokens alone and together, and the native kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from arguments import Arguments
from kernel_calls import Bench

from graphrun.backends import engine
from graphrun.core.fmath import exp
from graphrun.core.types import tensor
from graphrun.ops import OPS
from graphrun.ops.attention import attend
from graphrun.ops.dflash import attend_block

A = np.ndarray[Any, Any]
f32 = np.float32
SETS = [name for name, usable in engine.instruction_sets().items() if usable]
SHAPES = [(64, 6, 2), (32, 4, 4), (40, 2, 1), (128, 2, 1), (12, 3, 3)]  # channels, query heads, kv heads


def at(value: int) -> A:
    return np.array([value], np.int32)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = f32) -> A:
    values: A = rng.standard_normal(shape, f32).astype(dtype)
    return values


def tree(lanes: list[np.float32]) -> np.float32:
    lanes = lanes + [f32(0)] * (32 - len(lanes))
    for offset in (16, 8, 4, 2, 1):
        lanes = [lanes[i] + lanes[i + offset] for i in range(offset)]
    return lanes[0]


def one_query(q: A, keys: A, values: A) -> A:
    """f32[D] of q [D], keys and values [P, D], at most 32 splits: the docstring of `average`, number by number."""
    scores = []
    for key in keys:
        lanes = [f32(0)] * 32
        for d, (a, b) in enumerate(zip(q, key, strict=True)):
            lanes[d % 32] = lanes[d % 32] + a * b
        scores.append(tree(lanes) * f32(1 / math.sqrt(len(q))))
    top, shares, outputs = max(scores), [], []
    for start in range(0, len(keys), 32):
        part = np.array(scores[start : start + 32])
        e, r = exp(part - part.max()), exp(np.array([part.max() - top]))[0]
        total = np.zeros(len(q), f32)
        for wave in range(8):
            total = total + sum((e[i] * values[start + i] for i in range(wave, len(e), 8)), np.zeros(len(q), f32))
        shares.append(r * tree(list(e)))
        outputs.append(total * r)
    result: A = sum(outputs, np.zeros(len(q), f32)) / tree(shares)
    return result


@pytest.mark.parametrize(("dim", "n_head", "n_kv"), SHAPES)
def test_order(dim: int, n_head: int, n_kv: int) -> None:
    rng = np.random.default_rng(dim)
    kc, vc = (random(rng, (192, n_kv, dim), np.float16) for _ in range(2))
    q = random(rng, (2, n_head, dim)) * f32(2)
    for first in (0, 30, 31, 149):
        y = attend(q, kc, vc, at(first))
        for t in range(2):
            for h in range(n_head):
                seen = slice(first + t + 1), h // (n_head // n_kv)
                expected = one_query(q[t, h], kc[seen].astype(f32), vc[seen].astype(f32))
                assert np.array_equal(y[t, h], expected), (first, t, h)


@pytest.mark.parametrize(("first", "tokens"), [(0, 300), (5, 40), (500, 17), (130, 16), (255, 2)])
def test_tokens_alone_and_together(first: int, tokens: int) -> None:
    rng = np.random.default_rng(first)
    kc, vc = (random(rng, (first + tokens + 3, 2, 64), np.float16) for _ in range(2))
    q = random(rng, (tokens, 6, 64))
    together = attend(q, kc, vc, at(first))
    for t in range(0, tokens, 1 + tokens // 20):
        assert np.array_equal(attend(q[t : t + 1], kc, vc, at(first + t))[0], together[t]), t


def test_far_scores_do_not_overflow() -> None:
    """A split whose scores are far below or above the others."""
    keys = np.zeros((96, 1, 4), f32)
    keys[:32], keys[64:] = -1e30, 1e30
    values = np.arange(96, dtype=f32)[:, None, None] * np.ones((1, 1, 4), f32)
    y = attend(np.ones((1, 1, 4), f32), keys, values, at(95))
    assert np.allclose(y, np.arange(64, 96).mean())


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("threads", [1, 3])
def test_native_has_the_same_bits(name: str, threads: int) -> None:
    pool = engine.Pool(threads, engine.kernels(name))
    for index, (dim, n_head, n_kv) in enumerate(SHAPES):
        for cache in ("f16", "f32"):
            rng = np.random.default_rng(index)
            for tokens, first in ((1, 0), (1, 31), (1, 700), (3, 64), (16, 250), (40, 100)):
                shapes = {"q": (tokens, n_head, dim), "kc": (1024, n_kv, dim), "vc": (1024, n_kv, dim)}
                types = {n: tensor("f32" if n == "q" else cache, *shape) for n, shape in shapes.items()}
                values = {
                    n: random(rng, s, np.float16 if cache == "f16" and n != "q" else f32) for n, s in shapes.items()
                }
                given = Arguments({**values, "pos": at(first)}, {**types, "pos": tensor("i32", 1)}, {})
                bench = Bench(OPS["attend"], "attn_split", given)
                bench.run(pool)
                expected = attend(values["q"], values["kc"], values["vc"], at(first))
                assert np.array_equal(bench.result("y"), expected), (dim, cache, tokens, first)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("window", "first"), [(0, 0), (0, 90), (64, 20), (64, 500), (40, 33)])
def test_native_block_has_the_same_bits(name: str, window: int, first: int) -> None:
    pool = engine.Pool(2, engine.kernels(name))
    for index, (dim, n_head, n_kv) in enumerate(SHAPES):
        rng = np.random.default_rng(index)
        shapes = {"q": (9, n_head, dim), "k": (9, n_kv, dim), "v": (9, n_kv, dim)}
        size = (window or first) + 11
        shapes |= {"kc": (size, n_kv, dim), "vc": (size, n_kv, dim)}
        values = {n: random(rng, shape) for n, shape in shapes.items()}
        types = {n: tensor("f32", *shape) for n, shape in shapes.items()}
        given = Arguments({**values, "pos": at(first)}, {**types, "pos": tensor("i32", 1)}, {"window": window})
        bench = Bench(OPS["attend_block"], "attend_block", given)
        bench.run(pool)
        assert np.array_equal(bench.result("y"), attend_block(**values, pos=at(first), window=window)), dim
