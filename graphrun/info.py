"""What a model file holds, and what each of its tensors becomes in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from graphrun.console import columns, printable, size
from graphrun.core.errors import GraphrunError
from graphrun.core.gguf import ModelFile, TensorInfo
from graphrun.core.quant import layout, supported, why
from graphrun.core.types import F32
from graphrun.graphs.params import params
from graphrun.graphs.spec import known, load_spec
from graphrun.prompt import has_template, has_tokenizer
from graphrun.tokenizer import Tokenizer


def describe(file: ModelFile, *, every_tensor: bool = False) -> str:
    """Facts, params and tensors of a file, as aligned text; `every_tensor` lists each one."""
    sections = [columns(_facts(file)), _params(file), _by_type(file)]
    if every_tensor:
        sections.append(_each(file))
    return printable("\n\n".join(sections))


def _facts(file: ModelFile) -> list[tuple[str, str]]:
    tensors, metadata = file.tensors.values(), file.metadata
    weights = sum(math.prod(t.shape) for t in tensors)
    stored = f"{len(tensors)} tensors, {weights / 1e6:,.1f} M weights, {size(sum(t.nbytes for t in tensors))}"
    facts = [("file", str(file.path)), ("architecture", file.architecture)]
    facts += [("name", str(metadata["general.name"]))] if "general.name" in metadata else []
    facts += [("parts", str(metadata["split.count"]))] if "split.count" in metadata else []
    return [
        *facts,
        ("stored", stored),
        ("tokenizer", _or_error(lambda: _tokenizer(file))),
        ("chat template", "yes" if has_template(file) else "none"),
    ]


def _tokenizer(file: ModelFile) -> str:
    if not has_tokenizer(file):
        return "none"
    tokenizer = Tokenizer.from_file(file)
    ids = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    named = [f"{name} {i} {tokenizer.text(i)!r}" for name, i in ids.items() if i is not None]
    stops = f"stops at {', '.join(map(str, sorted(tokenizer.stop_ids))) or 'nothing'}"
    kind, pre = (str(file.metadata.get(f"tokenizer.ggml.{key}", "")) for key in ("model", "pre"))
    return ", ".join([f"{kind} {pre}".strip(), f"{tokenizer.vocab_size} tokens", *named, stops, *tokenizer.warnings])


def _params(file: ModelFile) -> str:
    """The params that the graph of the architecture reads from the file."""
    if file.architecture not in known():
        return f"params: there is no graph for '{file.architecture}' (known: {', '.join(known())})"
    return _or_error(lambda: _table(params(load_spec(file.architecture), file)))


def _table(values: Mapping[str, object]) -> str:
    return columns([("param", "value"), *((f"  {name}", str(value)) for name, value in values.items())])


def _or_error(text: Callable[[], str]) -> str:
    """The text, or what is wrong with the file instead: info is for damaged files too."""
    try:
        return text()
    except GraphrunError as error:
        return str(error)


def _by_type(file: ModelFile) -> str:
    """A line for each stored type: tensors, bytes, and what they become."""
    groups: dict[tuple[str, str], list[TensorInfo]] = {}
    for tensor in file.tensors.values():
        groups.setdefault((tensor.type, _becomes(tensor)), []).append(tensor)
    rows = [("stored as", "tensors", "bytes", "becomes")]
    for (kind, becomes), tensors in sorted(groups.items(), key=lambda item: -sum(t.nbytes for t in item[1])):
        rows.append((f"  {kind}", str(len(tensors)), f"{sum(t.nbytes for t in tensors):,}", becomes))
    return columns(rows, right=(1, 2))


def _each(file: ModelFile) -> str:
    rows = [("tensor", "stored as", "bytes", "becomes")]
    rows += [(f"  {t.name}", f"{t.type}{list(t.shape)}", f"{t.nbytes:,}", _becomes(t)) for t in file.tensors.values()]
    return columns(rows, right=(2,))


def _becomes(tensor: TensorInfo) -> str:
    """The layout in memory and whether it holds the stored values exactly."""
    if tensor.type not in supported():
        return "cannot be read"
    rows, cols = (1, tensor.shape[0]) if len(tensor.shape) == 1 else (math.prod(tensor.shape[:-1]), tensor.shape[-1])
    made = F32 if len(tensor.shape) == 1 else layout(tensor.type, rows, cols)
    return why(tensor.type, made)
