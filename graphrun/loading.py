"""Models for commands: opened by the name and options a user gave, loaded with a bar."""

from __future__ import annotations

import sys

from graphrun.model import Activations, Model
from graphrun.progress import Bar


def opened(
    name: str,
    graph: str | None,
    backend: str,
    threads: int | None = None,
    context: int | None = None,
    activations: Activations = "q8",
) -> Model:
    """A model of which only the file's header has been read; says so when kernels have to be compiled first."""
    return Model.open(
        name, graph=graph, backend=backend, threads=threads, context=context, activations=activations, say=_say
    )


def load(model: Model) -> None:
    """Bring the weights to the device now, so that no later step's time contains it."""
    with Bar("loading", in_bytes=True) as model.progress:
        _ = model.runner


def _say(text: str) -> None:
    print(text, file=sys.stderr)
