"""Queries and keys that are normed per head before they are rotated."""

from __future__ import annotations

from graphrun.core.op import Kernel, fused
from graphrun.ops.norm import rms_norm
from graphrun.ops.rope import ROPE, ROTATED, TURN, rope, store, turns

qk_norm_rope_store = fused(
    "qk_norm_rope_store",
    "q: f32[T, H, D], k: f32[T, G, D], v: f32[T, G, D], q_norm: f32[D], k_norm: f32[D],"
    f" kc: state S[C, G, D], vc: state S[C, G, D], pos: i32[1], eps: float, {ROPE} -> q2: f32[T, H, D], kc, vc",
    f"""
    qn: rms_norm(q, q_norm, eps)
    kn: rms_norm(k, k_norm, eps)
    q2: rope(qn, {TURN})
    kr: rope(kn, {TURN})
    kc, vc: store(kr, v, kc, vc, pos)
    """,
    (rms_norm, rope, store),
    doc="Norm and rotate q and k of every head and write k and v to the cache, in one launch.",
    kernels=(Kernel("qk_norm_rope_store", groups="T * (H + 2 * G)", tile="T: 1, H: 1 | T: 1, G: 1 | T: 1, G: 1"),),
    flops="7 * T * (H + G) * D",
    reads="4 * T * (2 * H + 3 * G) * D",
    requires=f"{ROTATED}, 0 <= eps",
    table=turns,
)
