"""Steps in one launch: the bits of launches call by call, in any order of workgroups, and an end to every wait."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from model_runs import TOKENS, worked
from sim.launches import GROUPS, RANDOM_ORDER, STRICT, WEAK, Simulator
from sim.planted import Edit, kernels_with
from simulated import BLOCKS, POLLS, gfx1201
from typer.testing import CliRunner

from graphrun import backends
from graphrun.backends.codeobject import GFX1201, SM_90, code_object
from graphrun.backends.gpu import GpuBackend, GpuRunner
from graphrun.backends.mega import ENDS, STAGE, WAITS, launches
from graphrun.backends.resident import ABSENT, IMAGES, Image, Resident, ResidentSteps
from graphrun.cli import app
from graphrun.core.errors import BackendError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model, graph_of

A = np.ndarray[Any, Any]
FOLDER = GOLDEN / "models"
MODELS = ("llama-k.Q6_K", "qwen2-s.Q4_1", "qwen35-mtp.Q8_0")  # others: test_gpu_models.py
VERIFIED = ((5, 3), (16, 16))
SEEDS = range(20)
FEW = ("embed", "rms_norm", "rope_store", "gemv_f32_t", "attn_split_t", "swiglu", "add", "argmax")
ALL_CHECKS = STRICT | GROUPS | RANDOM_ORDER | WEAK


@pytest.fixture(scope="module", params=["hip", "cuda"])
def gpu(request: pytest.FixtureRequest) -> Iterator[GpuBackend]:
    """A gfx1201 in software with a few blocks, and the GPU that is there with all of them."""
    if request.param == "hip":
        with gfx1201() as simulated:
            yield simulated
        return
    try:
        found = backends.open("cuda")
    except BackendError as error:
        pytest.skip(error.message)
    assert isinstance(found, GpuBackend) and found.resident
    yield found


simulated_only = pytest.mark.parametrize("gpu", ["hip"], indirect=True)


@pytest.fixture
def simulator(gpu: GpuBackend) -> Iterator[Simulator]:
    found = Simulator()
    yield found
    found.options(STRICT)


def resident(gpu: GpuBackend, image: Image | None = None, polls: int = POLLS) -> Resident:
    """A resident kernel of its own, so that one which fails leaves the others alone."""
    if gpu.target.name == "hip":
        return Resident(gpu.device, image or (lambda source: code_object(GFX1201, source)), BLOCKS, polls)
    return Resident(gpu.device, lambda source: code_object(SM_90, source), gpu.device.blocks, gpu.device.polls)


def opened(name: str, backend: backends.Backend) -> Model:
    file = ModelFile.open(FOLDER / f"{name}.gguf")
    return Model(file, graph_of(file, None), backend, context=128)


def runner_of(model: Model) -> GpuRunner:
    assert isinstance(model.runner, GpuRunner)
    return model.runner


def launched(model: Model) -> dict[str, list[int]]:
    """Calls of each launch of the programs that have run, 1 being also a call by itself."""
    found = {}
    for program, bound in runner_of(model).bound.items():
        assert isinstance(bound.steps, ResidentSteps)
        found[program.name] = [max(len(launch.steps), 1) for launch, _ in bound.steps.parts]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_one_launch_with_numpys_bits(name: str, gpu: GpuBackend) -> None:
    model = opened(name, gpu)
    found, _ = worked(model, VERIFIED)
    wanted, _ = worked(opened(name, backends.open("numpy", threads=1)), VERIFIED)
    assert found.tobytes() == wanted.tobytes()
    shapes = launched(model)
    assert {"decode", "verify"} <= shapes.keys() and all(len(shape) == 1 for shape in shapes.values()), shapes


def test_call_by_call_has_the_same_bits(gpu: GpuBackend) -> None:
    rows = []
    for keeps in (gpu.resident, None):
        model = opened("qwen35-mtp.Q4_0", gpu)
        runner_of(model).resident = keeps
        rows.append(worked(model, VERIFIED)[0].tobytes())
    assert rows[0] == rows[1]


def test_a_thousand_steps(gpu: GpuBackend) -> None:
    """No wait comes to its end, nor does a bit change, however often blocks meet."""
    steps = 1000 if gpu.target.name == "cuda" else 10
    session = opened("llama-s.Q4_0", gpu).session()
    first = session.decode(TOKENS[0]).tobytes()
    for _ in range(steps):
        session.rewind(0)
        assert session.decode(TOKENS[0]).tobytes() == first


@simulated_only
@pytest.mark.parametrize("name", ["llama-s.Q4_0", "qwen2-k.Q4_K_M", "qwen35-k.Q4_K_M"])
def test_any_order_of_workgroups(name: str, gpu: GpuBackend, simulator: Simulator) -> None:
    """Late stores, stale caches and unfair turns: neither an alarm nor another bit, in steps of one token and three."""
    wanted = steps(opened(name, backends.open("numpy", threads=1)))
    model = opened(name, gpu)
    assert steps(model) == wanted
    for seed in SEEDS:
        simulator.options(ALL_CHECKS, seed, limit=1 << 40)
        assert steps(model) == wanted, seed


def steps(model: Model) -> list[bytes]:
    session = model.session()
    found = [session.decode(t).tobytes() for t in TOKENS[:2]]
    return [*found, session.verify(TOKENS[2:5]).tobytes()]


@dataclass(frozen=True)
class Bug:
    """A change of a source file; options under which steps differ, end, or raise an alarm in one of the seeds."""

    edit: Edit
    seeds: int = 8


ARRIVE = "  release_device();\n  barrier();\n  if (thread_id() == 0) __scoped"
BARRIER, COUNT = "  __builtin_amdgcn_s_barrier();\n", "  if (thread_id() == 0) __scoped"
ALONE = f"{BARRIER}  if (thread_id() == 0) release_device();\n{COUNT}"
WANTED = "r->base + r->blocks * barriers"
BUGS = {
    "no release": Bug(Edit("gr.h", ARRIVE, f"{BARRIER}{COUNT}")),
    "thread 0 alone releases": Bug(Edit("gr.h", ARRIVE, ALONE)),
    "no barrier before arriving": Bug(Edit("gr.h", ARRIVE, f"  release_device();\n{COUNT}")),
    "no acquire": Bug(Edit("mega.c", "  acquire_all();\n", "")),
    "one arrival too few": Bug(Edit("mega.c", f"{WANTED};", f"{WANTED} - 1;")),
    "one arrival too many": Bug(Edit("mega.c", f"{WANTED};", f"{WANTED} + 1;"), 1),
    "nobody waits": Bug(Edit("mega.c", "if (s->flags & WAITS && !wait", "if (0 && !wait")),
    "no barrier after the wait": Bug(Edit("mega.c", "  block_barrier();\n  const int go_on", "  const int go_on")),
}


@simulated_only
@pytest.mark.parametrize("name", [None, *BUGS])
def test_bugs_of_the_barrier_are_found(name: str | None, gpu: GpuBackend, simulator: Simulator) -> None:
    """A small build of the kernel; without a bug nothing is found."""
    edits = [BUGS[name].edit] if name else []
    image = kernels_with(edits, FEW, "mega_few.c")
    model = opened("llama-s.F32", gpu)
    runner_of(model).resident = resident(gpu, lambda source: image, 3000)
    wanted = opened("llama-s.F32", backends.open("numpy", threads=1)).session().verify(TOKENS[:3]).tobytes()
    found = None
    for seed in range(BUGS[name].seeds if name else 8):
        simulator.options(ALL_CHECKS, seed, limit=1 << 40)
        try:
            same = model.session().verify(TOKENS[:3]).tobytes() == wanted
        except BackendError as error:
            found = error.message
            break
        if not same:
            found = "other bits"
            break
    assert (found is None) == (name is None), found


def test_a_workgroup_that_never_arrives(gpu: GpuBackend) -> None:
    """The launch ends within two seconds; the error names what was waited for and who is missing; then steps run call
    by call."""
    model, wanted = opened("qwen2-s.Q4_1", gpu), opened("qwen2-s.Q4_1", backends.open("numpy", threads=1))
    runner = runner_of(model)
    runner.resident = stuck = resident(gpu, polls=500)
    gpu.device.upload(stuck.state.address + 4 * ABSENT, np.array([3], np.uint32))  # 1 + its number
    session = model.session()
    runner.bind(model.program("decode"))
    begin = time.monotonic()
    with pytest.raises(BackendError) as caught:
        session.decode(TOKENS[0])
    assert time.monotonic() - begin < 2 or gpu.target.name == "hip"
    assert f"workgroup 2 of {stuck.blocks} did not arrive" in caught.value.message
    assert "segment 2, call 2 (gemv_q4_1 of 0.attention, qwen2.yaml:" in caught.value.message
    assert "waited in vain for embed (qwen2.yaml:" in caught.value.message
    assert any("gave up a step of decode" in note for note in runner.notes)
    again, other = model.session(), wanted.session()
    for token in TOKENS[:3]:
        assert again.decode(token).tobytes() == other.decode(token).tobytes()
    assert all(bound.steps is None for bound in runner.bound.values())


@simulated_only
def test_the_trace_of_a_step(gpu: GpuBackend, tmp_path: Path) -> None:
    """Every workgroup's calls in order, none before what it waits for; the table's parts are the whole."""
    path, model = tmp_path / "step.json", str(FOLDER / "llama-s.Q4_0.gguf")
    command = ["run", model, "--tokens", "5,6,7", "-n", "14", "--ignore-eos", "-c", "64", "--backend", "hip"]
    result = CliRunner().invoke(app, [*command, "--trace", str(path)])
    assert result.exit_code == 0, result.output
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    blocks = {e["tid"] for e in events}
    calls = {b: [e for e in events if e["tid"] == b and e["name"] != "wait"] for b in blocks}
    assert len(blocks) > 1 and len({tuple(e["args"]["call"] for e in found) for found in calls.values()}) == 1
    for segment in {e["args"]["segment"] for e in calls[0]}:
        ended = [e["ts"] + e["dur"] for e in events if e["args"].get("segment", segment) < segment]
        begun = [e["ts"] for e in events if e["args"].get("segment") == segment]
        assert not ended or max(ended) <= min(begun) + 0.02, segment
    assert "rms_norm > gemv_q4_0" in result.stderr and f"on {len(blocks)} workgroups" in result.stderr
    few = CliRunner().invoke(app, [*command, "-n", "2", "--trace", str(path)])
    assert few.exit_code == 2 and "fewer ran" in few.stderr
    other = CliRunner().invoke(app, [*command[:-1], "numpy", "--trace", str(path)])
    assert other.exit_code == 2 and "--trace shows the resident kernel of a GPU, and numpy has none" in other.stderr


@simulated_only
def test_the_number_of_blocks_is_found(gpu: GpuBackend) -> None:
    """It is halved until all of them are there at once; too few are none."""
    device = gpu.device
    found = Resident(device, lambda source: code_object(GFX1201, source), 1 << 12, POLLS)
    assert found.test() and 16 <= found.blocks < 1 << 12
    assert not Resident(device, lambda source: code_object(GFX1201, source), 8, 0).test()


def test_segments_are_the_planners() -> None:
    """A barrier for every segment but those whose results blocks make for themselves; every call runs once."""
    program = opened("qwen35-mtp.Q4_0", backends.open("numpy")).program("decode")
    (launch,) = launches(program, lambda name: True)
    made = {s.maker for s in launch.steps if s.maker is not None} - {s.call for s in launch.steps}
    assert sorted([*(s.call for s in launch.steps), *made]) == list(range(len(program.calls)))
    segments = {program.calls[s.call].segment for s in launch.steps}
    assert launch.barriers == len(segments) - 1 == program.segments - len(made) - 1


def test_calls_without_a_body_split_a_step() -> None:
    program = opened("llama-s.Q4_0", backends.open("numpy")).program("decode")
    parts = launches(program, lambda name: not name.startswith("attn"))
    singles = [part.single for part in parts if part.single is not None]
    assert [program.calls[i].op.name for i in singles] == ["attend"] * len(singles) and singles
    order = [i for part in parts for i in ([part.single] if part.single is not None else [s.call for s in part.steps])]
    assert order == sorted(order)


@simulated_only
def test_stages_are_packed_as_the_kernel_reads_them(gpu: GpuBackend) -> None:
    assert gpu.resident and gpu.resident.one.threads == 256 and gpu.resident.few.waves == 8
    assert STAGE.itemsize % 16 == 0 and (ENDS, WAITS) == (1, 2) and set(IMAGES) == {"one", "few"}
