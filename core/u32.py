"""One integer expression, three readings: Python ints, NumPy uint32 arrays, and the terms a prover brings along.

A function marked `@word` is written for `int` and means arithmetic modulo 2^32 whatever it is called with:

- ints: the body runs on `U32`, an int that wraps;
- uint32 arrays: the body runs on arrays of at least one dimension, which wrap and broadcast by themselves;
- any other object with a method `ie_call(fn, args)`: that object decides, which is how a prover gets a term.

`+ - *` wrap, `//` and `%` need a non-zero divisor, `>>` is logical, a shift by 32 or more gives 0.
Conditions are joined with `&` and `|`, choices are made with `sel`: the words that work in all three readings.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

MASK = 0xFFFFFFFF
Array = npt.NDArray[np.uint32]
Fuel = int  # how many terms at most: a plain int in every reading
R = TypeVar("R")


class Mem(Protocol):
    """A read-only array of words."""

    def __getitem__(self, index: int, /) -> int: ...


class U32(int):
    """An int in 0 .. 2^32-1 whose operators are those of C's 32-bit unsigned."""

    __slots__ = ()


def _left(x: int, by: int) -> int:
    return x << by if by < 32 else 0


def _define(name: str, op: Callable[[int, int], int]) -> None:
    def forward(self: U32, other: object) -> U32:
        return U32(op(int(self), int(other)) & MASK) if isinstance(other, int) else NotImplemented

    def reflected(self: U32, other: object) -> U32:
        return U32(op(int(other), int(self)) & MASK) if isinstance(other, int) else NotImplemented

    setattr(U32, f"__{name}__", forward)
    setattr(U32, f"__r{name}__", reflected)


for _name in ("add", "sub", "mul", "floordiv", "mod", "rshift", "and_", "or_", "xor"):
    _define(_name.rstrip("_"), getattr(operator, _name))
_define("lshift", _left)


class _Words:
    """A Mem as the bodies see it: a word at an int, an array of words at an array."""

    def __init__(self, mem: Any) -> None:
        self.mem = np.asarray(mem, dtype=np.uint32) if isinstance(mem, list | np.ndarray) else mem

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, np.ndarray):
            return _array(self.mem[index])
        return U32(int(self.mem[int(index)]) & MASK)


def _array(x: Any) -> Array:
    value = x if isinstance(x, np.ndarray) else int(x) & MASK
    return np.atleast_1d(np.asarray(value, dtype=np.uint32))


class Fn(Generic[R]):
    """A function of the core: callable in every reading, and open to inspection by the provers.

    `params` are the names, `kinds` their annotations (`int`, `Mem` or `Fuel`) and `result` that of the value.
    """

    def __init__(self, body: Callable[..., R]) -> None:
        code = body.__code__
        notes: dict[str, str] = body.__annotations__  # strings: the modules postpone their annotations
        self.body: Callable[..., R] = body
        self.name = self.__name__ = body.__name__
        self.__doc__ = body.__doc__
        self.params = code.co_varnames[: code.co_argcount]
        self.kinds = tuple(notes[p] for p in self.params)
        self.result = notes["return"]

    def __repr__(self) -> str:
        return f"<{self.name}({', '.join(self.params)})>"

    @overload
    def __call__(self, *args: int) -> R: ...
    @overload
    def __call__(self, *args: Any) -> Any: ...
    def __call__(self, *args: Any) -> Any:
        if len(args) != len(self.kinds):
            raise TypeError(f"{self.name} takes {len(self.kinds)} arguments, got {len(args)}")
        for arg in args:
            if hasattr(arg, "ie_call"):
                return arg.ie_call(self, args)
        pairs = list(zip(args, self.kinds, strict=True))
        if any(isinstance(a, np.ndarray) for a, kind in pairs if kind == "int"):
            return self.body(*(_array(a) if kind == "int" else _mem(a, kind) for a, kind in pairs))
        if any(isinstance(a, U32 | _Words) for a in args):
            return self.body(*args)
        value: Any = self.body(*(_wrap(a, kind) for a, kind in pairs))
        return int(value) if self.result == "int" else value


def _wrap(arg: Any, kind: str) -> Any:
    if kind == "int":
        return U32(int(arg) & MASK)
    return _mem(arg, kind)


def _mem(arg: Any, kind: str) -> Any:
    return _Words(arg) if kind == "Mem" and not isinstance(arg, _Words) else arg


def word(body: Callable[..., R]) -> Fn[R]:
    """Mark a function of the core; its arguments are words, arrays of words (`Mem`) or a `Fuel`."""
    return Fn(body)


def sel(condition: bool, yes: int, no: int) -> int:
    """`yes` where the condition holds, else `no`; both are evaluated."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    if isinstance(condition, np.ndarray):
        return np.where(condition, _array(yes), _array(no))
    chosen: int = condition.select(yes, no)
    return chosen


def sum_while(fuel: Fuel, index: int, end: int, step: int, term: Callable[[int], int]) -> int:
    """term(index) + term(index + step) + ... as long as the index is below `end`, `fuel` terms at most."""
    total, alive = 0, True
    for _ in range(fuel):
        alive = alive & (index < end)
        if alive is False or (isinstance(alive, np.ndarray) and not alive.any()):
            break
        total = total + sel(alive, term(index), 0)
        index = index + step
    return total
