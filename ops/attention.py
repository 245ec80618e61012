"""Attention over the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.op import Kernel, op

A = np.ndarray[Any, Any]
BATCHED = 17  # tokens from which they are computed together


@op(
    "q: f32[T, H, D], kc: S[C, G, D], vc: S[C, G, D], pos: i32[1] -> y: f32[T, H, D]",
    kernels=(
        Kernel("attn_split", groups="H * ceil(C, 32)", tokens=(1, 1)),
        Kernel("attn_split_t", groups="H * ceil(C, 32) * T", tokens=(2, BATCHED - 1)),
        Kernel("attn_flash", groups="G * ceil(T, 16)", tokens=(BATCHED, 1 << 30)),
    ),
    epilogues=("sigmoid_gate", "quantize"),
    flops="4 * T * H * C * D",
    rtol=1e-5,
    requires="H % G == 0",
)
def attend(q: A, kc: A, vc: A, pos: A) -> A:
    """y = softmax(q k / sqrt(D)) v over positions 0 .. pos + t; query head h reads kv head h // (H / G).

    Token after token, each by the same products as alone in a step, so that a batch gives the same bits.
    """
    tokens, n_head, dim = q.shape
    n_kv, first = kc.shape[1], int(pos[0]) + 1
    keys, values = (as_heads(cache[: first + tokens - 1]) for cache in (kc, vc))
    scaled = (q * np.float32(1 / np.sqrt(dim))).reshape(tokens, n_kv, n_head // n_kv, dim)
    y = np.empty_like(scaled)
    for t in range(tokens):
        scores = scaled[t] @ keys[:, : first + t].transpose(0, 2, 1)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        y[t] = (weights @ values[:, : first + t]) / weights.sum(axis=-1, keepdims=True)
    return y.reshape(tokens, n_head, dim)


def as_heads(cache: A) -> A:
    """f32[G, C, D] of a cache [C, G, D]."""
    return np.ascontiguousarray(cache.transpose(1, 0, 2), np.float32)
