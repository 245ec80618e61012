"""What compilers build on approximate instructions stays exact when these are off by one last place."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sim.lane_values import quiet, same, values
from sim.simulator import ZIG, Machine, assemble, load, run
from sim.vector_table import Array

PERTURB, LANES = 64, 32
SOURCE = """
float divide(float a, float b) { return a / b; }
float root(float a) { return __builtin_sqrtf(a); }
double divide_wide(double a, double b) { return a / b; }
double root_wide(double a) { return __builtin_sqrt(a); }
_Float16 divide_half(_Float16 a, _Float16 b) { return a / b; }
"""


class Options(ctypes.Structure):
    _fields_ = [("options", ctypes.c_uint32), ("seed", ctypes.c_uint64)]


@pytest.fixture(params=[None, 1, 2, 3, 4], ids=lambda seed: f"seed {seed}" if seed else "exact")
def options(request: pytest.FixtureRequest) -> Iterator[Options]:
    state = Options.from_address(load().simulator_state())
    before = state.options, state.seed
    if request.param:
        state.options, state.seed = state.options | PERTURB, request.param
    yield state
    state.options, state.seed = before


@cache
def compiled() -> dict[str, bytes]:
    """Machine code of each function of SOURCE as clang makes it, without its return."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.c", Path(folder) / "source.s"
        source.write_text(SOURCE)
        flags = (
            "-x",
            "c",
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx1201",
            "-nogpulib",
            "-O2",
            "-ffp-contract=off",
            "-S",
        )
        subprocess.run([*ZIG, "clang", *flags, str(source), "-o", str(target)], check=True, capture_output=True)
        listing = target.read_text()
    functions = {}
    for name in ("divide", "root", "divide_wide", "root_wide", "divide_half"):
        body = listing.split(f"\n{name}:", 1)[1].split("s_setpc", 1)[0]
        lines = [line.split(";")[0].strip() for line in body.split("\n")[1:]]
        functions[name] = assemble("\n".join(line for line in lines if line.startswith("v_")))
    return functions


def outcome(name: str, arguments: list[Array]) -> Array:
    machine = Machine()
    kind = arguments[0].dtype
    for k, x in enumerate(arguments):
        dwords = x.view(np.uint16).astype(np.uint32) if kind.itemsize == 2 else x.view(np.uint32)
        for part in range(max(kind.itemsize // 4, 1)):
            machine.v[k * max(kind.itemsize // 4, 1) + part][:] = dwords.reshape(LANES, -1)[:, part].tolist()
    run(compiled()[name], machine)
    if kind.itemsize == 8:
        return np.array([machine.v[0], machine.v[1]], np.uint32).T.copy().view(np.float64)[:, 0]
    got = np.array(machine.v[0], np.uint32)
    return got.view(np.float32) if kind.itemsize == 4 else got.astype(np.uint16).view(np.float16)


def check(wanted: Array, got: Array, *sources: Array) -> None:
    wrong = ~same(wanted, got)
    assert not wrong.any(), [x[wrong].tolist() for x in (wanted, got, *sources)]


def arguments(letter: str, count: int, rng: np.random.Generator) -> list[Array]:
    kind = {"f": np.float32, "d": np.float64, "h": np.float16}[letter]
    raws = [quiet(values(letter, (LANES,), rng), letter) for _ in range(count)]
    return [np.ascontiguousarray(raw.astype(f"u{np.dtype(kind).itemsize}")).view(kind) for raw in raws]


def test_quotients_and_roots_are_exact(options: Options) -> None:
    rng = np.random.default_rng(options.seed)
    with np.errstate(all="ignore"):
        for _ in range(60):
            a, b = arguments("f", 2, rng)
            check(a / b, outcome("divide", [a, b]), a, b)
            assert same(np.sqrt(a), outcome("root", [a])).all(), a
            near = (np.float32(1) + rng.integers(0, 1 << 23, LANES).astype(np.float32) * np.float32(2.0**-23)).astype(
                np.float32
            )
            assert same(near[::-1] / near, outcome("divide", [near[::-1].copy(), near])).all()
            x, y = arguments("h", 2, rng)
            check(x / y, outcome("divide_half", [x, y]), x, y)


def test_doubles_are_exact(options: Options) -> None:
    rng = np.random.default_rng(options.seed)
    with np.errstate(all="ignore"):
        for _ in range(20):
            a, b = (x * 10.0 ** rng.integers(-30, 30, LANES) for x in rng.standard_normal((2, LANES)))
            assert same(a / b, outcome("divide_wide", [a, b])).all(), (a, b)
            assert same(np.sqrt(np.abs(a)), outcome("root_wide", [np.abs(a)])).all(), a


def test_subnormal_and_huge_quotients(options: Options) -> None:
    rng = np.random.default_rng(11)
    with np.errstate(all="ignore"):
        for _ in range(60):
            exponents = rng.integers(0, 255, (2, LANES), np.uint32)
            exponents[:, ::3] = rng.choice(np.array([0, 1, 2, 126, 252, 253, 254], np.uint32), exponents[:, ::3].shape)
            a, b = (exponents << 23 | rng.integers(0, 1 << 23, (2, LANES), np.uint32)).view(np.float32)
            check(a / b, outcome("divide", [a, b]), a, b)


def test_perturbation_is_a_function_of_its_input() -> None:
    state = Options.from_address(load().simulator_state())
    before = state.options, state.seed
    rng = np.random.default_rng(0)
    x = np.abs(rng.standard_normal(LANES)).astype(np.float32) + np.float32(0.01)
    machines: list[Array] = []
    try:
        for seed in (5, 5, 6):
            state.options, state.seed = before[0] | PERTURB, seed
            machine = Machine()
            machine.v[1][:] = x.view(np.uint32).tolist()
            run(assemble("v_exp_f32 v0, v1"), machine)
            machines.append(np.array(machine.v[0], np.int64))
    finally:
        state.options, state.seed = before
    exact = np.exp2(x.astype(np.float64)).astype(np.float32).view(np.uint32).astype(np.int64)
    assert (machines[0] == machines[1]).all() and (machines[0] != machines[2]).any()
    assert set((machines[0] - exact).tolist()) == {-1, 0, 1}
