"""Op signatures: one string says an op's inputs, attributes and outputs; unification infers types.

    x: f32[..., N], w: Q[M, N], eps: float, b?: f32[M], scale: float = 1.0 -> y: f32[..., M]

Inputs are tensors (`state` marks one that is updated in place, `?` one that may be absent), attributes are
`int`, `float` or a choice `a|b`. A capital letter in place of an element type is a type variable: `Q` takes
any quantised layout, any other letter any type. Dimensions are letters, integers, or `...` for any leading
dimensions; an output dimension may be an expression over letters and int attributes. An output named like a
state is that state's next version.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from graphrun.core.types import DTYPES, UNITS, DType, TensorType

AttrValue = int | float | str


class SignatureError(ValueError):
    """Arguments that do not fit a signature; `parameter` names the one to point at, if it is one."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter: an input, or an output."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    state: bool = False
    optional: bool = False

    def __str__(self) -> str:
        mark, state = "?" * self.optional, "state " * self.state
        return f"{self.name}{mark}: {state}{self.dtype}[{', '.join(self.dims)}]"


@dataclass(frozen=True, slots=True)
class Attr:
    """A scalar parameter known when the graph is compiled; `choices` for an enumeration."""

    name: str
    kind: str
    choices: tuple[str, ...] = ()
    default: AttrValue | None = None

    def __str__(self) -> str:
        kind = "|".join(self.choices) or self.kind
        return f"{self.name}: {kind}" + ("" if self.default is None else f" = {self.default}")

    def check(self, value: object) -> AttrValue:
        """`value` as this attribute holds it; SignatureError if it is of another kind."""
        if self.kind == "choice":
            if value in self.choices:
                return str(value)
            raise SignatureError(f"{self.name} is {value!r}, it must be one of {', '.join(self.choices)}", self.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SignatureError(f"{self.name} must be a number, not {value!r}", self.name)
        if self.kind == "float":
            return float(value)
        if value != int(value):
            raise SignatureError(f"{self.name} must be a whole number, not {value!r}", self.name)
        return int(value)


@dataclass
class Binding:
    """What unification has found: letters, element types, leading dimensions - each with who said so first."""

    dims: dict[str, int] = field(default_factory=dict)
    dtypes: dict[str, DType] = field(default_factory=dict)
    lead: tuple[int, ...] | None = None
    said_by: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """A parsed signature; `parameters` in the order in which a call in a graph file gives them."""

    parameters: tuple[Tensor | Attr, ...]
    outputs: tuple[Tensor | str, ...]  # a plain name is the next version of that state

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.parameters))} -> {', '.join(map(str, self.outputs))}"

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(p for p in self.parameters if isinstance(p, Tensor))

    @cached_property
    def attrs(self) -> tuple[Attr, ...]:
        return tuple(p for p in self.parameters if isinstance(p, Attr))

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.inputs)

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    def bind(self, types: Mapping[str, TensorType]) -> Binding:
        """Unify the input types, given by parameter name; absent optional inputs are left out."""
        binding = Binding()
        for parameter in self.inputs:
            if parameter.name in types:
                _unify(parameter, types[parameter.name], binding)
            elif not parameter.optional:
                raise SignatureError(f"{parameter.name} is missing", parameter.name)
        return binding

    def infer(self, types: Mapping[str, TensorType], attrs: Mapping[str, AttrValue]) -> tuple[TensorType, ...]:
        """Output types for these input types and attributes; raises SignatureError where they do not fit."""
        binding = self.bind(types)
        sizes = binding.dims | {k: v for k, v in attrs.items() if isinstance(v, int)}
        result = []
        for output in self.outputs:
            if isinstance(output, str):
                result.append(types[output])
                continue
            dtype = DTYPES.get(output.dtype) or binding.dtypes[output.dtype]
            shape: tuple[int, ...] = ()
            for dim in output.dims:
                shape += (binding.lead or ()) if dim == "..." else (evaluate(dim, sizes),)
            if min(shape, default=1) < 1:
                raise SignatureError(f"{output.name} would be {dtype}{list(shape)}")
            result.append(TensorType(dtype, shape))
        return tuple(result)


def _unify(parameter: Tensor, given: TensorType, binding: Binding) -> None:
    _unify_dtype(parameter, given.dtype, binding)
    dims, shape = parameter.dims, given.shape
    if dims and dims[0] == "...":
        split = len(shape) - len(dims) + 1
        if split < 0:
            raise SignatureError(f"{parameter.name} is {given}, it needs {len(dims) - 1} dimensions", parameter.name)
        lead, dims, shape = shape[:split], dims[1:], shape[split:]
        if binding.lead is not None and binding.lead != lead:
            message = f"{parameter.name} has leading dimensions {list(lead)}, others have {list(binding.lead)}"
            raise SignatureError(message, parameter.name)
        binding.lead = lead
    if len(dims) != len(shape):
        raise SignatureError(f"{parameter.name} is {given}, it must be {parameter}", parameter.name)
    for dim, size in zip(dims, shape, strict=True):
        known = int(dim) if dim.isdigit() else binding.dims.setdefault(dim, size)
        first = binding.said_by.setdefault(dim, parameter.name)
        if known != size:
            if dim.isdigit():
                raise SignatureError(f"{parameter.name} is {given}, it must be {parameter}", parameter.name)
            unit = f" {UNITS[dim]}" if dim in UNITS else ""
            message = f"{parameter.name} has {dim} = {size}{unit}, but {first} has {dim} = {known}"
            raise SignatureError(message, parameter.name)


