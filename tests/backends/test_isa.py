"""Kernels for instruction sets that the processor at hand may not have.

Those of x86 are compiled with the headers of the folder `emulate`, which define the instructions in C: this checks
the arithmetic of the kernels' source, not the silicon. Those of ARM are compiled as they are, and an emulator of the
whole processor runs them. Sets that the processor has are tested as they are, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arm
import numpy as np
import pytest
from arguments import Arguments, arguments, cases
from arm import CPU, EMULATE
from kernel_calls import A, Bench
from quant_cases import FULL, matrix, random_rows

from graphrun.backends import build, engine
from graphrun.backends.abi import layout
from graphrun.backends.build import ARM, Unit
from graphrun.core.blocks import BLOCKS
from graphrun.core.op import Op
from graphrun.core.quant import quantise
from graphrun.core.types import DTYPES, TensorType, tensor
from graphrun.ops import OPS

HAVE = engine.instruction_sets()
BEST = [name for name, usable in HAVE.items() if usable][-1]
LAYOUTS = ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "i8_a")  # as in emulate/products.c
EMULATED = {
    "avxvnni": ("__AVXVNNI__",),
    "avx512": ("__AVX512F__", "__AVX512BW__", "__AVX512DQ__", "__AVX512VL__", "__AVX512VNNI__"),
}
TOKENS = (*range(1, 17), 33, 70)
NAMES = [kind.format(name) for name in LAYOUTS for kind in ("gemv_{}", "gemv_{}_t", "gemm_{}")]
PRODUCTS = {name: (place, layout(OPS["gemv"]).checksum) for place, name in enumerate(NAMES)}

needs_avx2 = pytest.mark.skipif(not HAVE.get("avx2"), reason="the emulation is compiled for x86-64 with AVX2")


class Product:
    """A product with an addition absorbed, and what numpy makes of it.

    Weights have any finite scales, activations are of very different sizes, some of their blocks zero.
    """

    def __init__(self, name: str, tokens: int, rng: np.random.Generator) -> None:
        stored = "q5_1" if name == "i8_a" and tokens % 2 else FULL[name]  # that of i8_a has no short rows
        whole = max(DTYPES[name].block, BLOCKS[stored][0]) // 32
        rows, blocks = int(rng.integers(1, 70)), whole * int(rng.integers(1, 80 // whole + 1))
        self.where = (name, tokens, rows, blocks)
        weights = matrix(stored, name, random_rows(rng, stored, rows, 32 * blocks, "any"))
        sizes = np.float32(10) ** rng.integers(-6, 6, (tokens, blocks, 1)).astype(np.float32)
        x = rng.standard_normal((tokens, blocks, 32), np.float32) * sizes
        x[rng.random((tokens, blocks)) < 0.1] = 0
        x[0, 0] = -127  # the same sign throughout: the largest sums of products
        values: dict[str, Any] = {"x": quantise(x.reshape(tokens, -1)), "w": weights}
        types = {"x": tensor("q8", tokens, 32 * blocks), "w": TensorType(DTYPES[name], (rows, 32 * blocks))}
        if tokens % 3 == 0:
            values["b"], types["b"] = rng.standard_normal(rows, np.float32), tensor("f32", rows)
        self.added = rng.standard_normal((tokens, rows), np.float32)
        with np.errstate(all="ignore"):
            self.wanted = OPS["gemv"](**values)
        kernel = f"gemv_{name}" if tokens == 1 else f"gemv_{name}_t" if tokens <= 16 else f"gemm_{name}"
        given = Arguments(values, types, {})
        self.bench = Bench(OPS["gemv"], kernel, given, [(OPS["add"], {"x": self.added})])

    def check(self) -> None:
        assert self.bench.result("y").tobytes() == self.wanted.tobytes(), self.where
        assert self.bench.result("add.out").tobytes() == (self.added + self.wanted).tobytes(), self.where


def products(name: str) -> Iterator[Product]:
    rng = np.random.default_rng(LAYOUTS.index(name))
    for tokens in TOKENS:
        yield Product(name, tokens, rng)


@pytest.fixture(
    scope="module",
    params=[*(f"native {n}" for n in EMULATED if HAVE.get(n)), *(f"emulated {n}" for n in EMULATED)],
)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> engine.Kernels:
    how, name = request.param.split()
    if how == "native":
        return engine.kernels(name)
    target = tmp_path_factory.mktemp(name) / "emulated.so"
    unit = Unit(name, str(EMULATE / "products.c"), "x86_64_v3", ("-march=x86-64-v3",))
    options = ("-Os", f"-I{EMULATE}", f"-I{CPU}", *(f"-D{macro}=1" for macro in EMULATED[name]), "-Wextra", "-Werror")
    build.compile_to(target, unit, build.compiler(), options)
    return engine.Kernels(name, target)


@needs_avx2
@pytest.mark.parametrize("name", LAYOUTS)
def test_products_on_x86(name: str, kernels: engine.Kernels) -> None:
    """1 to 16 tokens and more, rows that do and do not fill panels, few lanes and all: the bits of numpy."""
    pool = engine.Pool(2, kernels)
    for product in products(name):
        product.bench.run(pool)
        product.check()


@pytest.fixture(scope="module", params=ARM, ids=lambda unit: unit.name)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A set of ARM and the program with its products; for the first with all kernels."""
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is not installed")
    if not build.compiler().zig:
        pytest.skip("only zig compiles for other processors")
    unit = request.param
    kernels = CPU / "kernels.c" if unit is ARM[0] else EMULATE / "products.c"
    return unit.name, arm.compile_driver(unit, kernels, tmp_path_factory.mktemp(unit.name) / "driver")


