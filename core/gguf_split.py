"""Split models: `name-00001-of-00003.gguf` and its siblings are one model."""

from __future__ import annotations

import os
import re
from pathlib import Path

from graphrun.core.errors import ModelError
from graphrun.core.gguf_meta import key_place
from graphrun.core.gguf_part import Part, read_part
from graphrun.core.gguf_tensors import tensor_place

COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"
PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def read_parts(path: Path) -> list[Part]:
    """The file `path` and, if it is a part of a split model, all its parts in order. Raises ModelError."""
    part = read_part(path)
    count = _integer(part, COUNT) if COUNT in part.metadata else 1
    if count <= 1:
        return [part]
    paths = _part_paths(part, count)
    missing = next((i for i, p in enumerate(paths) if not os.path.exists(p)), None)
    if missing is not None:
        raise ModelError(
            paths[missing], "", f"part {missing + 1} of {count} of the split model is missing", "download all parts"
        )
    parts = [part if p == path else read_part(p) for p in paths]
    for index, each in enumerate(parts):
        _check_part(each, index, count)
    _check_union(parts)
    return parts


def _integer(part: Part, key: str) -> int:
    if key not in part.metadata:
        raise ModelError(part.path, key_place(key), "is missing, but this is a part of a split model")
    value = part.metadata[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(part.path, key_place(key), f"is of type {part.metadata.type_of(key)}, but must be an integer")
    return value


def _part_paths(part: Part, count: int) -> list[Path]:
    """The files of all parts, from the name of one."""
    match = PART_NAME.fullmatch(part.path.name)
    if match is None or int(match["count"]) != count or not 1 <= int(match["number"]) <= count:
        ending = f"-{_integer(part, NUMBER) + 1:05d}-of-{count:05d}.gguf"
        raise ModelError(
            part.path,
            key_place(COUNT),
            f"one of {count} parts, but its name does not end in {ending}",
            "rename it back",
        )
    return [part.path.with_name(f"{match['stem']}-{i + 1:05d}-of-{count:05d}.gguf") for i in range(count)]


def _check_part(part: Part, index: int, count: int) -> None:
    if _integer(part, COUNT) != count:
        found = _integer(part, COUNT)
        raise ModelError(part.path, key_place(COUNT), f"is {found}, but other parts say {count}")
    number = _integer(part, NUMBER)
    if number != index:
        raise ModelError(
            part.path,
            key_place(NUMBER),
            f"holds part {number + 1} of {count}, but is named as part {index + 1}",
            "the same part is there twice, or parts were renamed",
        )


def _check_union(parts: list[Part]) -> None:
    """No tensor in two parts, and as many as the first part announces."""
    owner: dict[str, Part] = {}
    for part in parts:
        for name in part.tensors:
            if name in owner:
                raise ModelError(part.path, tensor_place(name), f"is already in {owner[name].path.name}")
            owner[name] = part
    announced = _integer(parts[0], TENSORS)
    if announced != len(owner):
        raise ModelError(
            parts[0].path, key_place(TENSORS), f"is {announced}, but the {len(parts)} parts hold {len(owner)} tensors"
        )
