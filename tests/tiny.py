"""Small random GGUF files: whole models of each architecture, and files put together byte by byte.

`llama` and `qwen2` write models that every engine can run; their overrides make models that are well-formed GGUF but
wrong in one place. `Raw` writes the container itself, with any field wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants
from numpy.typing import NDArray

E, F, LAYERS, H, G = 64, 96, 2, 4, 2  # channels, feed-forward channels, layers, query heads, kv heads

Value: TypeAlias = bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]
Typed: TypeAlias = tuple[GGUFValueType, Value]  # a value with its GGUF type given
Shape: TypeAlias = tuple[int, ...]
Tensor: TypeAlias = NDArray[np.float32] | Shape | None  # values, or random values of a shape, or leave it out

WEIGHT_TYPES = {
    "f32": GGMLQuantizationType.F32,
    "f16": GGMLQuantizationType.F16,
    "q8_0": GGMLQuantizationType.Q8_0,
    "q4_0": GGMLQuantizationType.Q4_0,
}
NORMAL, CONTROL, UNUSED = 1, 3, 5  # token types
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = (" the", " and", " to", " of", "ing", " in", "er", " is", "on", "at", "or", "en")
MERGES = 19  # merges that WORDS need
COMMON = b" \netaoinshrdlu.,cmfwygpbvkxjqzETAOINSHRDLUCMFWYGPBVKXJQZ0123456789!?'"


def llama(
    path: str | Path,
    *,
    weights: str = "f32",
    seed: int = 0,
    split: int = 0,
    vocab: int = 320,
    key_length: int = 32,
    tied: bool = False,
    metadata: Mapping[str, Value | Typed | None] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a random llama model to `path` and return the path.

    weights: type of the matrices (vectors stay f32); vocab: 64..320 tokens; tied: leave output.weight out
    split: tensors per part; the parts are named PATH's stem-00001-of-0000N.gguf
    metadata: whole keys to set, or to leave out if None; (GGUFValueType, value) fixes the type
    tensors: tensors to add or replace, or to leave out if None; a shape means random values of that shape
    """
    keys = _hyperparameters("llama", vocab, 1e-5, 10000.0)
    keys |= dict.fromkeys(("llama.attention.key_length", "llama.attention.value_length"), key_length)
    keys |= {"llama.rope.dimension_count": key_length}
    keys |= tokenizer("llama-bpe", vocab) | {"tokenizer.ggml.add_bos_token": True}
    shapes = _shapes(vocab, key_length, biased=False, tied=tied)
    return write(path, "llama", {**keys, **(metadata or {})}, {**shapes, **(tensors or {})}, weights, seed, split)


