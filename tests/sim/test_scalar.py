"""Scalar instructions against Python integers and numpy floats, on special values and random bits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sim.scalar_models import MASK32, MASK64, MODELS, fits, signed
from sim.simulator import EXEC, M0, SCC, VCC, Machine, assemble, assemble_all, run

SPECIAL = [
    0,
    1,
    2,
    5,
    31,
    32,
    63,
    64,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0xFFFF,
    0x8000,
    0x00100004,
    0x00200000,
    0x00070010,
]
TRIES = 150


def value(rng: random.Random, bits: int) -> int:
    kind = rng.randrange(3)
    x = rng.choice(SPECIAL) if kind == 0 else rng.getrandbits(bits if kind == 1 else rng.randint(1, bits))
    return (x | (x << 32 if rng.random() < 0.3 else 0)) & ((1 << bits) - 1)


def group(first: int, bits: int) -> str:
    return f"s{first}" if bits == 32 else f"s[{first}:{first + 1}]"


def put(machine: Machine, first: int, x: int) -> None:
    machine.s[first], machine.s[first + 1] = x & MASK32, x >> 32 & MASK32


def got(machine: Machine, first: int, bits: int) -> int:
    return int(machine.s[first] | machine.s[first + 1] << 32 if bits == 64 else machine.s[first])


def spell(name: str) -> str:
    bits = [int(size) for size in MODELS[name][0].split()]
    return f"{name} " + ", ".join(group(10 + 10 * n, size) for n, size in enumerate(bits))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_integers(name: str) -> None:
    sizes, model = MODELS[name]
    bits = [int(size) for size in sizes.split()]
    code = assemble_all(tuple(map(spell, sorted(MODELS))))[spell(name)]
    rng, machine = random.Random(name), Machine()
    for _ in range(TRIES):
        sources = [value(rng, size) for size in bits[1:]]
        scc, old = rng.getrandbits(1), rng.getrandbits(64) & (MASK64 if bits[0] == 64 else MASK32)
        for n, x in enumerate(sources):
            put(machine, 20 + 10 * n, x)
        put(machine, 10, old)
        machine.s[SCC] = scc
        run(code, machine)
        a, b = (sources + [0])[:2]
        want, flag = model(a, b, scc, old)
        assert got(machine, 10, bits[0]) == want & ((1 << bits[0]) - 1), [hex(x) for x in sources]
        assert machine.s[SCC] == (scc if flag is None else flag), [hex(x) for x in sources]


COMPARE: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("kind", ["i32", "u32", "u64"])
@pytest.mark.parametrize("name", sorted(COMPARE))
def test_integer_comparisons(name: str, kind: str) -> None:
    bits = int(kind[1:])
    if bits == 64 and name not in ("eq", "lg"):
        return
    line = f"s_cmp_{{}}_{kind} {group(20, bits)}, {group(30, bits)}"
    wide = tuple(line.format(n) for n in COMPARE if bits == 32 or n in ("eq", "lg"))
    code = assemble_all(wide)[line.format(name)]
    rng, machine = random.Random(name + kind), Machine()
    for _ in range(TRIES):
        a = value(rng, bits)
        b = a if rng.random() < 0.2 else value(rng, bits)
        put(machine, 20, a)
        put(machine, 30, b)
        run(code, machine)
        left, right = (signed(a), signed(b)) if kind == "i32" else (a, b)
        assert machine.s[SCC] == COMPARE[name](left, right)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_comparisons(bits: int) -> None:
    rng, machine = random.Random(bits), Machine()
    for want in (0, 1):
        code = assemble(f"s_bitcmp{want}_b{bits} {group(20, bits)}, s30")
        for _ in range(TRIES):
            a, b = value(rng, bits), value(rng, 32)
            put(machine, 20, a)
            put(machine, 30, b)
            run(code, machine)
            assert machine.s[SCC] == ((a >> (b % bits) & 1) == want)


SAVEEXEC: dict[str, Callable[[int, int], int]] = {
    "and_saveexec": lambda a, e: a & e,
    "or_saveexec": lambda a, e: a | e,
    "xor_saveexec": lambda a, e: a ^ e,
    "nand_saveexec": lambda a, e: ~(a & e),
    "nor_saveexec": lambda a, e: ~(a | e),
    "xnor_saveexec": lambda a, e: ~(a ^ e),
    "and_not0_saveexec": lambda a, e: ~a & e,
    "or_not0_saveexec": lambda a, e: ~a | e,
    "and_not1_saveexec": lambda a, e: a & ~e,
    "or_not1_saveexec": lambda a, e: a | ~e,
    "and_not0_wrexec": lambda a, e: ~a & e,
    "and_not1_wrexec": lambda a, e: a & ~e,
}


@pytest.mark.parametrize("name", sorted(SAVEEXEC))
def test_masks(name: str) -> None:
    code = assemble_all(tuple(f"s_{n}_b32 s10, s20" for n in SAVEEXEC))[f"s_{name}_b32 s10, s20"]
    rng, machine = random.Random(name), Machine()
    for _ in range(TRIES):
        a, mask = value(rng, 32), value(rng, 32) & MASK32
        machine.s[20], machine.s[EXEC] = a, mask
        run(code, machine)
        want = SAVEEXEC[name](a, mask) & MASK32
        assert (machine.s[EXEC], machine.s[SCC]) == (want, want != 0)
        assert machine.s[10] == (want if "wrexec" in name else mask)


def test_constants_and_literals() -> None:
    machine = Machine()
    lines = [
        "s_mov_b32 s1, 64",
        "s_mov_b32 s2, -16",
        "s_mov_b32 s3, 0.5",
        "s_mov_b64 s[4:5], -2",
        "s_mov_b64 s[6:7], 1.0",
    ]
    lines += [
        "s_mov_b64 s[8:9], 0x87654321",
        "s_mov_b32 m0, 0x1234",
        "s_mov_b32 vcc_lo, m0",
        "s_mov_b32 null, 7",
        "s_mov_b32 s10, null",
    ]
    lines += [
        "s_mov_b64 s[12:13], src_shared_base",
        "s_add_nc_u64 s[14:15], s[4:5], 5",
        "s_mov_b32 exec_lo, 0xff",
        "s_movk_i32 s11, 0x8000",
    ]
    run(assemble("\n".join(lines)), machine)
    assert list(machine.s[1:4]) == [64, MASK32 - 15, 0x3F000000]
    assert got(machine, 4, 64) == MASK64 - 1 and got(machine, 6, 64) == 0x3FF0000000000000
    assert got(machine, 8, 64) == 0x87654321 and got(machine, 14, 64) == 3
    assert machine.s[M0] == machine.s[VCC] == 0x1234 and machine.s[10] == 0
    assert machine.s[12] == 0 and machine.s[13] != 0
    assert machine.s[EXEC] == 0xFF and machine.s[11] == 0xFFFF8000


@pytest.mark.parametrize(("name", "constant"), [("s_addk_co_i32", -5), ("s_mulk_i32", 777), ("s_cmovk_i32", -1)])
def test_constant_operands(name: str, constant: int) -> None:
    code = assemble(f"{name} s10, {constant & 0xFFFF:#x}")
    rng, machine = random.Random(name), Machine()
    for _ in range(TRIES):
        a, scc = value(rng, 32), rng.getrandbits(1)
        machine.s[10], machine.s[SCC] = a, scc
        run(code, machine)
        exact = {
            "s_addk_co_i32": signed(a) + constant,
            "s_mulk_i32": a * constant,
            "s_cmovk_i32": constant if scc else a,
        }[name]
        assert machine.s[10] == exact & MASK32
        assert machine.s[SCC] == (1 - fits(exact) if name == "s_addk_co_i32" else scc)


def test_relative_moves() -> None:
    machine = Machine()
    machine.s[7], machine.s[M0] = 99, 3
    run(assemble("s_movrels_b32 s20, s4\ns_movreld_b32 s20, s7"), machine)
    assert machine.s[20] == 99 and machine.s[23] == 99
    machine.s[M0] = 200
    with pytest.raises(RuntimeError, match="M0"):
        run(assemble("s_movrels_b32 s20, s4"), machine)
