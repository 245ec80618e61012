"""What a graph needs to know of a model file: its header, never its data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Protocol

from graphrun.core.errors import did_you_mean


class TensorHeader(Protocol):
    """A tensor of the file: its lower-case ggml type, and its row-major shape."""

    @property
    def type(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


class FileHeader(Protocol):
    """Metadata and tensor directory of a model file."""

    @property
    def path(self) -> object: ...

    @property
    def metadata(self) -> Mapping[str, object]: ...

    @property
    def tensors(self) -> Mapping[str, TensorHeader]: ...


def nearest(word: str, names: Iterable[str]) -> str | None:
    """`did_you_mean` over names from a file, which may be many and long: only those of the same layer."""
    layer = re.match(r"blk\.\d+\.", word)
    prefix = layer[0] if layer else word[:2]
    alike = (name for name in names if len(name) <= 100 and name.startswith(prefix))
    return did_you_mean(word, islice(alike, 1000))
