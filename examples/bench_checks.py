"""How long the program checks take on models of 27B parameters: python examples/bench_checks.py [REPEATS=3].

The models are headers only: nothing is read or allocated.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from graphrun.core.program import Program
from graphrun.core.target import Target
from graphrun.graphs.elaborate import elaborate
from graphrun.graphs.spec import load_spec
from graphrun.ops import OPS
from graphrun.planner.certificate import lock
from graphrun.planner.check import check
from graphrun.planner.lower import lower

LAYERS, EMBD, FF, HEADS, KV, DIM, VOCAB = 64, 5120, 17408, 40, 8, 128, 152064
MACHINE = Target("any", "numpy", memory=0)


@dataclass(frozen=True)
class Tensor:
    """A tensor's type and shape."""

    type: str
    shape: tuple[int, ...]


@dataclass
class Header:
    """The header of a model file that does not exist."""

    metadata: dict[str, object]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    path: str = "27B"


def header(arch: str) -> Header:
    """A llama or qwen2 of 27B parameters, as Q4_K_M files are."""
    sizes = {"block_count": LAYERS, "context_length": 32768, "embedding_length": EMBD, "feed_forward_length": FF}
    heads = {"attention.head_count": HEADS, "attention.head_count_kv": KV, "attention.layer_norm_rms_epsilon": 1e-6}
    facts: dict[str, object] = {f"{arch}.{key}": value for key, value in (sizes | heads).items()}
    made = Header({"general.architecture": arch, "tokenizer.ggml.tokens": [""] * VOCAB} | facts)
    made.tensors |= {"token_embd.weight": Tensor("q4_k", (VOCAB, EMBD)), "output.weight": Tensor("q6_k", (VOCAB, EMBD))}
    made.tensors["output_norm.weight"] = Tensor("f32", (EMBD,))
    rows = {"attn_q": HEADS * DIM, "attn_k": KV * DIM, "attn_v": KV * DIM}
    for i in range(LAYERS):
        wide = {
            "attn_output": (EMBD, HEADS * DIM),
            "ffn_gate": (FF, EMBD),
            "ffn_up": (FF, EMBD),
            "ffn_down": (EMBD, FF),
        }
        for name, shape in ({n: (m, EMBD) for n, m in rows.items()} | wide).items():
            kind = "q6_k" if name in ("attn_v", "ffn_down") and i % 2 else "q4_k"
            made.tensors[f"blk.{i}.{name}.weight"] = Tensor(kind, shape)
        made.tensors |= {f"blk.{i}.{n}.weight": Tensor("f32", (EMBD,)) for n in ("attn_norm", "ffn_norm")}
        if arch == "qwen2":
            made.tensors |= {f"blk.{i}.{n}.bias": Tensor("f32", (m,)) for n, m in rows.items()}
    return made


def program(arch: str, step: str, tokens: int) -> Program:
    """A step of such a model."""
    return lower(elaborate(load_spec(arch), header(arch), OPS, step, tokens, context=4096), OPS, MACHINE)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for step, tokens in (("decode", 1), ("prefill", 512)):
        total = 0.0
        for arch in ("qwen2", "llama"):
            lowered = program(arch, step, tokens)
            best = float("inf")
            for _ in range(repeats):
                start = time.perf_counter()
                checks = check(lowered, OPS)
                best = min(best, time.perf_counter() - start)
            total += best
            print(f"{arch} {step} {tokens}: {len(lowered.calls)} calls, {best:.3f} s, {checks}, lock {lock(lowered)}")
        print(f"both {step}: {total:.3f} s")


if __name__ == "__main__":
    main()
