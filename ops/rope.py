"""Rotary position embedding with its scaling rules, and the write of keys and values to the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from graphrun.core.op import Kernel, fused, op

A = np.ndarray[Any, Any]

ROPE = (
    "base: float, width: int, pairs: adjacent|halves, factors?: f32[P],"
    " factor: float = 1, yarn: int = 0, original: int = 0, fast: float = 32, slow: float = 1, magnitude: float = 1,"
    " section_t: int = 0, section_h: int = 0, section_w: int = 0"
)
ROTATED = (
    "width <= D, 0 < width, width % 2 == 0, P == width // 2, 1 < base, 0 < factor, 0 < fast, 0 < slow, yarn <= original"
)
TURN = (
    "pos, base, width, pairs, factors, factor, yarn, original, fast, slow, magnitude, section_t, section_h, section_w"
)
SETTINGS = "base width factor yarn original fast slow magnitude section_t section_h section_w".split()
BLOCK = 256  # positions computed together


def turns(first: int, count: int, given: Mapping[str, Any]) -> A:
    """f32[count, P, 2]: cos and sin for positions from `first` on, for the attributes and `factors` of a call.

    Every backend takes them from here, computed in the same blocks, so that all have the same bits.
    """
    factors = given.get("factors")
    settings, frozen = tuple(given[name] for name in SETTINGS), b"" if factors is None else factors.tobytes()
    numbers = range(first // BLOCK, (first + count - 1) // BLOCK + 1)
    blocks = [_turns(number, settings, frozen) for number in numbers]
    begin = first % BLOCK
    return (blocks[0] if len(blocks) == 1 else np.concatenate(blocks))[begin : begin + count]


@op(
    f"x: f32[T, H, D], pos: i32[1], {ROPE} -> y: f32[T, H, D]",
    kernels=(Kernel("rope", groups="T * H", tile="T: 1, H: 1"),),
    flops="3 * T * H * D",
    rtol=1e-5,
    requires=ROTATED,
    table=turns,
)
def rope(
    x: A,
    pos: A,
    base: float,
    width: int,
    pairs: str,
    factors: A | None = None,
    factor: float = 1.0,
    yarn: int = 0,
    original: int = 0,
    fast: float = 32.0,
    slow: float = 1.0,
    magnitude: float = 1.0,
    section_t: int = 0,
    section_h: int = 0,
    section_w: int = 0,
) -> A:
    """y = x, pairs of its first `width` channels turned by (pos + t) * base**(-2j/width) / factors_j.

    Positions are divided by `factor`; with `yarn` only pairs of long wavelength are, as YaRN (Peng et al. 2023,
    section 3) ramps between `fast` and `slow` turns over `original` positions. cos and sin are multiplied by
    `magnitude`, computed in float64 and rounded (`turns`). With sections (interleaved M-RoPE of text, whose three
    position components are equal) only pairs j < 3 * the section number j % 3 turn.
    """
    given = {name: value for name, value in locals().items() if name not in ("x", "pos")}
    cos, sin = turns(int(pos[0]), len(x), given).transpose(2, 0, 1)[:, :, None]
    half = width // 2
    first, second = (
        (slice(0, width, 2), slice(1, width, 2)) if pairs == "adjacent" else (slice(half), slice(half, width))
    )
    y = x.copy()
    a, b = x[..., first], x[..., second]
    y[..., first] = a * cos - b * sin
    y[..., second] = a * sin + b * cos
    return y


@lru_cache(maxsize=256)
def _turns(block: int, settings: tuple[Any, ...], factors: bytes) -> A:
    """f32[BLOCK, P, 2] of positions BLOCK * block and on, `settings` being those of SETTINGS."""
    base, width, factor, yarn, original, fast, slow, magnitude, *sections = settings
    speed = rotation_speeds(base, width, factor, yarn, original, fast, slow)
    if any(sections):
        speed = np.where(turning(width // 2, tuple(sections)), speed, 0)
    with np.errstate(all="ignore"):  # a damaged file's factors may be 0 or NaN, and the step's result says so
        if factors:
            speed = speed / np.frombuffer(factors, np.float32).astype(np.float64)
        angle = np.arange(BLOCK * block, BLOCK * (block + 1), dtype=np.float64)[:, None] * speed
        return np.stack([np.cos(angle) * magnitude, np.sin(angle) * magnitude], axis=-1).astype(np.float32)


def turning(pairs: int, sections: tuple[int, int, int]) -> A:
    """bool[pairs]: whether a pair belongs to a section."""
    pair = np.arange(pairs)
    return pair < 3 * np.array(sections)[pair % 3]


@lru_cache
def rotation_speeds(base: float, width: int, factor: float, yarn: int, original: int, fast: float, slow: float) -> A:
    """f64[width/2], radians a position of each pair; the yarn ramp's ends are rounded outwards to whole pairs."""
    pair = np.arange(width // 2, dtype=np.float64)
    plain = base ** (-2 * pair / width)
    if not yarn:
        return plain / factor

    def pair_turning(times: float) -> float:
        return width * (math.log(original) - math.log(times) - math.log(2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(pair_turning(fast)), 0)
    high = min(math.ceil(pair_turning(slow)), width - 1)
    interpolated = np.clip((pair - low) / max(high - low, 0.001), 0, 1)
    return plain / factor * interpolated + plain * (1 - interpolated)


@op(
    "k: f32[T, G, D], v: f32[T, G, D], kc: state S[C, G, D], vc: state S[C, G, D], pos: i32[1] -> kc, vc",
    kernels=(Kernel("store", groups="T * G", tile="T: 1, G: 1"),),
    reads="4 * T * G * D",
)
def store(k: A, v: A, kc: A, vc: A, pos: A) -> tuple[A, A]:
    """kc, vc at positions pos .. pos + T - 1 = k, v, rounded to the cache's type."""
    rows = slice(int(pos[0]), int(pos[0]) + k.shape[0])
    kc[rows], vc[rows] = k, v
    return kc, vc


rope_store = fused(
    "rope_store",
    f"q: f32[T, H, D], k: f32[T, G, D], v: f32[T, G, D], kc: state S[C, G, D], vc: state S[C, G, D], pos: i32[1],"
    f" {ROPE} -> q2: f32[T, H, D], kc, vc",
    f"""
    q2: rope(q, {TURN})
    kr: rope(k, {TURN})
    kc, vc: store(kr, v, kc, vc, pos)
    """,
    (rope, store),
    doc="Rotate q and k and write k and v to the cache, in one launch.",
    kernels=(Kernel("rope_store", groups="T * (H + G)", tile="T: 1, H: 1 | T: 1, G: 1"),),
    flops="3 * T * (H + G) * D",
    reads="4 * T * (H + 2 * G) * D",
    requires=ROTATED,
    table=turns,
)
