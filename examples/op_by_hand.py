"""Ops are functions on arrays: one attention step by hand, and the fused op that replaces a part of it.

python examples/op_by_hand.py
"""

from __future__ import annotations

import numpy as np

from graphrun.ops import OPS

HEADS, KV_HEADS, CHANNELS, CONTEXT = 4, 2, 8, 16
ROPE = {"base": 10000.0, "width": CHANNELS, "pairs": "adjacent"}


def main() -> None:
    rng = np.random.default_rng(1)
    q = rng.standard_normal((1, HEADS, CHANNELS), dtype=np.float32)
    k = rng.standard_normal((1, KV_HEADS, CHANNELS), dtype=np.float32)
    v = rng.standard_normal((1, KV_HEADS, CHANNELS), dtype=np.float32)
    pos = np.array([0], np.int32)

    keys, values = (np.zeros((CONTEXT, KV_HEADS, CHANNELS), np.float16) for _ in range(2))
    turned = OPS["rope"](q, pos, **ROPE)
    keys, values = OPS["store"](OPS["rope"](k, pos, **ROPE), v, keys, values, pos)
    by_hand = OPS["attend"](turned, keys, values, pos)

    keys, values = (np.zeros((CONTEXT, KV_HEADS, CHANNELS), np.float16) for _ in range(2))
    turned, keys, values = OPS["rope_store"](q=q, k=k, v=v, kc=keys, vc=values, pos=pos, **ROPE)
    fused = OPS["attend"](turned, keys, values, pos)

    print(f"rope_store stands for\n{OPS['rope_store'].fuses}")
    print(f"equal results: {np.array_equal(by_hand, fused)}")
    print(f"at position 0 every head sees only its own v: {np.allclose(fused[0, 0], v[0, 0], atol=1e-3)}")


if __name__ == "__main__":
    main()
