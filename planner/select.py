"""select: a kernel for every node, by number of tokens, weight layout and machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from graphrun.core.errors import ProgramError
from graphrun.core.ir import Graph, Node
from graphrun.core.op import Kernel, Op
from graphrun.core.signature import AttrValue, SignatureError, require
from graphrun.core.target import Target
from graphrun.core.types import TensorType
from graphrun.planner.context import Context


def select(graph: Graph, context: Context) -> Graph:
    """Set each node's kernel to the first that fits; ProgramError if none does."""
    return graph.with_nodes([n if n.op.view else _selected(n, graph.tokens, context) for n in graph.nodes])


def _selected(node: Node, tokens: int, context: Context) -> Node:
    found = kernels_for(node, tokens, context.target)
    if not found and context.target.kernels == "numpy":
        found = [Kernel(node.op.name)]
    if not found:
        for kernel in _taking(node, tokens):
            _refuse_beyond(kernel, node, tokens)
        weight = _weight(node)
        what = f"{tokens_of(node, tokens)} tokens" + (f" and {weight} weights" if weight else "")
        raise ProgramError(f"{node.span}: {node.op.name} has no kernel for {what}")
    return replace(node, kernel=found[0])


def kernels_for(node: Node, tokens: int, target: Target) -> list[Kernel]:
    """The kernels of a node's op that take its number of tokens and its weight's layout on a machine."""
    found = _taking(node, tokens)
    return [k for k in found if _beyond(k, node, tokens) is None] if target.kernels == "gpu" else found


def _taking(node: Node, tokens: int) -> list[Kernel]:
    count, weight = tokens_of(node, tokens), _weight(node)
    return [k for k in node.op.kernels if k.tokens[0] <= count <= k.tokens[1] and k.weight in (None, weight)]


def _beyond(kernel: Kernel, node: Node, tokens: int) -> str | None:
    """The limit of a GPU's kernel that a node is beyond, None if it is within all."""
    try:
        require(kernel.limits, _sizes(node, tokens))
    except SignatureError as error:
        return str(error)
    return None


def _refuse_beyond(kernel: Kernel, node: Node, tokens: int) -> None:
    if limit := _beyond(kernel, node, tokens):
        text = f"{node.span}: {node.op.name} is beyond what {kernel.name} of GPUs takes: {limit}"
        raise ProgramError(text, "--backend native has no such limit")


def tokens_of(node: Node, tokens: int) -> int:
    """How many tokens (rows) a node works on; `tokens`, the graph's, if its inputs do not say."""
    return _sizes(node, tokens)["T"]


def _sizes(node: Node, tokens: int) -> Mapping[str, int]:
    return dimensions(node.op, tuple(None if v is None else v.type for v in node.inputs), node.attrs, tokens)


def dimensions(
    op: Op, types: tuple[TensorType | None, ...], attrs: Mapping[str, AttrValue], tokens: int
) -> Mapping[str, int]:
    """Sizes of an op's dimension letters and whole-number attributes; T is always among them.

    `types` are those of the inputs, None for an absent one. "..." and "rows" are the product of leading dimensions.
    """
    return _dimensions(op, types, tuple(attrs.items()), tokens)


@lru_cache(maxsize=4096)  # the layers of a model are alike
def _dimensions(
    op: Op, types: tuple[TensorType | None, ...], attrs: tuple[tuple[str, AttrValue], ...], tokens: int
) -> Mapping[str, int]:
    pairs = zip(op.signature.input_names, types, strict=True)
    binding = op.signature.bind({name: t for name, t in pairs if t is not None})
    sizes = binding.dims | {name: value for name, value in attrs if isinstance(value, int)}
    rows = binding.lead[0] if binding.lead else tokens
    lead = math.prod(binding.lead or ())
    return {"T": sizes.get("R", rows), "...": lead, "rows": lead} | sizes


def _weight(node: Node) -> str | None:
    """The layout of the weight matrix a node reads, if it has one."""
    names = node.op.signature.input_names
    value = node.inputs[names.index("w")] if "w" in names else None
    return value.type.dtype.name if value is not None else None
