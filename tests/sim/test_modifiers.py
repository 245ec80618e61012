"""Input and output modifiers, op_sel, literals, clamps, pairs, carries: what an encoding adds to an operation."""

from __future__ import annotations

import numpy as np
import pytest

from sim.lane_values import quiet, same, typed, values
from sim.simulator import EXEC, VCC, Machine, assemble, run
from sim.vector_table import Array

RNG_SEED = 7


def result(
    line: str, sources: list[Array], *, scalars: dict[int, int] | None = None, old: Array | None = None
) -> Machine:
    """The state after a line on v10, v11, ... = sources and v0 = old."""
    machine = Machine()
    for k, raw in enumerate(sources):
        machine.v[10 + k][:] = raw.tolist()
    if old is not None:
        machine.v[0][:] = old.tolist()
    for register, value in (scalars or {}).items():
        machine.s[register] = value
    run(assemble(line), machine)
    return machine


def lanes(machine: Machine, register: int = 0) -> Array:
    return np.array(machine.v[register], np.uint32)


def sources(letters: str, seed: int = RNG_SEED) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [quiet(values(letter, (32,), rng), letter) for letter in letters]


def floats(raw: Array) -> Array:
    return raw.view(np.float32)


def clamped(x: Array) -> Array:
    return np.where(x > 1, 1, np.where(x > 0, x, 0)).astype(x.dtype)


@pytest.mark.parametrize("seed", range(6))
def test_float_modifiers(seed: int) -> None:
    a, b, c = sources("fff", seed)
    x, y, z = floats(a), floats(b), floats(c)
    lines = {
        "v_add_f32 v0, -v10, v11": -x + y,
        "v_add_f32 v0, |v10|, -|v11|": np.abs(x) - np.abs(y),
        "v_mul_f32 v0, v10, v11 mul:2": x * y * np.float32(2),
        "v_mul_f32 v0, v10, v11 mul:4": x * y * np.float32(4),
        "v_add_f32 v0, v10, v11 div:2": (x + y) * np.float32(0.5),
        "v_add_f32 v0, v10, v11 clamp": clamped(x + y),
        "v_sub_f32 v0, v10, -v11 clamp mul:2": clamped((x + y) * np.float32(2)),
        "v_max3_num_f32 v0, -v10, |v11|, v12": np.fmax(np.fmax(-x, np.abs(y)), z),
        "v_floor_f32 v0, -v10 clamp": clamped(np.floor(-x)),
        "v_rcp_f32 v0, -|v10|": (-1 / np.abs(x).astype(np.float64)).astype(np.float32),
        "v_cvt_f16_f32 v0, -v10": (-x).astype(np.float16),
        "v_cvt_u32_f32 v0, |v10|": np.minimum(
            np.trunc(np.nan_to_num(np.abs(x).astype(np.float64))), 2.0**32 - 1
        ).astype(np.uint32),
        "v_cndmask_b32 v0, -v10, v11, s5": np.where(0xF0F0F0F0 >> np.arange(32, dtype=np.uint64) & 1, y, -x),
        "v_mul_f32 v0, 0x40490fdb, v10": np.float32(np.pi) * x,
        "v_add_f32 v0, 0.15915494, v10": np.uint32(0x3E22F983).view(np.float32) + x,
        "v_fmaak_f32 v0, v10, v11, 0x3f9d70a4": _fma(x, y, np.float32(1.23)),
        "v_fmamk_f32 v0, v10, 0x3f9d70a4, v11": _fma(x, np.float32(1.23), y),
    }
    for line, wanted in lines.items():
        machine = result(line, [a, b, c], scalars={5: 0xF0F0F0F0}, old=np.zeros(32, np.uint32))
        got = lanes(machine)
        got = typed(got, "h") if wanted.dtype == np.float16 else got.view(wanted.dtype)
        zero_sign = (wanted == 0) & (got == 0) if "max3" in line else np.zeros(32, bool)
        assert (same(wanted, got) | zero_sign).all(), line


@pytest.fixture(autouse=True)
def _quiet_numpy() -> object:
    with np.errstate(all="ignore"):
        yield


def _fma(a: Array, b: Array, c: Array) -> Array:
    wide = np.longdouble
    return (np.asarray(a).astype(wide) * b + c).astype(np.float32)


@pytest.mark.parametrize("seed", range(4))
def test_destination_of_fmac_is_a_source(seed: int) -> None:
    a, b, c = sources("fff", seed)
    got = lanes(result("v_fmac_f32 v0, v10, v11", [a, b], old=c))
    assert same(_fma(floats(a), floats(b), floats(c)), got.view(np.float32)).all()


