"""Attention over the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphrun.core.fmath import exp, widened
from graphrun.core.op import Kernel, op
from graphrun.core.order import WAVES, fold, group_sum, in_order, tree, wave_sum
from graphrun.core.workers import share

A = np.ndarray[Any, Any]
BATCHED = 17  # tokens from which they are computed together
SPLIT = 32  # keys that share a maximum
# Splits of a head that a GPU hands over in memory, of all tokens together no more than those of 262144 positions; in
# longer contexts one workgroup computes all of a token's head. And the workgroups that share a token's head.
PARTS, SHARERS = "min(ceil(C, 32), 8192 // T)", "min(ceil(C, 32), max(1024 // (T * H), 1))"
# Keys of a block where tokens see different ones, and products at a time: fewer cost more in calls, more are computed
# for nothing or do not stay in the processor's cache.
BLOCK, CELLS = 128, 1 << 16

# Of many tokens a GPU's workgroup takes up to 4 query heads of a kv head, and as many tokens as make 64 queries.
PASSES = "((H // G + 3) // 4)"
TILE = f"(64 // ((H // G + {PASSES} - 1) // {PASSES}))"


@op(
    "q: f32[T, H, D], kc: S[C, G, D], vc: S[C, G, D], pos: i32[1] -> y: f32[T, H, D]",
    kernels=(
        Kernel(
            "attn_split",
            groups=f"H * {SHARERS}",
            tokens=(1, 1),
            tile="H: 1",
            split=SHARERS,
            scratch=f"H * {PARTS} * (D + 2)",
            limits="D <= 256, T * H <= 16384",
        ),
        Kernel(
            "attn_split_t",
            groups=f"T * H * {SHARERS}",
            tokens=(2, BATCHED - 1),
            tile="T: 1, H: 1",
            split=SHARERS,
            scratch=f"T * H * {PARTS} * (D + 2)",
            limits="D <= 256, T * H <= 16384",
        ),
        Kernel(
            "attn_flash",
            groups=f"ceil(T, {TILE}) * G * {PASSES}",
            tokens=(BATCHED, 1 << 30),
            tile=f"T: {TILE}, H: H // G",
            split=PASSES,
            scratch=f"ceil(T, {TILE}) * G * {PASSES} * 64 * 256",
            limits="D <= 256",
        ),
    ),
    epilogues=("sigmoid_gate", "quantize"),
    flops="4 * T * H * C * D",
    rtol=1e-5,
    requires="H % G == 0",
)
def attend(q: A, kc: A, vc: A, pos: A) -> A:
    """y = softmax(q k / sqrt(D)) v over positions 0 .. pos + t; query head h reads kv head h // (H / G).

    The order of sums is that of `average`; no token's depends on the others in the step.
    """
    first, end = int(pos[0]), int(pos[0]) + len(q)
    seen = np.arange(end) <= first + np.arange(len(q))[:, None]
    return average(q, kc[:end], vc[:end], seen)


def average(q: A, keys: A, values: A, seen: A) -> A:
    """f32[T, H, D]: for each query the average of the values that it has `seen`: bool[T, P], by its softmax.

    q: f32[T, H, D]; keys, values: f16 or f32 [P, G, D]. A score is a wave's sum over channels times 1 / sqrt(D).
    Keys are taken in splits of 32, each with its maximum m: weights e = exp(score - m), l = a wave's sum of e, and
    o = sum e v, where wave w of 8 adds keys w, w + 8, w + 16, w + 24, and then the waves are added in order. With M
    the maximum of all and r = exp(m - M), the result is sum r o, in order of splits, over the workgroup's sum of r l.
    """
    tokens, n_head, dim = q.shape
    n_kv = keys.shape[1]
    length = -(-len(keys) // SPLIT) * SPLIT
    if tokens >= BATCHED:
        length = min(length, BLOCK)
    k, v, wanted = _columns(keys, length), _splits(values, length), _blocks(seen.T, length).swapaxes(1, 2)
    queries = np.ascontiguousarray(q.reshape(tokens, n_kv, -1, dim).swapaxes(0, 1))
    y = np.empty(queries.shape, np.float32)
    at_once = max(1, CELLS // (n_head * len(wanted) * length))

    def work(starts: Iterator[int]) -> None:
        memory = np.empty(max(CELLS, dim * length), np.float32)
        for start in starts:
            some = slice(start, start + at_once)
            y[:, some] = _averages(queries[:, some], k, v, wanted[:, some], memory)

    share(work, range(0, tokens, at_once))
    return y.swapaxes(0, 1).reshape(tokens, n_head, dim)


def _averages(q: A, k: A, v: A, wanted: A, memory: A) -> A:
    """f32[G, T, R, D] of queries of this shape and keys, values and bool[B, T, length] in B blocks."""
    n_kv, tokens, group, dim = q.shape
    blocks, _, length = wanted.shape
    scores = np.full((blocks, n_kv, tokens, group, length), -np.inf, np.float32)
    o = np.zeros((blocks, length // SPLIT, n_kv, tokens, group, dim), np.float32)
    parts = []  # tokens between the first and the last one that see anything of a block
    for b, block in enumerate(wanted):
        at = np.flatnonzero(block.any(axis=1))
        parts += [(b, slice(at[0], at[-1] + 1))] if at.size else []
    for b, part in parts:
        for g in range(n_kv):
            _scores(q[g, part].reshape(-1, dim), k[b, g], scores[b, g, part].reshape(-1, length), memory)
        np.copyto(scores[b, :, part], -np.inf, where=~wanted[b, part, None])
    e, r, total = _weights(scores.reshape(blocks, n_kv * tokens * group, -1, SPLIT))
    e = e.reshape(SPLIT, blocks, -1, n_kv, tokens, group)
    for b, part in parts:
        for g in range(n_kv):
            _products(e[:, b, :, g, part].reshape(SPLIT, length // SPLIT, -1), v[b, g], o[b, :, g, part], memory)
    o = o.reshape(-1, n_kv, tokens, group, dim)
    o *= r.reshape(*o.shape[:-1], 1)
    return in_order(o) / total.reshape(n_kv, tokens, group, 1)


def _scores(q: A, keys: A, out: A, memory: A) -> None:
    """out[n, P] of queries [n, D] and keys [D, P], some at a time in `memory`."""
    scale = np.float32(1 / math.sqrt(q.shape[1]))
    at_once = memory.size // keys.size
    for start in range(0, len(q), at_once):
        part = q[start : start + at_once].T[..., None]
        products = memory[: part.size * keys.shape[1]].reshape(len(keys), part.shape[1], -1)
        np.multiply(part, keys[:, None], out=products)
        np.multiply(wave_sum(products), scale, out=out[start : start + at_once])


def _weights(scores: A) -> tuple[A, A, A]:
    """Weights e [32, B, S, n], factors of splits r [B, S, n] and the sum [n] for scores [B, n, S, 32]."""
    m = scores.max(axis=-1, keepdims=True)
    m[np.isneginf(m)] = np.finfo(np.float32).min  # where nothing is seen weights are exp(-inf) = 0
    scores -= m
    e = np.ascontiguousarray(exp(scores).transpose(3, 0, 2, 1))
    r = exp(np.moveaxis(m[..., 0] - m[..., 0].max(axis=(0, 2))[:, None], 2, 1))
    shares = r * tree(e.copy())
    return e, r, group_sum(shares.reshape(-1, shares.shape[2]).T)


def _products(e: A, values: A, out: A, memory: A) -> None:
    """out[S, T, R, D] of weights [32, S, n = T R] and values [32, S, D], some of n at a time in `memory`."""
    dim = values.shape[2]
    flat = np.empty((e.shape[1], e.shape[2], dim), np.float32)
    at_once = memory.size // values.size
    for start in range(0, e.shape[2], at_once):
        part = e[:, :, start : start + at_once, None]
        products = memory[: part.size * dim].reshape(*part.shape[:3], dim)
        np.multiply(part, values[:, :, None], out=products)
        flat[:, start : start + at_once] = in_order(fold(products, WAVES))
    out[...] = flat.reshape(out.shape)


def _blocks(x: A, length: int) -> A:
    """[B, length, ...] of [n, ...], filled up with zeros."""
    padded = np.zeros((-(-len(x) // length) * length, *x.shape[1:]), x.dtype)
    padded[: len(x)] = x
    return padded.reshape(-1, length, *x.shape[1:])


def _columns(keys: A, length: int) -> A:
    """f32[B, G, D, length] of keys [P, G, D]."""
    return widened(np.ascontiguousarray(_blocks(keys, length).transpose(0, 2, 3, 1)))


def _splits(values: A, length: int) -> A:
    """f32[B, G, 32, S, D] of values [P, G, D]: by number within a split."""
    blocks = _blocks(values, length)
    splits = blocks.reshape(len(blocks), -1, SPLIT, *values.shape[1:])
    return widened(np.ascontiguousarray(splits.transpose(0, 3, 2, 1, 4)))
