"""A GGUF file with a real model's shapes and random weights, to measure speed: random_model.py NAME OUT.gguf.

Matrices have the types that llama-quantize gives them. They are scaled to keep activations near 1, so that every
engine runs the file, but what it writes is noise.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES, LlamaFileType

from graphrun.console import size
from graphrun.core.errors import UsageError
from graphrun.progress import Bar

A: TypeAlias = np.ndarray[Any, Any]
Kind: TypeAlias = GGMLQuantizationType
F32, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K = Kind.F32, Kind.Q4_0, Kind.Q8_0, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K
# Byte offsets of a block's f16 numbers: its scale, and what the K-quants scale their minima by.
SCALES: dict[Kind, tuple[int, ...]] = {Q4_0: (0,), Q8_0: (0,), Q4_K: (0, 2), Q5_K: (0, 2), Q6_K: (208,)}
POOL = 16381  # random blocks that all matrices of a type repeat; a prime, so that no two rows begin with the same one


@dataclass(frozen=True)
class Delta:
    """Gated delta layers, all but every `interval`th: key and value heads of `state` channels each."""

    key_heads: int
    value_heads: int
    state: int = 128
    taps: int = 4
    interval: int = 4
    rotated: int = 64  # channels of a full attention layer's head
    sections: tuple[int, ...] = (11, 11, 10, 0)


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. `mix` is the name of a quantization; `tied` models have no output matrix of their own."""

    arch: str
    mix: str
    layers: int
    channels: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    context: int
    rope_base: float
    delta: Delta | None = None
    tied: bool = True
    epsilon: float = 1e-6

    def delta_at(self, layer: int) -> Delta | None:
        """The sizes of a layer that is a gated delta layer."""
        return self.delta if self.delta and (layer + 1) % self.delta.interval else None


@dataclass(frozen=True)
class Tensor:
    """A tensor's name, type and shape, rows before columns."""

    name: str
    kind: Kind
    shape: tuple[int, ...]

    @property
    def byte_shape(self) -> tuple[int, ...]:
        return quants.quant_shape_to_byte_shape(self.shape, self.kind)

    @property
    def nbytes(self) -> int:
        return prod(self.byte_shape)


MODELS = {
    "smollm2-135m-q4_0": Shape("llama", "Q4_0", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, epsilon=1e-5),
    "qwen2.5-0.5b-q4_0": Shape("qwen2", "Q4_0", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6),
    "qwen2.5-1.5b-q4_0": Shape("qwen2", "Q4_0", 28, 1536, 8960, 12, 2, 128, 151936, 32768, 1e6),
    "qwen3.5-0.8b-q8_0": Shape("qwen35", "Q8_0", 24, 1024, 3584, 8, 2, 256, 248320, 262144, 1e7, Delta(16, 16)),
    "qwen3.8-27b-q4_k_m": Shape(
        *("qwen35", "Q4_K_M", 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7), Delta(16, 48), tied=False
    ),
}


def tensors(shape: Shape) -> list[Tensor]:
    """Every tensor of the file, in its order."""
    wide, inner, vocabulary = shape.channels, shape.feed_forward, shape.vocabulary
    ends: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, wide), "output_norm.weight": (wide,)}
    if not shape.tied:
        ends["output.weight"] = (vocabulary, wide)
    found = [Tensor(name, kind(shape, name, dims), dims) for name, dims in ends.items()]
    norm = "post_attention_norm.weight" if shape.delta else "ffn_norm.weight"
    for i in range(shape.layers):
        sizes = shape.delta_at(i)
        layer = delta(wide, sizes) if sizes else attention(shape)
        layer |= {norm: (wide,), "ffn_gate.weight": (inner, wide), "ffn_up.weight": (inner, wide)}
        layer["ffn_down.weight"] = (wide, inner)
        found += [Tensor(f"blk.{i}.{name}", kind(shape, name, dims, i), dims) for name, dims in layer.items()]
    return found


