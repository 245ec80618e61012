"""What the GPU backend asks of a device: uploads, records, launches, lifetimes; on one that computes nothing."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from fake_gpu import POISON, FakeDevice

from graphrun.backends.abi import HEADER, LAYOUTS, RECORD_BYTES, is_matrix, layout
from graphrun.backends.device import MATRIX
from graphrun.backends.gpu import GpuBackend, GpuRunner
from graphrun.backends.pack import pack
from graphrun.backends.profile import Profile
from graphrun.backends.reference import weight_key
from graphrun.core.errors import BackendError, ProgramError
from graphrun.core.gguf import ModelFile
from graphrun.core.program import Program
from graphrun.core.quant import Matrix
from graphrun.model import Model, graph_of
from graphrun.ops import OPS
from graphrun.profile import profile_table

A = np.ndarray[Any, Any]
DENSE, HYBRID, UNTIED = "llama-s.Q4_0", "qwen35-mtp.Q4_0", "llama-s.F32"
PLACES = {k.name: op for op in OPS.values() for k in op.kernels}


def opened(device: FakeDevice, name: str = DENSE, context: int = 600) -> Model:
    file = ModelFile.open(GOLDEN / "models" / f"{name}.gguf")
    return Model(file, graph_of(file, None), GpuBackend(device, b""), context=context)


def runner_of(model: Model) -> GpuRunner:
    assert isinstance(model.runner, GpuRunner)
    return model.runner


def records(device: FakeDevice, runner: GpuRunner, program: Program) -> list[dict[str, Any]]:
    """The members of every record of a bound program, as the device has them."""
    found = []
    for index, call in enumerate(program.calls):
        raw = device.at(runner.bind(program).table.address + index * RECORD_BYTES, RECORD_BYTES).tobytes()
        shape = layout(call.op)
        values = shape.packer.unpack_from(raw, HEADER.size)
        found.append({f.name: (v, f.kind) for f, v in zip(shape.fields, values, strict=True)})
    return found


@pytest.mark.parametrize("name", [DENSE, UNTIED, HYBRID, "qwen2-k.Q4_K_M"])
def test_weights_are_uploaded_as_packed(name: str) -> None:
    device = FakeDevice()
    model = opened(device, name)
    program, weights = model.program(), runner_of(model).weights
    for value in {weight_key(v): v for v in program.weights}.values():
        packed = pack(model.file, value.parts, value.type)
        if not isinstance(packed, Matrix):
            found = device.at(weights.address(value, False), packed.nbytes)
            assert found.tobytes() == packed.tobytes()
            continue
        header = device.at(weights.address(value, True), MATRIX.itemsize).view(MATRIX)[0]
        assert (header["rows"], header["cols"]) == packed.shape
        assert LAYOUTS[header["layout"]] == packed.layout.name
        assert device.at(int(header["data"]), packed.words.nbytes).tobytes() == packed.words.tobytes()
        if packed.scales.nbytes:
            assert device.at(int(header["scales"]), packed.scales.nbytes).tobytes() == packed.scales.tobytes()


@pytest.mark.parametrize("name", [DENSE, HYBRID])
def test_every_call_is_launched_in_order_with_live_pointers(name: str) -> None:
    """Also after a step with a larger arena, which takes the place of the one that records knew."""
    device = FakeDevice()
    model = opened(device, name)
    runner = runner_of(model)
    steps = (("decode", [5]), ("verify", [7, 8, 9]), ("prefill", list(range(3, 200))), ("decode", [6]))
    for step, tokens in steps:
        program = model.program(step, len(tokens))
        device.launched.clear()
        waits = device.waits
        runner.step(program, tokens, 20)
        assert device.waits == waits or tokens != [6], "there is room, so nothing is waited for"
        expected = [(c.kernel.name, c.groups, i) for i, c in enumerate(program.calls)]
        assert device.launched == expected and expected
        for call, members in zip(program.calls, records(device, runner, program), strict=True):
            pointers = {n: v for n, (v, kind) in members.items() if kind == "pointer"}
            assert any(pointers.values()), call.label
            for address in filter(None, pointers.values()):
                device.at(address, 1)


def test_inputs_and_tables_reach_the_device() -> None:
    device = FakeDevice()
    model = opened(device)
    runner, tokens = runner_of(model), list(range(7, 27))
    program = model.program("prefill", len(tokens))
    for pos in (0, 250):
        runner.step(program, tokens, pos)
        found = dict(zip([c.op.name for c in program.calls], records(device, runner, program), strict=True))
        ids = device.at(found["embed"]["tokens"][0], 4 * len(tokens)).view(np.int32)
        assert ids.tolist() == tokens
        rope = next(c for c in program.calls if c.op.table is not None)
        position = found[rope.op.name]["pos"][0]
        assert device.at(position, 4).view(np.int32)[0] == pos
        assert rope.op.table is not None
        wanted = rope.op.table(0, pos + len(tokens), rope.attrs)
        assert device.at(found[rope.op.name]["table"][0], wanted.nbytes).tobytes() == wanted.tobytes()


def test_outputs_are_read_from_the_arena() -> None:
    device = FakeDevice()
    model = opened(device, HYBRID)
    runner, program = runner_of(model), model.program("verify", 4)
    runner.step(program, [5, 6, 7, 8], 0)
    operand = program.outputs["logits"]
    wanted = np.random.default_rng(0).standard_normal(operand.type.shape, np.float32)
    device.upload(runner.arena.address + operand.offset, wanted)
    assert runner.read("logits").tobytes() == wanted.tobytes()


def test_states_are_zero_at_first_and_have_their_types() -> None:
    model = opened(FakeDevice(), HYBRID)
    states = runner_of(model).states
    types = {s.name: s.type for s in model.program().states}
    assert types.keys() <= states.keys()
    for name, type_ in types.items():
        assert states[name].shape == type_.shape and states[name].nbytes == type_.nbytes and not states[name].any()


def test_memory_goes_back() -> None:
    device = FakeDevice()
    for name in (DENSE, HYBRID):
        model = opened(device, name)
        runner_of(model).step(model.program("prefill", 40), list(range(40)), 0)
        assert len(device.live) > 10
        del model
        gc.collect()
        assert list(device.live) == [device.table]


def test_a_step_is_seen_again_from_the_states_it_began_with() -> None:
    """Watched, the snapshot and the ring are put back before the first call runs once more, and the rest follows."""
    device = FakeDevice()
    model = opened(device, HYBRID)
    runner, program = runner_of(model), model.program("decode")
    state = next(s for s in program.states if s.discipline == "snapshot")
    width = state.type.nbytes // state.type.shape[0]
    slot = runner.memory[state.name].address + 2 * width
    device.at(slot, width)[...] = 7
    runner.watched = True
    runner.step(program, [5], 3, 2)
    assert device.waits >= len(program.calls), "watched calls are waited for one by one"
    device.at(slot, width)[...] = 9  # as a kernel would have
    device.launched.clear()
    runner.buffers(4)
    assert [call for *_, call in device.launched] == [0, 1, 2, 3, 4]
    assert (device.at(slot, width) == 7).all()
    runner.read("logits")
    assert [call for *_, call in device.launched] == list(range(len(program.calls)))
    runner.watched = False
    runner.step(program, [5], 3, 2)
    with pytest.raises(BackendError, match="were not kept"):
        runner.buffers(0)


def test_a_model_without_recurrent_states_is_always_seen_again() -> None:
    device = FakeDevice()
    model = opened(device)
    runner, program = runner_of(model), model.program("decode")
    runner.step(program, [5], 0)
    names = runner.buffers(len(program.calls) - 1)
    assert names and device.launched[-1][2] == len(program.calls) - 1


def test_a_bad_value_is_blamed_on_its_call() -> None:
    """What is not finite is found where it is stored: here everywhere, so by the first call that stores floats."""
    device = FakeDevice()
    model = opened(device)
    runner, program = runner_of(model), model.program("decode")
    runner.step(program, [5], 0)
    assert runner.first_bad_call(program, [5], 0) is None
    device.at(runner.arena.address, program.arena)[...] = POISON
    first = runner.first_bad_call(program, [5], 0)
    assert first == next(i for i, c in enumerate(program.calls) if any(o.place == "arena" for o in c.stored))


@pytest.mark.parametrize("watched", [False, True])
def test_a_kernel_that_faults_is_named(watched: bool) -> None:
    device = FakeDevice()
    model = opened(device)
    runner, program = runner_of(model), model.program("decode")
    runner.watched = watched
    device.fails_at = 5
    call = program.calls[5]
    which = "failed" if watched else "or one before it failed"
    with pytest.raises(BackendError) as caught:
        runner.step(program, [5], 0)
    assert caught.value.message.startswith(f"decode: call 5, {call.label} of {call.scope}")
    assert f"{which} ({call.span})" in caught.value.message and "illegal memory access" in caught.value.message
    assert (caught.value.hint is None) == watched
    del model, runner, program, caught  # memory of a lost device cannot be freed, which is not said again
    gc.collect()


def test_a_fault_that_shows_at_the_end_names_the_step() -> None:
    device = FakeDevice()
    model = opened(device)
    runner = runner_of(model)
    runner.step(model.program(), [5], 0)
    device.broken = True
    with pytest.raises(BackendError, match="a call of decode failed: the device is lost"):
        runner.read("logits")


def test_too_little_memory_is_said_before_anything_is_allocated() -> None:
    device = FakeDevice(memory=1000)
    before = len(device.live)
    with pytest.raises(BackendError, match=r"the model needs [\d.]+ GB, 0.0 GB of memory are available"):
        _ = opened(device).runner
    assert len(device.live) == before


def test_a_missing_kernel_is_named() -> None:
    model = opened(FakeDevice(missing=["rope_store"]))
    with pytest.raises(BackendError, match="kernel rope_store of op rope_store does not exist") as caught:
        runner_of(model).step(model.program(), [5], 0)
    assert "--backend numpy" in str(caught.value.hint) and "llama.yaml" in caught.value.message


def test_no_kernel_for_a_call_is_an_error_of_the_plan() -> None:
    """The planner refuses what no kernel takes; it knows the kernels of all devices."""
    file = ModelFile.open(GOLDEN / "models" / f"{DENSE}.gguf")
    bare = {**OPS, "argmax": _without_kernels("argmax")}
    model = Model(file, graph_of(file, None), GpuBackend(FakeDevice(), b""), context=64, ops=bare)
    with pytest.raises(ProgramError, match="argmax has no kernel"):
        model.program()


def _without_kernels(name: str) -> Any:
    return replace(OPS[name], kernels=())


def test_a_profile_counts_every_call() -> None:
    device = FakeDevice()
    model = opened(device)
    runner, program = runner_of(model), model.program()
    runner.profile = Profile()
    for pos in range(3):
        runner.step(program, [5], pos)
    timed = runner.profile.calls[program]
    assert [runs for runs, _ in timed] == [3] * len(program.calls)
    assert all(seconds == pytest.approx(0.003) for _, seconds in timed)
    lines = profile_table(runner.profile).splitlines()
    assert lines[0].split() == ["kernel", "calls", "ms", "%", "us/call", "GB/s"]
    assert lines[-1].split()[:3] == ["all", str(3 * len(program.calls)), f"{3 * len(program.calls):.2f}"]
    assert {line.split()[0] for line in lines[1:-1]} == {c.label for c in program.calls}
    assert profile_table(Profile()) == "no call has run"


def test_matrices_are_what_kernels_read_as_such() -> None:
    """No program reads one weight as a matrix and as values, of which the device would have two copies."""
    model = opened(FakeDevice(), HYBRID)
    seen: dict[Any, set[bool]] = {}
    for call in model.program().calls:
        for parameter, operand in zip(call.op.signature.inputs, call.inputs, strict=True):
            if operand is not None and operand.place == "weight":
                seen.setdefault(weight_key(operand.value), set()).add(is_matrix(parameter))
    assert seen and all(len(ways) == 1 for ways in seen.values())
