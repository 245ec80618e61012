"""Real files through the numpy backend: a lowered program gives the bits of its graph, computed node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from interpret import A, Memory, run_graph

from graphrun import load
from graphrun.backends.pack import pack
from graphrun.backends.reference import NumpyRunner
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Graph, Value
from graphrun.core.program import Program
from graphrun.core.types import DTYPES, LAYOUTS
from graphrun.model import Model
from graphrun.ops import OPS
from graphrun.planner.lower import lower

NAMES = {
    "llama-s": ("F32", "Q4_0", "Q4_1", "Q5_1", "Q8_0"),
    "llama-k": ("Q4_K_M", "Q6_K"),
    "llama-tied": ("Q8_0",),
    "qwen2-s": ("F32", "Q4_0", "Q4_1", "Q5_1", "Q8_0"),
    "qwen2-k": ("Q4_K_M",),
}
FILES = [f"{name}.{type_}" for name, types in NAMES.items() for type_ in types]
STEPS = {1: "decode", 2: "verify", 5: "prefill", 8: "verify", 16: "score", 17: "score", 64: "prefill"}


class FileMemory(Memory):
    """Weights from a model file, by the tensors a value is made of."""

    def __init__(self, file: ModelFile) -> None:
        super().__init__({})
        self.file = file
        self.packed: dict[Any, Any] = {}

    def outside(self, value: Value) -> Any:
        if value.kind != "weight":
            return super().outside(value)
        key = (value.parts, value.type.dtype)
        if key not in self.packed:
            self.packed[key] = pack(self.file, value.parts, value.type)
        return self.packed[key]

    def step(self, graph: Graph, tokens: list[int], pos: int) -> dict[str, A]:
        self.inputs = {"tokens": np.array(tokens, np.int32), "pos": np.array([pos], np.int32)}
        return run_graph(graph, self)


def opened(name: str, activations: Any = "q8") -> Model:
    return load(GOLDEN / "models" / f"{name}.gguf", backend="numpy", activations=activations, threads=1)


def reference_graph(model: Model, step: str, tokens: int) -> Graph:
    """The graph of a step; with rounded activations only once `linear` says where they are rounded."""
    graph = model.graph(step, tokens)
    return graph if model.exact else lower(graph, OPS, model.backend.target, until="expand")


def compare(runner: NumpyRunner, program: Program, expected: Mapping[str, A], states: Mapping[str, A]) -> None:
    assert expected.keys() == program.outputs.keys()
    for name, array in expected.items():
        found = runner.read(name)
        assert found.shape == array.shape and found.tobytes() == array.tobytes(), f"{program.name}: {name} differs"
    assert runner.states.keys() == states.keys()
    for name, state in states.items():
        assert runner.states[name].tobytes() == state.tobytes(), f"{program.name}: state {name} differs"


@pytest.mark.parametrize("activations", ["q8", "exact"])
@pytest.mark.parametrize("name", FILES)
def test_a_program_gives_the_bits_of_its_graph(name: str, activations: str) -> None:
    """Steps of all sizes, one after the other in one sequence."""
    model, pos = opened(name, activations), 0
    memory, rng = FileMemory(model.file), np.random.default_rng(0)
    runner = model.runner
    assert isinstance(runner, NumpyRunner)
    for count, step in STEPS.items():
        tokens = rng.integers(0, int(model.params["n_vocab"]), count).tolist()
        program = model.program(step, count)
        runner.step(program, tokens, pos)
        compare(runner, program, memory.step(reference_graph(model, step, count), tokens, pos), memory.states)
        pos += count


def test_files_have_every_layout() -> None:
    found = {w.type.dtype for name in FILES for w in opened(name).program().weights}
    assert found == {DTYPES["f32"], *LAYOUTS}


@pytest.mark.parametrize("name", ["llama-s.Q4_0", "qwen2-k.Q4_K_M"])
def test_programs_are_fused_at_all(name: str) -> None:
    labels = {call.label for call in opened(name).program().calls}
    assert {"rms_norm+quantize", "rope_store", "swiglu+quantize", "attn_split+quantize"} <= labels
    assert any(label.startswith("gemv_q4") and label.endswith("+add") for label in labels)


def test_a_wrong_bit_is_seen() -> None:
    model = opened("llama-s.Q4_0")
    memory, runner, program = FileMemory(model.file), model.runner, model.program()
    assert isinstance(runner, NumpyRunner)
    runner.step(program, [3], 0)
    expected = memory.step(reference_graph(model, "decode", 1), [3], 0)
    memory.states["0.attention.keys"][0, 0, 0] += 1
    with pytest.raises(AssertionError, match="state 0.attention.keys differs"):
        compare(runner, program, expected, memory.states)
    with pytest.raises(AssertionError, match="logits differs"):
        compare(runner, program, expected | {"logits": np.nextafter(expected["logits"], np.float32(9))}, memory.states)