def attention(shape: Shape) -> dict[str, tuple[int, ...]]:
    """A full attention layer; that of qwen35 has norms of heads, and a gate in the rows of q."""
    wide, q, kv = shape.channels, shape.heads * shape.head, shape.kv_heads * shape.head
    gated = shape.delta is not None
    found: dict[str, tuple[int, ...]] = {"attn_norm.weight": (wide,), "attn_q.weight": (q * (1 + gated), wide)}
    found |= {"attn_k.weight": (kv, wide), "attn_v.weight": (kv, wide), "attn_output.weight": (wide, q)}
    if gated:
        found |= {"attn_q_norm.weight": (shape.head,), "attn_k_norm.weight": (shape.head,)}
    if shape.arch == "qwen2":
        found |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    return found


def delta(wide: int, sizes: Delta) -> dict[str, tuple[int, ...]]:
    """A gated delta layer of so many channels."""
    inner, heads = sizes.value_heads * sizes.state, sizes.value_heads
    mixed = inner + 2 * sizes.key_heads * sizes.state
    found: dict[str, tuple[int, ...]] = {"attn_norm.weight": (wide,), "attn_qkv.weight": (mixed, wide)}
    found |= {"attn_gate.weight": (inner, wide), "ssm_conv1d.weight": (mixed, sizes.taps)}
    found |= {"ssm_dt.bias": (heads,), "ssm_a": (heads,), "ssm_beta.weight": (heads, wide)}
    found |= {"ssm_alpha.weight": (heads, wide), "ssm_norm.weight": (sizes.state,)}
    return found | {"ssm_out.weight": (wide, inner)}


def kind(shape: Shape, name: str, dims: tuple[int, ...], layer: int = 0) -> Kind:
    """The type that llama-quantize gives a tensor of a layer, or one outside of all layers."""
    if len(dims) == 1 or "conv1d" in name:
        return F32
    if shape.mix == "Q8_0":
        return Q8_0
    if name == ("token_embd.weight" if shape.tied else "output.weight"):
        return Q6_K if dims[-1] % 256 == 0 else Q8_0
    if shape.mix == "Q4_0":
        return Q4_0
    if "attn_qkv" in name:
        return Q5_K
    full = sum(shape.delta_at(i) is None for i in range(layer))  # attn_v are numbered by themselves
    better = {"ffn_down.weight": layer, "attn_v.weight": full}
    return Q6_K if name in better and more_bits(better[name], shape.layers) else Q4_K


def more_bits(i: int, count: int) -> bool:
    """The first and last eighth, and every third between them."""
    return i < count // 8 or i >= 7 * count // 8 or (i - count // 8) % 3 == 2


def metadata(shape: Shape) -> dict[str, object]:
    """The keys of the architecture, without its name."""
    found: dict[str, object] = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.channels,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.layer_norm_rms_epsilon": shape.epsilon,
        "rope.freq_base": shape.rope_base,
        "rope.dimension_count": shape.delta.rotated if shape.delta else shape.head,
        "vocab_size": shape.vocabulary,
    }
    if sizes := shape.delta:
        found |= {"attention.key_length": shape.head, "attention.value_length": shape.head}
        found |= {"rope.dimension_sections": list(sizes.sections), "full_attention_interval": sizes.interval}
        found |= {"ssm.conv_kernel": sizes.taps, "ssm.inner_size": sizes.value_heads * sizes.state}
        found |= {"ssm.state_size": sizes.state, "ssm.time_step_rank": sizes.value_heads}
        found["ssm.group_count"] = sizes.key_heads
    return found


