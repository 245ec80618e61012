"""The numpy backend beyond its results: memory, the arena, notes, and what it tells about a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from conftest import GOLDEN

from graphrun import backends, load
from graphrun.backends import reference
from graphrun.backends.reference import NumpyBackend, NumpyRunner, free_memory
from graphrun.core.errors import BackendError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.core.program import Program
from graphrun.core.quant import Matrix
from graphrun.graphs.spec import load_spec
from graphrun.model import Model

A = np.ndarray[Any, Any]
QUANTISED = ["llama-s.Q4_0", "llama-s.Q4_1", "llama-s.Q5_1", "llama-s.Q8_0", "qwen2-k.Q4_K_M", "llama-k.Q2_K"]
TOKENS = [5, 70, 3, 3, 200, 41, 9, 8, 7]


def opened(name: str, *, memory: int | None = None, threads: int = 1, **options: Any) -> Model:
    """A golden model on a machine with so much memory."""
    backend = NumpyBackend(threads)
    if memory is not None:
        backend.target = replace(backend.target, memory=memory)
    file = ModelFile.open(GOLDEN / "models" / f"{name}.gguf")
    return Model(file, load_spec(file.architecture), backend, **options)


def runner_of(model: Model) -> NumpyRunner:
    assert isinstance(model.runner, NumpyRunner)
    return model.runner


def sizes(model: Model) -> tuple[int, int]:
    """Bytes of the model's distinct weights as they are kept, and of its states."""
    runner = runner_of(model)
    return sum(w.nbytes for w in runner.weights.values()), sum(s.nbytes for s in runner.states.values())


class TestMemory:
    def test_a_model_that_just_fits(self) -> None:
        weights, states = sizes(opened("qwen2-k.Q4_K_M"))
        planned = opened("qwen2-k.Q4_K_M")
        need = sum(v.type.nbytes for v in planned.program().weights) + states
        assert weights + states <= need
        assert opened("qwen2-k.Q4_K_M", memory=need).runner.notes != ()
        with pytest.raises(BackendError, match=r"the model needs .* GB, .* GB of memory are available"):
            _ = opened("qwen2-k.Q4_K_M", memory=weights + states - 1).runner

    @pytest.mark.parametrize(("context", "hint"), [(16, "use a smaller model"), (4096, r"a smaller -c \(context\)")])
    def test_the_hint_says_what_is_too_large(self, context: int, hint: str) -> None:
        with pytest.raises(BackendError) as caught:
            _ = opened("llama-s.Q4_0", memory=1000, context=context).runner
        assert caught.value.hint is not None and hint.replace("\\", "") in caught.value.hint

    def test_nothing_is_read_from_a_file_that_does_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reference, "pack", lambda *_, **__: pytest.fail("weights are read"))
        with pytest.raises(BackendError):
            _ = opened("llama-s.Q4_0", memory=1000).runner

    def test_weights_that_two_steps_or_names_share_are_kept_once(self) -> None:
        tied = opened("llama-tied.Q8_0")
        keys = {(v.parts, v.type.dtype.name) for step in tied.spec.steps for v in tied.program(step).weights}
        assert len(runner_of(tied).weights) == len(keys)
        tables = [parts for parts, _ in runner_of(tied).weights if parts[0].tensor == "token_embd.weight"]
        assert len(tables) == 1

    def test_free_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert 1 << 20 < free_memory() < 1 << 50

        def missing(*_: object) -> None:
            raise FileNotFoundError

        monkeypatch.setattr(reference, "open", missing, raising=False)
        assert 1 << 20 < free_memory() < 1 << 50


class TestUnpackedAnew:
    """Where memory does not hold f32 operands, weights are unpacked at every step."""

    @pytest.mark.parametrize("name", QUANTISED)
    def test_results_are_the_same(self, name: str) -> None:
        large, small = opened(name), opened(name, memory=2 * sum(sizes(opened(name))))
        assert large.runner.notes == ()
        assert len(small.runner.notes) == 1 and "weights are unpacked anew at every step" in small.runner.notes[0]
        for steps in ([TOKENS], [[t] for t in TOKENS]):
            first, second = (session_logits(model, steps) for model in (large, small))
            assert first.tobytes() == second.tobytes()

    def test_only_one_of_them_keeps_operands(self) -> None:
        large, small = opened("llama-s.Q4_0"), opened("llama-s.Q4_0", memory=1 << 18)
        kept = [[w._operands for w in runner_of(m).weights.values() if isinstance(w, Matrix)] for m in (large, small)]
        assert all(kept[0]) and not any(kept[1])

    def test_f32_weights_need_no_unpacking(self) -> None:
        assert opened("llama-s.F32", memory=sum(sizes(opened("llama-s.F32"))) * 2).runner.notes == ()