def _unify_dtype(parameter: Tensor, dtype: DType, binding: Binding) -> None:
    wanted = parameter.dtype
    if wanted in DTYPES:
        if DTYPES[wanted] != dtype:
            raise SignatureError(f"{parameter.name} is {dtype}, it must be {wanted}", parameter.name)
        return
    if wanted == "Q" and not dtype.quantised:
        raise SignatureError(f"{parameter.name} is {dtype}, it must be quantised", parameter.name)
    if binding.dtypes.setdefault(wanted, dtype) != dtype:
        message = f"{parameter.name} is {dtype}, but an earlier {wanted} is {binding.dtypes[wanted]}"
        raise SignatureError(message, parameter.name)


_TENSOR = re.compile(r"(\w+)(\?)?\s*:\s*(state\s+)?(\w+)\s*\[(.*)\]$")
_ATTR = re.compile(r"(\w+)\s*:\s*([\w|]+)(?:\s*=\s*(\S+))?$")


def parse(text: str) -> Signature:
    """Parse a signature; a mistake is a bug in an op definition, hence ValueError."""
    left, arrow, right = text.partition("->")
    if not arrow:
        raise ValueError(f"no '->' in signature {text!r}")
    parameters = tuple(_parameter(item) for item in _split(left))
    states = {p.name for p in parameters if isinstance(p, Tensor) and p.state}
    outputs: list[Tensor | str] = []
    for item in _split(right):
        if item in states:
            outputs.append(item)
            continue
        output = _parameter(item)
        if not isinstance(output, Tensor):
            raise ValueError(f"output {item!r} must be a tensor or a state")
        outputs.append(output)
    return Signature(parameters, tuple(outputs))


def _parameter(item: str) -> Tensor | Attr:
    if match := _TENSOR.match(item):
        name, optional, state, dtype, dims = match.groups()
        return Tensor(name, dtype, tuple(d.strip() for d in dims.split(",")), bool(state), bool(optional))
    if not (match := _ATTR.match(item)):
        raise ValueError(f"cannot read parameter {item!r}")
    name, kind, default = match.groups()
    choices = tuple(kind.split("|")) if "|" in kind else ()
    if not choices and kind not in ("int", "float"):
        raise ValueError(f"unknown kind {kind!r} of {name}")
    attr = Attr(name, "choice" if choices else kind, choices)
    if default is None:
        return attr
    value = default if choices else float(default) if kind == "float" else int(default)
    return Attr(name, attr.kind, choices, value)


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            items.append(text[start:i].strip())
            start = i + 1
    items.append(text[start:].strip())
    return [item for item in items if item]


_COMPARISONS = {ast.Eq: operator.eq, ast.Lt: operator.lt, ast.LtE: operator.le}


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """Value of an integer expression over dimension letters: + - * // %, ceil(a, b), min and max."""
    return int(_value(ast.parse(text.strip(), mode="eval").body, sizes))


def require(conditions: str, known: Mapping[str, int | float]) -> None:
    """Raise SignatureError unless all of `a == b, c < d, e <= f` hold; what names an absent input's letter does."""
    for text in filter(None, map(str.strip, conditions.split(","))):
        condition = ast.parse(text, mode="eval").body
        assert isinstance(condition, ast.Compare)
        names = {n.id for n in ast.walk(condition) if isinstance(n, ast.Name)}
        if not names <= known.keys():
            continue
        a, b = _value(condition.left, known), _value(condition.comparators[0], known)
        if not _COMPARISONS[type(condition.ops[0])](a, b):
            facts = ", ".join(f"{name} = {known[name]:.6g}" for name in sorted(names))
            attribute = next((name for name in sorted(names) if name not in UNITS), None)
            raise SignatureError(f"{text} does not hold ({facts})", attribute)


def _value(node: ast.expr, sizes: Mapping[str, int | float]) -> int | float:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, sizes), _value(right, sizes)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
                case ast.Mod():
                    return a % b
        case ast.Call(func=ast.Name(id="ceil"), args=[a, b]):
            return -(-_value(a, sizes) // _value(b, sizes))
        case ast.Call(func=ast.Name(id="max"), args=args):
            return max(_value(a, sizes) for a in args)
        case ast.Call(func=ast.Name(id="min"), args=args):
            return min(_value(a, sizes) for a in args)
    raise ValueError(f"cannot evaluate {ast.unparse(node)!r} over {sorted(sizes)}")
