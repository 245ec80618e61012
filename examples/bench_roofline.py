"""What a decode step must move on an R9700, and what its products load in software: bench_roofline.py [MODEL ...].

The models are headers with the shapes of real ones: no weights are read. Times are estimates that no card has
confirmed: bytes over the maker's bandwidth. Counters are those of gfx1201 in software (tests/sim), for a few rows of
each matrix and scaled to all; without it they are "not measured".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.backends.hip import BANDWIDTH, SLOW_GROUPS
from graphrun.console import columns
from graphrun.core.program import Call, Program
from graphrun.core.quant import quantise
from graphrun.core.target import Target
from graphrun.core.types import DTYPES, TensorType
from graphrun.graphs.elaborate import elaborate
from graphrun.graphs.spec import load_spec
from graphrun.ops import OPS
from graphrun.planner.cost import cost, total
from graphrun.planner.lower import lower

TESTS = Path(__file__).resolve().parent.parent / "tests"
R9700 = Target("hip", "gpu", 32 << 30, BANDWIDTH, slow_groups=SLOW_GROUPS)
MODELS = ("qwen2.5-0.5b-q4_0", "qwen3.5-0.8b-q8_0", "qwen3.8-27b-q4_k_m")
MOST = 1.05  # bytes loaded for each byte needed
FEW, MORE = 8, 24  # rows that are run: their difference is that of rows alone
CONTEXT = 4096
SUMLESS = ("q8_0",)  # layouts whose products need no sums of activations


@dataclass(frozen=True)
class Tensor:
    """A tensor's type and shape."""

    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Header:
    """The header of a model file that does not exist."""

    metadata: dict[str, object]
    tensors: dict[str, Tensor]
    path: str


