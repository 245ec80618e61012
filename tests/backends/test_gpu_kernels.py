"""Every kernel of GPUs against the numpy meaning of its op, and whole models, on the GPU at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import arguments, copied, results_of
from conftest import GOLDEN
from gpu_bench import GpuBench
from kernel_cases import KERNELS, check, close, exact, fitting

from graphrun import backends
from graphrun.backends.gpu import GpuBackend
from graphrun.core.errors import BackendError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model, graph_of
from graphrun.ops import OPS

A = np.ndarray[Any, Any]
MODELS = sorted(p.stem for p in (GOLDEN / "models").glob("*.gguf") if not p.stem.startswith(("dflash", "qwen35-heads")))
TOKENS = [int(t) for t in np.random.default_rng(5).integers(3, 250, 80)]
CHUNKED = 1e-5  # numpy solves the delta rule of many tokens in segments: relative


@pytest.fixture(scope="module", params=["hip", "cuda"])
def gpu(request: pytest.FixtureRequest) -> GpuBackend:
    try:
        found = backends.open(str(request.param))
    except BackendError as error:
        pytest.skip(error.message)
    assert isinstance(found, GpuBackend)
    return found


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
    """Every way to absorb some of an op's epilogues, in their order."""
    op, kernel = KERNELS[name]
    case = next(fitting(op, kernel))
    given = arguments(op, case)
    first = results_of(op, copied(given.values))[0]
    rng, other = np.random.default_rng(1), {"add": "x", "sigmoid_gate": "gate"}
    for chosen in range(1, 1 << len(op.epilogues)):
        extras = [OPS[e] for i, e in enumerate(op.epilogues) if chosen >> i & 1]
        if "quantize" in {e.name for e in extras} and first.ndim == 3 and first.shape[-1] % 32:
            continue  # what the planner does not make: heads that are no whole blocks
        absorbed = [
            (e, {other[e.name]: rng.standard_normal(first.shape, np.float32)} if e.name in other else {})
            for e in extras
        ]
        bench = GpuBench(op, kernel.name, given, absorbed, stored)
        bench.run_on(gpu.device, gpu.kernels, kernel)
        value = first
        for index, (extra, others) in enumerate(absorbed):
            named = {p.name: others.get(p.name, value) for p in extra.signature.inputs}
            result = extra(**named) if extra.name != "quantize" else extra(value.reshape(len(value), -1))
            if index + 1 == len(absorbed) or extra.tee:
                rtol = 0 if exact(op, case) else 2 * op.rtol
                assert close(bench.result(f"{extra.name}.out"), result, rtol), (extra.name, case)
            value = value if extra.tee else result


def worked(path: Path, backend: backends.Backend) -> list[A]:
    """Logits of a prompt, verified tokens of which some stay, single tokens, and a long chunk."""
    file = ModelFile.open(path)
    session = Model(file, graph_of(file, None), backend, context=128).session()
    rows = [session.prefill(TOKENS[:12])]
    for verified, kept in ((7, 3), (16, 16), (7, 7), (16, 1)):
        at = session.pos
        rows += list(session.verify([*TOKENS[at : at + kept], *(3 + i for i in range(verified - kept))]))
        session.keep(kept)
        rows.append(session.decode(TOKENS[session.pos]))
    return [*rows, *session.score(TOKENS[session.pos : session.pos + 30])]


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, gpu: GpuBackend) -> None:
    """Decoding, verifying, rolling back and prefill, bit for bit but for many tokens of the delta rule."""
    path = GOLDEN / "models" / f"{name}.gguf"
    found, wanted = worked(path, gpu), worked(path, backends.open("native", threads=2))
    single = len(found) - 30
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found[:single], wanted, strict=False))
    a, b = np.stack(found[single:]), np.stack(wanted[single:])
    assert np.abs(a - b).max() <= (CHUNKED if name.startswith("qwen35") else 0) * np.abs(b).max()
