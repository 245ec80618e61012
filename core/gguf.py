"""ModelFile: a GGUF model, mapped and checked: metadata, tensor types and shapes, raw blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType, TracebackType

import numpy as np
from numpy.typing import NDArray

from graphrun.core.errors import ModelError, did_you_mean
from graphrun.core.gguf_meta import MetaValue, key_place
from graphrun.core.gguf_part import Part
from graphrun.core.gguf_split import read_parts
from graphrun.core.gguf_tensors import Stored, TensorInfo, tensor_place

__all__ = ["MetaValue", "ModelFile", "TensorInfo"]

ARCHITECTURE = "general.architecture"


class ModelFile:
    """A GGUF file, or all parts of a split one, opened read-only.

    path: the file that was opened
    metadata: the keys of the first part; strings that are not UTF-8 carry surrogate escapes
    tensors: by name, over all parts
    """

    def __init__(self, path: Path, parts: list[Part]) -> None:
        self.path = path
        self.metadata: Mapping[str, MetaValue] = parts[0].metadata
        self._stored: dict[str, tuple[Part, Stored]] = {n: (p, t) for p in parts for n, t in p.tensors.items()}
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType({n: t.info for n, (_, t) in self._stored.items()})
        self._closed = False

    @classmethod
    def open(cls, path: str | Path) -> ModelFile:
        """Open a model by any of its files; raises ModelError naming file and field."""
        parts = read_parts(Path(path))
        model = cls(Path(path), parts)
        first = parts[0]
        if ARCHITECTURE not in first.metadata:
            hint = first.metadata.closest(ARCHITECTURE)
            raise ModelError(first.path, key_place(ARCHITECTURE), "is missing: no graph can be chosen", hint)
        if not isinstance(first.metadata[ARCHITECTURE], str) or not first.metadata[ARCHITECTURE]:
            raise ModelError(first.path, key_place(ARCHITECTURE), "must be a string that is not empty")
        return model

    @property
    def architecture(self) -> str:
        """The value of general.architecture, such as "llama"."""
        name = self.metadata[ARCHITECTURE]
        assert isinstance(name, str)
        return name

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored blocks of tensor `name`: [rows, bytes per row], read-only, backed by the mapped file.

        Leading dimensions are joined into rows; a vector is one row. Raises ModelError for an unknown name, for a
        type that has no known size, and after `close`.
        """
        if self._closed:
            raise ModelError(self.path, tensor_place(name), "the file was closed before this tensor was read")
        if name not in self._stored:
            raise ModelError(
                self.path, tensor_place(name), "no such tensor", did_you_mean(name, islice(self._stored, 4096))
            )
        part, tensor = self._stored[name]
        if not tensor.known:
            raise ModelError(part.path, tensor_place(name), f"ggml {tensor.info.type} is not a known tensor type")
        return part.bytes_of(tensor).reshape(math.prod(tensor.info.shape[:-1]), -1)

    def close(self) -> None:
        """Let go of the tensors; arrays from `raw` and the metadata stay valid and keep their own file mapped."""
        self._closed = True
        self._stored = {}

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
