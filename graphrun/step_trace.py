"""One step of the resident kernel as it went on every workgroup: a trace for Perfetto, and a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.backends.resident import Resident, Tape
from graphrun.console import columns, replacing
from graphrun.core.errors import UsageError
from graphrun.loading import load
from graphrun.model import Model

BEFORE = 10  # steps that pass before the one that is recorded
MOST_ROWS = 24


@contextmanager
def traced(model: Model, path: Path) -> Iterator[None]:
    """Record a step that the block runs, write it to a file, and show where its time went on stderr.

    Raises UsageError where the backend has no resident kernel, or too few steps ran.
    """
    load(model)
    resident = getattr(model.runner, "resident", None)
    if not isinstance(resident, Resident):
        name = model.backend.target.name
        raise UsageError(f"--trace shows the resident kernel of a GPU, and {name} has none", "--profile times calls")
    resident.pass_over, resident.tape = BEFORE, None
    try:
        with replacing(path) as file:
            yield
            if resident.tape is None:
                raise UsageError(f"--trace records the step after {BEFORE} others, and fewer ran", "-n 20 runs more")
            json.dump(perfetto(resident.tape), file)
        print(f"\n{trace_table(resident.tape)}", file=sys.stderr)
    finally:
        resident.pass_over = None


def perfetto(tape: Tape) -> dict[str, Any]:
    """Chrome's trace format, which Perfetto opens: a thread for each workgroup, with its calls and its waits."""
    events: list[dict[str, Any]] = []
    for block, times in enumerate(tape.times):
        events.append(
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": block, "args": {"name": f"workgroup {block}"}}
        )
        last = np.nan
        for step, (begin, end) in zip(tape.steps, times, strict=True):
            call = tape.program.calls[step.call]
            where = {"call": step.call, "segment": call.segment, "block": call.scope, "source": str(call.span)}
            if step.begins and begin > last:
                events.append(_event("wait", block, last, begin, {"for": call.segment}))
            events.append(_event(_label(tape, number=step.call, maker=step.maker), block, begin, end, where))
            last = end
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _event(name: str, block: int, begin: float, end: float, args: dict[str, Any]) -> dict[str, Any]:
    span = {"ts": round(1e6 * float(begin), 3), "dur": round(1e6 * float(end - begin), 3)}
    return {"ph": "X", "name": name, "pid": 0, "tid": block, **span, "args": args}


def _label(tape: Tape, number: int, maker: int | None) -> str:
    """A call's label, after that of the call which blocks make or finish before it."""
    label = tape.program.calls[number].label
    return label if maker is None else f"{tape.program.calls[maker].op.name} > {label}"


@dataclass(slots=True)
class Row:
    """All calls of one label: how many, and sums of seconds: until the last block ended, of work, and of waiting."""

    label: str
    calls: int = 0
    whole: float = 0.0
    work: float = 0.0
    wait: float = 0.0


def trace_table(tape: Tape) -> str:
    """Calls, microseconds of each until its last workgroup has ended, of a workgroup's work, and of its wait before."""
    rows: dict[str, Row] = {}
    first = last = float(np.nanmin(tape.times))
    ends = np.full(len(tape.times), last)
    for number, step in enumerate(tape.steps):
        begin, end = tape.times[:, number, 0], tape.times[:, number, 1]
        row = rows.setdefault(label := _label(tape, step.call, step.maker), Row(label))
        row.calls += 1
        row.whole += float(np.nanmax(end)) - last
        row.work += float(np.nanmean(end - begin))
        row.wait += float(np.nanmean(begin - ends))
        last, ends = float(np.nanmax(end)), end
    shown = sorted(rows.values(), key=lambda r: -r.whole)[:MOST_ROWS]
    head = ("call", "calls", "us", "us/call", "work", "wait")
    total = f"{1e6 * (last - first):.1f} us in {len(tape.steps)} calls on {len(tape.times)} workgroups"
    return "\n".join([columns([head, *map(_cells, shown)], right=range(1, len(head))), total])


def _cells(row: Row) -> tuple[str, ...]:
    each = (f"{1e6 * x / row.calls:.2f}" for x in (row.whole, row.work, row.wait))
    return row.label, str(row.calls), f"{1e6 * row.whole:.1f}", *each
