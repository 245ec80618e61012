"""Damaged GGUF files: each ends in one ModelError that names file and field, fast and without large allocations."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import pytest
import tiny
from gguf_cases import ALIGNMENT_ERRORS, COUNT_ERRORS, KEY_ERRORS, TENSOR_ERRORS, VALUE_ERRORS, keys, u64
from tiny import ARCHITECTURE, Raw, array, entry, info, string

from graphrun.core.errors import ModelError
from graphrun.core.gguf import ModelFile

# Later tables, such as models that a graph refuses, join here.
CASES = [*COUNT_ERRORS, *KEY_ERRORS, *VALUE_ERRORS, *ALIGNMENT_ERRORS, *TENSOR_ERRORS]
MAX_SECONDS, MAX_BYTES = 1.0, 200 << 20


def refusal(path: Path) -> str:
    """The message of the ModelError that opening `path` must end in, within the limits of time and memory."""
    started = time.process_time()
    with pytest.raises(ModelError) as caught:
        ModelFile.open(path)
    assert time.process_time() - started < MAX_SECONDS
    tracemalloc.start()
    try:
        with pytest.raises(ModelError):
            ModelFile.open(path)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("raw", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_damaged(tmp_path: Path, raw: Raw, expected: str) -> None:
    path = raw.write(tmp_path / "m.gguf")
    assert refusal(path) == f"{path}: {expected}"


def whole() -> Raw:
    entries = [ARCHITECTURE, entry("list", 9, array(8, 2, string("one") + string("two"))), entry("n", 10, u64(1))]
    return Raw(keys=entries, infos=[info("a", (4, 2)), info("b", (32,), kind=8, offset=32)], data=bytes(66))


def test_whole_file_opens(tmp_path: Path) -> None:
    assert list(ModelFile.open(whole().write(tmp_path / "m.gguf")).tensors) == ["a", "b"]


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    path, content = tmp_path / "m.gguf", whole().bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError) as caught:
            ModelFile.open(path)
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("section", "where"), [("header", "header"), ("metadata", "key 'list'"), ("tensor table", "tensor 'a'")]
)
def test_truncated_section_is_named(tmp_path: Path, section: str, where: str) -> None:
    parts = whole().sections()
    names = list(parts)
    kept = b"".join(parts[n] for n in names[: names.index(section)])
    content = kept + parts[section][: len(parts[section]) // 2]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path}: {where}")


def test_huge_header_of_a_sparse_file(tmp_path: Path) -> None:
    path = keys(entry("s", 8, u64(1 << 28))).write(tmp_path / "m.gguf")
    with path.open("ab") as f:
        f.truncate(1 << 30)
    assert refusal(path) == f"{path}: key 's': header and tensor table do not fit in 64 MiB"


def test_elements_beyond_the_budget(tmp_path: Path) -> None:
    half = array(0, 3 << 19, bytes(3 << 19))
    path = keys(entry("a", 9, half), entry("b", 9, half), entry("c", 9, array(0, 1))).write(tmp_path / "m.gguf")
    assert "key 'c': array of 1 elements exceeds the limits" in refusal(path)


def test_nested_arrays_beyond_the_budget(tmp_path: Path) -> None:
    path = keys(entry("a", 9, array(9, 60_000, array(9, 0) * 60_000))).write(tmp_path / "m.gguf")
    assert "key 'a': array of 60000 elements exceeds the limits" in refusal(path)


def read_all(path: Path) -> bool:
    """Read everything there is; False if it is refused."""
    try:
        model = ModelFile.open(path)
    except ModelError as e:
        assert str(path) in str(e)
        return False
    assert len(dict(model.metadata)) == len(model.metadata)
    for name, tensor in model.tensors.items():
        if tensor.nbytes:
            assert model.raw(name).nbytes == tensor.nbytes
    return True


def test_random_damage(tmp_path: Path) -> None:
    rng, path = random.Random(0), tmp_path / "m.gguf"
    content = tiny.llama(path, weights="q4_0", vocab=64).read_bytes()
    header = content.index(b"output.weight") + 64
    outcomes = set()
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 8)):
            damaged[rng.randrange(header)] = rng.randrange(256)
        path.write_bytes(damaged)
        outcomes.add(read_all(path))
    assert outcomes == {True, False}


def test_random_truncation(tmp_path: Path) -> None:
    rng, path = random.Random(1), tmp_path / "m.gguf"
    content = tiny.qwen2(path, weights="q8_0", vocab=64).read_bytes()
    for _ in range(300):
        path.write_bytes(content[: rng.randrange(len(content) - 64)])
        assert not read_all(path)
