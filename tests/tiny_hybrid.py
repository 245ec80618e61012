"""Small random qwen35 files: gated delta layers with full attention between them, and an MTP layer if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tiny
from tiny import Shape, Tensor, Typed, Value

E, F, D, ROPE = 64, 32, 32, 16  # channels, feed-forward channels, channels per head, rotated channels
H, G = 4, 2  # query heads, kv heads
NK, NV, S, TAPS = 2, 4, 32, 4  # key heads, value heads, state size, taps
CONV = (2 * NK + NV) * S


def keys(layers: int, mtp: int = 1, context: int = 256) -> dict[str, Value | Typed | None]:
    numbers: dict[str, Value] = {
        "context_length": context,
        "embedding_length": E,
        "block_count": layers + mtp,
        "feed_forward_length": F,
        "attention.head_count": H,
        "attention.head_count_kv": G,
        "attention.key_length": D,
        "attention.value_length": D,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": ROPE,
        "rope.dimension_sections": [3, 3, 2, 0],
        "ssm.conv_kernel": TAPS,
        "ssm.state_size": S,
        "ssm.group_count": NK,
        "ssm.time_step_rank": NV,
        "ssm.inner_size": NV * S,
        "full_attention_interval": 4,
        "nextn_predict_layers": mtp,
    }
    return {"general.architecture": "qwen35"} | {f"qwen35.{k}": v for k, v in numbers.items()}


def attention(i: int) -> dict[str, Shape]:
    shapes = {
        "attn_norm.weight": (E,),
        "attn_q.weight": (2 * H * D, E),
        "attn_k.weight": (G * D, E),
        "attn_v.weight": (G * D, E),
        "attn_output.weight": (E, H * D),
        "attn_q_norm.weight": (D,),
        "attn_k_norm.weight": (D,),
    }
    return {f"blk.{i}.{name}": shape for name, shape in shapes.items()}


def delta(i: int) -> dict[str, Shape]:
    shapes = {
        "attn_norm.weight": (E,),
        "attn_qkv.weight": (CONV, E),
        "attn_gate.weight": (NV * S, E),
        "ssm_beta.weight": (NV, E),
        "ssm_alpha.weight": (NV, E),
        "ssm_conv1d.weight": (CONV, TAPS),
        "ssm_dt.bias": (NV,),
        "ssm_norm.weight": (S,),
        "ssm_out.weight": (E, NV * S),
    }
    return {f"blk.{i}.{name}": shape for name, shape in shapes.items()}


def feed_forward(i: int) -> dict[str, Shape]:
    names = {"post_attention_norm": (E,), "ffn_gate": (F, E), "ffn_up": (F, E), "ffn_down": (E, F)}
    return {f"blk.{i}.{name}.weight": shape for name, shape in names.items()}


def shapes(layers: int, mtp: int = 1, interval: int = 4, vocab: int = 320, trunk: bool = True) -> dict[str, Tensor]:
    """Tensors of a whole model, or of the MTP layer alone."""
    found: dict[str, Tensor] = {
        "token_embd.weight": (vocab, E),
        "output_norm.weight": (E,),
        "output.weight": (vocab, E),
    }
    for i in range(layers if trunk else 0):
        full = (i + 1) % interval == 0
        found |= attention(i) if full else delta(i)
        found |= feed_forward(i)
        if not full:
            found[f"blk.{i}.ssm_a"] = -np.linspace(0.2, 2, NV, dtype=np.float32)
    for i in range(layers, layers + mtp):
        found |= attention(i) | feed_forward(i)
        found |= {f"blk.{i}.nextn.{n}norm.weight": (E,) for n in ("e", "h", "shared_head_")}
        found[f"blk.{i}.nextn.eh_proj.weight"] = (E, 2 * E)
    return found


def qwen35(
    path: str | Path,
    *,
    layers: int = 4,
    mtp: int = 1,
    trunk: bool = True,
    weights: str = "f32",
    seed: int = 0,
    context: int = 256,
    metadata: Mapping[str, Value | Typed | None] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a random model; `metadata` and `tensors` add, replace or (None) remove entries."""
    given = {**keys(layers, mtp, context), **tiny.tokenizer("qwen2", 320), **(metadata or {})}
    made = {**shapes(layers, mtp, trunk=trunk), **(tensors or {})}
    return tiny.write(path, "qwen35", given, made, weights, seed)
