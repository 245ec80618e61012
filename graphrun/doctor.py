"""What this machine offers to graphrun, checked by use: compiler, kernels, and a product on each of them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphrun import __version__
from graphrun.backends import build, engine
from graphrun.backends.abi import HEADER, RECORD_BYTES, layout
from graphrun.backends.reference import free_memory
from graphrun.console import size
from graphrun.core.errors import GraphrunError
from graphrun.core.quant import Q8, Matrix, quantise
from graphrun.core.types import DTYPES, LAYOUTS
from graphrun.ops import OPS

A = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, whether it is as it should be, and how to mend it if not."""

    what: str
    ok: bool
    detail: str
    hint: str = ""

    def __str__(self) -> str:
        mark = "ok     " if self.ok else "missing"
        return f"{mark}  {self.what:<10}  {self.detail}" + (f"\n{'':21}{self.hint}" if self.hint else "")


def findings() -> Iterator[Finding]:
    """Every check, each made when it is asked for; the later ones of a chain are left out if an earlier one fails."""
    cores = engine.usable_cores()
    yield Finding("graphrun", True, f"{__version__}, Python {platform.python_version()}, {sys.platform}")
    yield Finding("processor", True, f"{platform.machine()}, {cores} core{'s' * (cores != 1)} usable")
    yield Finding("memory", True, f"{size(free_memory())} available")
    yield Finding("numpy", True, f"{np.__version__}; --backend numpy runs every model")
    compiler = _attempt("compiler", _compiler)
    yield compiler
    sets = _attempt("engine", _instruction_sets) if compiler.ok else None
    if sets is None:
        return
    yield sets
    for name in _usable() if sets.ok else ():
        yield _attempt("native", lambda name=name: product_check(name))  # type: ignore[misc]


def healthy(found: list[Finding]) -> bool:
    """Whether the native backend can be used."""
    return any(f.what == "native" for f in found) and all(f.ok for f in found)


def product_check(instructions: str) -> str:
    """Multiply by a small matrix of every layout with these kernels; raises where a bit is not numpy's."""
    pool = engine.Pool(1, engine.kernels(instructions))
    wrong = [d.name for d in LAYOUTS if not _same_product(pool, d.name)]
    if wrong:
        raise GraphrunError(f"{instructions} kernels: products of {', '.join(wrong)} are not numpy's", "report this")
    return f"{instructions} kernels: products of {len(LAYOUTS)} layouts have numpy's bits"


def _same_product(pool: engine.Pool, kind: str) -> bool:
    rng = np.random.default_rng(0)
    matrix = Matrix.zeros(DTYPES[kind], (48, 512))
    words, scales = matrix.sections
    for section in words:
        section[...] = rng.integers(0, 1 << 32, section.shape, np.uint32)
    for section in scales:
        plain = np.asarray(rng.uniform(0.01, 0.1, section.shape))
        section[...] = plain.astype(np.float16).view(np.uint16) if section.dtype == np.uint16 else plain
    x = quantise(rng.standard_normal((1, 512), np.float32))
    return bool(np.array_equal(_product(pool, matrix, x), matrix.product(x)))


def _product(pool: engine.Pool, matrix: Matrix, x: Q8) -> A:
    """Matrix times one quantised token, by the kernel for one token."""
    panels = engine.Panels(matrix.layout, matrix.shape)
    words, scales = matrix.sections
    panels.fill(0, (*words, *scales))
    raw = np.concatenate([part.view(np.uint8).reshape(-1) for part in x])
    result = np.empty((1, matrix.shape[0]), np.float32)
    shape = layout(OPS["gemv"])
    values: dict[str, int | float] = {"x": raw.ctypes.data, "w": panels.address, "y": result.ctypes.data}
    members = shape.pack({**values, "T": 1, "N": matrix.shape[1], "M": matrix.shape[0]})
    record = np.zeros((1, RECORD_BYTES), np.uint8)
    head = HEADER.pack(pool.kernels.index[f"gemv_{matrix.layout}"][0], 0, 1, 0, 0)
    record[0, : len(head) + len(members)] = np.frombuffer(head + members, np.uint8)
    pool.run(record, 0, 1)
    return result


def _compiler() -> str:
    if all(build.shipped(unit) for unit in (build.ENGINE, *build.SETS)):
        return "not needed: the package has its kernels compiled"
    return f"{build.compiler().version}; libraries in {build.cache_folder()}"


def _instruction_sets() -> str:
    """Those that the processor has, the last of which is used, and those that it lacks."""
    usable = _usable()
    lacking = [name for name in engine.instruction_sets() if name not in usable]
    return f"instruction sets: {', '.join(usable)}" + (f"; not {', '.join(lacking)}" if lacking else "")


def _usable() -> list[str]:
    return [name for name, usable in engine.instruction_sets().items() if usable]


def _attempt(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, check())
    except GraphrunError as error:
        return Finding(what, False, error.message, error.hint or "")