def write(path: Path, name: str, shape: Shape, done: Callable[[int, int], None] | None = None) -> None:
    """Write the file under another name, then give it its own; `done` is told the bytes written and all.

    Raises UsageError where the disk is too full or the file cannot be written.
    """
    wanted = tensors(shape)
    total = sum(t.nbytes for t in wanted)
    part = path.with_name(f".{path.name}.part")
    try:
        free = shutil.disk_usage(path.absolute().parent).free
        if free < total + (1 << 26):
            raise UsageError(f"{path}: {size(total)} do not fit the {size(free)} that are free")
        header(part, name, shape, wanted)
        with open(part, "ab") as file:
            for written in append(file, wanted):
                if done:
                    done(written, total)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def header(path: Path, name: str, shape: Shape, wanted: list[Tensor]) -> None:
    """Everything before the tensors' data."""
    writer = GGUFWriter(path, shape.arch)
    writer.add_name(f"random {name}")
    writer.add_file_type(LlamaFileType[f"MOSTLY_{shape.mix}"])
    types = {int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32, list: GGUFValueType.ARRAY}
    for key, value in metadata(shape).items():
        writer.add_key_value(f"{shape.arch}.{key}", value, types[type(value)])
    add_tokenizer(writer, shape)
    for t in wanted:
        writer.add_tensor_info(t.name, t.byte_shape, np.dtype(np.uint8), t.nbytes, raw_dtype=t.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def add_tokenizer(writer: GGUFWriter, shape: Shape) -> None:
    """The bytes, one merge, made-up words, and an end of text."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))] + ["Ġt"]
    tokens += [f"Ġw{i}" for i in range(shape.vocabulary - len(tokens) - 1)] + ["<|endoftext|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if shape.arch == "llama" else shape.arch)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (shape.vocabulary - 1) + [3])
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(shape.vocabulary - 1)
    writer.add_eos_token_id(shape.vocabulary - 1)


def append(file: BinaryIO, wanted: list[Tensor]) -> Iterator[int]:
    """Write the data of every tensor in pieces, each tensor at a multiple of 32 bytes; yields the bytes so far."""
    rng = np.random.default_rng(0)
    pools = {kind: random_blocks(rng, kind) for kind in {t.kind: None for t in wanted} if kind != F32}
    written = 0
    for tensor in wanted:
        file.write(bytes(-file.tell() % 32))
        blocks, deviation = pools.get(tensor.kind) or (small(rng, tensor), 1)
        if tensor.kind != F32:  # of variance 1 / columns
            scaled(blocks, tensor.kind, tensor.shape[-1] ** -0.5 / deviation)
        piece = blocks.reshape(-1)
        for start in range(0, tensor.nbytes, len(piece)):
            written += file.write(piece.data[: tensor.nbytes - start])
            yield written


def small(rng: np.random.Generator, tensor: Tensor) -> A:
    """The bytes of an f32 tensor: norms near 1, decays below 0, other values near 0."""
    values = 0.1 * rng.standard_normal(prod(tensor.shape)).astype(np.float32)
    if "norm" in tensor.name:
        values += 1
    elif tensor.name.endswith("ssm_a"):
        values = -np.exp(10 * values)
    return values.view(np.uint8)


def random_blocks(rng: np.random.Generator, kind: Kind) -> tuple[A, float]:
    """Blocks uint8[POOL, bytes] with scales of 1, and the standard deviation of their values."""
    blocks = rng.integers(0, 256, (POOL, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    return scaled(blocks, kind, 1.0), float(quants.dequantize(blocks, kind).std())


def scaled(blocks: A, kind: Kind, scale: float) -> A:
    """The same blocks with another scale; minima get what makes the mean about 0, half of the largest quant."""
    for offset, factor in zip(SCALES[kind], (1.0, 7.5 if kind == Q4_K else 15.5), strict=False):
        blocks[:, offset : offset + 2] = np.array([scale * factor], "<f2").view(np.uint8)
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=MODELS, metavar="NAME", help="a model of --list")
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT.gguf")
    parser.add_argument("--list", action="store_true", help="name the models")
    parser.add_argument("--layers", type=int, default=64, choices=range(1, 65), metavar="N", help="at most so many")
    given = parser.parse_args()
    if given.list:
        for name, shape in MODELS.items():
            print(f"{name:20} {shape.arch:8} {size(sum(t.nbytes for t in tensors(shape)))}")
        return
    if given.out is None:
        parser.error("give a name and the file to write; --list names the models")
    shape = MODELS[given.name]
    try:
        with Bar("writing", in_bytes=True) as bar:
            write(given.out, given.name, replace(shape, layers=min(given.layers, shape.layers)), bar)
    except UsageError as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
