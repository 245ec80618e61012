"""A model's step at any stage between its graph file and its program, as text."""

from __future__ import annotations

from collections.abc import Callable

from graphrun.core.errors import UsageError, did_you_mean
from graphrun.core.program import Program
from graphrun.dump import graph_text, program_dot, program_json, program_text
from graphrun.graphs.spec import read_source
from graphrun.model import Model
from graphrun.ops import OPS
from graphrun.planner.lower import STAGES, lower

KNOWN = ("spec", "graph", *STAGES, "program")
MACHINE_FORMS: dict[str, Callable[[Program], str]] = {"json": program_json, "dot": program_dot}


def stage_text(
    model: Model,
    step: str = "decode",
    tokens: int | None = None,
    *,
    stage: str = "program",
    layer: int | None = None,
    cost: bool = False,
    form: str = "text",
    graph: str | None = None,
) -> str:
    """The graph file (`graph`, else the architecture's), the typed graph, the graph after a pass, or the program.

    A program has two forms besides text: "json" and "dot".
    Raises UsageError for an unknown stage or layer, and for what only a program has.
    """
    if stage not in KNOWN:
        raise UsageError(f"there is no stage '{stage}'", did_you_mean(stage, KNOWN) or f"known: {', '.join(KNOWN)}")
    if stage != "program" and (layer is not None or cost or form != "text"):
        raise UsageError(f"--layer, --cost, --json and --dot are for the program, not for --stage {stage}")
    if stage == "spec":
        return read_source(graph or model.file.architecture)[0].decode("utf-8-sig")
    if stage == "graph":
        return graph_text(model.graph(step, tokens))
    if stage != "program":
        return graph_text(lower(model.graph(step, tokens), OPS, model.backend.target, exact=model.exact, until=stage))
    program = model.program(step, tokens)
    if form != "text":
        return MACHINE_FORMS[form](program)
    if layer is not None and not program.select(layer=layer):
        layers = max((int(c.scope.split(".")[0]) for c in program.calls if c.scope[:1].isdigit()), default=-1)
        raise UsageError(f"there is no layer {layer} in {program.name}", f"layers are 0 to {layers}")
    return program_text(program, layer, cost)
