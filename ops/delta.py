"""Linear attention by the gated delta rule (Yang et al. 2024): short convolution, recurrent state, gated norm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphrun.core.fmath import exp, sigmoid, silu, softplus
from graphrun.core.op import Kernel, fused, op
from graphrun.core.order import group_sum, in_order
from graphrun.core.quant import Matrix
from graphrun.ops.norm import inverse_rms

A = np.ndarray[Any, Any]
CHUNKED = 17  # tokens from which the chunked form computes the delta rule
SEGMENT = 32  # tokens that the chunked form solves for at once


@op(
    "x: f32[T, N], w: f32[N, K], tail: state f32[S, N], pos: i32[1] -> y: f32[T, N], tail",
    kernels=(Kernel("conv_silu", groups="ceil(T, 16) * ceil(N, 256)", tile="T: 16, N: 256"),),
    flops="T * N * (2 * K + 4)",
    reads="4 * (2 * T * N + N * K + (K - 1) * N)",
)
def conv_silu(x: A, w: Matrix | A, tail: A, pos: A) -> tuple[A, A]:
    """y_t = silu(sum_j w[:, j] x_{t - K + 1 + j}): each channel by itself, tap K - 1 on the current token.

    Taps are added oldest first. Inputs before this step come from the ring `tail`, which holds position p at row
    p % S; before position 0 they are zero. The step's own inputs, unchanged, become the ring's rows.
    """
    weights = w.f32() if isinstance(w, Matrix) else w
    taps, first, size = weights.shape[1], int(pos[0]), tail.shape[0]
    before = np.arange(first - taps + 1, first)
    past = np.where(before[:, None] >= 0, tail[before % size], np.float32(0))
    inputs = np.concatenate([past, x])
    y = inputs[: len(x)] * weights[:, 0]
    for tap in range(1, taps):
        y += inputs[tap : tap + len(x)] * weights[:, tap]
    kept = np.arange(max(0, len(x) - size), len(x))
    tail[(first + kept) % size] = x[kept]
    return silu(y), tail


@op(
    "c: f32[T, N], b: f32[T, U], g: f32[T, U], dt: f32[U], a: f32[U], s: state f32[L, U, D, D],"
    " pos: i32[1], slot: i32[1], heads: int, eps: float -> o: f32[T, U, D], s",
    kernels=(
        Kernel("delta_rule", groups="U", tokens=(1, CHUNKED - 1), tile="U: 1", limits="D <= 128"),
        Kernel(
            "delta_chunk",
            groups="U * ceil(D, 64)",
            tokens=(CHUNKED, 1 << 30),
            tile="U: 1, D: 64",
            limits="D <= 128",
        ),
    ),
    flops="7 * T * U * D * D",
    reads="4 * (T * (N + 2 * U + U * D) + 2 * U * D * D)",
    rtol=5e-6,
    requires="N == (2 * heads + U) * D, D % 2 == 0, 0 < heads, U % heads == 0, 0 <= eps",
)
def delta_rule(c: A, b: A, g: A, dt: A, a: A, s: A, pos: A, slot: A, heads: int, eps: float) -> tuple[A, A]:
    """S *= decay; d = (v - k S) beta; S += k d; o = q S / sqrt(D), per value head h with key head h % heads.

    The channels of c are q and k of `heads` key heads, then v of U value heads; q and k are divided by
    sqrt(sum of squares + eps). beta = sigmoid(b), decay = exp(a softplus(g + dt)).
    s holds L states [key channel, value channel] per head. The state before the step is number `slot`, or zero at
    position 0; the state after token t becomes number (slot + t) % L, but only the last one is kept if T > L.
    Fewer than CHUNKED tokens are computed one by one in a fixed order (`unit`, `recur`), with the same bits for any T;
    more are computed in segments (kernels delta_rule and delta_chunk), which agrees up to rounding.
    """
    tokens, (copies, n_head, dim, _) = len(c), s.shape
    q, k = unit(c[:, : 2 * heads * dim].reshape(tokens, 2, heads, dim), eps).transpose(1, 0, 2, 3)
    v = c[:, 2 * heads * dim :].reshape(tokens, n_head, dim)
    shared = np.arange(n_head) % heads
    q, k = q[:, shared] * np.float32(1 / math.sqrt(dim)), k[:, shared]
    beta, decay = sigmoid(b), a * softplus(g + dt)
    current = int(slot[0])
    state = s[current].copy() if int(pos[0]) else np.zeros_like(s[current])
    if tokens >= CHUNKED:
        o, state = chunked(q, k, v, beta, decay, state)
        s[(current + tokens - 1) % copies] = state
        return o, s
    o = np.empty((tokens, n_head, dim), np.float32)
    for t in range(tokens):
        o[t] = recur(q[t], k[t], v[t], beta[t], decay[t], state)
        if tokens <= copies or t == tokens - 1:
            s[(current + t) % copies] = state
    return o, s


def unit(x: A, eps: float) -> A:
    """x / sqrt(sum x**2 + eps) over the last dimension, the sum being a workgroup's."""
    result: A = x / np.sqrt(group_sum(x * x) + np.float32(eps))[..., None]
    return result


