"""VOP3P: packed 16-bit arithmetic, mixed-precision fma, dot products and WMMA against numpy and exact sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from sim.lane_values import quiet, same, values
from sim.simulator import EXEC, Machine, assemble, run
from sim.vector_table import Array, fma, nan_max, nan_min, num_max, num_min

LANES = 32


@pytest.fixture(autouse=True)
def quiet_numpy() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def after(line: str, sources: dict[int, Array], exec_mask: int = 0xFFFFFFFF) -> Machine:
    machine = Machine()
    for register, raw in sources.items():
        machine.v[register][:] = raw.tolist()
    machine.s[EXEC] = exec_mask
    run(assemble(line), machine)
    return machine


def halves(seed: int, kind: str) -> tuple[Array, Array]:
    """(lanes, 2) numbers and the dwords that hold them."""
    letter = {"f": "h", "s": "s", "t": "t"}[kind]
    raw = quiet(values(letter, (LANES * 2,), np.random.default_rng(seed)), letter).astype(np.uint16).reshape(LANES, 2)
    return raw.view({"f": np.float16, "s": np.int16, "t": np.uint16}[kind]), raw.view(np.uint32)[:, 0]


PACKED: list[tuple[str, str, Callable[..., Array]]] = [
    ("v_pk_add_f16", "fff", lambda a, b: a + b),
    ("v_pk_mul_f16", "fff", lambda a, b: a * b),
    ("v_pk_max_num_f16", "fff", num_max),
    ("v_pk_min_num_f16", "fff", num_min),
    ("v_pk_maximum_f16", "fff", nan_max),
    ("v_pk_minimum_f16", "fff", nan_min),
    ("v_pk_fma_f16", "ffff", lambda a, b, c: fma(a.ravel(), b.ravel(), c.ravel()).reshape(LANES, 2)),
    ("v_pk_add_i16", "sss", lambda a, b: a + b),
    ("v_pk_sub_i16", "sss", lambda a, b: a - b),
    ("v_pk_add_u16", "ttt", lambda a, b: a + b),
    ("v_pk_sub_u16", "ttt", lambda a, b: a - b),
    ("v_pk_mul_lo_u16", "ttt", lambda a, b: a * b),
    ("v_pk_mad_u16", "tttt", lambda a, b, c: a * b + c),
    ("v_pk_mad_i16", "ssss", lambda a, b, c: a * b + c),
    ("v_pk_max_i16", "sss", np.maximum),
    ("v_pk_min_i16", "sss", np.minimum),
    ("v_pk_max_u16", "ttt", np.maximum),
    ("v_pk_min_u16", "ttt", np.minimum),
    ("v_pk_lshlrev_b16", "ttt", lambda a, b: b << (a & 15)),
    ("v_pk_lshrrev_b16", "ttt", lambda a, b: b >> (a & 15)),
    ("v_pk_ashrrev_i16", "sts", lambda a, b: b >> (a & 15).astype(np.int16)),
]


@pytest.mark.parametrize(("name", "types", "model"), PACKED, ids=[name for name, _, _ in PACKED])
def test_packed(name: str, types: str, model: Callable[..., Array]) -> None:
    count = len(types) - 1
    for seed in range(8):
        numbers, words = zip(*[halves(10 * seed + k, kind) for k, kind in enumerate(types[1:])], strict=True)
        low, high = (np.random.default_rng(seed).integers(0, 2, (2, count))) if seed else ([0] * count, [1] * count)
        options = f" op_sel:{list(map(int, low))} op_sel_hi:{list(map(int, high))}"
        chosen = [np.stack([x[:, int(p)], x[:, int(q)]], axis=1) for x, p, q in zip(numbers, low, high, strict=True)]
        if types[1] == "f" and seed % 2:
            options += f" neg_lo:{[1, 0, 0][:count]} neg_hi:{[0, 1, 0][:count]}"
            chosen[0] = chosen[0] * np.array([-1, 1], np.float16)
            chosen[1] = chosen[1] * np.array([1, -1], np.float16)
        line = f"{name} v0, {', '.join(f'v{10 + k}' for k in range(count))}{options}"
        machine = after(line, {10 + k: raw for k, raw in enumerate(words)})
        wanted = np.asarray(model(*chosen))
        got = np.array(machine.v[0], np.uint32).view(np.uint16).reshape(LANES, 2).view(wanted.dtype)
        assert same(wanted, got).all(), line


def test_packed_clamp_and_constant() -> None:
    (x, raw), (y, other) = halves(1, "s"), halves(2, "s")
    machine = after("v_pk_add_i16 v0, v10, v11 clamp", {10: raw, 11: other})
    wanted = np.clip(x.astype(np.int32) + y, -32768, 32767)
    assert (np.array(machine.v[0], np.uint32).view(np.int16).reshape(LANES, 2) == wanted).all()
    h, raw = halves(3, "f")
    machine = after("v_pk_mul_f16 v0, v10, 2.0 op_sel_hi:[1,0]", {10: raw})  # the constant fills the low half only
    assert same(h * np.float16(2), np.array(machine.v[0], np.uint32).view(np.float16).reshape(LANES, 2)).all()


@pytest.mark.parametrize("seed", range(6))
def test_mixed_fma(seed: int) -> None:
    rng = np.random.default_rng(seed)
    (h, first), (k, second) = halves(seed, "f"), halves(seed + 50, "f")
    c = quiet(values("f", (LANES,), rng), "f")
    a, b, z = h[:, 1].astype(np.float32), k[:, 0].astype(np.float32), c.view(np.float32)
    sources = {10: first, 11: second, 12: c, 0: c}
    wanted = fma(a, -b, np.abs(z))
    options = "op_sel:[1,0,0] op_sel_hi:[1,1,0]"
    machine = after(f"v_fma_mix_f32 v0, v10, -v11, |v12| {options}", sources)
    assert same(wanted, np.array(machine.v[0], np.uint32).view(np.float32)).all()
    for place, name in enumerate(("lo", "hi")):
        machine = after(f"v_fma_mix{name}_f16 v0, v10, -v11, |v12| {options}", sources)
        got = np.array(machine.v[0], np.uint32).view(np.uint16).reshape(LANES, 2)
        assert same(wanted.astype(np.float16), got[:, place].copy().view(np.float16)).all()
        assert (got[:, 1 - place] == c.view(np.uint16).reshape(LANES, 2)[:, 1 - place]).all()


@pytest.mark.parametrize("signs", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("clamp", ["", " clamp"])
def test_integer_dots(signs: tuple[int, int], clamp: str) -> None:
    rng = np.random.default_rng(sum(signs))
    a, b, c = (rng.integers(0, 1 << 32, LANES, np.uint32) for _ in range(3))
    c[::2] = rng.choice(np.array([0x7FFFFFFF, 0x80000000, 0, 0xFFFFFFFF], np.uint32), LANES // 2)
    x, y = (
        r.view(np.int8 if s else np.uint8).reshape(LANES, 4).astype(np.int64)
        for r, s in zip((a, b), signs, strict=True)
    )
    total = (x * y).sum(1) + c.view(np.int32)
    wanted = np.clip(total, -(1 << 31), (1 << 31) - 1) if clamp else total
    machine = after(f"v_dot4_i32_iu8 v0, v10, v11, v12 neg_lo:[{signs[0]},{signs[1]},0]{clamp}", {10: a, 11: b, 12: c})
    assert (np.array(machine.v[0]) == wanted & 0xFFFFFFFF).all()
    nibbles = [(r[:, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).astype(np.int64) for r in (a, b)]
    p, q = ((n ^ 8) - 8 if s else n for n, s in zip(nibbles, signs, strict=True))
    total = (p * q).sum(1) + c.view(np.int32)
    wanted = np.clip(total, -(1 << 31), (1 << 31) - 1) if clamp else total
    machine = after(f"v_dot8_i32_iu4 v0, v10, v11, v12 neg_lo:[{signs[0]},{signs[1]},0]{clamp}", {10: a, 11: b, 12: c})
    assert (np.array(machine.v[0]) == wanted & 0xFFFFFFFF).all()
    if signs == (0, 0):
        total = (x * y).sum(1) + c.astype(np.int64)
        wanted = np.minimum(total, 0xFFFFFFFF) if clamp else total & 0xFFFFFFFF
        assert (np.array(after(f"v_dot4_u32_u8 v0, v10, v11, v12{clamp}", {10: a, 11: b, 12: c}).v[0]) == wanted).all()


@pytest.mark.parametrize("seed", range(4))
def test_float_dots(seed: int) -> None:
    (h, first), (k, second) = halves(seed, "f"), halves(seed + 50, "f")
    c = quiet(values("f", (LANES,), np.random.default_rng(seed)), "f")
    x, y, z = h.astype(np.float32), k.astype(np.float32), c.view(np.float32)
    wanted = (-z + x[:, 0] * y[:, 0]) + x[:, 1] * y[:, 1]
    machine = after("v_dot2_f32_f16 v0, v10, v11, v12 neg_lo:[0,0,1]", {10: first, 11: second, 12: c})
    assert same(wanted, np.array(machine.v[0], np.uint32).view(np.float32)).all()
    x, y = (
        (raw[:, None] >> np.array([0, 16], np.uint32) << 16).astype(np.uint32).view(np.float32)
        for raw in (first, second)
    )
    machine = after("v_dot2_f32_bf16 v0, v10, v11, v12", {10: first, 11: second, 12: c})
    assert same((z + x[:, 0] * y[:, 0]) + x[:, 1] * y[:, 1], np.array(machine.v[0], np.uint32).view(np.float32)).all()


# ---- WMMA: A is (row, K), B is (K, column), C is (row, column)


def registers(values_by_lane: Array) -> list[Array]:
    """The VGPRs of (lanes, elements) of 1, 2 or 4 bytes."""
    words = np.ascontiguousarray(values_by_lane).view(np.uint32).reshape(LANES, -1)
    return [words[:, n] for n in range(words.shape[1])]


def by_lane(matrix: Array) -> Array:
    """(16, K) as (lanes, K / 2): lane l has row l % 16 and half l / 16 of K."""
    half = matrix.shape[1] // 2
    return np.stack([matrix[lane % 16, half * (lane // 16) : half * (lane // 16 + 1)] for lane in range(LANES)])


def tile_by_lane(tile: Array) -> Array:
    return np.stack([tile[8 * (lane // 16) : 8 * (lane // 16) + 8, lane % 16] for lane in range(LANES)])


def wmma(name: str, a: Array, b: Array, c: Array, options: str = "") -> Array:
    """A B + C by the instruction, from matrices of raw elements."""
    places = {10: registers(by_lane(a)), 20: registers(by_lane(b.T.copy())), 30: registers(tile_by_lane(c))}
    sources = {place + n: raw for place, regs in places.items() for n, raw in enumerate(regs)}
    spans = [f"v[{place}:{place + len(regs) - 1}]" for place, regs in places.items()]
    count = len(places[30])
    machine = after(f"{name} v[0:{count - 1}], {', '.join(spans)}{options}", sources)
    words = np.array([machine.v[n] for n in range(count)], np.uint32).T.copy().view(c.dtype).reshape(LANES, 8)
    tile = np.empty((16, 16), c.dtype)
    for lane in range(LANES):
        tile[8 * (lane // 16) : 8 * (lane // 16) + 8, lane % 16] = words[lane]
    return tile


@pytest.mark.parametrize("signs", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("clamp", ["", " clamp"])
def test_wmma_of_bytes(signs: tuple[int, int], clamp: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 256, (16, 16), np.uint8).view(np.int8 if s else np.uint8) for s in signs)
    c = rng.integers(-(1 << 31), 1 << 31, (16, 16)).astype(np.int32)
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    wanted = np.clip(exact, -(1 << 31), (1 << 31) - 1) if clamp else exact.astype(np.int32)
    assert (wmma("v_wmma_i32_16x16x16_iu8", a, b, c, f" neg_lo:[{signs[0]},{signs[1]},0]{clamp}") == wanted).all()


def nearest(exact: Fraction, bits: int, least: int) -> Fraction:
    """Rounded to `bits` binary digits, to even; least: exponent of the smallest subnormal."""
    if not exact:
        return exact
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    return round(exact / unit) * unit


FLOATS = {  # element, result: how raw bits become numbers, digits and least exponent of the result
    "v_wmma_f32_16x16x16_f16": ("h", "f", 24, -149),
    "v_wmma_f16_16x16x16_f16": ("h", "h", 11, -24),
    "v_wmma_f32_16x16x16_bf16": ("b", "f", 24, -149),
    "v_wmma_bf16_16x16x16_bf16": ("b", "b", 8, -133),
}


def numbers(raw: Array, kind: str) -> Array:
    if kind == "b":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.view({"h": np.float16, "f": np.float32}[kind]).astype(np.float64)


def finite(kind: str, spread: int, rng: np.random.Generator) -> Array:
    x = (rng.standard_normal((16, 16)) * 2.0 ** rng.integers(-spread, 2, (16, 16))).astype(
        np.float16 if kind == "h" else np.float32
    )
    if kind == "b":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x.view(np.uint16 if kind == "h" else np.uint32)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("spread", [1, 6, 22])
def test_wmma_of_floats_rounds_the_exact_sum_once(name: str, spread: int) -> None:
    kind, result, digits, least = FLOATS[name]
    rng = np.random.default_rng(spread)
    a, b, c = finite(kind, spread, rng), finite(kind, spread, rng), finite(result, spread, rng)
    c[::3] = 0
    x, y, z = numbers(a, kind), numbers(b, kind), numbers(c, result)
    got = numbers(wmma(name, a, b, c), result)
    for row in range(16):
        for column in range(16):
            exact = sum(
                (Fraction(p) * Fraction(q) for p, q in zip(x[row], y[:, column], strict=True)), Fraction(z[row, column])
            )
            assert got[row, column] == nearest(exact, digits, least), (row, column)


def test_wmma_of_infinities() -> None:
    a, b, c = np.full((16, 16), 0x3C00, np.uint16), np.full((16, 16), 0x3C00, np.uint16), np.zeros((16, 16), np.float32)
    a[2, 5], a[3, 1], a[3, 2] = 0x7C00, 0x7C00, 0xFC00
    got = wmma("v_wmma_f32_16x16x16_f16", a, b, c)
    assert np.isinf(got[2]).all() and np.isnan(got[3]).all() and (got[4] == 16).all()


def test_wmma_needs_every_lane() -> None:
    with pytest.raises(RuntimeError, match="EXEC"):
        after("v_wmma_i32_16x16x16_iu8 v[0:7], v[10:11], v[12:13], v[0:7]", {}, exec_mask=0x7FFFFFFF)
