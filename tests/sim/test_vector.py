"""Vector instructions by lane against numpy, on special values and random bits."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from sim.lane_values import SIZE, quiet, same, typed, values
from sim.simulator import EXEC, Machine, run, try_assemble
from sim.vector_cases import CASES
from sim.vector_table import TYPES, Array, Case

FIRST = (10, 20, 30)


def put(machine: Machine, register: int, raw: Array) -> None:
    for k in range(raw.dtype.itemsize // 4):
        machine.v[register + k][:] = (raw >> raw.dtype.type(32 * k)).astype(np.uint32).tolist()


def got(machine: Machine, register: int, letter: str) -> Array:
    raw = np.array(machine.v[register], np.uint64)
    if letter in SIZE:
        raw |= np.array(machine.v[register + 1], np.uint64) << np.uint64(32)
    return typed(raw, letter)


def text(case: Case) -> str:
    names = [f"v[{r}:{r + 1}]" if kind in SIZE else f"v{r}" for r, kind in zip(FIRST, case.types[1:], strict=False)]
    result = "s8" if case.types[0] == "m" else "v[0:1]" if case.types[0] in SIZE else "v0"
    return f"{case.mnemonic} {result}, {', '.join(names)}"


@functools.cache
def codes() -> dict[str, bytes | None]:
    lines = [text(case) for case in CASES]
    return dict(zip(lines, try_assemble(lines), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mnemonic)
def test_by_lane(case: Case) -> None:
    code, rng, result = codes()[text(case)], np.random.default_rng(len(case.mnemonic)), case.types[0]
    assert code is not None, f"{text(case)} is no instruction"
    machine, rounds = Machine(), 24
    for _ in range(rounds):
        raws = [quiet(values(kind, (32,), rng), kind) for kind in case.types[1:]]
        for register, raw in zip(FIRST, raws, strict=False):
            put(machine, register, raw)
        exec_mask = int(rng.integers(0, 1 << 32)) if rng.integers(2) else 0xFFFFFFFF
        old = values("U", (32,), rng)
        put(machine, 0, old)
        machine.s[EXEC] = exec_mask
        with np.errstate(all="ignore"):
            model = case.model(*[typed(raw, kind) for raw, kind in zip(raws, case.types[1:], strict=True)])
            active = (exec_mask >> np.arange(32) & 1).astype(bool)
            if result == "m":
                expected = int(sum(1 << n for n in np.flatnonzero(np.asarray(model) & active)))
                run(code, machine)
                assert machine.s[8] == expected
                continue
            kind = np.dtype(TYPES[result])
            integers = np.asarray(model).dtype.kind in "iu" and kind.kind in "iu"
            wanted = (
                (np.asarray(model, object) & (1 << 8 * kind.itemsize) - 1).astype(f"u{kind.itemsize}").view(kind)
                if integers
                else np.asarray(model).astype(kind)
            )
        run(code, machine)
        right = same(np.where(active, wanted, typed(old, result)), got(machine, 0, result))
        bad = int(np.flatnonzero(~right)[0]) if not right.all() else 0
        assert right.all(), (bad, [hex(int(raw[bad])) for raw in raws], wanted[bad], got(machine, 0, result)[bad])
        if kind.itemsize == 2:  # the other half stays
            assert (np.array(machine.v[0]) >> 16 == old.astype(np.uint32) >> 16).all()
