"""The command as a process: pipes that close, Ctrl-C, narrow encodings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conftest import GOLDEN

MODEL = str(GOLDEN / "models" / "llama-s.Q4_0.gguf")
ENDLESS = ("run", MODEL, "-p", "in the", "-n", "-1", "-c", "100000", "--ignore-eos", "-t", "1")
PATIENCE = 60


@contextmanager
def started(*args: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running command; killed if it still runs at the end."""
    command = [sys.executable, "-m", "graphrun", *args]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, **env}, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def finished(*args: str, **env: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a command that ends by itself."""
    with started(*args, **env) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err


def test_a_mistake_is_one_message() -> None:
    code, out, err = finished("run", "missing.gguf", "-p", "x")
    assert (code, out, err) == (1, b"", b"error: missing.gguf: no such file\n")


def test_text_to_stdout_speed_to_stderr() -> None:
    code, out, err = finished("run", MODEL, "-p", "in the", "-n", "8")
    assert code == 0 and out.endswith(b"\n") and b"tokens/s" not in out
    assert err.startswith(b"prompt ") and err.count(b"\n") == 1 and b"\x1b" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT between processes")
def test_interrupt_keeps_what_was_printed() -> None:
    with started(*ENDLESS) as process:
        assert process.stdout is not None
        first = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
    assert len(first) == 20 and rest.endswith(b"\n") and err == b""


@pytest.mark.skipif(sys.platform == "win32", reason="pipes report a closed reader in another way")
def test_a_reader_that_leaves_ends_it_quietly() -> None:
    with started(*ENDLESS) as process:
        assert process.stdout is not None and process.stderr is not None
        assert len(process.stdout.read(20)) == 20
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 141


@pytest.mark.skipif(sys.platform == "win32", reason="pipes report a closed reader in another way")
@pytest.mark.parametrize("command", ["dump", "info", "plan"])
def test_a_reader_that_was_never_there(command: str) -> None:
    with started(command, MODEL) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 141


def test_an_encoding_that_lacks_characters() -> None:
    tokens = ",".join(map(str, range(1, 200)))
    code, out, err = finished("run", MODEL, "--tokens", tokens, "-n", "20", "--ignore-eos", PYTHONIOENCODING="ascii")
    assert code == 0 and out.isascii() and b"Traceback" not in err


def test_a_prompt_from_a_pipe() -> None:
    with started("run", MODEL, "-f", "-", "-n", "4") as process:
        out, _ = process.communicate(b"in the", timeout=PATIENCE)
        assert process.returncode == 0
    assert out == finished("run", MODEL, "-p", "in the", "-n", "4")[1]


def test_a_conversation_from_a_pipe() -> None:
    with started("chat", MODEL, "-n", "6") as process:
        out, err = process.communicate(b"in the\n\n/clear\nin the\n/exit\nnever read\n", timeout=PATIENCE)
        assert process.returncode == 0
    half = len(out) // 2
    assert half and out[:half] == out[half:] and err.count(b"prompt ") == 2 and b"> " not in out
