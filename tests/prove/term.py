"""Symbolic words: what a function or law of the core is when it is called with unknowns.

A term is hash-consed, so equal terms are one object, and has one meaning: C's arithmetic on 32-bit unsigned words.
Sorts are `u32`, `bool` and `mem`. Readers turn terms into bit vectors, integers, C or values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphrun.core.law import Bounds, Claim, Law
from graphrun.core.u32 import MASK, Fn

ARITHMETIC = frozenset({"add", "sub", "mul", "and", "or", "xor", "shl", "shr", "div", "mod"})
COMPARISONS = frozenset({"lt", "le", "eq"})
_table: dict[tuple[Any, ...], Term] = {}


class Term:
    """A node: `op`, its arguments, and a value (of a constant), name (of an unknown) or function (of a call)."""

    __slots__ = ("args", "op", "sort", "uid", "value")

    def __init__(self, op: str, args: tuple[Term, ...], value: Any, sort: str, uid: int) -> None:
        self.op, self.args, self.value, self.sort, self.uid = op, args, value, sort, uid

    def __hash__(self) -> int:
        return self.uid

    def __repr__(self) -> str:
        if not self.args:
            return str(self.value)
        return f"{self.value.name if self.op == 'call' else self.op}({', '.join(map(repr, self.args))})"

    def __bool__(self) -> bool:
        raise TypeError("a condition on unknowns decides nothing: write sel, & or |")

    def __getitem__(self, index: Any) -> Term:
        assert self.sort == "mem"
        return node("load", (self, lift(index)), None, "u32")

    def __le__(self, other: Any) -> Any:
        if self.sort == "bool":
            return negate(self) | other
        return compare("le", self, other)

    def __eq__(self, other: object) -> Any:
        return compare("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return negate(compare("eq", self, other))

    def __lt__(self, other: Any) -> Any:
        return compare("lt", self, other)

    def __gt__(self, other: Any) -> Any:
        return compare("lt", other, self)

    def __ge__(self, other: Any) -> Any:
        return compare("le", other, self)

    def select(self, yes: Any, no: Any) -> Any:
        """yes where this condition holds, else no (what `sel` calls)."""
        yes, no = lift(yes), lift(no)
        return yes if yes is no else node("ite", (self, yes, no), None, yes.sort)

    def ie_call(self, fn: Fn[Any], args: tuple[Any, ...]) -> Any:
        """How a call is recorded: as a node, or at once as the body where a fuel has to run out."""
        if "Fuel" in fn.kinds:
            return fn.body(*args)
        return node("call", tuple(lift(a) for a in args), fn, {"int": "u32"}.get(fn.result, "bool"))


def _operator(op: str) -> tuple[Callable[[Term, Any], Term], Callable[[Term, Any], Term]]:
    return lambda a, b: binary(op, a, b), lambda a, b: binary(op, b, a)


for _op, _name in zip(
    ("add", "sub", "mul", "and", "or", "xor", "shl", "shr", "div", "mod"),
    ("add", "sub", "mul", "and", "or", "xor", "lshift", "rshift", "floordiv", "mod"),
    strict=True,
):
    _forward, _reflected = _operator(_op)
    setattr(Term, f"__{_name}__", _forward)
    setattr(Term, f"__r{_name}__", _reflected)


def node(op: str, args: tuple[Term, ...] = (), value: Any = None, sort: str = "u32") -> Term:
    """The one term with these parts."""
    key = (op, tuple(a.uid for a in args), id(value) if op == "call" else value, sort)
    if key not in _table:
        _table[key] = Term(op, args, value, sort, len(_table))
    return _table[key]


def var(name: str, sort: str = "u32") -> Term:
    """An unknown."""
    return node("var", (), name, sort)


def lift(x: Any) -> Term:
    """A term, or the constant that a bool or int is."""
    if isinstance(x, Term):
        return x
    if isinstance(x, bool):
        return node("const", (), x, "bool")
    return node("const", (), int(x) & MASK, "u32")


_ONE, _WORD, _WIDTH = np.uint64(1), np.uint64(MASK), np.uint64(32)
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a + (_WORD + _ONE - b),
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << np.minimum(b, _WIDTH),
    "shr": lambda a, b: a >> np.minimum(b, _WIDTH),
    "div": lambda a, b: np.where(b == 0, _WORD, a // np.maximum(b, _ONE)),
    "mod": lambda a, b: np.where(b == 0, a, a % np.maximum(b, _ONE)),
}


def compute(op: str, a: Any, b: Any) -> Any:
    """The value of an operator on ints or uint32 arrays; division by zero as in SMT-LIB."""
    return _COMPUTE[op](np.asarray(a, dtype=np.uint64), np.asarray(b, dtype=np.uint64)) & _WORD


def binary(op: str, left: Any, right: Any) -> Term:
    """left op right, with constants folded."""
    a, b = lift(left), lift(right)
    assert a.sort == b.sort != "mem", (op, a.sort, b.sort)
    if a.sort == "bool":
        return _logic(op, a, b)
    if a.op == b.op == "const":
        return lift(int(compute(op, a.value, b.value)))
    known = b.value if b.op == "const" else None
    if known == 0 and op in ("add", "sub", "or", "xor", "shl", "shr") or known == 1 and op in ("mul", "div"):
        return a
    if a.op == "const" and (a.value, op) in ((0, "add"), (0, "or"), (1, "mul")):
        return b
    if op == "mul" and (known == 0 or a.op == "const" and a.value == 0):
        return lift(0)
    if op == "add" and known is not None and a.op == "add" and a.args[1].op == "const":
        return binary("add", a.args[0], a.args[1].value + known)
    return node(op, (a, b))


def _logic(op: str, a: Term, b: Term) -> Term:
    assert op in ("and", "or"), f"{op} of conditions"
    for x, y in ((a, b), (b, a)):
        if x.op == "const":
            return y if x.value is (op == "and") else x
    return node(op, (a, b), None, "bool")


def compare(op: str, a: Any, b: Any) -> Any:
    """A condition; a plain bool where both sides are known."""
    a, b = lift(a), lift(b)
    assert a.sort == b.sort and (a.sort == "u32" or op == "eq"), (op, a.sort, b.sort)
    if a.op == b.op == "const":
        return bool({"lt": a.value < b.value, "le": a.value <= b.value, "eq": a.value == b.value}[op])
    return node(op, (a, b), None, "bool")


def negate(x: Any) -> Any:
    """not x."""
    x = lift(x)
    return (not x.value) if x.op == "const" else node("not", (x,), None, "bool")


def rebuild(t: Term, args: Sequence[Term]) -> Term:
    """The term with other arguments, folded again."""
    if t.op in ARITHMETIC:
        return binary(t.op, *args)
    if t.op in COMPARISONS:
        return lift(compare(t.op, *args))
    if t.op == "not":
        return lift(negate(args[0]))
    if t.op == "ite":
        condition, yes, no = args
        return (yes if condition.value else no) if condition.op == "const" else lift(condition.select(yes, no))
    return node(t.op, tuple(args), t.value, t.sort)


def walk(*roots: Term) -> list[Term]:
    """Every node once, arguments first."""
    seen: set[int] = set()
    order: list[Term] = []
    stack = [(t, False) for t in reversed(roots)]
    while stack:
        t, done = stack.pop()
        if done:
            order.append(t)
        elif t.uid not in seen:
            seen.add(t.uid)
            stack.append((t, True))
            stack.extend((a, False) for a in reversed(t.args))
    return order


def replace(t: Term, by: Mapping[int, Term]) -> Term:
    """The term with the nodes of the given uids replaced."""
    made: dict[int, Term] = {}
    for x in walk(t):
        made[x.uid] = by[x.uid] if x.uid in by else rebuild(x, [made[a.uid] for a in x.args]) if x.args else x
    return made[t.uid]


def parameters(fn: Fn[Any]) -> list[Term]:
    """The unknowns that stand for a function's parameters."""
    return [var(f"%{p}", "mem" if kind == "Mem" else "u32") for p, kind in zip(fn.params, fn.kinds, strict=True)]


