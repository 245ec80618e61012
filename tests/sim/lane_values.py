"""Values of the 32 lanes of a register: special ones and random bits, their numbers, their comparison."""

from __future__ import annotations

import numpy as np

from sim.vector_table import TYPES, Array

SIZE = {"d": 2, "I": 2, "U": 2}  # in registers, where it is not 1
# fmt: off
SPECIAL = {
    "f": [0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x807FFFFF, 0x00800000,
          0x7F7FFFFF, 0x3F000000, 0x3FC00000, 0x40200000, 0xC0200000, 0x4F000000, 0xCF000000, 0x4F800000, 0x477FEFFF,
          0x477FF000, 0x33000001, 0x3E800000, 0x3F7FFFFF],
    "h": [0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 1, 0x83FF, 0x0400, 0x7BFF, 0x3800, 0x3E00, 0x4100, 0xC100,
          0x3BFF],
    "i": [0, 1, 2, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFF, 0x800000, 0xFFFFFF, 255, 0x8000, 0x7FFF],
    "d": [0, 1 << 63, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000,
          0x7FF8000000000000, 1, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF, 0x41DFFFFFFFC00000,
          0x41E0000000000000, 0x36A0000000000000],
}
# fmt: on
SPECIAL |= {letter: SPECIAL["i"] for letter in "ust"} | {
    letter: [*SPECIAL["d"], (1 << 64) - 1, 63, 64] for letter in "IU"
}


def values(letter: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Raw bits, as u32 or u64: a third each special values, any bits, and numbers of everyday size."""
    wide = letter in SIZE
    raw = rng.integers(0, 1 << 64 if wide else 1 << 32, shape, np.uint64 if wide else np.uint32)
    if letter in "fhd":
        usual = (rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 5, shape)).astype(TYPES[letter])
        usual = usual.view({"f": np.uint32, "h": np.uint16, "d": np.uint64}[letter]).astype(raw.dtype)
    else:
        usual = raw >> rng.integers(0, 64 if wide else 32, shape).astype(raw.dtype)
    special = rng.choice(np.array(SPECIAL[letter], raw.dtype), shape)
    return np.choose(rng.integers(0, 3, shape), [raw, usual, special])


def typed(raw: Array, letter: str) -> Array:
    """The numbers that an instruction takes from registers: 16-bit ones from the low half."""
    kind = np.dtype(TYPES[letter])
    return raw.astype(f"u{kind.itemsize}").view(kind)


def quiet(raw: Array, letter: str) -> Array:
    """Without signalling NaNs, which numpy keeps."""
    x = typed(raw, letter)
    if letter not in "fhd":
        return raw
    bit = {"f": 0x400000, "h": 0x200, "d": 1 << 51}[letter]
    return np.where(np.isnan(x), raw | raw.dtype.type(bit), raw)


def same(a: Array, b: Array) -> Array:
    """By bits; any NaN equals any NaN."""
    if a.dtype.kind != "f":
        return a == b
    unsigned = f"u{a.dtype.itemsize}"
    return (a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))
