"""The certificate of a model's programs: what was proved once, and what was checked of each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from graphrun.console import columns
from graphrun.core.program import Program
from graphrun.graphs.params import steps
from graphrun.model import Model
from graphrun.ops import OPS
from graphrun.planner.certificate import lock
from graphrun.planner.check import Checks, check
from graphrun.proved import Record
from graphrun.session import CHUNK

HEAD = ("step", "tokens", "calls", "segments", "reads", "in bounds", "buffers", "tiles", "pairs", "values", "lock")


class Verified(NamedTuple):
    """A program that passed its checks, and the seconds they took."""

    program: Program
    checks: Checks
    seconds: float


def verified(model: Model) -> Iterator[Verified]:
    """Every step that the model file has tensors for, with the tokens a session gives it; reads only the header.

    Raises ProgramError for a program that a check refuses.
    """
    most = min(CHUNK, model.context)
    for name, tokens in steps(model.spec, model.file).items():
        for count in dict.fromkeys((tokens.low, min(tokens.high, most))):
            if count <= most:
                program = model.program(name, count)
                start = time.perf_counter()
                checks = check(program, OPS)
                yield Verified(program, checks, time.perf_counter() - start)


def certificate(model: Model | None, timed: bool = False) -> str:
    """The certificate as text; without a model only what was proved once.

    `timed` adds the milliseconds of each program's checks.
    """
    lines = ["proved once", *(f"  {line}" for line in Record.read().lines())]
    if model is None:
        return "\n".join([*lines, "no program was checked: name a model"])
    found = list(verified(model))
    rows: list[tuple[str, ...]] = [(*HEAD, "ms") if timed else HEAD]
    for program, checks, seconds in found:
        sizes = (program.tokens, len(program.calls), program.segments)
        counts = (checks.reads, checks.accesses, checks.buffers, checks.tiles, checks.pairs, checks.values)
        row = (program.name, *map(str, (*sizes, *counts)), lock(program))
        rows.append((*row, f"{1000 * seconds:.0f}") if timed else row)
    lines += ["checked now", *(f"  {line}" for line in columns(rows, right=(*range(1, 10), 11)).splitlines())]
    lines.append(f"{len(found)} programs of {model.spec.arch} on {model.backend.target.kernels}: every check passed")
    if timed:
        lines.append(f"checks took {sum(v.seconds for v in found):.3f} s")
    return "\n".join(lines)