def body(fn: Fn[Any]) -> Term:
    """A function's body over its parameters; calls in it stay calls."""
    return lift(fn.body(*parameters(fn)))


Bodies = Callable[[Any], tuple[list[Term], Term]]


def inline(t: Term, bodies: Bodies = lambda fn: (parameters(fn), body(fn))) -> Term:
    """The term with every call expanded."""
    known: dict[int, tuple[list[Term], Term]] = {}

    def expand(t: Term) -> Term:
        made: dict[int, Term] = {}
        for x in walk(t):
            args = [made[a.uid] for a in x.args]
            if x.op == "call":
                if id(x.value) not in known:
                    names, inner = bodies(x.value)
                    known[id(x.value)] = names, expand(inner)
                names, inner = known[id(x.value)]
                made[x.uid] = replace(inner, {n.uid: a for n, a in zip(names, args, strict=True)})
            else:
                made[x.uid] = rebuild(x, args) if args else x
        return made[t.uid]

    return expand(t)


def claim_of(law: Law) -> tuple[Term, list[Term]]:
    """(premise, goals) of a law over unknowns, calls expanded; for a range law the goal is the value."""
    claim = law.fn.body(*unknowns(law))
    if isinstance(claim, Bounds):
        return lift(True), [inline(lift(claim.value))]
    assert isinstance(claim, Claim)
    return inline(lift(claim.premise)), [inline(lift(g)) for g in claim.goals]


def unknowns(law: Law) -> list[Term]:
    """One unknown per parameter of a law."""
    kinds = zip(law.fn.params, law.fn.kinds, strict=True)
    return [var(p, "mem" if kind == "Mem" else "u32") for p, kind in kinds]


def conjuncts(t: Term) -> list[Term]:
    """The parts of a conjunction; none for true."""
    if t.op == "and" and t.sort == "bool":
        return conjuncts(t.args[0]) + conjuncts(t.args[1])
    return [] if t.op == "const" and t.value is True else [t]


def conjunction(parts: Iterable[Any]) -> Term:
    """All of them."""
    out = lift(True)
    for part in parts:
        out = binary("and", out, part)
    return out


def evaluate(roots: Sequence[Term], env: Mapping[str, Any]) -> list[Any]:
    """Values of expanded terms, arrays where the environment has arrays."""
    made: dict[int, Any] = {}
    for t in walk(*roots):
        v = [made[a.uid] for a in t.args]
        if t.op == "const":
            made[t.uid] = t.value
        elif t.op == "var":
            made[t.uid] = env[t.value]
        elif t.op == "load":
            made[t.uid] = v[0][np.asarray(v[1])]
        elif t.op == "ite":
            made[t.uid] = np.where(v[0], v[1], v[2])
        elif t.op == "not":
            made[t.uid] = np.logical_not(v[0])
        elif t.op in COMPARISONS:
            test = {"lt": np.less, "le": np.less_equal, "eq": np.equal}[t.op]
            made[t.uid] = test(*(np.asarray(x, dtype=np.uint64) for x in v))
        elif t.sort == "bool":
            made[t.uid] = (np.logical_and if t.op == "and" else np.logical_or)(v[0], v[1])
        else:
            made[t.uid] = compute(t.op, v[0], v[1])
    return [made[t.uid] for t in roots]
