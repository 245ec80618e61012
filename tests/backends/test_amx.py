"""Products of many tokens by AMX tiles have the bits of numpy: on the processor where it has AMX, else emulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import Arguments
from conftest import ROOT
from kernel_calls import Bench
from quant_cases import matrix, random_rows

from graphrun.backends import build, engine
from graphrun.backends.build import Unit
from graphrun.core.quant import quantise
from graphrun.core.types import DTYPES, TensorType, tensor
from graphrun.ops import OPS

EMULATION = ROOT / "tests" / "backends" / "emulate"
FEATURES = ("AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL", "AVX512VNNI", "AMX_TILE", "AMX_INT8")
HAVE = engine.instruction_sets()
# A stored type for every layout; that of i8_a has blocks of 32 columns.
STORED = {"q4_0": "q4_0", "q4_1": "q4_1", "q8_0": "q8_0", "q4_k": "q4_k", "q6_k": "q6_k", "i8_a": "q5_1"}
TOKENS = (12, 13, 16, 17, 31, 32, 33, 100)
# Rows, and blocks of 32 columns: part of a panel, a panel, several; one lane, lanes of one and two blocks, all lanes.
SHAPES = ((1, 1), (16, 2), (5, 9), (37, 18), (83, 31), (64, 32), (17, 33), (130, 70))
WHOLE = ((1, 8), (37, 24), (64, 32), (17, 40), (83, 72))  # for layouts with blocks of 256 columns

pytestmark = pytest.mark.skipif(not HAVE.get("avx2"), reason="the emulation is compiled for x86-64 with AVX2")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> engine.Kernels:
    if HAVE["amx"]:
        return engine.kernels("amx")
    path = tmp_path_factory.mktemp("amx") / "emulated.so"
    unit = Unit("emulated", str(EMULATION / "products.c"), "x86_64_v3", ("-march=x86-64-v3",))
    macros = (f"-D__{name}__=1" for name in FEATURES)
    folders = (f"-I{EMULATION}", f"-I{ROOT / 'kernels' / 'cpu'}")
    build.compile_to(path, unit, build.compiler(), (*folders, *macros, "-O1"))
    return engine.Kernels("emulated", path)


def shapes(layout: str) -> tuple[tuple[int, int], ...]:
    return WHOLE if DTYPES[layout].block == 256 else SHAPES


def given(layout: str, rows: int, blocks: int, tokens: int, rng: np.random.Generator) -> Arguments:
    """Weights with any finite scales, their extreme integers among them; activations of very different sizes."""
    stored = STORED[layout]
    x = rng.standard_normal((tokens, blocks, 32), np.float32)
    x *= np.float32(10) ** rng.integers(-6, 6, (tokens, blocks, 1)).astype(np.float32)
    x[rng.random((tokens, blocks)) < 0.1] = 0
    values: dict[str, Any] = {
        "x": quantise(x.reshape(tokens, -1)),
        "w": matrix(stored, layout, random_rows(rng, stored, rows, 32 * blocks)),
        "b": rng.standard_normal(rows, np.float32),
    }
    types = {
        "x": tensor("q8", tokens, 32 * blocks),
        "w": TensorType(DTYPES[layout], (rows, 32 * blocks)),
        "b": tensor("f32", rows),
    }
    if rng.random() < 0.5:
        del values["b"], types["b"]
    return Arguments(values, types, {})


def check(pool: engine.Pool, layout: str, rows: int, blocks: int, tokens: int, seed: int) -> None:
    """A product, and its sum with another operand, bit for bit; nothing is written between rows."""
    rng = np.random.default_rng(seed)
    arguments = given(layout, rows, blocks, tokens, rng)
    residual = rng.standard_normal((tokens, rows), np.float32)
    name = f"gemv_{layout}_t" if tokens <= 16 else f"gemm_{layout}"
    bench = Bench(OPS["gemv"], name, arguments, [(OPS["add"], {"x": residual})])
    bench.run(pool)
    with np.errstate(all="ignore"):
        wanted = OPS["gemv"](**arguments.values)
        total = residual + wanted
    where = (layout, rows, blocks, tokens, pool.threads)
    assert bench.result("y").tobytes() == wanted.tobytes(), where
    assert bench.result("add.out").tobytes() == total.tobytes(), where


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("layout", STORED)
def test_products_have_the_bits_of_numpy(layout: str, threads: int, kernels: engine.Kernels) -> None:
    """Tiles of tokens that are full and that are not; more threads than panels too."""
    pool = engine.Pool(threads, kernels)
    for index, (rows, blocks) in enumerate(shapes(layout)):
        for tokens in TOKENS:
            if (index + tokens + threads) % 2 == 0 or tokens in (12, 17):
                check(pool, layout, rows, blocks, tokens, seed=1000 * index + tokens)


@pytest.mark.parametrize("layout", STORED)
def test_a_long_chunk(layout: str, kernels: engine.Kernels) -> None:
    check(engine.Pool(2, kernels), layout, 37, 8 if DTYPES[layout].block == 256 else 7, 512, seed=1)


@pytest.mark.parametrize("layout", ["q8_0", "q6_k"])
def test_more_activations_than_are_kept_at_once(layout: str, kernels: engine.Kernels) -> None:
    """Rows so long that panels are unpacked one by one, and anew for every two tiles of tokens."""
    check(engine.Pool(2, kernels), layout, 21, 512, 75, seed=2)


@pytest.mark.parametrize("layout", STORED)
def test_few_tokens_are_computed_by_vectors(layout: str, kernels: engine.Kernels) -> None:
    for tokens in (2, 11):
        check(engine.Pool(2, kernels), layout, 37, 24, tokens, seed=tokens)


def test_results_do_not_depend_on_the_step(kernels: engine.Kernels) -> None:
    """Random scales may hide a token in infinities: with plain ones every token matters, alone as among others."""
    rng = np.random.default_rng(3)
    weights = matrix("q4_0", "q4_0", random_rows(rng, "q4_0", 33, 576, "plain"))
    x = quantise(rng.standard_normal((29, 576), np.float32))
    types = {"w": TensorType(DTYPES["q4_0"], (33, 576))}
    pool = engine.Pool(2, kernels)

    def product(first: int, stop: int, kernel: str) -> Any:
        part = type(x)(*(v[first:stop] for v in x))
        values = {"x": part, "w": weights}
        bench = Bench(OPS["gemv"], kernel, Arguments(values, {**types, "x": tensor("q8", stop - first, 576)}, {}))
        bench.run(pool)
        return bench.result("y").copy()

    together = product(0, 29, "gemm_q4_0")
    assert np.isfinite(together).all() and (np.abs(together).max(axis=1) > 0).all()
    alone = np.concatenate([product(t, t + 1, "gemv_q4_0") for t in range(29)])
    assert together.tobytes() == alone.tobytes()


def test_the_system_is_asked_only_where_it_can_grant() -> None:
    """AMX needs what the sets before it need, and Linux."""
    assert not HAVE["amx"] or (HAVE["avx512"] and Path("/proc/self").exists())