def recur(q: A, k: A, v: A, beta: A, decay: A, state: A) -> A:
    """One token: q, k, v f32[U, D], beta, decay (its logarithm) f32[U]; updates state f32[U, D, D], returns q S."""
    state *= exp(decay)[:, None, None]
    delta = (v - read(k, state)) * beta[:, None]
    state += k[:, :, None] * delta[:, None]
    return read(q, state)


def read(x: A, state: A) -> A:
    """x S: f32[U, D] of x f32[U, D] and S f32[U, D, D]; each half of the key channels in order, then both added."""
    products, half = (x[:, :, None] * state).swapaxes(0, 1), x.shape[1] // 2
    return in_order(products[:half]) + in_order(products[half:])


def chunked(q: A, k: A, v: A, beta: A, decay: A, state: A) -> tuple[A, A]:
    """All tokens, SEGMENT at a time: q, k, v f32[T, U, D], beta, decay (its logarithm) f32[T, U], state f32[U, D, D].

    Within a segment that starts from S, with G the running sum of log decays, the deltas solve (I + L) X = beta V -
    beta exp(G) K S, where L[t, s] = beta_t exp(G_t - G_s) k_t.k_s for s < t; two solutions, one for V and one for K,
    serve all segments before S is known. Padding tokens have beta, k and decay 0 and leave the state as it is.
    """
    tokens, n_head, dim = q.shape
    q, k, v, beta, decay = (segments(x) for x in (q, k, v, beta[..., None], decay[..., None]))
    running = np.cumsum(decay, axis=2, dtype=np.float64)  # of large sums small differences are needed
    lower = np.tri(SEGMENT, dtype=bool)
    ratio = np.exp(np.where(lower, running - running.swapaxes(2, 3), -np.inf)).astype(np.float32)
    since, left = (np.exp(x).astype(np.float32) for x in (running, running[:, :, -1:] - running))
    inner = ratio * (q @ k.swapaxes(2, 3))
    coupling = np.where(np.tri(SEGMENT, k=-1, dtype=bool), beta * ratio * (k @ k.swapaxes(2, 3)), np.float32(0))
    solved = np.concatenate([beta * v, beta * since * k], axis=3)
    for t in range(1, SEGMENT):
        solved[:, :, t] -= (coupling[:, :, t, None, :t] @ solved[:, :, :t])[:, :, 0]
    from_v, from_k = solved[..., :dim], solved[..., dim:]
    o = np.empty_like(v)
    q, k = q * since, k * left
    for n in range(len(v)):
        delta = from_v[n] - from_k[n] @ state
        o[n] = q[n] @ state + inner[n] @ delta
        state = since[n, :, -1:] * state + k[n].swapaxes(1, 2) @ delta
    return o.swapaxes(1, 2).reshape(-1, n_head, dim)[:tokens], state


def segments(x: A) -> A:
    """[T, U, D] as [segments, U, SEGMENT, D], with zeros after the last token."""
    tokens, n_head, dim = x.shape
    padded = np.concatenate([x, np.zeros((-tokens % SEGMENT, n_head, dim), np.float32)])
    return padded.reshape(-1, SEGMENT, n_head, dim).swapaxes(1, 2)


@op(
    "o: f32[T, U, D], z: f32[T, N], w: f32[D], eps: float -> y: f32[T, N]",
    kernels=(Kernel("gated_norm", groups="T * ceil(U, 8)", tile="T: 1, N: 8 * D", scratch="T * N * min(D % 32, 1)"),),
    epilogues=("quantize",),
    flops="8 * T * N",
    requires="N == U * D, 0 <= eps",
)
def gated_norm(o: A, z: A, w: A, eps: float) -> A:
    """y = o * (1 / sqrt(mean(o**2) + eps)) * w * silu(z), each head on its own; z has the channels of all heads.

    The sum of squares is a workgroup's (core/order.py).
    """
    normed = o * inverse_rms(o, eps)[..., None] * w
    y: A = normed.reshape(z.shape) * silu(z)
    return y


delta_layer = fused(
    "delta_layer",
    "x: f32[T, N], w: f32[N, K], tail: state f32[S, N], b: f32[T, U], g: f32[T, U], dt: f32[U], a: f32[U],"
    " s: state f32[L, U, D, D], z: f32[T, M], norm: f32[D], pos: i32[1], slot: i32[1], heads: int, eps: float"
    " -> y: f32[T, M], tail, s",
    """
    c, tail: conv_silu(x, w, tail, pos)
    o, s: delta_rule(c, b, g, dt, a, s, pos, slot, heads, eps)
    y: gated_norm(o, z, norm, eps)
    """,
    (conv_silu, delta_rule, gated_norm),
    doc="Convolution, delta rule and gated norm of a few tokens, in one launch.",
    kernels=(
        Kernel(
            "delta_layer",
            groups="U",
            tokens=(1, CHUNKED - 1),
            tile="M: D",
            scratch="T * M * min(D % 32, 1)",
            limits="D <= 128",
        ),
    ),
    epilogues=("quantize",),
    flops="T * N * (2 * K + 4) + 7 * T * U * D * D + 8 * T * M",
    reads="4 * (T * (N + 2 * U + 2 * M) + N * K + (K - 1) * N + (T + 1) * U * D * D)",
    requires="N == (2 * heads + U) * D, M == U * D, D % 2 == 0, 0 < heads, U % heads == 0, 0 <= eps",
)
