"""Every kernel of GPUs against the numpy meaning of its op: on a gfx1201 in software with every check, and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from arguments import Arguments, arguments
from conftest import GOLDEN
from gpu_bench import GpuBench
from kernel_cases import KERNELS, Absorbed, check, check_epilogues, fitting
from model_runs import TOKENS, worked
from sim.launches import GROUPS, RANDOM_ORDER, STRICT, WEAK, Simulator
from simulated import gfx1201

from graphrun import backends
from graphrun.backends.gpu import GpuBackend
from graphrun.core.errors import BackendError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model, graph_of

A = np.ndarray[Any, Any]
MODELS = sorted(p.stem for p in (GOLDEN / "models").glob("*.gguf") if not p.stem.startswith(("dflash", "qwen35-heads")))
CHUNKED = 1e-5  # numpy solves the delta rule of many tokens in segments: relative


@pytest.fixture(scope="module", params=["hip", "cuda"])
def gpu(request: pytest.FixtureRequest) -> Iterator[GpuBackend]:
    if request.param == "hip":
        with gfx1201() as simulated:
            simulator = Simulator()
            simulator.options(STRICT | GROUPS | RANDOM_ORDER | WEAK, seed=1)
            yield simulated
            simulator.options(STRICT)
        return
    try:
        found = backends.open("cuda")
    except BackendError as error:
        pytest.skip(error.message)
    assert isinstance(found, GpuBackend)
    yield found


@pytest.mark.parametrize("name", KERNELS)
def test_meaning(name: str, gpu: GpuBackend) -> None:
    op, kernel = KERNELS[name]
    for seed, case in enumerate(fitting(op, kernel)):
        given = arguments(op, case, seed=seed)
        bench = GpuBench(op, kernel.name, given)
        bench.run_on(gpu.device, gpu.kernels, kernel)
        check(op, bench, given, case)


@pytest.mark.parametrize("name", [n for n, (op, _) in KERNELS.items() if op.epilogues])
@pytest.mark.parametrize("stored", [True, False])
def test_epilogues(name: str, stored: bool, gpu: GpuBackend) -> None:
    """Every way to absorb some of an op's epilogues, in their order, that the planner makes: whole blocks in heads."""
    op, kernel = KERNELS[name]

    def run(given: Arguments, absorbed: Absorbed) -> GpuBench:
        bench = GpuBench(op, kernel.name, given, absorbed, stored)
        bench.run_on(gpu.device, gpu.kernels, kernel)
        return bench

    check_epilogues(op, kernel, run, whole_blocks=True)


@pytest.mark.parametrize("gpu", ["cuda"], indirect=True)  # test_gpu_models.py has those on the simulator
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, gpu: GpuBackend) -> None:
    """Decoding, verifying, rolling back and prefill, bit for bit but for many tokens of the delta rule."""
    file = ModelFile.open(GOLDEN / "models" / f"{name}.gguf")
    models = (Model(file, graph_of(file, None), b, context=128) for b in (gpu, backends.open("native", threads=2)))
    (found, session), (wanted, other) = (worked(m, ((7, 3), (16, 16), (7, 7), (16, 1))) for m in models)
    assert found.tobytes() == wanted.tobytes()
    a, b = (np.stack(list(s.score(TOKENS[s.pos : s.pos + 30]))) for s in (session, other))
    assert np.abs(a - b).max() <= (CHUNKED if name.startswith("qwen35") else 0) * np.abs(b).max()
