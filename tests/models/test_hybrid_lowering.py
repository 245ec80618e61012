"""Programs of the hybrid model and its drafter: their bits, their size, and what a large model compiles to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_hybrid
from conftest import GoldenText
from hybrid import Files
from interpret import Memory, run_graph, run_program

from graphrun import backends, load
from graphrun.backends.pack import pack
from graphrun.core.ir import Graph, Value
from graphrun.draft import DFlashDrafter
from graphrun.dump import program_text
from graphrun.graphs.spec import load_spec
from graphrun.model import Model
from graphrun.plan import memory_plan
from graphrun.planner.lower import lower

A = np.ndarray[Any, Any]
STEPS = {
    "decode": (1,),
    "verify": (2, 5, 8, 16),
    "prefill": (2, 17, 64),
    "score": (8, 64),
    "draft": (1, 2, 5, 8, 16, 17, 64),
}
CASES = [(step, tokens) for step, counts in STEPS.items() for tokens in counts]


class RealMemory(Memory):
    """Weights of the model file."""

    def __init__(self, model: Model, inputs: Mapping[str, A]) -> None:
        super().__init__(inputs)
        self.model = model
        self.packed: dict[Value, Any] = {}

    def outside(self, value: Value) -> Any:
        if value.kind != "weight":
            return super().outside(value)
        if value not in self.packed:
            self.packed[value] = pack(self.model.file, value.parts, value.type)
        return self.packed[value]


def inputs(graph: Graph, pos: int, slot: int) -> dict[str, A]:
    rng = np.random.default_rng(pos)
    found: dict[str, A] = {"pos": np.array([pos], np.int32), "slot": np.array([slot], np.int32)}
    for name, value in graph.inputs.items():
        if name not in found:
            whole = value.type.dtype.name == "i32"
            found[name] = rng.integers(0, 320, value.type.shape, np.int32) if whole else rng.standard_normal(
                value.type.shape, np.float32
            )  # fmt: skip
    return found


def check_bits(model: Model, step: str, tokens: int) -> None:
    """Two steps one after the other; `linear` rounds activations, so the graph says where by its expansion."""
    graph, program = model.graph(step, tokens), model.program(step, tokens)
    reference = graph if model.exact else lower(graph, model.ops, model.backend.target, until="expand")
    raw, lowered = (RealMemory(model, inputs(graph, 0, 0)) for _ in range(2))
    for pos, slot in ((0, 0), (tokens, (tokens - 1) % model.rollback)):
        raw.inputs = lowered.inputs = inputs(graph, pos, slot)
        expected, found = run_graph(reference, raw), run_program(program, lowered)
        for name, array in expected.items():
            assert np.isfinite(array).all() and array.tobytes() == found[name].tobytes(), name
        for name, state in raw.states.items():
            assert np.isfinite(state).all() and state.tobytes() == lowered.states[name].tobytes(), name


@pytest.mark.parametrize(("step", "tokens"), CASES)
@pytest.mark.parametrize("activations", ["q8", "exact"])
def test_lowering_keeps_every_bit(step: str, tokens: int, activations: str, files: Files) -> None:
    check_bits(files.model("qwen35-mtp.Q4_0", activations=activations), step, tokens)


@pytest.mark.parametrize(("step", "tokens"), [("decode", 1), ("verify", 5), ("prefill", 64)])
def test_lowering_of_k_quants_keeps_every_bit(step: str, tokens: int, files: Files) -> None:
    check_bits(files.model("qwen35-k.Q4_K_M", activations="q8"), step, tokens)


@pytest.mark.parametrize("step", ["context", "draft"])
@pytest.mark.parametrize("tokens", [1, 2, 5, 8, 16, 17, 64])
def test_lowering_of_the_drafter_keeps_every_bit(step: str, tokens: int, files: Files) -> None:
    drafter = DFlashDrafter(load(files.path("models/qwen35-heads.F32.gguf")), files.path("models/dflash.Q8_0.gguf"))
    check_bits(drafter.source, step, max(tokens, drafter.source.spec.steps[step].tokens.low))


@pytest.mark.parametrize(("step", "tokens"), [("decode", 1), ("verify", 8), ("prefill", 64), ("draft", 1)])
def test_dump(step: str, tokens: int, files: Files, golden_text: GoldenText) -> None:
    program = files.model("qwen35-mtp.Q4_0", activations="q8", backend="numpy").program(step, tokens)
    golden_text.check(f"dumps/qwen35.{step}.txt", program_text(program))


@pytest.mark.parametrize(("step", "tokens"), [("context", 8), ("draft", 8)])
def test_dump_of_the_drafter(step: str, tokens: int, files: Files, golden_text: GoldenText) -> None:
    drafter = DFlashDrafter(
        load(files.path("models/qwen35-heads.F32.gguf"), backend="numpy"), files.path("models/dflash.Q8_0.gguf")
    )
    golden_text.check(f"dumps/dflash.{step}.txt", program_text(drafter.source.program(step, tokens)))


def test_a_layer_of_each_kind(files: Files) -> None:
    """Eight calls for a delta layer whose products share one type, nine for an attention layer."""
    program = files.model("qwen35-mtp.Q4_0", activations="q8").program("verify", 8)
    assert [c.label for c in program.select(layer=0)] == [
        "rms_norm+quantize",
        "gemv_q4_0_t",
        "delta_layer+quantize",
        "gemv_q4_0_t+add",
        "rms_norm+quantize",
        "gemv_q4_0_t",
        "swiglu+quantize",
        "gemv_q4_0_t+add",
    ]
    assert [c.label for c in program.select(layer=3)][2:4] == [
        "qk_norm_rope_store",
        "attn_split_t+sigmoid_gate+quantize",
    ]
    assert program.segments == len(program.calls)


class Header:
    """Metadata and tensor directory of a file that does not exist."""

    path = Path("qwen35-27b.gguf")
    architecture = "qwen35"

    def __init__(self) -> None:
        sizes = {"context_length": 262144, "embedding_length": 5120, "block_count": 65, "feed_forward_length": 17408}
        heads = {"head_count": 24, "head_count_kv": 4, "key_length": 256, "value_length": 256}
        ssm = {"conv_kernel": 4, "state_size": 128, "group_count": 16, "time_step_rank": 48, "inner_size": 6144}
        self.metadata: dict[str, Any] = {f"qwen35.{k}": v for k, v in sizes.items()}
        self.metadata |= {f"qwen35.attention.{k}": v for k, v in heads.items()}
        self.metadata |= {f"qwen35.ssm.{k}": v for k, v in ssm.items()}
        self.metadata |= {
            "general.architecture": "qwen35",
            "qwen35.attention.layer_norm_rms_epsilon": 1e-6,
            "qwen35.rope.freq_base": 1e7,
            "qwen35.rope.dimension_count": 64,
            "qwen35.rope.dimension_sections": [11, 11, 10, 0],
            "qwen35.full_attention_interval": 4,
            "qwen35.nextn_predict_layers": 1,
            "tokenizer.ggml.tokens": [""] * 248320,
        }
        self.tensors = {name: Tensor(name, shape) for name, shape in tensors_27b().items()}


class Tensor:
    """A q4_k_m mixture: v and down are q6_k, small matrices and vectors f32."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        small = len(shape) == 1 or any(part in name for part in ("ssm_alpha", "ssm_beta", "conv1d"))
        six = any(part in name for part in ("attn_v", "ffn_down", "output.weight")) and "attn_output" not in name
        self.shape, self.type = shape, "f32" if small else "q6_k" if six else "q4_k"


