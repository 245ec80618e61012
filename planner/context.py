"""What every pass is told besides the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphrun.core.op import Op
from graphrun.core.target import Target


@dataclass(frozen=True, slots=True)
class Context:
    """The op table, the machine, and whether activations must not be rounded."""

    ops: Mapping[str, Op]
    target: Target
    exact: bool = False
