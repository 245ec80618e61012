"The check of a memory plan: loops over plain ints, in the part of Python that Why3 reads and proves."

# A plan gives buffer i the bytes [off[i], off[i] + size[i]) of an arena of cap bytes in the steps first[i] .. last[i].
# Lines that start with #@ are contracts, one line each. Why3 takes no import, docstring, keyword argument or a < b < c
# in code here, and reads #@ only without the space a formatter would add.
# ruff: noqa: E501
# fmt: off

#@ predicate lists(a: list[int], b: list[int], c: list[int], d: list[int]) = len(a) == len(b) == len(c) == len(d)
#@ predicate inside(o: int, s: int, cap: int) = 0 <= o and 0 <= s and o + s <= cap and o % 256 == 0
#@ predicate clear(o: int, s: int, p: int, t: int) = o + s <= p or p + t <= o
#@ predicate apart(f: int, l: int, g: int, m: int) = l < g or m < f


def buf_ok(off: list[int], size: list[int], first: list[int], last: list[int], cap: int, i: int) -> bool:
    # Inside the arena, on a multiple of 256, and alive in some step.
    #@ requires lists(off, size, first, last) and 0 <= i < len(off)
    #@ ensures result == True <-> inside(off[i], size[i], cap) and first[i] <= last[i]
    return 0 <= off[i] and 0 <= size[i] and size[i] <= cap - off[i] and off[i] % 256 == 0 and first[i] <= last[i]


def buf_sep(off: list[int], size: list[int], first: list[int], last: list[int], i: int, j: int) -> bool:
    # Never alive in the same step, or without a common byte.
    #@ requires lists(off, size, first, last) and 0 <= i < len(off) and 0 <= j < len(off)
    #@ ensures result == True <-> apart(first[i], last[i], first[j], last[j]) or clear(off[i], size[i], off[j], size[j])
    return last[i] < first[j] or last[j] < first[i] or off[i] + size[i] <= off[j] or off[j] + size[j] <= off[i]


def first_overlap(off: list[int], size: list[int], first: list[int], last: list[int], i: int, start: int) -> int:
    # The first j >= start that is not separate from buffer i, or the number of buffers.
    #@ requires lists(off, size, first, last) and 0 <= i < len(off) and 0 <= start <= len(off)
    #@ ensures start <= result <= len(off)
    #@ ensures forall j. start <= j < result -> apart(first[i], last[i], first[j], last[j]) or clear(off[i], size[i], off[j], size[j])
    #@ ensures result < len(off) -> not apart(first[i], last[i], first[result], last[result]) and not clear(off[i], size[i], off[result], size[result])
    f, t, o, end = first[i], last[i], off[i], off[i] + size[i]
    j = start
    while j < len(off) and (t < first[j] or last[j] < f or end <= off[j] or off[j] + size[j] <= o):
        #@ variant len(off) - j
        #@ invariant start <= j <= len(off)
        #@ invariant forall k. start <= k < j -> apart(first[i], last[i], first[k], last[k]) or clear(off[i], size[i], off[k], size[k])
        j = j + 1
    return j


def first_fault(off: list[int], size: list[int], first: list[int], last: list[int], cap: int, start: int) -> int:
    # The first buffer >= start that is not ok by itself or not separate from a later one, or the number of buffers.
    #@ requires lists(off, size, first, last) and 0 <= start <= len(off)
    #@ ensures start <= result <= len(off)
    #@ ensures forall i. start <= i < result -> inside(off[i], size[i], cap) and first[i] <= last[i]
    #@ ensures forall i, j. start <= i < result -> i < j < len(off) -> apart(first[i], last[i], first[j], last[j]) or clear(off[i], size[i], off[j], size[j])
    #@ ensures result < len(off) -> not (inside(off[result], size[result], cap) and first[result] <= last[result]) or exists j. result < j < len(off) and not apart(first[result], last[result], first[j], last[j]) and not clear(off[result], size[result], off[j], size[j])
    i = start
    while i < len(off) and buf_ok(off, size, first, last, cap, i):
        #@ variant len(off) - i
        #@ invariant start <= i <= len(off)
        #@ invariant forall k. start <= k < i -> inside(off[k], size[k], cap) and first[k] <= last[k]
        #@ invariant forall k, m. start <= k < i -> k < m < len(off) -> apart(first[k], last[k], first[m], last[m]) or clear(off[k], size[k], off[m], size[m])
        if first_overlap(off, size, first, last, i, i + 1) < len(off):
            return i
        i = i + 1
    return i


def plan_check(off: list[int], size: list[int], first: list[int], last: list[int], cap: int) -> bool:
    # Accepts exactly the plans whose buffers are all ok and pairwise separate.
    #@ requires lists(off, size, first, last)
    #@ ensures result == True -> forall i, x. 0 <= i < len(off) -> off[i] <= x < off[i] + size[i] -> 0 <= x < cap
    #@ ensures result == True -> forall i. 0 <= i < len(off) -> off[i] % 256 == 0
    #@ ensures result == True -> forall i, j, t, x. 0 <= i < len(off) -> 0 <= j < len(off) -> i != j -> first[i] <= t <= last[i] -> first[j] <= t <= last[j] -> off[i] <= x < off[i] + size[i] -> not (off[j] <= x < off[j] + size[j])
    #@ ensures (forall i. 0 <= i < len(off) -> inside(off[i], size[i], cap) and first[i] <= last[i]) -> (forall i, j. 0 <= i < j < len(off) -> apart(first[i], last[i], first[j], last[j]) or clear(off[i], size[i], off[j], size[j])) -> result == True
    return first_fault(off, size, first, last, cap, 0) == len(off)
