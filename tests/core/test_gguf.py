"""Reading GGUF files: every value type, raw blocks, split models, and paths that are no GGUF file."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import ARCHITECTURE, Raw, array, entry, info, string

from graphrun.core.errors import ModelError
from graphrun.core.gguf import MetaValue, ModelFile

T = GGUFValueType
INTEGERS = {
    (T.UINT8, "u8"): (0, 255),
    (T.INT8, "i8"): (-128, 127),
    (T.UINT16, "u16"): (0, 2**16 - 1),
    (T.INT16, "i16"): (-(2**15), 2**15 - 1),
    (T.UINT32, "u32"): (0, 2**32 - 1),
    (T.INT32, "i32"): (-(2**31), 2**31 - 1),
    (T.UINT64, "u64"): (0, 2**64 - 1),
    (T.INT64, "i64"): (-(2**63), 2**63 - 1),
}


def message(path: Path | str) -> str:
    with pytest.raises(ModelError) as caught:
        ModelFile.open(path)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


@pytest.mark.parametrize(("kind", "values"), [(k, v) for (k, _), v in INTEGERS.items()])
def test_integers(path: Path, kind: GGUFValueType, values: tuple[int, int]) -> None:
    low, high = values
    writer = GGUFWriter(path, "llama")
    writer.add_key_value("low", low, kind)
    writer.add_key_value("high", high, kind)
    writer.add_key_value("both", [low, high], T.ARRAY, kind)
    finish(writer)
    found = ModelFile.open(path).metadata
    assert dict(found) == {"general.architecture": "llama", "low": low, "high": high, "both": [low, high]}
    assert type(found["low"]) is int


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_other_values(path: Path) -> None:
    expected: dict[str, MetaValue] = {
        "f32": 0.5,
        "f64": 0.1,
        "yes": True,
        "no": False,
        "text": "Grüße\n\x00 ▁",
        "floats": [1.5, -2.0],
        "flags": [True, False, True],
        "texts": ["", "é", "日本"],
    }
    writer = GGUFWriter(path, "llama")
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    for key in ("yes", "no"):
        writer.add_bool(key, key == "yes")
    writer.add_string("text", str(expected["text"]))
    for key in ("floats", "flags", "texts"):
        writer.add_key_value(key, expected[key], T.ARRAY)
    finish(writer)
    model = ModelFile.open(path)
    assert dict(model.metadata) == {"general.architecture": "llama", **expected}
    assert type(model.metadata["yes"]) is bool
    assert model.architecture == "llama"
    assert not model.tensors


def test_values_a_writer_does_not_make(path: Path) -> None:
    nested = array(9, 2, array(4, 2, struct.pack("<II", 1, 2)) + array(8, 1, string("x")))
    Raw(keys=[ARCHITECTURE, entry("nested", 9, nested), entry("empty", 8, string(""))], version=2).write(path)
    found = ModelFile.open(path).metadata
    assert found["nested"] == [[1, 2], ["x"]]
    assert found["empty"] == ""


def test_strings_keep_their_bytes(path: Path) -> None:
    raw = [b"\xff", b"ok", b"\xe2\x96", bytes(range(256))]
    Raw(keys=[ARCHITECTURE, entry("tokens", 9, array(8, 4, b"".join(map(string, raw))))]).write(path)
    tokens = ModelFile.open(path).metadata["tokens"]
    assert isinstance(tokens, list)
    assert [str(t).encode("utf-8", "surrogateescape") for t in tokens] == raw


def test_large_vocabulary_is_read_when_asked(path: Path) -> None:
    tokens = [f"token{i}" for i in range(250_000)]
    merges = [f"to k{i}" for i in range(250_000)]
    lists = {"tokens": tokens, "merges": merges}
    entries = [entry(k, 9, array(8, len(v), b"".join(map(string, v)))) for k, v in lists.items()]
    Raw(keys=[ARCHITECTURE, *entries]).write(path)
    metadata = ModelFile.open(path).metadata
    assert metadata["merges"] == merges
    assert metadata["tokens"] == tokens
    assert metadata["tokens"] is metadata["tokens"]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(\.[a-z_]{1,8}){0,3}", fullmatch=True),
        st.one_of(st.integers(0, 2**32 - 1), st.booleans(), st.text(min_size=1, max_size=20)),
        max_size=8,
    )
)
def test_any_keys(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, int | bool | str]) -> None:
    path = tmp_path_factory.mktemp("keys") / "m.gguf"
    expected = {"general.architecture": "x", **keys}
    tiny.write(path, "x", expected, {})
    assert dict(ModelFile.open(path).metadata) == expected


@pytest.mark.parametrize("weights", tiny.WEIGHT_TYPES)
@pytest.mark.parametrize("make", [tiny.llama, tiny.qwen2])
def test_tiny_models(path: Path, make: Callable[..., Path], weights: str) -> None:
    model = ModelFile.open(make(path, weights=weights))
    assert model.architecture == make.__name__
    assert model.tensors["blk.1.ffn_down.weight"].shape == (tiny.E, tiny.F)
    assert {t.type for t in model.tensors.values() if len(t.shape) == 2} == {weights}
    assert {t.type for t in model.tensors.values() if len(t.shape) == 1} == {"f32"}


@pytest.mark.parametrize("kind", [k for k in GGMLQuantizationType if GGML_QUANT_SIZES[k][0] > 0])
def test_raw_bytes_of_every_type(path: Path, kind: GGMLQuantizationType) -> None:
    block, block_bytes = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(int(kind))
    stored = {
        "matrix": rng.integers(0, 256, (3, 2 * block_bytes), np.uint8),
        "vector": rng.integers(0, 256, (1, block_bytes), np.uint8),
        "stack": rng.integers(0, 256, (6, block_bytes), np.uint8),
    }
    shapes = {"matrix": (3, 2 * block), "vector": (block,), "stack": (2, 3, block)}
    offsets, data = {}, b""
    for name, values in stored.items():
        offsets[name] = len(data)
        data += values.tobytes() + bytes(-values.nbytes % 32)
    Raw(infos=[info(n, s[::-1], int(kind), offsets[n]) for n, s in shapes.items()], data=data).write(path)
    model = ModelFile.open(path)
    for name, values in stored.items():
        tensor = model.tensors[name]
        assert (tensor.name, tensor.type, tensor.shape) == (name, kind.name.lower(), shapes[name])
        assert tensor.nbytes == values.nbytes
        np.testing.assert_array_equal(model.raw(name), values)
        assert not model.raw(name).flags.writeable


def test_raw_against_the_writer(path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((5, 64), dtype=np.float32)
    tiny.llama(path, weights="q8_0", tensors={"extra": values})
    raw = ModelFile.open(path).raw("extra")
    np.testing.assert_array_equal(raw, quants.quantize(values, GGMLQuantizationType.Q8_0))


def test_alignment(path: Path) -> None:
    keys = [ARCHITECTURE, entry("general.alignment", 4, struct.pack("<I", 256))]
    data = bytes(256) + np.arange(32, dtype="<f4").tobytes()
    Raw(keys=keys, infos=[info("a"), info("b", offset=256)], data=data, alignment=256).write(path)
    np.testing.assert_array_equal(ModelFile.open(path).raw("b").view("<f4")[0], np.arange(32))


def test_unknown_type_fails_only_when_read(path: Path) -> None:
    model = ModelFile.open(Raw(infos=[info("a"), info("new", kind=99, offset=128)]).write(path))
    assert model.tensors["new"].type == "type99"
    assert model.raw("a").nbytes == 128
    with pytest.raises(ModelError, match="tensor 'new': ggml type99 is not a known tensor type"):
        model.raw("new")


def test_unknown_tensor_and_close(path: Path) -> None:
    with ModelFile.open(tiny.llama(path)) as model:
        with pytest.raises(
            ModelError, match=r"tensor 'output.weigth': no such tensor \(hint: did you mean 'output.wei"
        ):
            model.raw("output.weigth")
        norm = model.raw("output_norm.weight")
    assert norm.nbytes == 4 * tiny.E
    assert model.metadata["llama.block_count"] == tiny.LAYERS
    with pytest.raises(ModelError, match="was closed"):
        model.raw("output.weight")


def test_golden_models() -> None:
    models = sorted((Path(__file__).parents[1] / "golden/models").glob("*.gguf"))
    if not models:
        pytest.skip("no golden models in this checkout")
    for path in models:
        model = ModelFile.open(path)
        assert model.tensors["output_norm.weight"].type == "f32"
        assert all(model.raw(n).nbytes == t.nbytes for n, t in model.tensors.items())


def test_overrides(path: Path) -> None:
    model = ModelFile.open(
        tiny.qwen2(
            path,
            vocab=64,
            metadata={"qwen2.vocab_size": None, "qwen2.block_count": (T.UINT64, 9), "note": "hi"},
            tensors={"output.weight": None, "blk.0.attn_q.weight": (8, 32)},
        )
    )
    assert "qwen2.vocab_size" not in model.metadata
    assert (model.metadata["qwen2.block_count"], model.metadata["note"]) == (9, "hi")
    assert "output.weight" not in model.tensors
    assert model.tensors["blk.0.attn_q.weight"].shape == (8, 32)
    tokens = model.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert len(set(map(str, tokens))) == 64


FOREIGN = [
    (b"GGUX" + bytes(60), "looks like data that starts with b'GGUX'"),
    (b"FUGG" + bytes(60), "looks like a byte-swapped (big-endian) GGUF file (hint: convert it"),
    (bytes(64), "looks like zeros, as unfinished downloads are (hint: download it again)"),
    (b"PK\x03\x04rest", "looks like a zip archive, as PyTorch checkpoints are (hint: convert the checkpoint"),
    (struct.pack("<Q", 90) + b'{"__metadata__":{}}', "looks like a safetensors file (hint: convert the checkpoint"),
    (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the file itself (hint: run 'git lfs"),
    (b"\n<!DOCTYPE HTML><html>", "looks like an HTML page, not the download itself (hint: use the direct"),
    (b'{"error": "404"}', "looks like JSON text"),
    (b"tjgg" + bytes(60), "looks like a GGJT file from before GGUF (hint: look for a GGUF version"),
    (b"\x1f\x8b\x08", "looks like a gzip archive (hint: unpack it first)"),
    (b"x", "looks like data that starts with b'x'"),
]


@pytest.mark.parametrize(("content", "expected"), FOREIGN)
def test_foreign_file(path: Path, content: bytes, expected: str) -> None:
    path.write_bytes(content)
    assert message(path).startswith(f"{path}: not a GGUF file: it ")
    assert expected in message(path)


def test_paths(tmp_path: Path) -> None:
    assert message(tmp_path) == f"{tmp_path}: is a directory, not a GGUF file (hint: it holds no .gguf file)"
    tiny.llama(tmp_path / "smollm.gguf")
    assert "(hint: open one of its files: smollm.gguf)" in message(tmp_path)
    wrong = tmp_path / "smolm.gguf"
    assert message(wrong) == f"{wrong}: no such file (hint: did you mean 'smollm.gguf'?)"
    assert "no such file" in message(tmp_path / "smollm.gguf" / "x")
    wrong.touch()
    assert message(wrong) == f"{wrong}: the file is empty (hint: download it again)"
    assert "\\0" in message("a\0b")
    assert "cannot be read" in message(tmp_path / ("x" * 5000))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipe_does_not_hang(path: Path) -> None:
    os.mkfifo(path)
    assert message(path) == f"{path}: is not a regular file"


def test_unreadable_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.llama(path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert message(path) == f"{path}: cannot be read: Permission denied"
