"""Where the time of steps went, as a table of kernels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from graphrun.backends.profile import Profile
from graphrun.console import columns
from graphrun.loading import load
from graphrun.model import Model
from graphrun.planner.cost import weight_bytes

MOST_ROWS = 24


@contextmanager
def profiled(model: Model) -> Iterator[None]:
    """Time every call that the block runs, and show the table on stderr after it; weights are loaded before."""
    load(model)
    runner = model.runner
    runner.profile = Profile()
    try:
        yield
        print(f"\n{profile_table(runner.profile)}", file=sys.stderr)
    finally:
        runner.profile = None


@dataclass(slots=True)
class Row:
    """All calls of one kernel with the same absorbed ops: runs, seconds, bytes of weights that they read."""

    label: str
    calls: int = 0
    seconds: float = 0.0
    weights: int = 0


def rows(profile: Profile) -> list[Row]:
    """By kernel, the one that took longest first."""
    found: dict[str, Row] = {}
    for program, timed in profile.calls.items():
        for call, (runs, seconds) in zip(program.calls, timed, strict=True):
            row = found.setdefault(call.label, Row(call.label))
            row.calls += runs
            row.seconds += seconds
            row.weights += runs * weight_bytes(call)
    return sorted((r for r in found.values() if r.calls), key=lambda r: -r.seconds)


def profile_table(profile: Profile) -> str:
    """Calls, milliseconds, share of the time, microseconds a call, and GB/s of weights, by kernel."""
    made = rows(profile)
    if not made:
        return "no call has run"
    shown, rest = made[:MOST_ROWS], made[MOST_ROWS:]
    if rest:
        others = Row(
            f"{len(rest)} others", *(sum(n) for n in zip(*((r.calls, r.seconds, r.weights) for r in rest), strict=True))
        )
        shown.append(others)
    head = ("kernel", "calls", "ms", "%", "us/call", "GB/s")
    return columns([head, *_cells(shown, sum(r.seconds for r in made))], right=range(1, len(head)))


def _cells(shown: list[Row], total: float) -> Iterator[tuple[str, ...]]:
    for row in shown:
        speed = f"{row.weights / row.seconds / 1e9:.1f}" if row.weights and row.seconds else ""
        share = 100 * row.seconds / total if total else 0.0
        each = f"{1e6 * row.seconds / row.calls:.1f}"
        yield row.label, str(row.calls), f"{1e3 * row.seconds:.2f}", f"{share:.1f}", each, speed
    yield "all", str(sum(r.calls for r in shown)), f"{1e3 * total:.2f}", "100.0", "", ""
