"""Threads of the native backend: the same bits for any number of them, and none that blocks or outlives a process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_hybrid
from conftest import GOLDEN

from graphrun import load
from graphrun.model import Model

PATIENCE = 60  # seconds after which a process counts as stuck
PROMPT = list(range(3, 40))
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and forks")
PROC = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
START = f"""
import os, sys, threading, time
from graphrun import load
model = load(sys.argv[1], backend="native", threads=4)
prompt = {PROMPT}
def run():
    return model.session().prefill(prompt).tobytes()
def forever():
    while True:
        run()
expected = run()
"""


def opened(path: Path, threads: int) -> Model:
    return load(path, backend="native", threads=threads, context=128)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tiny.llama(tmp_path / "tiny.gguf")


def bits(model: Model) -> bytes:
    """Logits of a prompt, of verified tokens of which some stay, and of single tokens."""
    session = model.session()
    rows = [session.prefill(PROMPT), *session.verify([5, 6, 7, 8, 9, 10, 11, 12])]
    session.keep(3)
    return b"".join(row.tobytes() for row in (*rows, session.decode(4), session.decode(9)))


@pytest.mark.parametrize("make", [tiny.llama, tiny_hybrid.qwen35])
def test_threads_do_not_matter(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """More than there are cores, too."""
    path = make(tmp_path / "model.gguf")
    expected = bits(opened(path, 1))
    for threads in (2, 3, 4, 16):
        model = opened(path, threads)
        assert [bits(model) for _ in range(3)] == [expected] * 3, threads


def started(script: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", START + script, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a process that must end by itself."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, out, err


@POSIX
def test_interrupts_during_steps(path: Path) -> None:
    """A step that is interrupted ends; the next ones compute what they should; one that nobody catches ends all."""
    script = """
for left in (2, 1, 0):
    try:
        print("ready", flush=True)
        forever()
    except KeyboardInterrupt:
        assert run() == expected
print("ready", flush=True)
forever()
"""
    child = started(script, path)
    assert child.stdout is not None
    for _ in range(4):
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
    code, _, err = ended(child)
    assert code == -signal.SIGINT and err.rstrip().endswith("KeyboardInterrupt")


@POSIX
def test_an_interrupt_during_generation() -> None:
    model = str(GOLDEN / "models" / "llama-s.Q4_0.gguf")
    options = ("-p", "in the", "-n", "-1", "-c", "100000", "--ignore-eos", "-t", "4", "--backend", "native")
    command = [sys.executable, "-m", "graphrun", "run", model, *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and len(child.stdout.read(20)) == 20
    child.send_signal(signal.SIGINT)
    code, out, err = ended(child)
    assert code == 130 and out.endswith("\n") and err == ""


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05])
def test_a_daemon_thread_does_not_keep_the_process(delay: float, path: Path) -> None:
    """The main thread ends while another is inside a step."""
    script = f"threading.Thread(target=forever, daemon=True).start()\ntime.sleep({delay})\n"
    assert ended(started(script, path)) == (0, "", "")


@POSIX
def test_forks(path: Path) -> None:
    """A child computes too, on states of its own, or just ends; also when the parent is inside a step meanwhile."""
    script = """
def forked(work):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        work()
        sys.exit()
def other():
    model.session().prefill([9, 8, 7, 6])
    assert run() == expected
before = [a.copy() for a in model.runner.states.values()]
for work in (other, lambda: None, lambda: forked(other)):
    forked(work)
    assert all((a == b).all() for a, b in zip(before, model.runner.states.values()))
    assert run() == expected
thread = threading.Thread(target=lambda: [run() for _ in range(300)])
thread.start()
while thread.is_alive():
    forked(other)
thread.join()
assert run() == expected
"""
    code, out, err = ended(started(script, path))
    assert code == 0 and out == "" and "Error" not in err, err


class Stop(Exception):
    """What a callback raises."""


def stops(*_: Any) -> None:
    raise Stop


def test_exceptions_in_callbacks(path: Path) -> None:
    """Whatever runs between steps may fail or be left: the model goes on, with no more threads than before."""
    with pytest.raises(Stop):
        _ = load(path, backend="native", threads=3, progress=stops).runner
    model = opened(path, 3)
    expected = bits(model)
    threads = threading.active_count()
    for _ in range(3):
        with pytest.raises(Stop):
            model.session().prefill(PROMPT, stops)
        with pytest.raises(Stop):
            list(model.session().score(PROMPT, stops))
        with pytest.raises(Stop):
            list(model.generate(PROMPT, on_prefill=stops))
        left = model.generate(PROMPT, max_tokens=20)
        next(left)
        del left
        assert bits(model) == expected
    assert threading.active_count() <= threads


def test_threads_of_python_take_turns(path: Path) -> None:
    """Models of several threads share a pool, which runs one step at a time."""
    first = opened(path, 3)
    models = [first, *(Model(first.file, first.spec, first.backend, context=128) for _ in range(3))]
    expected, found = bits(first), list[bytes]()
    workers = [threading.Thread(target=lambda m=m: found.extend(bits(m) for _ in range(20))) for m in models]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
    assert found == [expected] * 80


def test_an_idle_pool_uses_no_processor(path: Path) -> None:
    model = opened(path, 4)
    bits(model)
    time.sleep(0.01)
    begin = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begin < 0.02
    assert model.context == 128  # it still lives


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


@PROC
def test_many_runs_leak_nothing(path: Path) -> None:
    """200 short runs take no memory: the first 200 brought all buffers into being."""
    model = opened(path, 2)
    for _ in range(200):
        bits(model)
    before, threads = resident(), tasks()
    for _ in range(200):
        bits(model)
    grown = resident() - before
    assert tasks() == threads
    assert grown < 1 << 20


@PROC
def test_many_models_leak_nothing(path: Path) -> None:
    """50 models opened, run and closed again; each has threads of its own and half a megabyte of weights."""

    def once() -> None:
        opened(path, 3).session().prefill([3, 4, 5])

    for _ in range(10):
        once()
    before, threads = resident(), tasks()
    for _ in range(50):
        once()
    grown = resident() - before
    assert tasks() <= threads
    assert grown < 4 << 20
