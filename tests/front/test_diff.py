"""The first call that makes something else: it is named exactly, and where all agree that is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from typer.testing import CliRunner, Result

from graphrun import load
from graphrun.cli import app
from graphrun.core.errors import UsageError
from graphrun.core.op import Op
from graphrun.core.quant import Q8
from graphrun.diff import Report, counterpart, diff
from graphrun.model import Model
from graphrun.ops import OPS

MODELS = GOLDEN / "models"
A = np.ndarray[Any, Any]


@cache
def model(name: str, activations: str = "q8") -> Model:
    return load(MODELS / f"{name}.gguf", backend="numpy", activations=activations)  # type: ignore[arg-type]


def changed(op: str, change: Callable[[Any], Any]) -> Mapping[str, Op]:
    """The ops with the first result of one of them changed."""

    def function(*args: Any, **kwargs: Any) -> Any:
        result = OPS[op].function(*args, **kwargs)
        if isinstance(result, tuple) and not isinstance(result, Q8):
            return change(result[0]), *result[1:]
        return change(result)

    return {**OPS, op: replace(OPS[op], function=function)}


def with_ops(name: str, ops: Mapping[str, Op], activations: str = "q8") -> Model:
    opened = model(name, activations)
    return Model(opened.file, opened.spec, opened.backend, ops=ops, activations=activations)  # type: ignore[arg-type]


def scaled(x: A) -> A:
    result: A = x * np.float32(1.001)
    return result


def last_one(x: A) -> A:
    x = x.copy()
    x.reshape(-1)[-1] += np.float32(1)
    return x


def next_id(x: A) -> A:
    result: A = x + np.int32(1)
    return result


CHANGES = [
    (op, change) for op in ("embed", "rms_norm", "gemv", "swiglu", "add", "attend") for change in (scaled, last_one)
]
CASES = [(name, *case) for name in ("llama-s.Q4_0", "qwen2-s.Q8_0", "qwen35-mtp.Q4_0") for case in CHANGES]


@pytest.mark.parametrize(("name", "op", "change"), [*CASES, ("llama-s.Q4_0", "argmax", next_id)])
def test_names_the_first_call_with_that_op(name: str, op: str, change: Callable[[A], A]) -> None:
    opened = model(name)
    program = opened.program("decode")
    first = next(c for c in program.calls if op in (c.op.name, *(e.op.name for e in c.epilogues)))
    found = diff(opened, with_ops(name, changed(op, change)), tokens=[5, 6])
    assert found.difference is not None
    place, position = found.difference.place, found.difference.pos
    assert program.calls[place.index] is first and position == 0
    assert (place.label, place.scope, place.span) == (first.label, first.scope, first.span)
    assert found.difference.relative > found.difference.rtol


@pytest.mark.parametrize("op", ["store", "delta_rule", "conv_silu"])
def test_names_a_call_that_changes_only_a_state(op: str) -> None:
    """States are compared too: what is stored wrongly is found where it is stored, before anything reads it."""

    def function(*args: Any, **kwargs: Any) -> Any:
        result = OPS[op].function(*args, **kwargs)
        for state in result[1:] if op != "store" else result[1:2]:
            state += np.asarray(0.5, state.dtype)
        return result

    name = "llama-s.Q4_0" if op == "store" else "qwen35-k.Q4_K_M"
    ops = {n: o for n, o in OPS.items() if n not in ("rope_store", "qk_norm_rope_store", "delta_layer")}
    whole = with_ops(name, ops)
    broken = with_ops(name, {**ops, op: replace(OPS[op], function=function)})
    found = diff(whole, broken, tokens=[5])
    assert found.difference is not None
    assert op in found.difference.place.names and found.difference.place.scope.startswith("0.")


STEPS = [("decode", 3), ("verify", 18), ("prefill", 40)]
PLANS = [(name, *s) for name in ("llama-s.Q4_0", "qwen2-k.Q4_K_M", "qwen35-mtp.Q4_0", "qwen35-k.Q4_K_M") for s in STEPS]


@pytest.mark.parametrize("activations", ["q8", "exact"])
@pytest.mark.parametrize(("name", "step", "tokens"), [*PLANS, ("qwen35-mtp.Q4_0", "draft", 5)])
def test_a_plan_is_its_graph_bit_for_bit(name: str, activations: str, step: str, tokens: int) -> None:
    opened = model(name, activations)
    found = diff(opened, step=step, tokens=[(7 * i) % 320 for i in range(tokens)])
    assert found.difference is None and found.largest == 0, str(found)
    runs = {"decode": 3, "verify": 2, "prefill": 1, "draft": 1}[step]
    assert found.steps == runs
    calls = len(opened.program(step, min(tokens, 16) if step == "verify" else 1 if step == "decode" else tokens).calls)
    assert found.values >= found.calls >= 0.95 * calls * (runs if step == "decode" else 1)


def test_a_pass_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fused op that computes something else than what it replaces."""
    wrong = replace(OPS["delta_layer"], function=changed("delta_layer", scaled)["delta_layer"].function)
    found = diff(with_ops("qwen35-mtp.Q4_0", {**OPS, "delta_layer": wrong}), tokens=[3])
    assert found.difference is not None and found.difference.place.label == "delta_layer+quantize"
    assert found.difference.place.scope == "0.delta" and found.difference.rtol == 0


