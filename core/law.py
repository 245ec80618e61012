"""What a law is: a premise and what follows from it, for all words and all arrays of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from graphrun.core.u32 import MASK, Fn

Method = Literal["bits", "polynomial", "range", "address", "coq"]


class Claim(NamedTuple):
    """If the premise holds, so does every goal."""

    premise: bool
    goals: tuple[bool, ...]


class Bounds(NamedTuple):
    """The value, as a sum over the integers, lies in lo .. hi: read as int32, the word is that sum."""

    value: int
    lo: int
    hi: int


def implies(a: bool, b: bool) -> bool:
    """a => b, in every reading: on truth values it is `<=`."""
    return a <= b


class Law:
    """A statement about the core for all arguments.

    `name` is that of its function, `statement` the docstring, `method` the way `make prove` proves it:
    bits (bit vectors), polynomial (a ring identity modulo 2^32), range (an interval over the integers),
    address (integers, with no operation leaving 0 .. 2^32-1), coq (an induction).
    """

    def __init__(self, body: Callable[..., Claim | Bounds], method: Method) -> None:
        self.fn = Fn(body)
        self.name = self.fn.name
        self.statement = body.__doc__ or ""
        self.method = method

    def __repr__(self) -> str:
        return f"<law {self.name}>"

    def claim(self, *args: Any) -> Any:
        """The Claim or Bounds for these arguments."""
        return self.fn(*args)

    def check(self, *args: Any) -> tuple[Any, Any]:
        """(premise, premise implies all goals), as booleans or arrays of them."""
        claim = self.fn(*args)
        if isinstance(claim, Bounds):
            offset = np.asarray(claim.value, dtype=np.uint64) + np.uint64(-claim.lo & MASK)
            return True, (offset & np.uint64(MASK)) <= np.uint64(claim.hi - claim.lo)
        goals: Any = True
        for goal in claim.goals:
            goals = np.logical_and(goals, goal)
        return claim.premise, np.logical_or(np.logical_not(claim.premise), goals)


def law(method: Method) -> Callable[[Callable[..., Claim | Bounds]], Law]:
    """Mark a law; its parameters are words (`int`), arrays of words (`Mem`) or a `Fuel`."""
    return lambda body: Law(body, method)


def laws_of(modules: Sequence[ModuleType]) -> dict[str, Law]:
    """Every law of the modules by name, in the order they are written."""
    found = [x for m in modules for x in vars(m).values() if isinstance(x, Law)]
    named = {x.name: x for x in found}
    assert len(named) == len(found), "two laws share a name"
    return named