@pytest.fixture(scope="module")
def everywhere() -> dict[str, tuple[int, int]]:
    """The table of kernels.c, which is the same on every processor."""
    return engine.kernels(BEST).index


def test_products_on_arm(driver: tuple[str, Path], everywhere: dict[str, tuple[int, int]]) -> None:
    """The bits of numpy; and a processor's sets are those that it has."""
    name, program = driver
    made = [product for kind in LAYOUTS for product in products(kind)]
    index = everywhere if name == ARM[0].name else PRODUCTS
    sets = arm.run(program, arm.PROCESSORS[name], [p.bench for p in made], index, threads=2)
    for product in made:
        product.check()
    place = [unit.name for unit in ARM].index(name)
    assert sets.tolist() == [i <= place for i in range(len(ARM))]


def one_of_each() -> Iterator[tuple[Op, str, Arguments]]:
    """Every kernel but products of quantised weights, with arguments that it takes."""
    for op in OPS.values():
        for kernel in op.kernels if op.name != "gemv" else ():
            for case in cases(op):
                low, high = kernel.tokens
                if low <= case.tokens <= high and kernel.weight in (None, case.layout):
                    yield op, kernel.name, arguments(op, case)
                    break


def left(bench: Bench) -> dict[str, A]:
    """What a bench's memory holds."""
    return {**{n: m.bytes for n, m in bench.memory.items()}, **bench.states}


@pytest.mark.parametrize("driver", ARM[:1], indirect=True, ids=lambda unit: unit.name)
def test_other_kernels_on_arm(driver: tuple[str, Path], everywhere: dict[str, tuple[int, int]]) -> None:
    """The bits that the processor at hand computes; these kernels' source is the same for all sets."""
    name, program = driver
    pool = engine.Pool(1, engine.kernels(BEST))
    given = list(one_of_each())
    here, there = ([Bench(*g) for g in given] for _ in range(2))
    for bench in here:
        bench.run(pool)
    arm.run(program, arm.PROCESSORS[name], there, everywhere, threads=3)
    for (op, kernel, _), a, b in zip(given, here, there, strict=True):
        for part, memory in left(a).items():
            assert memory.tobytes() == left(b)[part].tobytes(), (op.name, kernel, part)
