"""What this machine offers to graphrun, checked by use: compiler, kernels, and a product on each of them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphrun import __version__, backends
from graphrun.backends import build, engine
from graphrun.backends.abi import HEADER, RECORD_BYTES, layout
from graphrun.backends.device import DeviceMatrix, Memory
from graphrun.backends.gpu import COUNTERS, GpuBackend
from graphrun.backends.reference import free_memory
from graphrun.console import size
from graphrun.core.errors import GraphrunError
from graphrun.core.quant import Q8, Matrix, quantise
from graphrun.core.signature import evaluate
from graphrun.core.types import DTYPES, LAYOUTS
from graphrun.ops import OPS

A = np.ndarray[Any, Any]
GPUS = ("hip", "cuda")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, whether it is as it should be, and how to mend it if not."""

    what: str
    ok: bool
    detail: str
    hint: str = ""
    needed: bool = True  # by the native backend

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
    for name in GPUS:
        yield from _gpu(name)
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
    return any(f.what == "native" for f in found) and all(f.ok for f in found if f.needed)


def product_check(instructions: str) -> str:
    """Multiply by a small matrix of every layout with these kernels; raises where a bit is not numpy's."""
    pool = engine.Pool(1, engine.kernels(instructions))
    wrong = [d.name for d in LAYOUTS if not _same_product(pool, d.name)]
    if wrong:
        raise GraphrunError(f"{instructions} kernels: products of {', '.join(wrong)} are not numpy's", "report this")
    return f"{instructions} kernels: products of {len(LAYOUTS)} layouts have numpy's bits"


def gpu_product_check(gpu: GpuBackend) -> str:
    """The same on a GPU."""
    wrong = []
    for layout_ in LAYOUTS:
        matrix, x = _factors(layout_.name)
        if not np.array_equal(_product_on(gpu, matrix, x), matrix.product(x)):
            wrong.append(layout_.name)
    if wrong:
        raise GraphrunError(f"products of {', '.join(wrong)} are not numpy's", "report this")
    return f"{gpu.target.name} kernels: products of {len(LAYOUTS)} layouts have numpy's bits"


def _gpu(name: str) -> Iterator[Finding]:
    """What reaches a GPU, the GPU, and products on it; all that is missing leaves the other backends as they are."""
    found: list[GpuBackend] = []

    def opened() -> str:
        gpu = backends.open(name)
        assert isinstance(gpu, GpuBackend)
        found.append(gpu)
        return f"{gpu.description}, {size(gpu.target.memory)} free; {len(gpu.kernels.names)} kernels"

    yield _attempt(name, opened, needed=False)
    for gpu in found:
        yield Finding(name, True, gpu.device.software(), needed=False)
        yield _attempt(name, lambda gpu=gpu: gpu_product_check(gpu), needed=False)  # type: ignore[misc]


def _same_product(pool: engine.Pool, kind: str) -> bool:
    matrix, x = _factors(kind)
    return bool(np.array_equal(_product(pool, matrix, x), matrix.product(x)))


def _factors(kind: str) -> tuple[Matrix, Q8]:
    """A small matrix of a layout with random words, and one quantised token."""
    rng = np.random.default_rng(0)
    matrix = Matrix.zeros(DTYPES[kind], (48, 512))
    words, scales = matrix.sections
    for section in words:
        section[...] = rng.integers(0, 1 << 32, section.shape, np.uint32)
    for section in scales:
        plain = np.asarray(rng.uniform(0.01, 0.1, section.shape))
        section[...] = plain.astype(np.float16).view(np.uint16) if section.dtype == np.uint16 else plain
    return matrix, quantise(rng.standard_normal((1, 512), np.float32))


def _product(pool: engine.Pool, matrix: Matrix, x: Q8) -> A:
    """Matrix times one quantised token, by the kernel for one token."""
    panels = engine.Panels(matrix.layout, matrix.shape)
    words, scales = matrix.sections
    panels.fill(0, (*words, *scales))
    raw, result = _bytes(x), np.empty((1, matrix.shape[0]), np.float32)
    place = pool.kernels.index[f"gemv_{matrix.layout}"][0]
    pool.run(_record(place, matrix, raw.ctypes.data, panels.address, result.ctypes.data), 0, 1)
    return result


def _product_on(gpu: GpuBackend, matrix: Matrix, x: Q8) -> A:
    """The same on a GPU."""
    device, rows = gpu.device, matrix.shape[0]
    weights, token, result = DeviceMatrix(device, matrix), Memory.of(device, _bytes(x)), Memory.zeros(device, 4 * rows)
    scratch = Memory.zeros(device, 4 * COUNTERS)
    name = f"gemv_{matrix.layout}"
    place = gpu.kernels.index[name][0]
    table = Memory.of(device, _record(place, matrix, token.address, weights.address, result.address))
    kernel = next(k for k in OPS["gemv"].kernels if k.name == name)
    groups = evaluate(kernel.groups, {"T": 1, "N": matrix.shape[1], "M": rows})
    device.launch(gpu.kernels.functions[place], groups, gpu.kernels.lds[place], (table.address, scratch.address))
    return result.read(0, 4 * rows).view(np.float32).reshape(1, rows)


def _bytes(x: Q8) -> A:
    return np.concatenate([part.view(np.uint8).reshape(-1) for part in x])


def _record(place: int, matrix: Matrix, x: int, w: int, y: int) -> A:
    """The record of a product of one token at these addresses."""
    members = layout(OPS["gemv"]).pack({"x": x, "w": w, "y": y, "T": 1, "N": matrix.shape[1], "M": matrix.shape[0]})
    head = HEADER.pack(place, 0, 1, 0, 0)
    record = np.zeros((1, RECORD_BYTES), np.uint8)
    record[0, : len(head) + len(members)] = np.frombuffer(head + members, np.uint8)
    return record


def _compiler() -> str:
    if all(build.shipped(build.shipped_name(unit)) for unit in (build.ENGINE, *build.SETS)):
        return "not needed: the package has its kernels compiled"
    return f"{build.compiler().version}; libraries in {build.cache_folder()}"


def _instruction_sets() -> str:
    """Those that the processor has, the last of which is used, and those that it lacks."""
    usable = _usable()
    lacking = [name for name in engine.instruction_sets() if name not in usable]
    return f"instruction sets: {', '.join(usable)}" + (f"; not {', '.join(lacking)}" if lacking else "")


def _usable() -> list[str]:
    return [name for name, usable in engine.instruction_sets().items() if usable]


def _attempt(what: str, check: Callable[[], str], needed: bool = True) -> Finding:
    try:
        return Finding(what, True, check(), needed=needed)
    except GraphrunError as error:
        return Finding(what, False, error.message, error.hint or "", needed)
