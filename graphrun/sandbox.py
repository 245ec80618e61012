"""Runs the template worker: starts it at the first template, ends it when it does not answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from graphrun.core.errors import TemplateError, UsageError

WALL_SECONDS = 10.0
LONGEST_REQUEST = 16 << 20
# a bare package object: the worker needs few modules, and the package's own imports would use up its memory
START = (
    "import sys, types, runpy; package = types.ModuleType('graphrun'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['graphrun'] = package; runpy.run_module('graphrun.template_worker', run_name='__main__')"
)


class Sandbox:
    """A process of its own for templates of strangers; it starts when needed and is reused. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's reply; raises TemplateError if it was ended for its use of time or memory."""
        try:
            line = json.dumps(request).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"messages and tools must be JSON values: {error}") from None
        if len(line) > LONGEST_REQUEST:
            raise UsageError(f"the conversation is too long to render: {len(line)} bytes of {LONGEST_REQUEST}")
        with self._lock:
            if self._worker is None:
                self._worker = _Worker()
            worker, self._worker = self._worker, None
            reply = worker.ask(line)
            if not reply.pop("last", False):
                self._worker = worker
            else:
                worker.end()
            return reply


class _Worker:
    """One process; after an exception in `ask` it has ended."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-c", START, str(Path(__file__).parent)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is for the chat, not for the worker
            )
        except OSError as error:
            raise TemplateError(f"the process for chat templates does not start: {error}") from None
        self.end = weakref.finalize(self, _end, self._process)

    def ask(self, line: bytes) -> dict[str, Any]:
        timer = threading.Timer(WALL_SECONDS, self._process.kill)
        timer.start()
        try:
            reply = _exchange(self._process, line)
        except BaseException:
            self.end()  # a reply that comes late must not answer the next request
            raise
        finally:
            timer.cancel()
        if not reply.endswith(b"\n"):
            raise TemplateError(_why(self.end()))
        answer: dict[str, Any] = json.loads(reply)
        return answer


def _exchange(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """The reply line, or less than a line if the process ended."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line)
        process.stdin.flush()
    except OSError:
        return b""
    return process.stdout.readline()


def _end(process: subprocess.Popen[bytes]) -> int:
    """End the process, close its pipes and return its exit code."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except OSError:
            continue  # unsent bytes of a request that nobody reads any more
    return process.wait()


def _why(code: int | None) -> str:
    killed = signal.Signals(-code).name if code is not None and code < 0 else ""
    if killed == "SIGPROF":
        return "the chat template takes too long: it loops, or its texts are huge"
    if killed == "SIGKILL":
        return f"the chat template did not end within {WALL_SECONDS:.0f} seconds"
    return f"the process for chat templates ended with code {code}"
