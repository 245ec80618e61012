"""The command that shows what the compiler made of every GPU kernel, and which limits they break."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Annotated, Any, TypeAlias

import typer

from graphrun import options
from graphrun.backends.assembly import (
    GFX1201_CLASSES,
    LISTING,
    SM_90_CLASSES,
    Mix,
    gfx1201_mix,
    ptx_shared,
    sm_90_mix,
)
from graphrun.backends.codeobject import GFX1201, SM_90, code_object
from graphrun.backends.hsaco import kernels as facts_of
from graphrun.console import FAILED, columns
from graphrun.core.errors import UsageError, did_you_mean
from graphrun.kernel_limits import Inspected, breaches

TARGETS = (GFX1201.name, SM_90.name)
CLASSES = {GFX1201.name: GFX1201_CLASSES, SM_90.name: SM_90_CLASSES}
UNITS = (
    "lds, code: bytes; waves: a SIMD has, of 16; ld: loads of global memory by bits; dot4us: unsigned by signed bytes"
)
STATIC = "Instructions are counted in the text: those of a loop once."
PTX = "Registers, spills and waves are the driver's choice: it assembles this PTX when it loads it."
NO_COMPILER = "Instructions are not counted without a compiler: pip install ziglang."

TargetName: TypeAlias = Annotated[str, typer.Option("--target", metavar="NAME", help=" or ".join(TARGETS))]


@dataclass(frozen=True, slots=True)
class Report:
    """The kernels of a target and the limits that they break; `compiler` made the text of instructions, if any."""

    target: str
    compiler: str | None
    kernels: tuple[Inspected, ...]

    @property
    def breaches(self) -> list[str]:
        return [line for kernel in self.kernels for line in breaches(self.target, kernel)]

    @property
    def classes(self) -> list[str]:
        """Those that some kernel has instructions of."""
        return [name for name, _ in CLASSES[self.target] if any(k.mix[name] for k in self.kernels)]


def kernels(target: TargetName = TARGETS[0], as_json: options.Json = False) -> None:
    """Show registers, memory and instructions of every GPU kernel; exit code 1 if one is beyond a limit."""
    report = inspect(target)
    print(as_facts(report) if as_json else as_table(report))
    if report.breaches:
        raise typer.Exit(FAILED)


def inspect(target: str) -> Report:
    """What is known of the kernels of a target; raises UsageError for an unknown one, BackendError without kernels."""
    if target not in TARGETS:
        raise UsageError(
            f"there are no kernels for '{target}'", did_you_mean(target, TARGETS) or f"known: {', '.join(TARGETS)}"
        )
    compiler = f"ziglang {metadata.version('ziglang')}" if find_spec("ziglang") else None
    if target == SM_90.name:
        text = code_object(SM_90, say=_say).decode()
        shared, mixes = ptx_shared(text), sm_90_mix(text)
        return Report(target, compiler, tuple(Inspected(n, shared.get(n, 0), None, mix) for n, mix in mixes.items()))
    facts = facts_of(code_object(GFX1201, say=_say))
    mixes = gfx1201_mix(code_object(LISTING, say=_say).decode()) if compiler else {}
    return Report(target, compiler, tuple(Inspected(f.name, f.lds, f, mixes.get(f.name, Mix())) for f in facts))


def as_table(report: Report) -> str:
    """One line a kernel, then what the columns mean, then a line for each breach."""
    by = f", by {report.compiler}" if report.compiler else ""
    head = ["kernel", *_FACTS, *report.classes] if report.target == GFX1201.name else ["kernel", "lds", *report.classes]
    rows = [head, *(_row(report, kernel) for kernel in report.kernels)]
    notes = [UNITS, STATIC if report.compiler else NO_COMPILER] if report.target == GFX1201.name else [STATIC, PTX]
    parts = [f"{report.target}: {len(report.kernels)} kernels{by}", columns(rows, right=range(1, len(head))), *notes]
    return "\n".join([*parts, *(f"beyond a limit: {line}" for line in report.breaches)])


_FACTS = ("vgpr", "sgpr", "spills", "lds", "scratch", "waves", "code")


def _row(report: Report, kernel: Inspected) -> Sequence[str]:
    f = kernel.facts
    known = (f.vgprs, f.sgprs, f.vgpr_spills + f.sgpr_spills, f.lds, f.scratch, f.waves, f.code) if f else (kernel.lds,)
    return [kernel.name, *map(_number, (*known, *(kernel.mix[name] for name in report.classes)))]


def _number(count: int) -> str:
    return str(count) if count else "-"


def as_facts(report: Report) -> str:
    """The same as JSON; registers are null where only a driver knows them."""
    return json.dumps(
        {
            "target": report.target,
            "compiler": report.compiler,
            "kernels": [dict(_facts(kernel)) for kernel in report.kernels],
            "breaches": report.breaches,
        },
        indent=1,
    )


def _facts(kernel: Inspected) -> Iterator[tuple[str, Any]]:
    yield "name", kernel.name
    yield "lds", kernel.lds
    yield "registers", kernel.facts and asdict(kernel.facts) | {"waves": kernel.facts.waves}
    yield "instructions", dict(kernel.mix) or None


def _say(text: str) -> None:
    print(text, file=sys.stderr)
