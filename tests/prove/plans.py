"""Random memory plans, and a judge of them that paints bytes instead of comparing numbers."""

from __future__ import annotations

import numpy as np

from graphrun.core import ie
from graphrun.core.ie import Plan, plan

CAP, STEPS = 4096, 8


def random_plan(rng: np.random.Generator) -> Plan:
    """Up to 8 buffers; a few plans have odd offsets, reversed lives or sizes of 0."""
    step = int(rng.choice([256, 256, 256, 256, 128]))
    slots = []
    for _ in range(int(rng.integers(0, 9))):
        first, last = sorted(int(t) for t in rng.integers(0, STEPS, 2))
        swap = rng.random() < 0.02
        size = int(rng.integers(0, 1200)) * int(rng.random() < 0.9)
        size = int(rng.choice([256, 512, 1024])) if rng.random() < 0.3 else size
        off = int(rng.integers(-1 if rng.random() < 0.02 else 0, CAP // step)) * step
        size = CAP - off if rng.random() < 0.05 else size
        slots.append((off, size, last if swap else first, first if swap else last))
    return plan(slots, CAP)


def conflicts(p: Plan) -> list[tuple[int, int]]:
    """Every (i, i) that is wrong by itself and every i < j with a byte and a step in common, in order."""
    found = []
    for i in range(p.n):
        if p.first[i] > p.last[i] or p.off[i] < 0 or p.off[i] + p.size[i] > p.cap or p.off[i] & 255:
            found.append((i, i))
            continue
        for j in range(i + 1, p.n):
            bytes_i, bytes_j = (set(range(p.off[b], p.off[b] + p.size[b])) for b in (i, j))
            steps_i, steps_j = (set(range(p.first[b], p.last[b] + 1)) for b in (i, j))
            if bytes_i & bytes_j and steps_i & steps_j:
                found.append((i, j))
    return found


def odd(p: Plan) -> bool:
    """Whether painting sees less than the check: a life that ends before it starts, no bytes amid another's bytes."""
    pairs = [(i, j) for i in range(p.n) for j in range(p.n)]
    return any(
        p.first[i] > p.last[i] or (p.size[i] == 0 and p.off[j] < p.off[i] < p.off[j] + p.size[j]) for i, j in pairs
    )


def judge(p: Plan) -> bool:
    """Assert that the check and the first conflict agree with painting; whether the plan is accepted."""
    wrong = conflicts(p)
    accepted = ie.ie_plan_check(p)
    if not odd(p):
        assert accepted == (not wrong), p
        assert ie.first_conflict(p) == (wrong[0] if wrong else None), p
    assert not (wrong and accepted), p
    for i in range(p.n):
        assert (ie.ie_off(p, i), ie.ie_size(p, i)) == (p.off[i], p.size[i])
        assert (ie.ie_first(p, i), ie.ie_last(p, i)) == (p.first[i], p.last[i])
        assert ie.ie_buf_ok(p, i) == ((i, i) not in wrong)
        for j in range(i + 1, p.n):
            if not odd(p) and (i, i) not in wrong:
                assert ie.ie_buf_sep(p, i, j) == ie.ie_buf_sep(p, j, i) == ((i, j) not in wrong)
    return accepted


def probe(p: Plan, rng: np.random.Generator) -> bool:
    """Assert the laws of an accepted plan at a random byte and step; whether the byte was in the buffer."""
    i, j = (int(x) for x in rng.choice(p.n, 2, replace=False))
    edge = int(rng.choice([p.off[i], p.off[i] + p.size[i] - 1, p.off[i] + p.size[i]]))
    x, t = int(rng.choice([int(rng.integers(CAP)), edge])), int(rng.integers(STEPS))
    assert ie.ie_pairs_ok(p, i, i + 1) and ie.ie_bufs_ok(p, i) and p.off[i] % 256 == 0
    assert ie.ie_in_buf(p, i, x) == (x in range(p.off[i], p.off[i] + p.size[i]))
    assert ie.ie_live(p, i, t) == (t in range(p.first[i], p.last[i] + 1))
    if not ie.ie_in_buf(p, i, x):
        return False
    assert x < p.cap and not (ie.ie_live(p, i, t) and ie.ie_live(p, j, t) and ie.ie_in_buf(p, j, x))
    return True
