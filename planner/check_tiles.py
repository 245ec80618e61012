"""Tiles: the workgroups of a call write every element of its results, and none of them twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from graphrun.core.errors import ProgramError
from graphrun.core.op import Kernel, Op
from graphrun.core.program import Call, Program
from graphrun.core.signature import AttrValue, Tensor, evaluate
from graphrun.core.types import TensorType
from graphrun.planner.check_access import call_text, value_text
from graphrun.planner.check_lists import tiles_cover
from graphrun.planner.select import dimensions

Grid = tuple[tuple[str, str], ...]  # dimension and how much of it a tile takes, outermost first


def check_tiles(program: Program, index: int) -> int:
    """Check the tiles that a call's kernel declares against the results and the workgroups that are launched.

    A product of covered dimensions is covered, so each dimension is checked by itself. A state's rows depend on the
    position: of these only that there are as many tiles as workgroups. Returns the number of tiles.
    """
    call = program.calls[index]
    types = tuple(None if o is None else o.type for o in call.inputs)
    shapes = tuple(o.type.shape for o in call.outputs)
    tiles, wrong, needed = _tiles(call.op, call.kernel, types, tuple(call.attrs.items()), shapes, program.tokens)
    if wrong is not None:
        found = f"{value_text(call.outputs[wrong].value)}, {call.outputs[wrong].type}"
        _refuse(program, index, f"whose tiles of [{call.kernel.tile}] do not cover {found}")
    if call.groups != program.target.groups(needed):
        what = f"{tiles} tiles of [{call.kernel.tile}]{_shared(call.kernel)} take {program.target.groups(needed)}"
        _refuse(program, index, f"which starts {call.groups} workgroups where {what}")
    _check_absorbed(program, index, call)
    return tiles


@lru_cache(maxsize=4096)  # the layers of a model are alike
def _tiles(
    op: Op,
    kernel: Kernel,
    types: tuple[TensorType | None, ...],
    attrs: tuple[tuple[str, AttrValue], ...],
    shapes: tuple[tuple[int, ...], ...],
    tokens: int,
) -> tuple[int, int | None, int]:
    """How many tiles there are, the first result that they do not cover, and how many workgroups they take."""
    sizes = dimensions(op, types, dict(attrs), tokens)
    grids = _grids(kernel.tile)
    known = {dim for o in op.signature.outputs if isinstance(o, Tensor) for dim in o.dims} | sizes.keys()
    if any(dim not in known for grid in grids for dim, _ in grid):
        return 0, 0, 0
    wrong = None
    for k, (declared, shape) in enumerate(zip(op.signature.outputs, shapes, strict=True)):
        if isinstance(declared, Tensor) and not any(_covers(g, _extents(declared, shape), sizes) for g in grids):
            wrong = k if wrong is None else wrong
    tiles = sum(math.prod(_count(sizes, dim, size) for dim, size in grid) for grid in grids)
    return tiles, wrong, tiles * evaluate(kernel.split, sizes)


def _check_absorbed(program: Program, index: int, call: Call) -> None:
    """What runs on a tile of the first result makes as many elements as that result has."""
    elements = math.prod(call.outputs[0].type.shape)
    for epilogue in call.epilogues:
        for operand in epilogue.outputs:
            if math.prod(operand.type.shape) != elements:
                found = f"{value_text(operand.value)}, {operand.type}"
                _refuse(program, index, f"whose tiles of {elements} elements do not cover {found}")


def _grids(tile: str) -> tuple[Grid, ...]:
    """`T: 1, H: 1 | T: 1, G: 1` as two grids."""
    grids = [[part.partition(":") for part in grid.split(",") if part.strip()] for grid in tile.split("|")]
    return tuple(tuple((dim.strip(), size.strip()) for dim, _, size in grid) for grid in grids)


def _extents(declared: Tensor, shape: tuple[int, ...]) -> Mapping[str, int]:
    """Sizes of a result by the names its signature gives them; leading dimensions together are `rows`."""
    dims = declared.dims
    named = len(dims) - (dims[:1] == ("...",))
    lead = shape[: len(shape) - named]
    known = {"rows": math.prod(lead)} if dims[:1] == ("...",) else {}
    for dim, extent in zip(dims[len(dims) - named :], shape[len(lead) :], strict=True):
        known.setdefault(dim, extent)
    return known


def _covers(grid: Grid, extents: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    return all(
        dim in extents and _cover(extents[dim], evaluate(size, sizes), _count(sizes, dim, size)) for dim, size in grid
    )


@lru_cache(maxsize=4096)
def _cover(extent: int, size: int, count: int) -> bool:
    """Whether tiles 0 .. count - 1 of `size` elements, cut off at the end, cover `extent` elements exactly once."""
    starts = [k * size for k in range(count)]
    return tiles_cover(starts, [min(start + size, extent) for start in starts], extent)


def _count(sizes: Mapping[str, int], dim: str, size: str) -> int:
    """Tiles along a dimension, as its kernel counts them."""
    return -(-evaluate(dim, sizes) // max(1, evaluate(size, sizes)))


def _shared(kernel: Kernel) -> str:
    return f", each shared by {kernel.split}" if kernel.split != "1" else ""


def _refuse(program: Program, index: int, problem: str) -> None:
    raise ProgramError(f"{program.name}: {call_text(program, index)}, {problem}")
