"""How the rows of a matrix are divided into tiles, so that numpy calls are large and their temporaries small."""

from __future__ import annotations

from typing import NamedTuple

# A tile's rows times TILE_TOKENS times 32 stays below the size at which BLAS libraries start their own threads.
TILE_ROWS = 256
TILE_TOKENS = 32


class Band(NamedTuple):
    """Consecutive rows of a matrix, first .. first + tiles * rows: tiles of equally many rows."""

    first: int
    tiles: int
    rows: int

    @property
    def stop(self) -> int:
        return self.first + self.tiles * self.rows

    def cut(self, most: int) -> list[Band]:
        """Bands of at most so many tiles."""
        starts = range(0, self.tiles, most)
        return [Band(self.first + s * self.rows, min(most, self.tiles - s), self.rows) for s in starts]


def bands(rows: int) -> list[Band]:
    """All rows of a matrix: a band, and another for rows that are left over."""
    tile = -(-rows // -(-rows // TILE_ROWS))
    tiles, left = divmod(rows, tile)
    return [Band(0, tiles, tile)] + [Band(tiles * tile, 1, left)] * (left > 0)


def chunks(tokens: int) -> list[slice]:
    """Tokens that are computed together."""
    return [slice(t, min(t + TILE_TOKENS, tokens)) for t in range(0, tokens, TILE_TOKENS)]
