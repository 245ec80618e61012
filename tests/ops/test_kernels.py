"""Every kernel of the processor against the numpy meaning of its op, on every instruction set at hand."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
import pytest
from arguments import Arguments, Case, arguments, cases
from kernel_calls import A, Bench
from kernel_cases import KERNELS, Absorbed, check, check_epilogues, fitting
from quant_cases import FULL, matrix, random_rows

from graphrun.backends import engine
from graphrun.backends.abi import HEADER, RECORD_BYTES, header, layout
from graphrun.core import fmath
from graphrun.core.op import Kernel, Op
from graphrun.core.quant import Q8, quantise
from graphrun.core.signature import Tensor
from graphrun.core.types import DTYPES, TensorType, tensor
from graphrun.ops import OPS

TOGETHER = {"attend_block", "dynamic_conv", "lattice"}  # a token's result depends on its neighbours in the step
SETS = [name for name, usable in engine.instruction_sets().items() if usable]


@pytest.fixture(scope="module", params=SETS)
def kernels(request: pytest.FixtureRequest) -> engine.Kernels:
    return engine.kernels(str(request.param))


@pytest.fixture(scope="module")
def pool(kernels: engine.Kernels) -> engine.Pool:
    return engine.Pool(2, kernels)


def fitting_kernel(op: Op, case: Case) -> Kernel | None:
    """The kernel that would be selected for a case, or None."""
    fit = (k for k in op.kernels if k.tokens[0] <= case.tokens <= k.tokens[1] and k.weight in (None, case.layout))
    return next(fit, None)


@pytest.mark.parametrize("name", KERNELS)
def test_meaning(name: str, pool: engine.Pool) -> None:
    op, kernel = KERNELS[name]
    compared = 0
    for case in fitting(op, kernel):
        given = arguments(op, case, seed=compared)
        bench = Bench(op, kernel.name, given)
        bench.run(pool)
        check(op, bench, given, case)
        compared += 1
    assert compared


@pytest.mark.parametrize("name", [n for n, (op, _) in KERNELS.items() if op.epilogues])
@pytest.mark.parametrize("stored", [True, False])
def test_epilogues(name: str, stored: bool, pool: engine.Pool) -> None:
    """Every way to absorb some of an op's epilogues, in their order."""
    op, kernel = KERNELS[name]

    def run(given: Arguments, absorbed: Absorbed) -> Bench:
        bench = Bench(op, kernel.name, given, absorbed, stored)
        bench.run(pool)
        return bench

    check_epilogues(op, kernel, run)


def one_token(op: Op, given: Arguments, t: int, states: dict[str, A]) -> Arguments:
    """The arguments of token t alone, with the states that earlier tokens left."""
    values, types = dict(given.values), dict(given.types)
    for parameter in op.signature.inputs:
        name = parameter.name
        if name in states:
            values[name] = states[name]
        elif name == "pos":
            values[name] = given.values[name] + t
        elif name in types and parameter.dims[0] in ("T", "R", "..."):
            value = given.values[name]
            values[name] = Q8(*(part[t : t + 1] for part in value)) if isinstance(value, Q8) else value[t : t + 1]
            types[name] = TensorType(types[name].dtype, (1, *types[name].shape[1:]))
    return Arguments(values, types, given.attrs)


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if op.kernels and op.name not in TOGETHER], ids=lambda o: o.name
)
def test_tokens_alone_and_together(op: Op, pool: engine.Pool) -> None:
    """The bits of a token do not depend on how many are computed in a step, nor on the kernel for so many."""
    for case in cases(op):
        if case.tokens == 1 or case.optional:
            continue
        kernel = fitting_kernel(op, case)
        if kernel is None:
            continue
        given = arguments(op, case)
        together = Bench(op, kernel.name, given)
        together.run(pool)
        states = {p.name: given.values[p.name] for p in op.signature.inputs if p.state or p.name in ("kc", "vc")}
        for t in range(case.tokens):
            alone = Bench(
                op, op.kernels[0].name if kernel.weight is None else kernel.name, one_token(op, given, t, states)
            )
            alone.run(pool)
            states = {p.name: alone.state(p, len(states[p.name])) for p in op.signature.inputs if p.name in states}
            for output in op.signature.outputs:
                if isinstance(output, Tensor):
                    both, one = together.result(output.name), alone.result(output.name)
                    parts = zip(both, one, strict=True) if isinstance(both, Q8) else ((both, one),)
                    for many, single in parts:
                        assert many.reshape(case.tokens, -1)[t].tobytes() == single.tobytes(), (output.name, t, case)


