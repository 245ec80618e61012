"""Solvers as child processes that are asked scripts, each with a limit of time."""

from __future__ import annotations

import importlib.util
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

NAMES = ("bitwuzla", "z3", "cvc5")
LIMIT = 60.0  # seconds for one query
GRACE = 10.0  # more seconds before a silent child is killed


class Answer(NamedTuple):
    """What a solver said about a script."""

    solver: str
    answer: str
    seconds: float


def missing() -> list[str]:
    """The solvers that are not installed."""
    return [name for name in NAMES if importlib.util.find_spec(name) is None]


class Solver:
    """One solver's child process, started again after a query it did not survive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.child: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), self.name]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=_pump, args=(child, self.lines), daemon=True).start()
        return child

    def ask(self, script: str, limit: float = LIMIT) -> Answer:
        """The solver's answer, or `timeout`."""
        if self.child is None or self.child.poll() is not None:
            self.child = self._start()
        assert self.child.stdin
        self.child.stdin.write(json.dumps({"script": script, "seconds": limit}) + "\n")
        self.child.stdin.flush()
        try:
            said = json.loads(self.lines.get(timeout=limit + GRACE))
        except queue.Empty:
            self.close()
            return Answer(self.name, "timeout", limit + GRACE)
        except ValueError:
            self.close()
            return Answer(self.name, "crashed", 0.0)
        return Answer(self.name, said["answer"], said["seconds"])

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None


def _pump(child: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert child.stdout
    for line in child.stdout:
        lines.put(line)
    lines.put("ended")


class Panel:
    """All solvers, asked side by side."""

    def __init__(self) -> None:
        self.solvers = {name: Solver(name) for name in NAMES}
        self.pool = ThreadPoolExecutor(len(NAMES))

    def ask(self, scripts: Sequence[str], names: Sequence[str], limit: float = LIMIT) -> list[Answer]:
        """Every answer of every named solver to every script."""
        jobs = [self.pool.submit(self._all, self.solvers[name], scripts, limit) for name in names]
        return [answer for job in jobs for answer in job.result()]

    @staticmethod
    def _all(solver: Solver, scripts: Sequence[str], limit: float) -> list[Answer]:
        return [solver.ask(script, limit) for script in scripts]

    def close(self) -> None:
        """End every child."""
        for solver in self.solvers.values():
            solver.close()
        self.pool.shutdown()
