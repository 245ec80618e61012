"""Branches, calls, hardware registers, and scalar floats against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphrun.core.fma import fma
from sim.simulator import EXEC, SCC, VCC, Machine, assemble, assemble_all, run

Array = npt.NDArray[np.float32]
TRIES = 300
SPECIAL = np.array(
    [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 65504, 65519.9, 65520],
    np.float32,
)
LOOP = """
s_mov_b32 s1, 0
s_add_co_u32 s1, s1, s2
s_sub_co_u32 s2, s2, 1
s_cmp_lg_u32 s2, 0
s_cbranch_scc1 65532
s_endpgm
s_mov_b32 s1, 77
"""


def test_a_loop_ends() -> None:
    machine = Machine()
    machine.s[2] = 100
    run(assemble(LOOP), machine)
    assert machine.s[1] == 5050 and machine.steps == 1 + 4 * 100 + 1


@pytest.mark.parametrize(
    ("branch", "register", "taken", "fallen"),
    [
        ("scc0", SCC, 0, 1),
        ("scc1", SCC, 1, 0),
        ("vccz", VCC, 0, 4),
        ("vccnz", VCC, 4, 0),
        ("execz", EXEC, 0, 2),
        ("execnz", EXEC, 2, 0),
    ],
)
def test_branches(branch: str, register: int, taken: int, fallen: int) -> None:
    code = assemble(f"s_cbranch_{branch} 1\ns_mov_b32 s5, 1\ns_mov_b32 s6, 1")
    for state, skipped in ((taken, True), (fallen, False)):
        machine = Machine()
        machine.s[register] = state
        run(code, machine)
        assert machine.s[5] == (not skipped) and machine.s[6] == 1


def test_calls_return() -> None:
    # 0: getpc 4: add 8: add 12: swappc 16: mov s6 20: endpgm 24: mov s5 28: setpc
    lines = [
        "s_getpc_b64 s[0:1]",
        "s_add_co_u32 s0, s0, 20",
        "s_add_co_ci_u32 s1, s1, 0",
        "s_swappc_b64 s[2:3], s[0:1]",
    ]
    lines += ["s_mov_b32 s6, s5", "s_endpgm", "s_mov_b32 s5, 9", "s_setpc_b64 s[2:3]"]
    machine = Machine()
    run(assemble("\n".join(lines)), machine)
    assert machine.s[6] == 9
    machine = Machine()
    run(assemble("s_call_b64 s[2:3], 2\ns_mov_b32 s6, s5\ns_endpgm\ns_mov_b32 s5, 8\ns_setpc_b64 s[2:3]"), machine)
    assert machine.s[6] == 8


def test_hints_change_nothing() -> None:
    machine = Machine()
    before = list(machine.s)
    run(
        assemble(
            "s_nop 3\ns_delay_alu 0x91\ns_wait_alu 0xfffe\ns_clause 3\ns_setprio 1\ns_wait_loadcnt 0\ns_wait_idle"
        ),
        machine,
    )
    assert list(machine.s) == before


def test_hardware_registers() -> None:
    machine = Machine()
    run(
        assemble("s_getreg_b32 s1, hwreg(HW_REG_WAVE_MODE, 4, 4)\ns_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 4, 2), 3"),
        machine,
    )
    assert machine.s[1] == 15
    for line in ("s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 0, 2), 3", "s_denorm_mode 0", "s_round_mode 1"):
        with pytest.raises(RuntimeError, match="mode"):
            run(assemble(line), Machine())


def test_what_is_not_modelled_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="s_trap"):
        run(assemble("s_trap 1"), Machine())


def floats(rng: np.random.Generator, count: int) -> Array:
    usual = (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 7, count)).astype(np.float32)
    bits = rng.integers(0, 1 << 32, count, np.uint32)
    bits[(bits & 0x7FFFFFFF) > 0x7F800000] |= 0x400000  # no signalling NaNs
    return np.choose(rng.integers(0, 3, count), [usual, bits.view(np.float32), rng.choice(SPECIAL, count)])


def number_wins(pick: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Array], Array]:
    return lambda a, b, c: np.where(np.isnan(a), b, np.where(np.isnan(b), a, pick(a, b))).astype(np.float32)


def smaller(a: Array, b: Array) -> Array:
    return np.where((a < b) | ((a == b) & np.signbit(a)), a, b)


def larger(a: Array, b: Array) -> Array:
    return np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)


FLOATS: dict[str, tuple[str, Callable[[Array, Array, Array], Array]]] = {
    "s_add_f32": ("s_add_f32 s1, s2, s3", lambda a, b, c: a + b),
    "s_sub_f32": ("s_sub_f32 s1, s2, s3", lambda a, b, c: a - b),
    "s_mul_f32": ("s_mul_f32 s1, s2, s3", lambda a, b, c: a * b),
    "s_fmac_f32": ("s_fmac_f32 s1, s2, s3", fma),
    "s_fmaak_f32": ("s_fmaak_f32 s1, s2, s3, 0x40200000", lambda a, b, c: fma(a, b, np.full_like(a, 2.5))),
    "s_fmamk_f32": ("s_fmamk_f32 s1, s2, 0x40200000, s3", lambda a, b, c: fma(a, np.full_like(a, 2.5), b)),
    "s_min_num_f32": ("s_min_num_f32 s1, s2, s3", number_wins(smaller)),
    "s_max_num_f32": ("s_max_num_f32 s1, s2, s3", number_wins(larger)),
    "s_minimum_f32": (
        "s_minimum_f32 s1, s2, s3",
        lambda a, b, c: np.where(np.isnan(a) | np.isnan(b), a + b, smaller(a, b)),
    ),
    "s_maximum_f32": (
        "s_maximum_f32 s1, s2, s3",
        lambda a, b, c: np.where(np.isnan(a) | np.isnan(b), a + b, larger(a, b)),
    ),
    "s_ceil_f32": ("s_ceil_f32 s1, s2", lambda a, b, c: np.ceil(a)),
    "s_floor_f32": ("s_floor_f32 s1, s2", lambda a, b, c: np.floor(a)),
    "s_trunc_f32": ("s_trunc_f32 s1, s2", lambda a, b, c: np.trunc(a)),
    "s_rndne_f32": ("s_rndne_f32 s1, s2", lambda a, b, c: np.rint(a)),
}


def outcome(machine: Machine, code: bytes, **registers: int) -> int:
    for name, bits in registers.items():
        machine.s[int(name[1:])] = bits
    run(code, machine)
    return int(machine.s[1])


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_floats(name: str) -> None:
    line, model = FLOATS[name]
    codes = assemble_all(tuple(text for text, _ in FLOATS.values()))
    code, machine, rng = codes[line], Machine(), np.random.default_rng(len(name))
    a, b, c = (floats(rng, TRIES) for _ in range(3))
    with np.errstate(all="ignore"):
        want = model(a, b, c)
    raw = [x.view(np.uint32).tolist() for x in (a, b, c)]
    got = np.array([outcome(machine, code, s2=x, s3=y, s1=z) for x, y, z in zip(*raw, strict=True)], np.uint32).view(
        np.float32
    )
    both_nan = np.isnan(got) & np.isnan(want)
    np.testing.assert_array_equal(got.view(np.uint32)[~both_nan], want.astype(np.float32).view(np.uint32)[~both_nan])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fmac", "min_num", "max_num"])
def test_halves(name: str) -> None:
    code, machine, rng = assemble(f"s_{name}_f16 s1, s2, s3"), Machine(), np.random.default_rng(len(name))
    with np.errstate(all="ignore"):
        a, b, c = (floats(rng, TRIES).astype(np.float16).astype(np.float64) for _ in range(3))
        models = {"add": a + b, "sub": a - b, "mul": a * b, "fmac": a * b + c}
        low, high = (
            number_wins(pick)(a.astype(np.float32), b.astype(np.float32), b.astype(np.float32))
            for pick in (smaller, larger)
        )
        chosen: Any = {**models, "min_num": low, "max_num": high}[name]
        want = chosen.astype(np.float16)
    raw = [x.astype(np.float16).view(np.uint16).tolist() for x in (a, b, c)]
    got = np.array([outcome(machine, code, s2=x, s3=y, s1=z) for x, y, z in zip(*raw, strict=True)], np.uint16).view(
        np.float16
    )
    both_nan = np.isnan(got) & np.isnan(want)
    np.testing.assert_array_equal(got.view(np.uint16)[~both_nan], want.view(np.uint16)[~both_nan])


def saturated(x: float, least: int, most: int) -> int:
    return 0 if np.isnan(x) else least if x <= least else most if x >= most else int(x)


def test_conversions() -> None:
    machine, x = Machine(), floats(np.random.default_rng(7), 2 * TRIES)
    to_i32, to_u32, to_f16 = (assemble(f"s_cvt_{kind}_f32 s1, s2") for kind in ("i32", "u32", "f16"))
    from_half, from_high, pair = (
        assemble("s_cvt_f32_f16 s1, s2"),
        assemble("s_cvt_hi_f32_f16 s1, s2"),
        assemble("s_cvt_pk_rtz_f16_f32 s1, s2, s3"),
    )
    for bits, number in zip(x.view(np.uint32).tolist(), x.tolist(), strict=True):
        assert outcome(machine, to_i32, s2=bits) == saturated(number, -(1 << 31), (1 << 31) - 1) & 0xFFFFFFFF
        assert outcome(machine, to_u32, s2=bits) == saturated(number, 0, (1 << 32) - 1)
        if np.isnan(number):
            continue
        with np.errstate(all="ignore"):
            half = np.float32(number).astype(np.float16)
        assert outcome(machine, to_f16, s2=bits) == int(half.view(np.uint16))
        wide = int(half.astype(np.float32).view(np.uint32))
        assert outcome(machine, from_half, s2=int(half.view(np.uint16))) == wide
        assert outcome(machine, from_high, s2=int(half.view(np.uint16)) << 16 | 0x3C00) == wide
        towards_zero = half if abs(float(half)) <= abs(number) else np.nextafter(half, np.float16(0))
        assert outcome(machine, pair, s2=bits, s3=0x3F800000) == int(towards_zero.view(np.uint16)) | 0x3C000000


ORDER: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b,
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: a == a and b == b,
    "u": lambda a, b: a != a or b != b,
    "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b,
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
}


@pytest.mark.parametrize("name", sorted(ORDER))
def test_float_comparisons(name: str) -> None:
    machine, values = Machine(), [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan")]
    for kind, dtype, bits in (("f32", np.float32, np.uint32), ("f16", np.float16, np.uint16)):
        code = assemble_all(tuple(f"s_cmp_{n}_{kind} s2, s3" for n in ORDER))[f"s_cmp_{name}_{kind} s2, s3"]
        for a in values:
            for b in values:
                machine.s[2], machine.s[3] = int(dtype(a).view(bits)), int(dtype(b).view(bits))
                run(code, machine)
                assert machine.s[SCC] == ORDER[name](a, b), (kind, a, b)