PRODUCTS = [k.name.removeprefix("gemv_") for k in OPS["gemv"].kernels if k.tokens == (1, 1)]


def product_arguments(
    layout: str, rows: int, blocks: int, tokens: int, rng: np.random.Generator, bias: bool
) -> Arguments:
    """Weights with any finite scales, activations of very different sizes, some of their blocks zero."""
    stored = FULL[layout]
    weights = matrix(stored, layout, random_rows(rng, stored, rows, 32 * blocks, "any"))
    x = rng.standard_normal((tokens, blocks, 32), np.float32) * np.float32(10) ** rng.integers(
        -6, 6, (tokens, blocks, 1)
    )
    x[rng.random((tokens, blocks)) < 0.1] = 0
    values: dict[str, Any] = {"x": quantise(x.astype(np.float32).reshape(tokens, -1)), "w": weights}
    types = {"x": tensor("q8", tokens, 32 * blocks), "w": TensorType(DTYPES[layout], (rows, 32 * blocks))}
    if bias:
        values["b"], types["b"] = rng.standard_normal(rows, np.float32), tensor("f32", rows)
    return Arguments(values, types, {})


@pytest.mark.parametrize("layout", PRODUCTS)
def test_products_have_the_bits_of_numpy(layout: str, pool: engine.Pool) -> None:
    """Rows that do and do not fill panels, all lanes and few, one token to more than are computed together."""
    rng = np.random.default_rng(PRODUCTS.index(layout))
    whole = DTYPES[layout].block // 32
    for trial in range(40):
        rows, blocks = int(rng.integers(1, 70)), whole * int(rng.integers(1, 80 // whole + 1))
        tokens = trial % 17 or int(rng.integers(17, 80))
        given = product_arguments(layout, rows, blocks, tokens, rng, bias=trial % 3 == 0)
        kind = "gemv_{}" if tokens == 1 else "gemv_{}_t" if tokens <= 16 else "gemm_{}"
        residual = rng.standard_normal((tokens, rows), np.float32)
        bench = Bench(OPS["gemv"], kind.format(layout), given, [(OPS["add"], {"x": residual})])
        bench.run(pool)
        with np.errstate(all="ignore"):
            wanted = OPS["gemv"](**given.values)
            assert bench.result("y").tobytes() == wanted.tobytes(), (rows, blocks, tokens)
            assert bench.result("add.out").tobytes() == (residual + wanted).tobytes(), (rows, blocks, tokens)


@pytest.mark.parametrize("threads", [1, 3, 4, 7])
def test_threads_do_not_matter(threads: int, kernels: engine.Kernels) -> None:
    """Any number of threads, more than there are cores too, gives the bits of two."""
    pools = engine.Pool(2, kernels), engine.Pool(threads, kernels)
    for op in OPS.values():
        for case in list(cases(op))[:: max(1, len(list(cases(op))) // 6)] if op.kernels else ():
            fit = [
                k for k in op.kernels if k.tokens[0] <= case.tokens <= k.tokens[1] and k.weight in (None, case.layout)
            ]
            if fit:
                given = arguments(op, case)
                benches = [Bench(op, fit[0].name, given) for _ in pools]
                for bench, pool in zip(benches, pools, strict=True):
                    bench.run(pool)
                a, b = (b"".join(m.bytes.tobytes() for m in bench.memory.values()) for bench in benches)
                assert a == b, (op.name, case)


def test_header_is_current() -> None:
    """kernels/ops.h is what the signatures say."""
    path = resources.files("graphrun.kernels") / "ops.h"
    assert path.read_text() == header(OPS.values()), "write it anew: graphrun.backends.abi.header(OPS.values())"


def test_records_fit() -> None:
    for op in OPS.values():
        assert HEADER.size + layout(op).packer.size <= RECORD_BYTES, op.name


def test_exponential() -> None:
    """silu and sigmoid of every magnitude, infinities included."""
    x = np.concatenate([np.linspace(-110, 110, 4001), [0, -0.0, 1e-30, -1e30, 1e30, 88.7, -88.7, -87.4, 103.9]])
    x = np.pad(x, (0, -len(x) % 32)).astype(np.float32)[None]
    values = {"x": np.ones_like(x), "gate": x}
    bench = Bench(
        OPS["sigmoid_gate"], "sigmoid_gate", Arguments(values, {n: tensor("f32", *x.shape) for n in values}, {})
    )
    bench.run(engine.Pool(1, engine.kernels()))
    assert bench.result("y").tobytes() == fmath.gated(values["x"], x).tobytes()