@pytest.mark.parametrize("selection", range(16))
def test_op_sel_takes_and_writes_halves(selection: int) -> None:
    bits = [selection >> k & 1 for k in range(4)]
    a, b, c, old = sources("uuuu", selection)
    x, y, z = ((raw >> 16 * bit & 0xFFFF).astype(np.uint16) for raw, bit in zip((a, b, c), bits, strict=False))
    got = lanes(result(f"v_mad_u16 v0, v10, v11, v12 op_sel:{bits}", [a, b, c], old=old))
    shift = 16 * bits[3]
    assert (got >> shift & 0xFFFF == x * y + z).all()
    assert (got >> (16 - shift) & 0xFFFF == old >> (16 - shift) & 0xFFFF).all()


def test_integer_clamp_saturates() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(0, 1 << 32, 32, np.uint32) for _ in range(3))
    u, v, w = (x.astype(np.int64) for x in (a, b, c))
    i, j, k = (x.view(np.int32).astype(np.int64) for x in (a, b, c))
    low = (1 << 32) - 1
    lines = {
        "v_add_nc_u32 v0, v10, v11 clamp": np.minimum(u + v, low),
        "v_sub_nc_u32 v0, v10, v11 clamp": np.maximum(u - v, 0),
        "v_add_nc_i32 v0, v10, v11 clamp": np.clip(i + j, -(1 << 31), (1 << 31) - 1) & low,
        "v_sub_nc_i32 v0, v10, v11 clamp": np.clip(i - j, -(1 << 31), (1 << 31) - 1) & low,
        "v_mad_u32_u24 v0, v10, v11, v12 clamp": np.minimum((u & 0xFFFFFF) * (v & 0xFFFFFF) + w, low),
        "v_mad_i32_i24 v0, v10, v11, v12 clamp": np.clip(
            (i << 40 >> 40) * (j << 40 >> 40) + k, -(1 << 31), (1 << 31) - 1
        )
        & low,
    }
    for line, wanted in lines.items():
        assert (lanes(result(line, [a, b, c])) == wanted).all(), line
    halves = lanes(result("v_add_nc_i16 v0, v10, v11 clamp", [a, b]))
    wanted = np.clip(a.astype(np.int16).astype(np.int32) + b.astype(np.int16), -32768, 32767)
    assert (halves.astype(np.int16) == wanted).all()


@pytest.mark.parametrize("seed", range(4))
def test_carries(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.choice(np.array([0, 1, 0xFFFFFFFF, 0x80000000, 77], np.uint32), 32) for _ in range(2))
    carry_in, exec_mask = (int(x) for x in rng.integers(0, 1 << 32, 2))
    carry = carry_in >> np.arange(32) & 1
    u, v = a.astype(np.int64), b.astype(np.int64)
    lines = {
        "v_add_co_u32 v0, s6, v10, v11": u + v,
        "v_sub_co_u32 v0, s6, v10, v11": u - v,
        "v_subrev_co_u32 v0, s6, v10, v11": v - u,
        "v_add_co_ci_u32 v0, s6, v10, v11, s5": u + v + carry,
        "v_sub_co_ci_u32 v0, s6, v10, v11, s5": u - v - carry,
        "v_add_co_ci_u32 v0, vcc_lo, v10, v11, vcc_lo": u + v + carry,
        "v_subrev_co_ci_u32 v0, vcc_lo, v10, v11, vcc_lo": v - u - carry,
    }
    active = exec_mask >> np.arange(32) & 1
    for line, total in lines.items():
        machine = result(line, [a, b], scalars={5: carry_in, VCC: carry_in, EXEC: exec_mask})
        out = ((total < 0) | (total >> 32 > 0)) & (active == 1)
        assert machine.s[VCC if "vcc" in line else 6] == sum(1 << int(n) for n in np.flatnonzero(out)), line
        assert (lanes(machine) == np.where(active, total & 0xFFFFFFFF, 0)).all(), line


