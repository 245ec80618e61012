"""What a block drafter needs: dynamic convolution, attention over context and block, candidates and their scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrun.core.op import Kernel, op
from graphrun.core.order import wave_sum
from graphrun.core.quant import Matrix
from graphrun.ops.attention import average

A = np.ndarray[Any, Any]


@op(
    "x: f32[T, N], dyn: f32[T, M], base: f32[2, K, N], side: int, group: int -> y: f32[T, N]",
    kernels=(Kernel("dynamic_conv", groups="T * ceil(N, 256)", tile="T: 1, N: 256"),),
    epilogues=("quantize",),
    flops="3 * T * N * K",
    reads="4 * (2 * T * N + T * M // 2 + K * N)",
    requires="M == 2 * K * (N // group), 0 < group, N % group == 0, 0 <= side, side < 2",
)
def dynamic_conv(x: A, dyn: A, base: A, side: int, group: int) -> A:
    """y_t = sum_j (base[side, j] + dyn_t[side, j, c // group]) x_{t-j}; x is zero before the first token.

    dyn holds, per token, 2 sides x K taps x one value for `group` neighbouring channels.
    """
    tokens, channels = x.shape
    taps = base.shape[1]
    weights = base[side] + np.repeat(dyn.reshape(tokens, 2, taps, -1)[:, side], group, axis=-1)
    y: A = weights[:, 0] * x
    for tap in range(1, min(taps, tokens)):
        y[tap:] += weights[tap:, tap] * x[:-tap]
    return y


@op(
    "k: f32[T, G, D], v: f32[T, G, D], kc: state Z[S, G, D], vc: state Z[S, G, D], pos: i32[1] -> kc, vc",
    kernels=(Kernel("store_ring", groups="T * G", tile="T: 1, G: 1"),),
    reads="4 * T * G * D",
)
def store_ring(k: A, v: A, kc: A, vc: A, pos: A) -> tuple[A, A]:
    """kc, vc at rows (pos + t) % S = k, v, rounded to the cache's type; the last S tokens stay."""
    size = kc.shape[0]
    kept = np.arange(max(0, len(k) - size), len(k))
    rows = (int(pos[0]) + kept) % size
    kc[rows], vc[rows] = k[kept], v[kept]
    return kc, vc


@op(
    "q: f32[T, H, D], k: f32[T, G, D], v: f32[T, G, D], kc: Z[S, G, D], vc: Z[S, G, D], pos: i32[1], window: int"
    " -> y: f32[T, H, D]",
    kernels=(Kernel("attend_block", groups="T * H", tile="T: 1, H: 1", limits="D <= 256"),),
    epilogues=("quantize",),
    flops="4 * T * H * (S + T) * D",
    rtol=1e-5,
    requires="H % G == 0, 0 <= window",
)
def attend_block(q: A, k: A, v: A, kc: A, vc: A, pos: A, window: int) -> A:
    """y = softmax(q k / sqrt(D)) v over the context 0 .. pos - 1 and the whole block, which starts at pos.

    The context is a ring with position p at row p % S. Keys `window` or more positions behind a query are left out
    if `window` is not 0; keys ahead of it never are. Query head h reads kv head h // (H / G).
    The order of sums is that of `average`, over the last `window` positions of the context and then the block.
    """
    tokens, size, first = len(q), kc.shape[0], int(pos[0])
    context = np.arange(max(0, first - (window or first)), first)
    keys = np.concatenate([kc[context % size].astype(np.float32), k])
    values = np.concatenate([vc[context % size].astype(np.float32), v])
    behind = first + np.arange(tokens)[:, None] - np.append(context, first + np.arange(tokens))
    return average(q, keys, values, behind < (window or np.inf))


@op(
    "x: f32[R, V], k: int -> top: f32[R, k], ids: i32[R, k]",
    kernels=(
        Kernel(
            "topk",
            groups="R * ceil(V, 4096)",
            tile="R: 1",
            split="ceil(V, 4096)",
            scratch="R * ceil(V, 4096) * k * 2",
            limits="R <= 16384",
        ),
    ),
    flops="R * V",
    requires="k <= V",
)
def topk(x: A, k: int) -> tuple[A, A]:
    """top, ids = the k largest of each row and their indices: value descending, index ascending among equals."""
    ids = np.argsort(-x, axis=-1, kind="stable")[:, :k].astype(np.int32)
    return np.take_along_axis(x, ids, axis=-1), ids


@op(
    "top: f32[T, k], ids: i32[T, k], gate: f32[T, N], before: W[V, N], after: X[V, N], tokens: i32[T]"
    " -> scores: f32[T, k, k]",
    kernels=(Kernel("lattice", groups="T * k", tile="T: 1, k: 1"),),
    flops="3 * T * k * k * N",
    reads="4 * (T * k * (2 * N + k + 2) + T * N)",
)
def lattice(top: A, ids: A, gate: A, before: Matrix, after: Matrix, tokens: A) -> A:
    """scores[t, p, s] = sum(before[p'] gate_t after[ids[t, s]]) + top[t, s], p' the p-th candidate of row t - 1.

    The predecessor of row 1 is tokens[0] for every p, the token that the block starts with; row 0 has none and
    scores its candidates by `top` alone. The sum over channels is a wave's (core/order.py).
    """
    count, k = ids.shape
    previous = np.concatenate([np.full((1, k), tokens[0], np.int32), ids[:-1]])
    if count > 1:
        previous[1] = tokens[0]
    first = before.rows(previous.reshape(-1)).reshape(count, k, -1) * gate[:, None]
    second = after.rows(ids.reshape(-1)).reshape(count, k, -1)
    products = first.transpose(2, 0, 1)[..., None] * second.transpose(2, 0, 1)[:, :, None]
    scores = wave_sum(products) + top[:, None]
    scores[0] = top[0]
    return scores
