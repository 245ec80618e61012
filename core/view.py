"""Views: where numpy finds the elements of a view op's results inside its first input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphrun.core.ir import Node, Value, View, dense_strides
from graphrun.core.op import Op
from graphrun.core.signature import AttrValue

Layout = tuple[int, tuple[int, ...]]  # byte offset from the base's first byte, byte strides


def view_again(node: Node) -> Node | None:
    """The view node with results that follow from its present input; None if numpy would have to copy."""
    base = node.inputs[0]
    assert node.op.view and base is not None
    layouts = view_layouts(node.op, base, node.attrs)
    if layouts is None:
        return None
    outputs = tuple(replace(v, view=part(base, place)) for v, place in zip(node.outputs, layouts, strict=True))
    return replace(node, outputs=outputs)


def part(base: Value, place: Layout) -> View:
    """The view of a value's root that lies at `place` inside the value."""
    offset, strides = place
    return View(base.root, base.offset + offset, strides)


def view_layouts(op: Op, base: Value, attrs: Mapping[str, AttrValue]) -> tuple[Layout, ...] | None:
    """Offset and strides, in bytes, of each result of a view op; None if a result is not a view of `base`."""
    assert base.type.dtype.block == 1, "views are of plain elements"
    items = tuple(sorted(attrs.items()))
    return _layouts(op, base.type.shape, base.strides, base.type.dtype.block_bytes, items)


@lru_cache(maxsize=4096)
def _layouts(
    op: Op, shape: tuple[int, ...], strides: tuple[int, ...], size: int, attrs: tuple[tuple[str, AttrValue], ...]
) -> tuple[Layout, ...] | None:
    # Pages of np.empty are not touched by a view; they only back the copy numpy makes when there is none.
    span = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + size
    memory = np.empty(span // size, np.dtype(f"u{size}"))
    array = as_strided(memory, shape, strides)
    found = op(array, **dict(attrs))
    layouts = []
    for result in found if isinstance(found, tuple) else (found,):
        if not np.may_share_memory(result, memory):
            return None
        start = result.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
        layouts.append((start, tuple(result.strides)))
    return tuple(layouts)


def whole(value: Value) -> bool:
    """Whether a value is all of its root, in the same order: the root itself, or `flat` of it."""
    if value.view is None:
        return True
    pairs = zip(value.type.shape, value.strides, dense_strides(value.type), strict=True)
    in_order = all(step == dense for size, step, dense in pairs if size > 1)
    return in_order and value.offset == 0 and value.type.nbytes == value.root.type.nbytes
