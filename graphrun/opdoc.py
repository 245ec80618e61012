"""Ops explained from their own definitions."""

from __future__ import annotations

import re

from graphrun.console import columns
from graphrun.core.errors import UsageError, did_you_mean
from graphrun.core.op import Kernel, Op
from graphrun.core.signature import Tensor
from graphrun.core.types import UNITS
from graphrun.ops import OPS


def overview() -> str:
    """One line for each op: name and formula."""
    return columns((op.name, op.formula) for op in OPS.values())


def explain(name: str) -> str:
    """All about an op; raises UsageError for an unknown name."""
    if name not in OPS:
        raise UsageError(f"there is no op '{name}'", did_you_mean(name, OPS) or "graphrun ops lists them")
    op = OPS[name]
    parts = [f"{op.name}({op.signature})", op.doc, f"units: {_units(op)}"]
    if op.requires:
        parts.append(f"needs: {op.requires}")
    if op.view:
        parts.append("a view: it makes no call and moves no bytes")
    if op.kernels:
        parts.append("kernels:\n" + _indented(columns(map(_kernel, op.kernels))))
    if op.epilogues:
        parts.append(f"may absorb: {', '.join(op.epilogues)}")
    for expansion in op.expansions:
        rounds = ", which rounds activations" if expansion.rounds else ""
        parts.append(f"becomes, for w of type {expansion.when}{rounds}:\n{_indented(expansion.body)}")
    if op.fuses:
        parts.append(f"replaces:\n{_indented(op.fuses)}")
    return "\n\n".join(parts)


def _units(op: Op) -> str:
    """The dimension letters of the signature, in words."""
    tensors = [*op.signature.inputs, *(o for o in op.signature.outputs if isinstance(o, Tensor))]
    text = " ".join(" ".join(t.dims) for t in tensors)
    letters = dict.fromkeys(re.findall(r"\b[A-Z]\b", text))
    return ", ".join(f"{d} {UNITS[d]}" for d in letters if d in UNITS) or "none"


def _kernel(kernel: Kernel) -> tuple[str, str, str, str]:
    low, high = kernel.tokens
    tokens = f"{low} token{'s' * (low > 1)}" if low == high else f"{low} to {high} tokens"
    if high >= 1 << 30:
        tokens = "any number of tokens" if low <= 1 else f"{low} tokens or more"
    weight = f"weights {kernel.weight}" if kernel.weight else ""
    return kernel.name, f"{kernel.groups} workgroups", tokens, weight


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())