@pytest.mark.parametrize(("name", "scope"), [("llama-s.Q4_0", "0.attention"), ("qwen35-mtp.Q4_0", "0.delta")])
def test_q8_against_exact_names_the_first_call_that_rounds(name: str, scope: str) -> None:
    found = diff(model(name), model(name, "exact")).difference
    assert found is not None
    assert (found.place.index, found.place.label, found.place.scope) == (1, "rms_norm+quantize", scope)
    assert found.name == "x" and 1 / 300 < found.relative < 1 / 100 and found.pos == 0


def test_bounds_and_tolerance() -> None:
    one, two = model("llama-s.Q4_0"), model("llama-s.Q4_0", "exact")
    in_layer = diff(one, two, layer=1).difference
    assert in_layer is not None and in_layer.place.scope == "1.attention"
    whole = diff(one, two, rtol=10.0)
    assert whole.difference is None and 0 < whole.largest < 10 and whole.steps == 8
    part = diff(one, two, rtol=10.0, layer=1, until="swiglu")
    assert part.difference is None and 0 < part.calls < whole.calls / 2
    before = diff(one, two, until="embed")
    assert before.difference is None and before.calls == before.values == 8


def test_the_report() -> None:
    text = str(diff(model("llama-s.Q4_0"), with_ops("llama-s.Q4_0", changed("swiglu", last_one)), tokens=[5]))
    lines = text.splitlines()
    assert lines[0] == ("llama.yaml:85:10: at position 0, call 8, swiglu+quantize of 0.ffn, makes another y")
    assert lines[1] == "          y: swiglu(linear(x, gate, b_gate), linear(x, up, b_up))"
    assert lines[2].strip() == "^" and lines[3].startswith("  numpy q8: y[0, ")
    assert lines[4].startswith("  largest difference ") and "of the largest value; tolerance " in lines[4]
    assert str(Report(("numpy q8", "the graph as written"), 1, 2, 3)) == (
        "numpy q8 and the graph as written agree: 3 values of 2 calls in 1 step compared, every value is the same"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": "decod"}, "llama has no step 'decod'\n  hint: did you mean 'decode'?"),
        ({"tokens": [1], "step": "verify"}, "step verify takes 2..16 tokens, not 1"),
        ({"tokens": [320]}, "there is no token 320: the vocabulary has 320"),
        ({"layer": 2}, "there is no layer 2 in decode"),
        ({"until": "swigu"}, "no call of decode has the op 'swigu'\n  hint: did you mean 'swiglu'?"),
        ({"tokens": [1] * 300}, "300 tokens do not fit the context of 256"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        diff(model("llama-s.Q4_0"), **options)
    assert str(caught.value) == message


def test_what_to_compare_with() -> None:
    opened = model("llama-s.Q4_0")
    assert counterpart(opened, None, None, None, True) is None
    exact = counterpart(opened, None, None, "exact", False)
    assert exact is not None and exact.exact and exact.backend is opened.backend and exact.file is opened.file
    other = counterpart(opened, "numpy", 1, None, False)
    assert other is not None and not other.exact and other.backend is not opened.backend
    with pytest.raises(UsageError, match="^against what?"):
        counterpart(opened, None, None, None, False)
    with pytest.raises(UsageError, match="--raw is the graph as written"):
        counterpart(opened, "numpy", None, None, True)


class TestCommand:
    def call(self, *args: object) -> Result:
        return CliRunner().invoke(app, ["diff", str(MODELS / "llama-s.Q4_0.gguf"), *map(str, args)])

    def test_agreement(self) -> None:
        for options in (("--raw", "--step", "verify"), ("--against", "numpy", "--tokens", "1,2"), ("--raw", "-p", "a")):
            result = self.call(*options)
            assert result.exit_code == 0 and " agree: " in result.stdout, result.output
            assert result.stdout.endswith("compared, every value is the same\n")

    def test_difference(self) -> None:
        result = self.call("--against-activations", "exact", "--layer", 1, "--until", "rms_norm")
        assert result.exit_code == 1
        assert result.stdout.startswith("llama.yaml:63:13: at position 0, call 10, rms_norm+quantize of 1.attention")

    def test_nothing_to_compare_with(self) -> None:
        result = self.call()
        assert (result.exit_code, result.stdout) == (2, "") and "against what?" in result.stderr