@pytest.mark.parametrize("seed", range(4))
def test_multiply_add_of_64_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, low, high = (rng.integers(0, 1 << 32, 32, np.uint32) for _ in range(4))
    for kind, line in (("u", "v_mad_co_u64_u32"), ("i", "v_mad_co_i64_i32")):
        machine = result(f"{line} v[0:1], s6, v10, v11, v[12:13]", [a, b, low, high])
        x, y = (raw.view(np.int32) if kind == "i" else raw for raw in (a, b))
        c = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        c = c.view(np.int64) if kind == "i" else c
        totals = [int(p) * int(q) + int(r) for p, q, r in zip(x, y, c, strict=True)]
        assert machine.s[6] == sum((t >> 64 & 1) << n for n, t in enumerate(totals))
        assert [int(p) | int(q) << 32 for p, q in zip(machine.v[0], machine.v[1], strict=True)] == [
            t % (1 << 64) for t in totals
        ]


def test_pair_reads_before_it_writes() -> None:
    a, b, c, d = sources("ffff")
    machine = result("v_dual_mul_f32 v10, v10, v11 :: v_dual_add_f32 v13, v13, v10", [a, b, c, d])
    assert same(floats(a) * floats(b), lanes(machine, 10).view(np.float32)).all()
    assert same(floats(a) + floats(d), lanes(machine, 13).view(np.float32)).all()


def test_pairs_of_every_kind() -> None:
    a, b, c, d = sources("ffff", 3)
    x, y, z, w = (floats(r) for r in (a, b, c, d))
    vcc = 0x0F3355AA
    mask = (vcc >> np.arange(32) & 1).astype(bool)
    first = {
        "v_dual_cndmask_b32 v0, v10, v11": np.where(mask, y, x),
        "v_dual_sub_f32 v0, v10, v11": x - y,
        "v_dual_max_num_f32 v0, v10, v11": None,
    }
    first |= {"v_dual_fmaak_f32 v0, v10, v11, 0x3f9d70a4": _fma(x, y, np.float32(1.23)), "v_dual_mov_b32 v0, v10": x}
    for line, wanted in first.items():
        machine = result(f"{line} :: v_dual_lshlrev_b32 v1, 3, v13", [a, b, c, d], scalars={VCC: vcc})
        assert (lanes(machine, 1) == d << 3).all()
        if wanted is not None:
            assert same(wanted.astype(np.float32), lanes(machine).view(np.float32)).all(), line
    machine = result("v_dual_mul_dx9_zero_f32 v0, v10, v11 :: v_dual_and_b32 v1, v12, v13", [a, b, c, d])
    assert (lanes(machine, 1) == c & d).all()
    zero = (x == 0) | (y == 0)
    assert same(np.where(zero, np.float32(0), x * y), lanes(machine).view(np.float32)).all()


@pytest.mark.parametrize(
    "line",
    ["v_cmpx_lt_f32 v10, v11", "v_cmpx_gt_u32 v10, v11", "v_cmpx_ne_i32 v10, v11", "v_cmpx_lt_u64 v[10:11], v[12:13]"],
)
def test_cmpx_writes_exec(line: str) -> None:
    a, b, c, d = sources("ffff", 5)
    exec_mask = 0x0FF0FFFF
    plain = result(line.replace("cmpx", "cmp").replace(" v", " vcc_lo, v", 1), [a, b, c, d], scalars={EXEC: exec_mask})
    machine = result(line, [a, b, c, d], scalars={EXEC: exec_mask})
    assert machine.s[EXEC] == plain.s[VCC] and machine.s[VCC] == 0


def test_scalar_functions() -> None:
    value = np.float32(2.75)
    for name, wanted in (
        ("sqrt", np.sqrt(value)),
        ("rcp", 1 / value),
        ("exp", np.exp2(float(value))),
        ("log", np.log2(float(value))),
    ):
        machine = result(f"v_s_{name}_f32 s4, s5", [], scalars={5: int(value.view(np.uint32))})
        assert machine.s[4] == int(np.float32(wanted).view(np.uint32)), name
    machine = result("v_s_rsq_f16 s4, s5", [], scalars={5: int(np.float16(0.3).view(np.uint16))})
    assert machine.s[4] == int(np.float16(1 / np.sqrt(float(np.float16(0.3)))).view(np.uint16))


@pytest.mark.parametrize("line", ["v_pk_fmac_f16 v0, v10, v11", "v_dot2_f16_f16 v0, v10, v11, v12"])
def test_instructions_left_out_fail(line: str) -> None:
    with pytest.raises(RuntimeError, match=line.split()[0]):
        result(line, [])


def test_unknown_instruction_is_named() -> None:
    with pytest.raises(RuntimeError, match="v_cubeid_f32"):
        result("v_cubeid_f32 v0, v10, v11, v12", [])