def session_logits(model: Model, steps: list[list[int]]) -> A:
    session = model.session()
    return np.concatenate([np.stack(list(session.score(tokens))) for tokens in steps])


class TestArena:
    def test_programs_share_it(self) -> None:
        model = opened("llama-s.Q4_0")
        runner, programs = runner_of(model), [model.program("decode"), model.program("prefill", 9)]
        for program in programs:
            runner.bind(program)
        assert runner.arena.size == max(p.arena for p in programs) < sum(p.arena for p in programs)

    def test_growing_it_binds_programs_anew(self) -> None:
        model, fresh = opened("llama-s.Q4_0"), opened("llama-s.Q4_0")
        runner, decode = runner_of(model), model.program("decode")
        runner.step(decode, [5], 0)
        before = runner.arena
        runner.step(model.program("score", 8), TOKENS[1:], 1)
        assert runner.arena is not before and decode not in runner.bound
        runner.step(decode, [9], 9)
        expected = session_logits(fresh, [[5], TOKENS[1:], [9]])[-1]
        assert runner.read("logits")[0].tobytes() == expected.tobytes()

    def test_results_do_not_depend_on_what_was_left_in_it(self) -> None:
        model = opened("qwen2-s.Q8_0")
        runner, program = runner_of(model), model.program("verify", 8)
        runner.step(program, TOKENS[:8], 0)
        first = runner.read("logits")
        runner.arena[:] = 0xFF
        runner.step(program, TOKENS[:8], 0)
        assert runner.read("logits").tobytes() == first.tobytes()