@dataclass(frozen=True)
class Traffic:
    """Of products' rows: bytes that lanes load and those that they need, 128-byte lines touched by instructions and
    the fewest for as many bytes, instructions of waves, and weight blocks."""

    loaded: float = 0
    needed: float = 0
    lines: float = 0
    fewest_lines: float = 0
    instructions: float = 0
    blocks: float = 0

    def plus(self, other: Traffic, rows: int) -> Traffic:
        """With so many rows like the other's one."""
        return Traffic(*(a + rows * b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def cells(self) -> list[str]:
        ratios = (self.loaded / self.needed, self.lines / self.fewest_lines, 32 * self.instructions / self.blocks)
        return [f"{ratios[0]:.3f}{' !' if ratios[0] > MOST else ''}", f"{ratios[1]:.2f}", f"{ratios[2]:.0f}"]


Product = tuple[str, int]  # layout and columns
NOT_MEASURED = ["not measured"] * 3


def program(name: str) -> Program:
    """The decode step of a model of examples/random_model.py."""
    made: Any = import_module("random_model")  # beside this file
    shape = made.MODELS[name]
    facts = {f"{shape.arch}.{key}": value for key, value in made.metadata(shape).items()}
    facts |= {"general.architecture": shape.arch, "tokenizer.ggml.tokens": [""] * shape.vocabulary}
    header = Header(facts, {t.name: Tensor(t.kind.name.lower(), t.shape) for t in made.tensors(shape)}, name)
    return lower(elaborate(load_spec(shape.arch), header, OPS, "decode", 1, context=CONTEXT), OPS, R9700)


def product(call: Call) -> tuple[Product, int] | None:
    """What a call multiplies by, and its rows; None if it is no product of quantised weights."""
    if call.op.name != "gemv":
        return None
    weight = call.inputs[call.op.signature.input_names.index("w")]
    assert weight is not None
    rows, width = weight.type.shape
    return (weight.type.dtype.name, width), rows


def measured(products: Iterable[Product]) -> dict[Product, Traffic]:
    """The traffic of one row of each product, by the simulator's counters; exits where a result is not numpy's."""
    sys.path.append(str(TESTS))
    from gpu_bench import GpuBench
    from sim.launches import COUNT, Simulator
    from simulated import gfx1201

    found = {}
    with gfx1201() as gpu:
        simulator = Simulator()
        simulator.options(COUNT)
        for layout, width in products:
            kernel = next(k for k in OPS["gemv"].kernels if k.weight == layout and k.tokens == (1, 1))
            counters = []
            for rows in (FEW, MORE):
                given = arguments(layout, rows, width)
                bench = GpuBench(OPS["gemv"], kernel.name, given)
                simulator.counters()  # from here on
                bench.run_on(gpu.device, gpu.kernels, kernel)
                counters.append(simulator.counters())
                if not np.array_equal(bench.result("y"), given.values["w"].product(given.values["x"])):
                    sys.exit(f"{kernel.name} of {width} columns has other bits than numpy")
            found[layout, width] = one_row(layout, width, *counters)
    return found


def arguments(layout: str, rows: int, width: int) -> Any:
    """A random matrix and a token."""
    from arguments import Arguments
    from quant_cases import FULL, matrix, random_rows

    rng = np.random.default_rng(0)
    w = matrix(FULL[layout], layout, random_rows(rng, FULL[layout], rows, width, "plain"))
    x = quantise(rng.standard_normal((1, width), np.float32))
    types = {"x": TensorType(DTYPES["q8"], (1, width)), "w": TensorType(DTYPES[layout], (rows, width))}
    return Arguments({"x": x, "w": w}, types, {})


def one_row(layout: str, width: int, few: Mapping[str, int], more: Mapping[str, int]) -> Traffic:
    """A row's part of the counters; it needs its weights, and a token's integers, scales and mostly their sums."""
    each = {name: (more[name] - few[name]) / (MORE - FEW) for name in few}
    blocks = width // 32
    needed = TensorType(DTYPES[layout], (1, width)).nbytes + blocks * (36 if layout in SUMLESS else 40)
    return Traffic(each["load_bytes"], needed, each["lines"], each["needed_lines"], each["instructions"], blocks)


def reason_not_to_measure() -> str:
    """Why there is no simulator, "" if there is one."""
    if not (TESTS / "sim" / "launches.py").is_file():
        return "tests/sim is not here"
    return "" if find_spec("rocm") else "pip install 'graphrun[hip]' brings what reaches the simulator"


def table(step: Program, positions: int, rows: Mapping[Product, Traffic]) -> str:
    """A line for each kernel of a step, those that move most first, and one for all."""
    calls: dict[str, list[Call]] = {}
    for call in step.calls:
        calls.setdefault(call.kernel.name, []).append(call)
    costs = {name: [cost(step, call, positions) for call in each] for name, each in calls.items()}
    whole, everything = total(step, positions), Traffic()
    lines = [["kernel", "calls", "MB", "us", "share", "loaded/needed", "lines/fewest", "instructions/block"]]
    for name in sorted(calls, key=lambda n: -sum(c.bytes for c in costs[n])):
        products = [found for call in calls[name] if (found := product(call))]
        traffic = Traffic()
        for key, count in products:
            traffic = traffic.plus(rows[key], count) if rows else traffic
        everything = everything.plus(traffic, 1)
        counted = (traffic.cells if traffic.blocks else NOT_MEASURED) if products else ["", "", ""]
        nbytes, seconds = sum(c.bytes for c in costs[name]), sum(c.seconds for c in costs[name])
        lines.append([name, *_costs(len(calls[name]), nbytes, seconds, whole.bytes), *counted])
    counted = everything.cells if everything.blocks else NOT_MEASURED
    lines.append(["step", *_costs(len(step.calls), whole.bytes, whole.seconds, whole.bytes), *counted])
    return columns(lines, right=range(1, 8))


def _costs(calls: int, nbytes: int, seconds: float, whole: int) -> list[str]:
    return [str(calls), f"{nbytes / 1e6:.2f}", f"{seconds * 1e6:.1f}", f"{100 * nbytes / whole:.1f} %"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="by default three of random_model.py --list")
    parser.add_argument("--positions", type=int, default=64, metavar="N", help="positions of the cache in use (64)")
    parser.add_argument("--no-counters", action="store_true", help="bytes and times only")
    given = parser.parse_args()
    known = import_module("random_model").MODELS
    for name in given.models:
        if name not in known:
            parser.error(f"there is no model '{name}'; known: {', '.join(known)}")
    steps = {name: program(name) for name in given.models or MODELS}
    reason = "they were not asked for" if given.no_counters else reason_not_to_measure()
    products = dict.fromkeys(found[0] for step in steps.values() for call in step.calls if (found := product(call)))
    rows = {} if reason else measured(products)
    print(
        f"Estimates for an R9700 at {BANDWIDTH / 1e9:.0f} GB/s: no card ran this. MB and us are the least of each call."
    )
    print(f"Counters are not measured: {reason}." if reason else NOTES)
    for name, step in steps.items():
        seconds = total(step, given.positions).seconds
        print(f"\n{name}: a decode step with {given.positions} positions in use, at most {1 / seconds:.0f} tokens/s")
        print(table(step, given.positions, rows))


NOTES = f"""\
Counters are of {MORE - FEW} rows of each matrix on gfx1201 in software, scaled to all rows of the step:
  loaded/needed       bytes of weights and activations that lanes load, to those of a row; ! is above {MOST}. Lanes that
                      load the same bytes at once count once; what caches keep from memory is not known.
  lines/fewest        128-byte lines touched by each load instruction, to the fewest that hold what it loads
  instructions/block  of a wave, for 32 weight blocks: one of each lane"""


if __name__ == "__main__":
    main()
