"""A random model of the architecture in examples/my_arch.yaml: a llama that norms queries and keys by head."""

from __future__ import annotations

from pathlib import Path

import tiny
from conftest import ROOT

GRAPH = ROOT / "examples" / "my_arch.yaml"
E, F, LAYERS, H, G, D, VOCAB = 64, 96, 2, 4, 2, 32, 300
EPS, BASE = 1e-5, 50000.0


def shapes(layers: int = LAYERS) -> dict[str, tiny.Tensor]:
    """Tensor name -> (rows, columns)."""
    layer: dict[str, tiny.Shape] = {
        "attn_norm": (E,),
        "attn_q": (H * D, E),
        "attn_k": (G * D, E),
        "attn_v": (G * D, E),
        "attn_output": (E, H * D),
        "attn_q_norm": (D,),
        "attn_k_norm": (D,),
        "ffn_norm": (E,),
        "ffn_gate": (F, E),
        "ffn_up": (F, E),
        "ffn_down": (E, F),
    }
    found: dict[str, tiny.Tensor] = {"token_embd.weight": (VOCAB, E)}
    found |= {f"blk.{i}.{name}.weight": shape for i in range(layers) for name, shape in layer.items()}
    return found | {"output_norm.weight": (E,), "output.weight": (VOCAB, E)}


def write(path: Path, *, layers: int = LAYERS, weights: str = "f32", seed: int = 0) -> Path:
    """Write the model; its matrices have the type `weights`."""
    numbers: dict[str, tiny.Value] = {
        "block_count": layers,
        "context_length": 128,
        "embedding_length": E,
        "feed_forward_length": F,
        "attention.head_count": H,
        "attention.head_count_kv": G,
        "attention.key_length": D,
        "attention.value_length": D,
        "attention.layer_norm_rms_epsilon": EPS,
        "rope.freq_base": BASE,
    }
    keys: dict[str, tiny.Value | tiny.Typed | None] = {"general.architecture": "my_arch"}
    keys |= {f"my_arch.{key}": value for key, value in numbers.items()}
    keys |= tiny.tokenizer("qwen2", VOCAB)
    return tiny.write(path, "my_arch", keys, shapes(layers), weights, seed)
