"""The native backend runs what the numpy backend runs, with the same bits for any threads and chunks."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from conftest import GOLDEN

from graphrun import backends
from graphrun.backends import engine
from graphrun.backends.fallback import Fallback
from graphrun.backends.native import NativeBackend
from graphrun.backends.reference import NumpyBackend
from graphrun.core.errors import BackendError, ProgramError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.model import Activations, Model, graph_of

A = np.ndarray[Any, Any]
MODELS = json.loads((GOLDEN / "manifest.json").read_text())["models"]
NAMES = sorted(n for n, record in MODELS.items() if (GOLDEN / record["golden"]).is_file())
HYBRIDS = sorted(p.stem for p in (GOLDEN / "models").glob("qwen35-[km]*.gguf"))
SETS = [name for name, usable in engine.instruction_sets().items() if usable]


def opened(path: Path, backend: backends.Backend, activations: Activations = "q8") -> Model:
    file = ModelFile.open(path)
    return Model(file, graph_of(file, None), backend, activations=activations, context=128)


def decoded(model: Model, tokens: list[int]) -> A:
    session = model.session()
    return np.stack([session.decode(t) for t in tokens])


@pytest.fixture(scope="module")
def native() -> NativeBackend:
    return NativeBackend(2)


@pytest.mark.parametrize("name", NAMES)
def test_golden_models(name: str, native: NativeBackend) -> None:
    """Exact activations: llama.cpp's logits. Rounded ones: the bits of the numpy backend."""
    record = MODELS[name]
    arrays = np.load(GOLDEN / record["golden"])
    golden = arrays["logits_f32act"] if "logits_f32act" in arrays.files else arrays["logits_seq"]
    path, tokens = GOLDEN / record["file"], arrays["tokens"].tolist()
    assert np.abs(decoded(opened(path, native, "exact"), tokens) - golden).max() < 2e-5 * np.abs(golden).max()
    ours, reference = (decoded(opened(path, backend), tokens) for backend in (native, NumpyBackend(1)))
    assert np.array_equal(ours, reference)


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrid_models(name: str, native: NativeBackend) -> None:
    """The bits of the numpy backend token by token, and of that in chunks of any size."""
    path, tokens = GOLDEN / "models" / f"{name}.gguf", list(range(40, 76))
    model = opened(path, native)
    logits = decoded(model, tokens)
    assert np.array_equal(logits, decoded(opened(path, NumpyBackend(1)), tokens))
    for size in (4, 16, 36):
        session = model.session()
        rows = [row for i in range(0, len(tokens), size) for row in session.score(tokens[i : i + size])]
        assert np.array_equal(np.stack(rows), logits), size


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(("Q4_0", "Q4_1", "Q8_0", "Q4_K_M", "Q2_K", "F32"))])
def test_chunks_and_instruction_sets_do_not_matter(name: str) -> None:
    """Rounded activations: tokens one by one, and in chunks of any size, on every instruction set."""
    path = GOLDEN / MODELS[name]["file"]
    tokens = np.load(GOLDEN / MODELS[name]["golden"])["tokens"].tolist()
    single = decoded(opened(path, NativeBackend(1, SETS[-1])), tokens)
    for instructions in SETS:
        model = opened(path, NativeBackend(2, instructions))
        for size in (1, 3, 5, 17, 24):
            session = model.session()
            rows = [row for i in range(0, len(tokens), size) for row in session.score(tokens[i : i + size])]
            assert np.array_equal(np.stack(rows), single), (instructions, size)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_do_not_matter(threads: int, tmp_path: Path) -> None:
    path = tiny.llama(tmp_path / "tiny.gguf")
    tokens = list(range(3, 40))
    expected = np.stack(list(opened(path, NativeBackend(2)).session().score(tokens)))
    model = opened(path, NativeBackend(threads))
    assert np.array_equal(np.stack(list(model.session().score(tokens))), expected)
    assert np.array_equal(decoded(model, tokens), expected)


def test_text_of_a_real_model(smollm: Path, native: NativeBackend) -> None:
    """SmolLM2 continues a prompt token by token as on the numpy backend."""
    texts = []
    for backend in (native, NumpyBackend()):
        session = opened(smollm, backend).session()
        logits, tokens = session.prefill([504, 3575, 282, 4649, 314]), []
        for _ in range(64):
            tokens.append(int(np.argmax(logits)))
            logits = session.decode(tokens[-1])
        texts.append(tokens)
    assert texts[0] == texts[1]


def test_states_in_the_order_of_their_types(tmp_path: Path, native: NativeBackend) -> None:
    path = tiny.llama(tmp_path / "tiny.gguf")
    models = [opened(path, backend, "exact") for backend in (native, NumpyBackend(1))]
    for model in models:
        model.session().prefill(list(range(3, 22)))
    ours, reference = (model.runner.states for model in models)  # type: ignore[attr-defined]
    assert ours.keys() == reference.keys()
    for name, memory in reference.items():
        assert np.allclose(ours[name][:19], memory[:19], rtol=0, atol=1e-5 * np.abs(memory).max()), name


