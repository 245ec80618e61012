"""Split models: any part opens all of them, and a wrong set of parts is named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import tiny
from tiny import ARCHITECTURE, Raw, entry, info, string

from graphrun.core.errors import ModelError
from graphrun.core.gguf import ModelFile

COUNT = 3


def part_path(folder: Path, index: int) -> Path:
    return folder / f"m-{index + 1:05d}-of-{COUNT:05d}.gguf"


def split_keys(index: int, count: int = COUNT, tensors: int = COUNT) -> list[bytes]:
    numbers = {"split.no": (2, "<H", index), "split.count": (2, "<H", count), "split.tensors.count": (5, "<i", tensors)}
    return [entry(key, kind, struct.pack(code, n)) for key, (kind, code, n) in numbers.items()]


def part(index: int, name: str | None = None, tensors: int = COUNT) -> Raw:
    first = [ARCHITECTURE] if index == 0 else []
    return Raw(
        keys=first + split_keys(index, tensors=tensors), infos=[info(name or f"t{index}")], data=bytes([index]) * 128
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index in range(COUNT):
        part(index).write(part_path(tmp_path, index))
    return tmp_path


def message(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        ModelFile.open(path)
    return str(caught.value)


@pytest.mark.parametrize("opened", range(COUNT))
def test_any_part_opens_all(folder: Path, opened: int) -> None:
    model = ModelFile.open(part_path(folder, opened))
    assert model.architecture == "llama"
    assert model.metadata["split.no"] == 0
    assert list(model.tensors) == ["t0", "t1", "t2"]
    assert [model.raw(f"t{i}")[0, 0] for i in range(COUNT)] == [0, 1, 2]


@pytest.mark.parametrize("opened", range(COUNT))
def test_missing_part(folder: Path, opened: int) -> None:
    gone = part_path(folder, (opened + 1) % COUNT)
    number = (opened + 1) % COUNT + 1
    gone.unlink()
    expected = f"{gone}: part {number} of 3 of the split model is missing (hint: download all parts)"
    assert message(part_path(folder, opened)) == expected


def test_empty_part(folder: Path) -> None:
    part_path(folder, 1).write_bytes(b"")
    assert message(part_path(folder, 0)) == f"{part_path(folder, 1)}: the file is empty (hint: download it again)"


def test_truncated_part(folder: Path) -> None:
    path = part_path(folder, 2)
    path.write_bytes(path.read_bytes()[:-1])
    assert message(part_path(folder, 0)).startswith(f"{path}: tensor 't2': data ends at byte 128")


def test_duplicate_part(folder: Path) -> None:
    part_path(folder, 2).write_bytes(part_path(folder, 1).read_bytes())
    expected = "key 'split.no': holds part 2 of 3, but is named as part 3 (hint: the same part is there twice"
    assert message(part_path(folder, 0)).startswith(f"{part_path(folder, 2)}: {expected}")


def test_duplicate_tensor(folder: Path) -> None:
    part(2, name="t1").write(part_path(folder, 2))
    expected = f"{part_path(folder, 2)}: tensor 't1': is already in {part_path(folder, 1).name}"
    assert message(part_path(folder, 0)) == expected


def test_tensor_count(folder: Path) -> None:
    part(0, tensors=4).write(part_path(folder, 0))
    expected = f"{part_path(folder, 0)}: key 'split.tensors.count': is 4, but the 3 parts hold 3 tensors"
    assert message(part_path(folder, 1)) == expected


def test_renamed_part(folder: Path) -> None:
    renamed = part_path(folder, 1).rename(folder / "model.gguf")
    expected = "one of 3 parts, but its name does not end in -00002-of-00003.gguf (hint: rename it back)"
    assert message(renamed) == f"{renamed}: key 'split.count': {expected}"


def test_parts_of_different_splits(folder: Path) -> None:
    Raw(keys=split_keys(1, count=2), infos=[info("t1")]).write(part_path(folder, 1))
    assert message(part_path(folder, 0)) == f"{part_path(folder, 1)}: key 'split.count': is 2, but other parts say 3"


def test_number_missing(folder: Path) -> None:
    Raw(keys=split_keys(1)[1:], infos=[info("t1")]).write(part_path(folder, 1))
    expected = "key 'split.no': is missing, but this is a part of a split model"
    assert message(part_path(folder, 0)) == f"{part_path(folder, 1)}: {expected}"


def test_count_of_wrong_type(tmp_path: Path) -> None:
    path = Raw(keys=[ARCHITECTURE, entry("split.count", 8, string("3"))]).write(tmp_path / "m.gguf")
    assert message(path) == f"{path}: key 'split.count': is of type string, but must be an integer"


def test_split_by_the_writer(tmp_path: Path) -> None:
    whole = ModelFile.open(tiny.llama(tmp_path / "whole.gguf", weights="q4_0"))
    opened = ModelFile.open(tiny.llama(tmp_path / "m.gguf", weights="q4_0", split=4).parent / "m-00002-of-00006.gguf")
    assert dict(opened.tensors) == dict(whole.tensors)
    assert all((opened.raw(n) == whole.raw(n)).all() for n in whole.tensors)
    assert {k: v for k, v in opened.metadata.items() if not k.startswith("split.")} == dict(whole.metadata)
