"""Every kernel with cases for it, and what its results must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from arguments import Arguments, Case, arguments, cases, copied, results_of
from kernel_calls import Bench

from graphrun.core.op import Kernel, Op
from graphrun.core.quant import Q8
from graphrun.ops import OPS
from graphrun.ops.delta import CHUNKED

Absorbed = Sequence[tuple[Op, Mapping[str, Any]]]  # epilogues with their other operands
KERNELS = {f"{op.name}-{k.name}-{k.weight}": (op, k) for op in OPS.values() for k in op.kernels}
MOST = 29  # tokens that fit the caches of random arguments, from their first position


def fitting(op: Op, kernel: Any) -> Iterator[Case]:
    """Cases within a kernel's token counts and weight layout, some with more tokens than other tests take."""
    low, high = kernel.tokens
    for case in cases(op):
        counts = {max(low, 1), min(high, low + 3), case.tokens, min(high, MOST)}
        for tokens in sorted(t for t in counts if low <= t <= high):
            if kernel.weight in (None, case.layout) and (case.tokens == 1 or tokens == case.tokens):
                yield Case(tokens, case.layout, case.cache, case.optional, case.choice)


def close(got: Any, wanted: Any, rtol: float) -> bool:
    """Equal bits for integers and rtol 0, else within rtol of the largest magnitude; quantised copies may turn by 1."""
    if isinstance(wanted, Q8):
        steps = np.abs(got.q.astype(int) - wanted.q.reshape(got.q.shape))
        return close(got.d, wanted.d.reshape(got.d.shape), rtol) and steps.max() <= (rtol > 0) and steps.mean() < 0.02
    if wanted.dtype.kind == "i" or rtol == 0:
        return bool(np.array_equal(got, wanted))
    wide = wanted.astype(np.float64)
    tolerance = rtol * np.abs(wide).max() + (2.0**-11 * np.abs(wide) if wanted.dtype == np.float16 else 0)
    return bool((np.abs(got - wide) <= tolerance).all())


def exact(op: Op, case: Case) -> bool:
    """Whether results must have the bits of the numpy body.

    That sums dequantised weights in an order of its own, and solves the delta rule of many tokens in segments.
    """
    if op.name == "gemv_f32":
        return case.layout == "f32"
    return op.name != "delta_rule" or case.tokens < CHUNKED


def check(op: Op, bench: Bench, given: Arguments, case: Case) -> None:
    wanted = results_of(op, copied(given.values))
    states = {p.name: p for p in op.signature.inputs if p.state}
    rtol = 0 if exact(op, case) else op.rtol
    for output, reference in zip(op.signature.outputs, wanted, strict=True):
        if isinstance(output, str):
            assert close(bench.state(states[output], len(reference)), reference, rtol), (output, case)
        else:
            assert close(bench.result(output.name), reference, rtol), (output.name, case)


def check_epilogues(
    op: Op, kernel: Kernel, run: Callable[[Arguments, Absorbed], Bench], whole_blocks: bool = False
) -> None:
    """Every way to absorb some of an op's epilogues, in their order; `run` makes the call and runs it.

    With `whole_blocks` nothing is quantised whose blocks of 32 channels lie in two heads.
    """
    case = next(fitting(op, kernel))
    given = arguments(op, case)
    first = results_of(op, copied(given.values))[0]
    rng, other = np.random.default_rng(1), {"add": "x", "sigmoid_gate": "gate"}
    for chosen in range(1, 1 << len(op.epilogues)):
        extras = [OPS[e] for i, e in enumerate(op.epilogues) if chosen >> i & 1]
        if whole_blocks and OPS["quantize"] in extras and first.ndim == 3 and first.shape[-1] % 32:
            continue
        absorbed = [
            (e, {other[e.name]: rng.standard_normal(first.shape, np.float32)} if e.name in other else {})
            for e in extras
        ]
        bench = run(given, absorbed)
        value = first
        for index, (extra, others) in enumerate(absorbed):
            named = {p.name: others.get(p.name, value) for p in extra.signature.inputs}
            result = extra(**named) if extra.name != "quantize" else extra(value.reshape(len(value), -1))
            if index + 1 == len(absorbed) or extra.tee:
                rtol = 0 if exact(op, case) else 2 * op.rtol
                assert close(bench.result(f"{extra.name}.out"), result, rtol), (extra.name, case)
            value = value if extra.tee else result
