"""Element types and tensor types, and what each dimension letter of a signature counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A dimension letter means the same in every op; messages use the words.
UNITS = {
    "T": "tokens",
    "R": "rows of tokens",
    "N": "channels",
    "M": "output channels",
    "H": "query heads",
    "G": "kv heads",
    "D": "channels per head",
    "C": "positions",
    "V": "vocabulary entries",
    "K": "taps",
    "P": "rotated pairs",
    "U": "value heads",
    "L": "snapshots",
    "S": "ring rows",
}


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `block` elements stored together take `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int
    quantised: bool = False

    def __str__(self) -> str:
        return self.name

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a dense tensor; the last dimension must be a multiple of the block."""
        elements = math.prod(shape)
        if elements % self.block:
            raise ValueError(f"{self.name}{list(shape)} does not consist of whole blocks of {self.block}")
        return elements // self.block * self.block_bytes


# Activations and states. q8 is 32 int8, an f32 scale and the u32 sum of the 32.
PLAIN = (DType("f32", 1, 4), DType("f16", 1, 2), DType("i32", 1, 4), DType("q8", 32, 40))
# Repacked weight layouts; block_bytes counts what a matrix-vector product reads.
LAYOUTS = (
    DType("q4_0", 32, 18, True),
    DType("q4_1", 32, 20, True),
    DType("q8_0", 32, 34, True),
    DType("q4_k", 256, 148, True),
    DType("q6_k", 256, 210, True),
    DType("i8_a", 32, 48, True),
)
DTYPES = {d.name: d for d in PLAIN + LAYOUTS}
F32, F16, I32, Q8 = PLAIN


@dataclass(frozen=True, slots=True)
class TensorType:
    """An element type and a row-major shape."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def nbytes(self) -> int:
        return self.dtype.nbytes(self.shape)


def tensor(dtype: str, *shape: int) -> TensorType:
    """`tensor("f32", 1, 64)` is the type written f32[1, 64]."""
    return TensorType(DTYPES[dtype], shape)