def test_buffers_and_the_first_bad_call(tmp_path: Path, native: NativeBackend) -> None:
    """A weight that is not finite is blamed on the call that reads it."""
    good = opened(tiny.llama(tmp_path / "good.gguf"), native)
    good.session().decode(3)
    program = good.program("decode", 1)
    for index, call in enumerate(program.calls):
        stored = good.runner.buffers(index)
        assert stored.keys() == call.named.keys()
    assert good.runner.first_bad_call(program, [3], 0) is None
    weights = np.ones(tiny.E, np.float32)
    weights[5] = np.nan
    bad = opened(tiny.llama(tmp_path / "bad.gguf", tensors={"blk.1.ffn_norm.weight": weights}), native)
    with pytest.raises(ProgramError, match="rms_norm"):
        bad.session().decode(3)


def test_memory_that_does_not_suffice(tmp_path: Path) -> None:
    from dataclasses import replace

    backend = NativeBackend(1)
    backend.target = replace(backend.target, memory=1000)
    with pytest.raises(BackendError, match="GB of memory are available"):
        _ = opened(tiny.llama(tmp_path / "tiny.gguf"), backend).runner


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="no backend 'nativ'"):
        backends.open("nativ")
    with pytest.raises(BackendError, match="does not run"):
        NativeBackend(1, "sse9")


def test_auto_is_native_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(backends.open("auto", threads=1), NativeBackend)

    def fails(*_: Any, **__: Any) -> None:
        raise BackendError("the native backend cannot be built: there is no C compiler")

    monkeypatch.setattr(engine, "kernels", fails)
    instead = backends.open("auto", threads=1)
    assert isinstance(instead, Fallback)
    model = opened(tiny.llama(tmp_path / "tiny.gguf"), instead)
    assert "there is no C compiler" in model.runner.notes[0] and "\n" not in model.runner.notes[0]
    with pytest.raises(BackendError, match="no C compiler"):
        backends.open("native")


def _decode_in_child(model: Model, tokens: list[int], queue: Any) -> None:
    queue.put(decoded(model, tokens).tobytes())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes_too(tmp_path: Path) -> None:
    model = opened(tiny.llama(tmp_path / "tiny.gguf"), NativeBackend(2))
    tokens = list(range(3, 9))
    expected = decoded(model, tokens).tobytes()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_decode_in_child, args=(model, tokens, queue))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(timeout=60)
    assert child.exitcode == 0
    assert decoded(model, tokens).tobytes() == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_states_of_its_own(tmp_path: Path) -> None:
    model = opened(tiny.llama(tmp_path / "tiny.gguf"), NativeBackend(1))
    session = model.session()
    session.prefill([3, 4, 5])
    before = {name: memory.copy() for name, memory in model.runner.states.items()}  # type: ignore[attr-defined]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_decode_in_child, args=(model, [9, 8, 7, 6], queue))
    child.start()
    queue.get(timeout=60)
    child.join(timeout=60)
    for name, memory in model.runner.states.items():  # type: ignore[attr-defined]
        assert np.array_equal(memory, before[name]), name


LOOP = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_native import NativeBackend, opened
model = opened(Path(sys.argv[1]), NativeBackend(4))
session = model.session()
print("ready", flush=True)
while True:
    model.session().prefill(list(range(3, 100)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_ends_the_process(tmp_path: Path) -> None:
    path = tiny.llama(tmp_path / "tiny.gguf")
    folders = os.pathsep.join(str(p) for p in (Path(__file__).parent, Path(__file__).parent.parent))
    environment = {**os.environ, "PYTHONPATH": folders}
    command = [sys.executable, "-c", LOOP, str(path), str(Path(__file__).parent)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_many_runs_leak_nothing(tmp_path: Path) -> None:
    """200 short runs, and 20 loads of a model with threads of its own, leave memory and threads as they were."""
    path = tiny.llama(tmp_path / "tiny.gguf")

    def load_and_run() -> None:
        opened(path, NativeBackend(3)).session().prefill([3, 4, 5])

    model = opened(path, NativeBackend(2))
    for _ in range(20):
        load_and_run()
        decoded(model, [3, 4, 5])
    gc.collect()
    threads, before = len(os.listdir("/proc/self/task")), resident()
    for _ in range(200):
        decoded(model, [3, 4, 5])
    for _ in range(20):
        load_and_run()
    gc.collect()
    assert len(os.listdir("/proc/self/task")) <= threads
    assert resident() - before < 8 << 20
