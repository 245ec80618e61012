"""The integer core: its laws on random and edge values, ints against arrays, and the plan check against brute force."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from prove import plans
from prove.samples import Noise, arguments, function_arguments

from graphrun.core import laws, laws_layout, laws_pin
from graphrun.core.ie import (
    FUNCTIONS,
    Plan,
    first_conflict,
    ie_byte,
    ie_plan_check,
    ie_q4_src_blk,
    ie_q4_src_qbyte,
    ie_seq_sum,
    ie_sext8,
    ie_strided_sum,
    ie_tree,
    plan,
)
from graphrun.core.law import Law, laws_of
from graphrun.core.u32 import Fn

LAWS = laws_of([laws, laws_pin, laws_layout])


@pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
def test_law_holds(law: Law) -> None:
    met = 0
    for values in arguments(law, 4000, seed=1):
        premise, holds = law.check(*values)
        assert np.all(holds), f"{law.statement}\n{law.name} fails for {_first_failure(law, values, holds)}"
        met += int(np.sum(np.broadcast_to(premise, np.shape(holds))))
    assert met >= (20 if law.fn.params else 1), f"only {met} samples meet the premise"


def _first_failure(law: Law, values: list[Any], holds: Any) -> dict[str, Any]:
    at = int(np.argmin(np.broadcast_to(holds, max(np.size(v) for v in [holds, *values]))))
    return {p: int(v[at % len(v)]) for p, v in zip(law.fn.params, values, strict=True) if isinstance(v, np.ndarray)}


@pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
def test_law_holds_on_ints(law: Law) -> None:
    for values in list(arguments(law, 30, seed=2))[:30]:
        size = max([len(v) for v in values if isinstance(v, np.ndarray)], default=1)
        for at in range(size):
            one = [int(v[at % len(v)]) if isinstance(v, np.ndarray) else v for v in values]
            assert law.check(*one)[1], f"{law.name}{one}"


def test_there_are_33_laws_and_every_function_has_one() -> None:
    assert len(laws_of([laws])) + len(laws.PLAN_LAWS) == 33
    text = "".join(inspect.getsource(m) for m in (laws, laws_pin, laws_layout))
    assert [f.name for f in FUNCTIONS if f"{f.name}(" not in text] == []


@pytest.mark.parametrize("fn", FUNCTIONS, ids=[f.name for f in FUNCTIONS])
def test_arrays_give_what_ints_give(fn: Fn[Any]) -> None:
    values = function_arguments(fn, 200, seed=3)
    got = fn(*values)
    for at in range(200 if "int" in fn.kinds else 1):
        one = fn(*(int(v[at]) if isinstance(v, np.ndarray) else v for v in values))
        assert type(one) is (bool if fn.result == "bool" else int)
        assert one == (got if np.ndim(got) == 0 else got[at % len(got)])
        assert 0 <= one < 1 << 32
    if "int" in fn.kinds:
        assert got.dtype == (np.bool_ if fn.result == "bool" else np.uint32)


def test_words_wrap_and_broadcast() -> None:
    rows = np.arange(4, dtype=np.uint32)[:, None]
    bytes_of = ie_q4_src_qbyte(rows, 1, np.arange(16), 3)
    assert bytes_of.shape == (4, 16) and bytes_of[2, 5] == (2 * 3 + 1) * 18 + 7
    assert ie_q4_src_blk(1 << 31, 0, 2) == 0
    assert ie_q4_src_blk(np.array([1 << 31], dtype=np.uint32), 0, 2) == 0
    assert ie_byte(0x80FF7F01, 3) == 0x80 and ie_byte(np.uint32(0x80FF7F01), 1) == 0x7F
    assert ie_sext8(0x80) == 0xFFFFFF80 and ie_sext8(-1) == 0xFFFFFFFF
    with pytest.raises(TypeError, match="ie_byte takes 2 arguments, got 1"):
        ie_byte(1)


def test_memory_is_read_within_its_bounds() -> None:
    with pytest.raises(IndexError):
        ie_seq_sum(5, [1, 2, 3], 0, 5)
    assert ie_seq_sum(2, [1, 2, 3], 0, 3) == 3, "the fuel ends the sum"


@pytest.mark.parametrize("nb", [0, 1, 31, 32, 33, 64, 95, 543, 1499])
def test_strided_sum_on_long_arrays(nb: int) -> None:
    x = Noise(nb)[np.arange(nb, dtype=np.uint64)] if nb else np.zeros(0, np.uint32)
    assert ie_strided_sum(x, nb) == ie_seq_sum(nb, x, 0, nb) == int(x.sum(dtype=np.uint64)) & 0xFFFFFFFF


class Text(str):
    """A sum that remembers its order."""

    def __add__(self, other: str) -> Text:
        return Text(f"({self}+{other})")


class Texts:
    """An array of such sums."""

    def __getitem__(self, index: int) -> Text:
        return Text(index)

    def ie_call(self, fn: Fn[Any], args: tuple[Any, ...]) -> Any:
        return fn.body(*args)


def test_tree_pairs_the_far_half_first() -> None:
    level = [Text(i) for i in range(32)]
    while len(level) > 1:
        half = len(level) // 2
        level = [a + b for a, b in zip(level[:half], level[half:], strict=True)]
    assert ie_tree(5, Texts(), 0) == level[0]


def test_plan_check_against_brute_force() -> None:
    rng = np.random.default_rng(5)
    accepted = sum(plans.judge(plans.random_plan(rng)) for _ in range(1000))
    assert 200 < accepted < 800, "random plans should be of both kinds"


def test_plan_laws_on_accepted_plans() -> None:
    rng = np.random.default_rng(6)
    candidates = [plans.random_plan(rng) for _ in range(500)]
    accepted = [p for p in candidates if p.n > 1 and ie_plan_check(p)]
    assert sum(plans.probe(p, rng) for p in accepted for _ in range(50)) > 500


def test_plan_corner_cases() -> None:
    assert ie_plan_check(plan([], 0)) and first_conflict(plan([], 0)) is None
    touching = plan([(0, 256, 0, 3), (0, 256, 3, 5)], 256)
    assert first_conflict(touching) == (0, 1), "one step in common is living together"
    assert ie_plan_check(plan([(0, 256, 0, 3), (0, 256, 4, 5)], 256))
    assert ie_plan_check(plan([(0, 100, 0, 3), (256, 1, 0, 3)], 257)), "neither size nor arena is aligned"
    assert first_conflict(plan([(0, 257, 0, 3), (256, 1, 0, 3)], 512)) == (0, 1)
    assert first_conflict(plan([(0, 8, 0, 1), (128, 8, 2, 3)], 512)) == (1, 1)
    assert first_conflict(plan([(0, 8, 0, 1), (256, 257, 0, 1)], 512)) == (1, 1)
    assert first_conflict(plan([(0, 8, 1, 0)], 512)) == (0, 0)
    lopsided = Plan([0], [1], [0], [], 256)
    assert not ie_plan_check(lopsided)
    with pytest.raises(ValueError, match="lists of one length"):
        first_conflict(lopsided)
