"""An op: one value that says its type, its meaning in numpy, its kernels, its cost and what it replaces."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphrun.core.equations import interpret
from graphrun.core.signature import Signature, parse


@dataclass(frozen=True, slots=True)
class Kernel:
    """One C function that computes an op.

    `groups` is the number of workgroups, an expression over the dimensions; `tokens` the token counts it
    takes, both ends included; `weight` the weight layout it reads, None where it reads any or none.

    `tile` is what one workgroup writes: "T: 1, N: 256" cuts the outputs that have both dimensions into pieces of one
    token and 256 channels, the last piece of each being shorter, and leaves other dimensions whole; workgroups take
    the pieces in row-major order. `rows` is the product of leading dimensions. Grids divided by `|` follow each
    other, each for other outputs; "" is a single tile. `split` workgroups share a tile and combine their parts.
    `scratch` is the number of 4-byte words of memory that a GPU's workgroups hand them over in. `limits` are
    conditions on dimensions, as in Op.requires, without which GPUs do not have the kernel.
    """

    name: str
    groups: str = "1"
    tokens: tuple[int, int] = (1, 1 << 30)
    weight: str | None = None
    tile: str = ""
    split: str = "1"
    scratch: str = "0"
    limits: str = ""


@dataclass(frozen=True, slots=True)
class Expansion:
    """One way to compute an op by others, as equations of a graph file over the op's parameter names.

    `when` is the element type class of the parameter `w` ("Q" quantised, "f32"); `rounds` says that it rounds
    activations, which a graph compiled for exact activations must not do.
    """

    body: str
    when: str
    rounds: bool = False


@dataclass(frozen=True, eq=False)
class Op:
    """An op. Call it on arrays to compute it: `OPS["rms_norm"](x, w, 1e-6)`.

    A fused op has no body of its own: `fuses` is the subgraph it replaces, and calling it interprets that.
    A view returns a numpy view of its first input and never becomes a call.
    An epilogue is an op that may run inside this one on its first output; a `tee` op, absorbed as an epilogue,
    leaves the value it reads alive. `requires` are conditions on dimensions and attributes that the signature
    cannot say. `table(first, count, given)` is f32[count, ...] for positions from `first` on, which the host computes
    for kernels from the call's attributes and vectors by name, so that they need no functions of a device's own.
    """

    name: str
    signature: Signature
    doc: str
    function: Callable[..., Any]
    kernels: tuple[Kernel, ...] = ()
    epilogues: tuple[str, ...] = ()
    expansions: tuple[Expansion, ...] = ()
    fuses: str | None = None
    flops: str = "0"
    reads: str | None = None
    view: bool = False
    tee: bool = False
    rtol: float = 1e-6
    requires: str = ""
    table: Callable[[int, int, Mapping[str, Any]], Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    @cached_property
    def formula(self) -> str:
        """The first line of the docstring."""
        return self.doc.split("\n", 1)[0]


def op(signature: str, **facts: Any) -> Callable[[Callable[..., Any]], Op]:
    """Decorate a numpy function as an op; `facts` are the fields of Op."""

    def make(function: Callable[..., Any]) -> Op:
        parsed = parse(signature)
        parameters = tuple(inspect.signature(function).parameters)
        if parameters != parsed.parameter_names:
            raise ValueError(f"{function.__name__}{parameters} does not match its signature {signature!r}")
        doc = inspect.getdoc(function) or ""
        return Op(function.__name__, parsed, doc, function, **facts)

    return make


def fused(name: str, signature: str, pattern: str, ops: tuple[Op, ...], *, doc: str, **facts: Any) -> Op:
    """An op that stands for a subgraph of `ops`, given as equations over its parameter names."""
    parsed = parse(signature)
    pattern = inspect.cleandoc(pattern)
    results = tuple(o if isinstance(o, str) else o.name for o in parsed.outputs)
    return Op(name, parsed, doc, interpret(pattern, ops, parsed.parameter_names, results), fuses=pattern, **facts)