def qwen2(
    path: str | Path,
    *,
    weights: str = "f32",
    seed: int = 0,
    split: int = 0,
    vocab: int = 320,
    tied: bool = False,
    metadata: Mapping[str, Value | Typed | None] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a random qwen2 model (q, k and v have biases, heads have 16 channels); arguments as for `llama`."""
    keys = _hyperparameters("qwen2", vocab, 1e-6, 1e6)
    keys |= tokenizer("qwen2", vocab) | {"tokenizer.ggml.add_bos_token": False}
    shapes = _shapes(vocab, E // H, biased=True, tied=tied)
    return write(path, "qwen2", {**keys, **(metadata or {})}, {**shapes, **(tensors or {})}, weights, seed, split)


def _hyperparameters(arch: str, vocab: int, epsilon: float, freq_base: float) -> dict[str, Value | Typed | None]:
    numbers: dict[str, Value] = {
        "context_length": 256,
        "embedding_length": E,
        "block_count": LAYERS,
        "feed_forward_length": F,
        "attention.head_count": H,
        "attention.head_count_kv": G,
        "attention.layer_norm_rms_epsilon": epsilon,
        "rope.freq_base": freq_base,
        "vocab_size": vocab,
    }
    return {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in numbers.items()}


def _shapes(vocab: int, head: int, *, biased: bool, tied: bool) -> dict[str, Tensor]:
    shapes: dict[str, Tensor] = {"token_embd.weight": (vocab, E)}
    for i in range(LAYERS):
        layer: dict[str, Shape] = {"attn_norm.weight": (E,)}
        for name, rows in (("q", H * head), ("k", G * head), ("v", G * head)):
            layer[f"attn_{name}.weight"] = (rows, E)
            if biased:
                layer[f"attn_{name}.bias"] = (rows,)
        layer |= {"attn_output.weight": (E, H * head), "ffn_norm.weight": (E,)}
        layer |= {"ffn_gate.weight": (F, E), "ffn_up.weight": (F, E), "ffn_down.weight": (E, F)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return shapes | {"output_norm.weight": (E,)} | ({} if tied else {"output.weight": (vocab, E)})


def byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in a gpt2 vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def tokenizer(pre: str, vocab: int) -> dict[str, Value | Typed | None]:
    """The keys of a gpt2 tokenizer: bytes, common ones first, then merges that build WORDS, unused ones, SPECIAL.

    Small vocabularies lack rare bytes, never merges.
    """
    letters = byte_letters()
    n_bytes = min(256, vocab - len(SPECIAL) - MERGES)
    common = list(COMMON)
    tokens = [letters[b] for b in [*common, *(b for b in range(256) if b not in common)]][:n_bytes]
    merges: list[str] = []
    for word in WORDS:
        pieces = [letters[b] for b in word.encode()]
        for n in range(1, len(pieces)):
            joined = "".join(pieces[: n + 1])
            if joined not in tokens:
                tokens.append(joined)
                merges.append(f"{''.join(pieces[:n])} {pieces[n]}")
    types = [NORMAL] * len(tokens)
    unused = vocab - len(SPECIAL) - len(tokens)
    tokens += [f"<|unused_{i}|>" for i in range(unused)] + list(SPECIAL)
    types += [UNUSED] * unused + [CONTROL] * len(SPECIAL)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": vocab - 3,
        "tokenizer.ggml.eos_token_id": vocab - 1,
    }


def write(
    path: str | Path,
    arch: str,
    metadata: Mapping[str, Value | Typed | None],
    tensors: Mapping[str, Tensor],
    weights: str = "f32",
    seed: int = 0,
    split: int = 0,
) -> Path:
    """Write any keys and tensors; norms are near 1, biases small, matrices scaled to keep activations near 1."""
    rng, writer = np.random.default_rng(seed), GGUFWriter(path, arch, split_max_tensors=split)
    del writer.kv_data[0]["general.architecture"]
    for key, value in metadata.items():
        if value is not None:
            _add_value(writer, key, value)
    for name, tensor in tensors.items():
        if tensor is not None:
            values = _random(rng, name, tensor) if isinstance(tensor, tuple) else tensor
            kind = WEIGHT_TYPES[weights if values.ndim > 1 else "f32"]
            writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def _random(rng: np.random.Generator, name: str, shape: Shape) -> NDArray[np.float32]:
    values = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith("norm.weight"):
        return 1 + np.float32(0.1) * values
    return values * np.float32(0.1 if len(shape) == 1 else shape[-1] ** -0.5)


def _add_value(writer: GGUFWriter, key: str, value: Value | Typed) -> None:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], GGUFValueType):
        writer.add_key_value(key, value[1], value[0])
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        (writer.add_int32 if value < 0 else writer.add_uint32)(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_key_value(key, value, GGUFValueType.STRING if isinstance(value, str) else GGUFValueType.ARRAY)


def string(text: str | bytes) -> bytes:
    """A GGUF string: u64 length and bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    """A key, a value type number, and the bytes of the value."""
    return string(key) + struct.pack("<I", kind) + payload


def array(kind: int, count: int, payload: bytes = b"") -> bytes:
    """The value of an array: element type, count, elements."""
    return struct.pack("<IQ", kind, count) + payload


def info(
    name: str | bytes, ne: Sequence[int] = (32,), kind: int = 0, offset: int = 0, ndim: int | None = None
) -> bytes:
    """A tensor info; `ne` is in file order, fastest first; `ndim` may lie."""
    dims = struct.pack(f"<I{len(ne)}Q", len(ne) if ndim is None else ndim, *ne)
    return string(name) + dims + struct.pack("<IQ", kind, offset)


ARCHITECTURE = entry("general.architecture", 8, string("llama"))


@dataclass
class Raw:
    """A GGUF file field by field; counts default to the truth, `data` to 128 zero bytes behind the padding."""

    keys: list[bytes] = field(default_factory=lambda: [ARCHITECTURE])
    infos: list[bytes] = field(default_factory=list)
    data: bytes = bytes(128)
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int | None = None
    n_keys: int | None = None
    alignment: int = 32

    def sections(self) -> dict[str, bytes]:
        """Name and bytes of each section, in file order."""
        n_tensors = len(self.infos) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        parts = {
            "header": self.magic + struct.pack("<IQQ", self.version, n_tensors, n_keys),
            "metadata": b"".join(self.keys),
            "tensor table": b"".join(self.infos),
        }
        return parts | {"padding": bytes(-sum(map(len, parts.values())) % self.alignment), "data": self.data}

    def bytes(self) -> bytes:
        return b"".join(self.sections().values())

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path
