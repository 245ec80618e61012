"""A model file that takes tensors it lacks from another."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from graphrun.core.gguf import ModelFile


class Borrowing(ModelFile):
    """`file` with those of the named tensors that it lacks and `lender` has; metadata and path are its own."""

    def __init__(self, file: ModelFile, lender: ModelFile, names: Iterable[str]) -> None:
        self.file, self.lender = file, lender
        self.path, self.metadata = file.path, file.metadata
        borrowed = {n: lender.tensors[n] for n in names if n in lender.tensors and n not in file.tensors}
        self.tensors = MappingProxyType({**file.tensors, **borrowed})
        self._borrowed = frozenset(borrowed)

    def raw(self, name: str) -> NDArray[np.uint8]:
        return (self.lender if name in self._borrowed else self.file).raw(name)

    def close(self) -> None:
        """Close the file; the lender stays open."""
        self.file.close()