def tensors_27b() -> dict[str, tuple[int, ...]]:
    """The tensors of the tiny model with the sizes of the large one."""
    names = {"E": 5120, "F": 17408, "D": 256, "H": 24, "G": 4, "NK": 16, "NV": 48, "S": 128, "CONV": 10240}
    before = {name: getattr(tiny_hybrid, name) for name in names}
    try:
        for name, size in names.items():
            setattr(tiny_hybrid, name, size)
        made = tiny_hybrid.shapes(64, vocab=248320)
    finally:
        for name, size in before.items():
            setattr(tiny_hybrid, name, size)
    return {name: t if isinstance(t, tuple) else np.shape(t) for name, t in made.items()}  # type: ignore[arg-type]


def large() -> Model:
    return Model(Header(), load_spec("qwen35"), backends.open("numpy"), context=4096, rollback=16)  # type: ignore[arg-type]


def test_27b_compiles_from_its_header() -> None:
    """At most 595 calls in 531 segments, in less than a second, with no weight read."""
    model = large()
    best = min(timed(large()) for _ in range(3))
    program = model.program("decode")
    assert len(program.calls) <= 595 and program.segments <= 531
    assert program.arena <= 1.1 * program.bound
    assert best < 1.0
    assert len(model.program("draft", 1).calls) <= 18
    for tokens in (8, 16):
        verify = model.program("verify", tokens)
        assert len(verify.calls) <= 595 and verify.arena <= 1.1 * verify.bound


def timed(model: Model) -> float:
    start = time.process_time()
    model.program("decode")
    return time.process_time() - start


def test_27b_memory_plan() -> None:
    """151 MB a snapshot, of which there are 16, and 69,632 bytes of cache a token."""
    model = large()
    plan = memory_plan(model)
    states = {s.name: s for p in plan.programs for s in p.states}.values()
    snapshots = sum(s.type.nbytes for s in states if s.discipline == "snapshot")
    cache = sum(s.type.nbytes for s in states if s.discipline == "append")
    assert snapshots == 16 * 48 * 48 * 128 * 128 * 4 == 16 * 150_994_944
    assert cache == 69_632 * 4096
    text = str(plan)
    assert "2,415,919,104" in text and "16 snapshots, 151.0 MB each" in text
    assert "69,632 bytes a token" in text


def test_short_memory_has_half_the_snapshots(tmp_path: Path) -> None:
    for memory, rollback in ((10**9, 16), (10**6, 8)):
        model = load(tiny_hybrid.qwen35(tmp_path / "m.gguf"), context=64)
        model.backend.target = replace(model.backend.target, memory=memory)
        assert model.rollback == rollback
        state = next(s for s in model.program("decode").states if s.discipline == "snapshot")
        assert state.type.shape[0] == rollback
        assert f"{rollback} snapshots" in str(memory_plan(model))
