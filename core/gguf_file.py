"""From a path to mapped bytes that start with the GGUF magic, or one error that says what the path is instead."""

from __future__ import annotations

import mmap
import stat
from itertools import islice
from pathlib import Path

from graphrun.core.errors import ModelError, did_you_mean

MAGIC = b"GGUF"
CONVERT = "convert the checkpoint with llama.cpp's convert_hf_to_gguf.py"
AGAIN = "download it again"

# First bytes, what they mean, hint.
SIGNATURES = (
    (b"FUGG", "a byte-swapped (big-endian) GGUF file", "convert it with gguf-convert-endian"),
    (b"PK\x03\x04", "a zip archive, as PyTorch checkpoints are", CONVERT),
    (b"\x80\x02", "a Python pickle, as old PyTorch checkpoints are", CONVERT),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run 'git lfs pull'"),
    (b"lmgg", "a GGML file from before GGUF", "look for a GGUF version of the model"),
    (b"fmgg", "a GGMF file from before GGUF", "look for a GGUF version of the model"),
    (b"tjgg", "a GGJT file from before GGUF", "look for a GGUF version of the model"),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
    (b"\x89HDF\r\n", "an HDF5 file", CONVERT),
)


def map_file(path: Path) -> mmap.mmap:
    """Map a regular file read-only; raises ModelError unless it starts with the GGUF magic."""
    try:
        _require_file(path)
        with path.open("rb") as f:
            head = f.read(512)
            if not head:
                raise ModelError(path, "", "the file is empty", AGAIN)
            if not head.startswith(MAGIC):
                raise _foreign(path, head)
            return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as e:  # ValueError: a NUL in the path, or emptied since the check
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise ModelError(_printable(path), "", f"cannot be read: {reason}") from e


def _require_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as e:
        raise ModelError(path, "", "no such file", did_you_mean(path.name, _siblings(path.parent))) from e
    if stat.S_ISDIR(mode):
        raise ModelError(path, "", "is a directory, not a GGUF file", _directory_hint(path))
    if not stat.S_ISREG(mode):
        raise ModelError(path, "", "is not a regular file")  # opening a pipe would wait for a writer


def _siblings(folder: Path) -> list[str]:
    """Names of the first GGUF files in `folder`, sorted; [] if it cannot be listed."""
    try:
        return sorted(islice((p.name for p in islice(folder.iterdir(), 10_000) if p.suffix == ".gguf"), 100))
    except OSError:
        return []


def _directory_hint(folder: Path) -> str:
    names = _siblings(folder)
    if names:
        return f"open one of its files: {', '.join(names[:3])}" + (", ..." if len(names) > 3 else "")
    return f"it holds no .gguf file; {CONVERT}" if (folder / "config.json").exists() else "it holds no .gguf file"


def _foreign(path: Path, head: bytes) -> ModelError:
    """The error for a file that is not GGUF, from its first bytes."""
    looks, hint = _looks_like(head)
    return ModelError(path, "", f"not a GGUF file: it looks like {looks}", hint)


def _looks_like(head: bytes) -> tuple[str, str | None]:
    for signature, looks, hint in SIGNATURES:
        if head.startswith(signature):
            return looks, hint
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file", CONVERT
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, not the download itself", "use the direct download link"
    if text.startswith((b"{", b"[")):
        return "JSON text", None
    if not any(head):
        return "zeros, as unfinished downloads are", AGAIN
    return f"data that starts with {head[:4]!r}", None


def _printable(path: Path) -> str:
    """The path without the NUL that made it unusable."""
    return str(path).replace("\0", "\\0")
