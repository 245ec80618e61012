"""Every op in the table, by its definition alone: types, views, states, costs, and fused ops against their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arguments import NUMPY, A, Arguments, arguments, cases, copied, parts_of, results_of

from graphrun.core.equations import equations
from graphrun.core.op import Op
from graphrun.core.quant import Q8
from graphrun.core.signature import SignatureError, Tensor, evaluate, require
from graphrun.core.types import TensorType
from graphrun.ops import OPS
from graphrun.planner.select import dimensions

every_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
FUSED = {name: op for name, op in OPS.items() if op.fuses is not None}
ROUNDING = 0.05  # of the largest result: what rounded activations may change in these small products


def type_of(array: Any, like: TensorType) -> TensorType:
    """The type of a result; `like` tells how its numpy dtype is named."""
    if isinstance(array, Q8):
        assert (array.q.dtype, array.d.dtype, array.asum.dtype) == (np.int8, np.float32, np.uint32)
        assert array.q.shape == (*array.d.shape, 32) and array.asum.shape == array.d.shape
        assert like.dtype.name == "q8"
        return TensorType(like.dtype, (*array.q.shape[:-2], array.q.shape[-2] * 32))
    assert isinstance(array, np.ndarray) and array.dtype == NUMPY[like.dtype.name]
    return TensorType(like.dtype, array.shape)


def bits(value: Any) -> list[bytes]:
    return [part.tobytes() for part in parts_of(value)]


@every_op
def test_results_have_the_inferred_types(op: Op) -> None:
    for case in cases(op):
        given = arguments(op, case)
        inferred = op.signature.infer(given.types, given.attrs)
        results = results_of(op, given.values)
        assert len(results) == len(inferred), case
        assert tuple(map(type_of, results, inferred)) == inferred, case


@every_op
def test_results_are_finite_and_depend_on_the_inputs(op: Op) -> None:
    for case in cases(op):
        first, other = (results_of(op, arguments(op, case, seed).values) for seed in (0, 1))
        assert all(np.isfinite(part).all() for result in first for part in parts_of(result)), case
        if case.tokens > 1:
            assert [bits(r) for r in first] != [bits(r) for r in other], case


@every_op
def test_inputs_are_left_alone_and_states_updated_in_place(op: Op) -> None:
    for case in cases(op):
        given = arguments(op, case)
        before = {name: bits(value) for name, value in given.values.items() if name in given.types}
        results = results_of(op, given.values)
        states = {p.name for p in op.signature.inputs if p.state}
        for name, old in before.items():
            assert (bits(given.values[name]) == old) == (name not in states), (name, case)
        for output, result in zip(op.signature.outputs, results, strict=True):
            if isinstance(output, str):
                assert result is given.values[output], case


@every_op
def test_the_same_inputs_give_the_same_bits(op: Op) -> None:
    for case in cases(op):
        given = arguments(op, case)
        again = copied(given.values)
        assert [bits(r) for r in results_of(op, given.values)] == [bits(r) for r in results_of(op, again)], case


@every_op
def test_only_views_share_memory_with_their_input(op: Op) -> None:
    for case in cases(op):
        given = arguments(op, case)
        held = [part for name in given.types for part in parts_of(given.values[name])]
        for output, result in zip(op.signature.outputs, results_of(op, given.values), strict=True):
            if isinstance(output, Tensor):
                shared = any(np.may_share_memory(part, there) for part in parts_of(result) for there in held)
                assert shared == op.view, (output.name, case)
    if op.view:
        assert not op.kernels and np.may_share_memory(
            results_of(op, given.values)[0], next(iter(given.values.values()))
        )


@every_op
def test_costs_can_be_computed(op: Op) -> None:
    for case in cases(op):
        given = arguments(op, case)
        sizes = dimensions(op, given.in_order(op), given.attrs, case.tokens)
        assert evaluate(op.flops, sizes) >= 0
        assert op.reads is None or evaluate(op.reads, sizes) > 0
        assert all(evaluate(kernel.groups, sizes) >= 1 for kernel in op.kernels), case


@every_op
def test_definitions_are_complete(op: Op) -> None:
    words = op.formula.replace(",", " ").replace(".", " ").split()
    assert op.formula.endswith((".", ",")) and len(op.formula) <= 120
    if op.fuses is None:
        assert "=" in words, "the first line of the docstring is the formula"
    expanded = all(not k.when or k.body for k in op.expansions) and bool(op.expansions)
    assert bool(op.kernels) != (op.view or expanded), "a kernel, an expansion, or a view"
    assert all(name in OPS for name in op.epilogues)
    for kernel in op.kernels:
        assert 1 <= kernel.tokens[0] <= kernel.tokens[1]


@every_op
def test_types_that_do_not_fit_are_refused(op: Op) -> None:
    """Each tensor with one dimension more is refused with its name, and so is each that is missing."""
    given = arguments(op, next(cases(op)))
    for parameter in op.signature.inputs:
        if parameter.name not in given.types:
            continue
        type_ = given.types[parameter.name]
        if "..." not in parameter.dims:
            grown = {**given.types, parameter.name: TensorType(type_.dtype, (*type_.shape, 2))}
            with pytest.raises(SignatureError, match=rf"\b{parameter.name}\b"):
                op.signature.infer(grown, given.attrs)
        if not parameter.optional:
            rest = {name: t for name, t in given.types.items() if name != parameter.name}
            with pytest.raises(SignatureError, match=f"{parameter.name} is missing"):
                op.signature.infer(rest, given.attrs)


def run_parts(op: Op, values: dict[str, Any]) -> dict[str, Any]:
    """The equations that a fused op replaces, each by the op of that name in the table."""
    known = dict(values)
    for equation in equations(op.fuses or ""):
        part = OPS[equation.op]
        names = part.signature.parameter_names[: len(equation.arguments)]
        chosen = {name: known[a] for name, a in zip(names, equation.arguments, strict=True) if a in known}
        known |= zip(equation.outputs, results_of(part, chosen), strict=True)
    return known


def part_types(op: Op, given: Arguments) -> dict[str, TensorType]:
    known = dict(given.types)
    for equation in equations(op.fuses or ""):
        signature = OPS[equation.op].signature
        pairs = dict(zip(signature.parameter_names, equation.arguments, strict=False))
        types = {n: known[pairs[n]] for n in signature.input_names if pairs.get(n) in known}
        attrs = {a.name: given.attrs[pairs[a.name]] for a in signature.attrs if pairs.get(a.name) in given.attrs}
        known |= zip(equation.outputs, signature.infer(types, attrs), strict=True)
    return known


@pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
def test_a_fused_op_is_its_parts(op: Op) -> None:
    for case in cases(op):
        given = arguments(op, case)
        apart = run_parts(op, copied(given.values))
        names = [o if isinstance(o, str) else o.name for o in op.signature.outputs]
        for name, result in zip(names, results_of(op, given.values), strict=True):
            assert bits(result) == bits(apart[name]), (name, case)
        types = part_types(op, given)
        assert op.signature.infer(given.types, given.attrs) == tuple(types[name] for name in names), case


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.expansions], ids=str)
def test_expansions_compute_the_op(op: Op) -> None:
    """To the bit, or near where they round activations; for every type of weight there is one that does not."""
    for case in cases(op):
        given = arguments(op, case)
        quantised = given.types["w"].dtype.quantised
        expected: A = results_of(op, given.values)[0]
        for expansion in op.expansions:
            if expansion.when == "f32" or quantised:
                known = dict(given.values)
                for equation in equations(expansion.body):
                    chosen = dict(zip(OPS[equation.op].signature.parameter_names, equation.arguments, strict=False))
                    part = {name: known[a] for name, a in chosen.items() if a in known}
                    known[equation.outputs[0]] = OPS[equation.op](**part)
                off = np.abs(known[equation.outputs[-1]] - expected).max() / np.abs(expected).max()
                assert off <= (ROUNDING if expansion.rounds else 0), (expansion.body, case)


def test_conditions_on_sizes() -> None:
    require("N % 32 == 0, k <= V, side < 2, P == width // 2", {"N": 64, "k": 3, "V": 3, "side": 1, "width": 8})
    with pytest.raises(SignatureError, match=r"k <= V does not hold \(V = 2, k = 3\)") as caught:
        require("k <= V", {"k": 3, "V": 2})
    assert caught.value.parameter == "k"
    with pytest.raises(SignatureError, match="P == width // 2 does not hold"):
        require("P == width // 2", {"P": 3, "width": 8})