class TestWhatAStepTells:
    def test_outputs_are_copies(self) -> None:
        model = opened("llama-s.F32")
        runner, program = runner_of(model), model.program()
        runner.step(program, [5], 0)
        first = {name: runner.read(name) for name in program.outputs}
        kept = {name: array.tobytes() for name, array in first.items()}
        runner.step(program, [6], 1)
        assert {name: array.tobytes() for name, array in first.items()} == kept
        assert first["best"] == np.argmax(first["logits"])
        assert runner.read("logits").tobytes() != kept["logits"]

    def test_buffers(self) -> None:
        model = opened("llama-s.Q4_0")
        runner, program = runner_of(model), model.program()
        runner.step(program, [5], 0)
        for index, call in enumerate(program.calls):
            found = runner.buffers(index)
            assert found.keys() == call.named.keys()
            for name, operand in call.named.items():
                shape = operand.type.shape
                assert found[name].shape == (shape if operand.place == "arena" else (1, *shape[1:]))
        last = next(i for i, c in enumerate(program.calls) if "logits" in {o.value.name for o in c.stored})
        logits = runner.buffers(last)["logits"]
        assert logits.tobytes() == runner.read("logits").tobytes()
        logits[:] = 0
        assert runner.buffers(last)["logits"].any()

    @pytest.mark.parametrize("tokens", [1, 8, 64])
    def test_seeing_a_step_again_leaves_what_one_run_leaves(self, tokens: int) -> None:
        """In order, out of order, up to any call, and with states that a step reads and overwrites."""
        plain, seen = opened("qwen35-k.Q4_K_M"), opened("qwen35-k.Q4_K_M")
        step = "decode" if tokens == 1 else "score"
        program, slot = plain.program(step, tokens), 0
        for start in range(3):
            ids = [(7 * start + i) % 320 for i in range(tokens)]
            for model in (plain, seen):
                model.runner.step(model.program(step, tokens), ids, start * tokens, slot)
            logits = plain.runner.read("logits")
            last = len(program.calls) - 1
            again = [seen.runner.buffers(i) for i in (*range(last // 2), last, 3, 2)]
            if start == 1:
                assert seen.runner.first_bad_call(seen.program(step, tokens), ids, start * tokens, slot) is None
            assert all(np.array_equal(again[-1][n], a) for n, a in again[2].items())
            assert again[2].keys() == program.calls[2].named.keys()
            assert seen.runner.read("logits").tobytes() == logits.tobytes()
            for name, memory in runner_of(plain).states.items():
                assert np.array_equal(memory, runner_of(seen).states[name]), name
            slot = (slot + tokens - 1) % plain.rollback

    def test_quantised_results_are_values(self) -> None:
        model = opened("llama-s.Q4_0")
        runner, program = runner_of(model), model.program()
        runner.step(program, [5], 0)
        index = next(i for i, c in enumerate(program.calls) if c.label == "rms_norm+quantize")
        (found,) = runner.buffers(index).values()
        assert found.shape == (1, 64) and 0.5 < np.abs(found).max() < 100
        assert len(np.unique(np.round(found / np.abs(found[:, :32]).max() * 127, 3)[:, :32] % 1)) == 1

    def test_the_first_bad_call_of_a_state(self) -> None:
        """The second look starts from the states that the step began with, and leaves them as one run does."""
        model = opened("qwen35-k.Q4_K_M")
        runner, program = runner_of(model), model.program()
        runner.step(program, [5], 0)
        before = {name: memory.copy() for name, memory in runner.states.items()}
        name = next(s.name for s in program.states if s.discipline == "snapshot")
        runner.states[name][0, 0, 0, 0] = np.nan
        runner.step(program, [6], 1)
        index = runner.first_bad_call(program, [6], 1)
        assert index is not None and program.calls[index].scope == name.rsplit(".", 1)[0]
        for state, memory in runner.states.items():
            if state != name and not state.startswith(tuple("123")):
                assert np.isfinite(memory).all() and memory.shape == before[state].shape

    def test_buffers_are_the_model_s_values(self) -> None:
        """What the first call stores is the embedding's row."""
        model = opened("llama-s.F32")
        runner = runner_of(model)
        runner.step(model.program(), [7], 0)
        row = model.file.raw("token_embd.weight").view(np.float32)[7]
        assert np.array_equal(next(iter(runner.buffers(0).values()))[0], row)

    @pytest.mark.parametrize(
        ("tensor", "op"),
        [
            ("token_embd.weight", "embed"),
            ("blk.0.attn_norm.weight", "rms_norm"),
            ("blk.1.ffn_norm.weight", "rms_norm"),
            ("output_norm.weight", "rms_norm"),
        ],
    )
    def test_the_first_bad_call(self, tmp_path: Path, tensor: str, op: str) -> None:
        shape = (64, tiny.E) if tensor == "token_embd.weight" else (tiny.E,)
        path = tiny.llama(tmp_path / "m.gguf", vocab=64, tensors={tensor: np.full(shape, np.inf, np.float32)})
        model = load(path, backend="numpy")
        index, program = bad_call(model)
        assert index is not None and program.calls[index].op.name == op
        parts = {p.tensor for w in program.calls[index].weights for p in w.parts}
        assert tensor in parts

    def test_no_call_is_bad(self) -> None:
        assert bad_call(opened("llama-s.Q4_0"))[0] is None


def bad_call(model: Model) -> tuple[int | None, Program]:
    program = model.program()
    return model.runner.first_bad_call(program, [5], 0), program


class TestLoading:
    def test_progress_reaches_its_end(self) -> None:
        seen: list[tuple[int, int]] = []
        model = opened("llama-tied.Q8_0", progress=lambda done, total: seen.append((done, total)))
        _ = model.runner
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert len({total for _, total in seen}) == 1 and seen[-1][0] == seen[-1][1]

    @pytest.mark.parametrize("name", ["llama-s.Q4_0", "qwen2-k.Q4_K_M", "llama-s.F32"])
    def test_threads_do_not_change_bits(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graphrun.core.quant.WORTH_SHARING", 1)
        one, three = (session_logits(opened(name, threads=n), [TOKENS, [1], [2]]) for n in (1, 3))
        assert one.tobytes() == three.tobytes()

    @pytest.mark.parametrize("open_it", [lambda: backends.open("nmpy"), lambda: load("x.gguf", backend="nmpy")])
    def test_an_unknown_backend(self, open_it: Callable[[], object]) -> None:
        with pytest.raises(UsageError, match="did you mean 'numpy'"):
            open_it()
