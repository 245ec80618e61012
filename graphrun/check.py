"""Mistakes in a graph file, by itself and with a model file."""

from __future__ import annotations

from pathlib import Path

from graphrun import backends
from graphrun.core.errors import GraphError
from graphrun.core.gguf import ModelFile
from graphrun.graphs.elaborate import check
from graphrun.graphs.params import steps
from graphrun.graphs.spec import load_spec, read_source
from graphrun.model import Model
from graphrun.ops import OPS


def mistakes(graph: str, path: Path | None) -> list[GraphError]:
    """Every mistake that can be found; none means that each step of a given model can be lowered.

    Raises UsageError for a graph that is not there, ModelError for a file that cannot be read.
    """
    source, name = read_source(graph)
    if path is None:
        return check(source, None, OPS, name)
    with ModelFile.open(path) as file:
        return check(source, file, OPS, name) or _lowering(graph, file)


def _lowering(graph: str, file: ModelFile) -> list[GraphError]:
    """The first mistake that the planner finds in each step."""
    model = Model(file, load_spec(graph), backends.open("numpy"))
    found = []
    for step in steps(model.spec, file):
        try:
            model.program(step)
        except GraphError as error:
            found.append(error)
    return found
