"""Drafts from the text: the longest match counts, and the MTP layer must agree with it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrun.draft import MtpDrafter, Read
from graphrun.lookup import AGREE, LONGEST, Lookup, MtpWithLookup


class TestLookup:
    def found(self, history: Sequence[int], count: int = 4) -> tuple[list[int], int]:
        lookup = Lookup()
        lookup.follow(0, history[:-1], lambda _: pytest.fail("it reads nothing"))
        return lookup.find(history[-1], count)

    @pytest.mark.parametrize(
        ("history", "expected"),
        [
            ([1, 2, 3, 4, 5, 6, 1, 2], ([3, 4, 5, 6], 2)),
            ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], ([9, 2, 3, 8], 3)),  # the longest, not the last
            ([1, 2, 3, 1, 2, 4, 1, 2], ([4, 1, 2, 4], 2)),  # of equals the last, then on in its period
            ([7, 7, 7], ([7, 7, 7, 7], 2)),
            ([1, 2, 1], ([], 0)),  # one token is no match
            ([3], ([], 0)),
            ([*range(20), *range(20)], ([0, 1, 2, 3], LONGEST)),
        ],
    )
    def test_match(self, history: list[int], expected: tuple[list[int], int]) -> None:
        assert self.found(history) == expected

    @settings(max_examples=200, derandomize=True, deadline=None)
    @given(history=st.lists(st.integers(0, 2), min_size=1, max_size=40), count=st.integers(1, 15))
    def test_match_is_that_of_a_plain_search(self, history: list[int], count: int) -> None:
        best, place = 0, 0
        for end in range(2, len(history)):
            length = 0
            while length < min(LONGEST, end) and history[end - 1 - length] == history[-1 - length]:
                length += 1
            if length >= max(best, 2):
                best, place = length, end
        period = history[place:]
        expected = ([period[i % len(period)] for i in range(count)], best) if best else ([], 0)
        assert self.found(history, count) == expected

    @settings(max_examples=100, derandomize=True, deadline=None)
    @given(old=st.lists(st.integers(0, 2), max_size=12), new=st.lists(st.integers(0, 2), min_size=1, max_size=12),
           data=st.data())  # fmt: skip
    def test_going_back(self, old: list[int], new: list[int], data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(old)))
        lookup = Lookup()
        lookup.follow(0, old, lambda _: pytest.fail("it reads nothing"))
        lookup.follow(start, new[:-1], lambda _: pytest.fail("it reads nothing"))
        assert lookup.find(new[-1], 5) == self.found([*old[:start], *new], 5)


class Fixed(MtpDrafter):
    """Guesses that are given, and how many were asked for."""

    def __init__(self, answers: list[int]) -> None:
        self.answers, self.asked = answers, 0

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None: ...

    def guesses(self, token: int, count: int):  # type: ignore[no-untyped-def]
        for guess in self.answers[:count]:
            self.asked += 1
            yield guess


@pytest.mark.parametrize(
    ("history", "answers", "expected", "asked"),
    [
        ([*range(20), *range(17)], [17, 18, 5, 6], [17, 18, 19, 0, 1, 2], AGREE),  # a long match: two decide
        ([*range(20), *range(17)], [17, 5, 6], [17, 5, 6], 3),
        ([1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5], [3, 4, 5, 6, 1, 2], 3),  # a short one: all must agree
        ([1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 9], [3, 4, 9], 3),
        ([1, 2, 3, 4, 5, 6, 1, 2], [3], [3], 1),  # one guess is too few
        ([1, 2, 3, 4, 5, 6, 1, 2], [], [], 0),
        ([1, 2, 3], [4, 5], [4, 5], 2),
    ],
)
def test_the_mtp_layer_must_agree(history: list[int], answers: list[int], expected: list[int], asked: int) -> None:
    fixed = Fixed(answers)
    both = MtpWithLookup(fixed, 4)
    both.follow(0, history[:-1], lambda _: pytest.fail("it reads nothing"))
    assert both.draft(history[-1], 6) == expected
    assert fixed.asked == asked
