"""Traced strings behave like strings, and never mark a character that the template did not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrun.provenance import Traced, concat, flags_of, runs, written

# the template writes capitals, "-" and spaces; users write small letters, "." and tabs
TEMPLATE = st.text("AB- \n", max_size=6)
USER = st.text("ab.\t\r", max_size=6)
MIXED = st.lists(st.one_of(TEMPLATE.map(written), USER), max_size=6).map(concat)

Operation = Callable[[Any, Any, Any], Any]
OPERATIONS: dict[str, Operation] = {
    "add": lambda s, t, n: s + t,
    "mul": lambda s, t, n: s * abs(n) + abs(n) * t,
    "index": lambda s, t, n: s[n] if -len(s) <= n < len(s) else s[0:0],
    "slice": lambda s, t, n: s[n:],
    "step": lambda s, t, n: s[::-1][: n or None],
    "strip": lambda s, t, n: s.strip() + s.strip(t or None),
    "lstrip": lambda s, t, n: s.lstrip() + s.lstrip(t or None),
    "rstrip": lambda s, t, n: s.rstrip() + s.rstrip(t or None),
    "split": lambda s, t, n: s.split(t or None, n),
    "rsplit": lambda s, t, n: s.rsplit(t or None, n),
    "splitlines": lambda s, t, n: s.splitlines() + s.splitlines(True),
    "partition": lambda s, t, n: list(s.partition(t or "-")),
    "rpartition": lambda s, t, n: list(s.rpartition(t or "-")),
    "replace": lambda s, t, n: s.replace(s[:1], t, n),
    "replace t": lambda s, t, n: s.replace(t, s, n),
    "join": lambda s, t, n: t.join([s, t, s[:n]]),
    "removeprefix": lambda s, t, n: s.removeprefix(t) + s.removeprefix(s[:1]),
    "removesuffix": lambda s, t, n: s.removesuffix(t) + s.removesuffix(s[-1:]),
    "cases": lambda s, t, n: [s.upper().lower(), s.title(), s.capitalize()],
    "others": lambda s, t, n: [s.center(9), s.zfill(9), s.swapcase(), f"{s}{t}", s.format(), s.expandtabs(), str(s)],
}


@pytest.mark.parametrize("name", OPERATIONS)
@settings(deadline=None, max_examples=50)
@given(MIXED, MIXED, st.integers(-4, 4))
def test_operations_equal_those_of_str_and_invent_no_flags(name: str, s: str, t: str, n: int) -> None:
    operation = OPERATIONS[name]
    got, want = operation(s, t, n), operation("".join(s), "".join(t), n)
    assert got == want
    for text in got if isinstance(got, list) else [got]:
        assert len(flags_of(text)) == len(text)
        for char, flag in zip(text, flags_of(text), strict=True):
            assert not flag or char.upper() in "AB- \n"
    if name in KEEPS_ALL:
        for text in got if isinstance(got, list) else [got]:
            assert all(flag for char, flag in zip(text, flags_of(text), strict=True) if char in "AB- \n")


KEEPS_ALL = OPERATIONS.keys() - {"others", "cases", "replace", "replace t"}


def test_replacing_keeps_the_flags_of_both_texts() -> None:
    text = written("<X>").replace("X", "a").replace("a", written("B"))
    assert (text, flags_of(text)) == ("<B>", b"\1\1\1")
    assert flags_of(written("<X>").replace("X", "a")) == b"\1\0\1"
    assert flags_of(written("AB").replace("", "-")) == bytes(5), "an unusual case loses trust"


def test_a_case_mapping_that_changes_the_length_loses_trust() -> None:
    text = written("ß") + "a"
    assert (text.upper(), flags_of(text.upper())) == ("SSA", bytes(3))


def test_new_strings_are_not_trusted() -> None:
    assert flags_of(Traced("abc")) == bytes(3) == flags_of("abc")
    assert {"a": 1}[written("a")] == 1


def test_runs_are_longest_stretches() -> None:
    assert list(runs(concat([written("A"), written("B"), "a", "", "b", written("A")]))) == [
        ("AB", True),
        ("ab", False),
        ("A", True),
    ]
    assert list(runs("")) == []
