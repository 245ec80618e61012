"""Random and edge arguments for laws and functions of the core, steered towards what the premises ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrun.core.law import Law
from graphrun.core.u32 import MASK, Array, Fn

EDGES = np.array(
    [0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x1FF, 0x200, 0x7FF, 0x800]
    + [0x3FFFF, 0x40000, 0x3FFFFFF, 0x4000000, 0x7FFFFFF, 0x8000000, 0x7FFFFFFF, 0x80000000, MASK - 1, MASK],
    dtype=np.uint32,
)
# Names whose premises bound them below, and by how much; rows, nb, r and b follow each other instead.
BELOW = {"w": 4, "k": 16, "h": 2, "j": 32, "e": 16, "v": 8, "l": 32, "m": 32, "t": 1 << 26, "s": 1 << 26, "g": 1 << 27}
BELOW_IN = {"q8_addr": {"w": 8, "k": 32}, "q8_inverse": {"w": 8}, "q8_layout": {"w": 8, "k": 32}}
BELOW_IN |= {"grid_unique": {"w": 8, "h": 1 << 27}}
DIVISORS = {"nb"}


class Noise:
    """An array of 2^32 words: the word at an index is a hash of it, and every fourth one is rich in edge bytes.

    With an array of seeds it is as many arrays at once.
    """

    def __init__(self, seed: int | npt.NDArray[np.uint64]) -> None:
        self.seed = np.asarray(seed, dtype=np.uint64)

    def __getitem__(self, index: Any) -> Any:
        at = np.atleast_1d(np.asarray(index, dtype=np.uint64))
        mixed = (at + self.seed) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = mixed ^ (mixed >> np.uint64(32))
        edge = ((mixed >> np.uint64(40)) & np.uint64(0x81818181)) * np.uint64(0xFF) >> np.uint64(3)
        word = np.where(mixed >> np.uint64(62) == 0, edge, mixed).astype(np.uint32)
        return word if isinstance(index, np.ndarray) else int(word[0])


class Overlay:
    """Another array of words with some of them replaced."""

    def __init__(self, base: Noise, words: Mapping[int, int]) -> None:
        self.base, self.words = base, words

    def __getitem__(self, index: Any) -> Any:
        value = self.base[index]
        for at, word in self.words.items():
            value = np.where(index == at, np.uint32(word), value) if isinstance(index, np.ndarray) else value
            value = word if not isinstance(index, np.ndarray) and index == at else value
        return value


def wild(rng: np.random.Generator, count: int) -> Array:
    """Words of every length, edge values among them."""
    lengths = rng.integers(0, 32, count, dtype=np.uint32)
    words = rng.integers(0, 1 << 32, count, dtype=np.uint32) >> lengths
    return np.where(rng.random(count) < 0.3, rng.choice(EDGES, count), words)


def below(rng: np.random.Generator, bound: Array) -> Array:
    """Words below each bound (0 for bound 0): 0, the last one, or any."""
    top = np.maximum(bound, 1)
    kind = rng.random(len(bound))
    inside = (rng.random(len(bound)) * top).astype(np.uint32)
    return np.where(kind < 0.15, np.uint32(0), np.where(kind < 0.4, top - np.uint32(1), inside))


def sizes(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Rows and blocks of 32 per row of matrices, most of them within the limits of every format."""
    nb = np.uint32(1) + below(rng, np.uint32(1) << rng.integers(0, 12, count, dtype=np.uint32))
    nb = np.where(rng.random(count) < 0.6, (nb + np.uint32(7)) // np.uint32(8) * np.uint32(8), nb)
    most = np.minimum(np.uint32((1 << 18) - 1), np.uint32((1 << 26) - 1) // nb)
    rows = np.uint32(1) + below(rng, np.minimum(most, np.uint32(1) << rng.integers(0, 19, count, dtype=np.uint32)))
    return np.minimum(rows, most), nb


def words_for(rng: np.random.Generator, owner: str, names: list[str], count: int) -> dict[str, Array]:
    """One array per name; a tenth of all values ignores the premises."""
    rows, nb = sizes(rng, count)
    tied = {"rows": rows, "nb": nb, "r": below(rng, rows), "b": below(rng, nb)}
    tied["i"] = below(rng, rows * nb * np.uint32(8 if "q8" in owner else 4))
    limits = BELOW | BELOW_IN.get(owner, {})
    out: dict[str, Array] = {}
    for name in names:
        steered = tied.get(name)
        if steered is None and name in limits:
            steered = below(rng, np.full(count, limits[name], dtype=np.uint32))
        value = wild(rng, count)
        out[name] = value if steered is None else np.where(rng.random(count) < 0.9, steered, value)
        if name in DIVISORS:
            out[name] = np.maximum(out[name], 1)
    return out


def _paired(rng: np.random.Generator, words: dict[str, Array]) -> None:
    """Make most samples of a uniqueness law meet on one row or block."""
    for these, those in ((("g", "v"), ("h", "w")), (("l", "t"), ("m", "s"))):
        if all(name in words for name in these + those):
            same = rng.random(len(words[these[0]])) < 0.7
            for one, two in zip(these, those, strict=True):
                words[two] = np.where(same, words[one], words[two])


def arguments(law: Law, count: int, seed: int) -> Iterator[list[Any]]:
    """Argument lists for a law, together `count` samples; arrays of words vary from one list to the next."""
    rng = np.random.default_rng([seed, *law.name.encode()])
    mems = "Mem" in law.fn.kinds
    rounds = max(1, count // 250) if mems and "int" in law.fn.kinds else count if mems else 1
    rounds = min(rounds, 60)
    for _ in range(rounds):
        names = [p for p, kind in zip(law.fn.params, law.fn.kinds, strict=True) if kind == "int"]
        words = words_for(rng, law.name, names, count // rounds)
        _paired(rng, words)
        values: dict[str, Any] = {p: Noise(int(rng.integers(1 << 32))) for p in law.fn.params}
        values |= {p: int(rng.integers(70)) for p, k in zip(law.fn.params, law.fn.kinds, strict=True) if k == "Fuel"}
        values |= words
        _derive(law.name, values, rng)
        yield [values[p] for p in law.fn.params]


def _derive(name: str, values: dict[str, Any], rng: np.random.Generator) -> None:
    """Arrays that a premise defines from others."""
    from graphrun.core.ie import ie_q4k_hi, ie_q4k_lo, ie_q6k_sw

    if name not in ("q4k_dot_u", "q6k_dots_s"):
        return
    for base in ("ub", "sb", "qb", "hb", "h"):
        if base in values:
            values[base] = np.array([rng.integers(2 if base == "h" else 1 << 32)], dtype=np.uint32)
    made: dict[int, int] = {}
    for k in range(4):
        word = values["qw"][int(values["qb"][0]) + k & MASK]
        if name == "q4k_dot_u":
            at = int(values["ub"][0]) + 2 * k
            made |= {at & MASK: ie_q4k_lo(word), at + 1 & MASK: ie_q4k_hi(word)}
        else:
            high = values["hw"][int(values["hb"][0])]
            made[int(values["sb"][0]) + k & MASK] = ie_q6k_sw(word, high, int(values["h"][0]), k)
    target = "u" if name == "q4k_dot_u" else "sw"
    values[target] = Overlay(values[target], made)


def function_arguments(fn: Fn[Any], count: int, seed: int) -> list[Any]:
    """Arguments for a function of the core: wild words, noise, a small fuel."""
    rng = np.random.default_rng([seed, *fn.name.encode()])
    names = [p for p, kind in zip(fn.params, fn.kinds, strict=True) if kind == "int"]
    words = words_for(rng, fn.name, names, count)
    made: dict[str, Any] = {"int": None, "Mem": Noise(seed), "Fuel": 4}
    return [words[p] if kind == "int" else made[kind] for p, kind in zip(fn.params, fn.kinds, strict=True)]
