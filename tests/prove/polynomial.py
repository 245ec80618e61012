"""Laws that are ring identities modulo 2^32, and the exact integer ranges of such sums.

Both sides are sums of products of atoms, the largest parts that are not + - *. Random values propose which atoms are
equal up to a constant; the solvers prove those by bit vectors. Then the atoms become unknown integers and the solvers
prove the identity over the integers, which gives it modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np

from graphrun.core.law import Bounds, Law
from graphrun.core.u32 import MASK

from .proof import Proof
from .samples import Noise, wild
from .smt import bit_vectors
from .solvers import NAMES, Panel
from .term import Term, binary, claim_of, compare, conjunction, conjuncts, evaluate, lift, negate, replace, var, walk

SAMPLES = 48
INTEGER_SOLVERS = ("z3", "cvc5")


def prove(law: Law, panel: Panel) -> Proof:
    """Every goal, in every case of a premise like h < 2, with the equations of the premise put in."""
    proof = Proof(law.name, law.method)
    premise, goals = claim_of(law)
    cases = list(_cases(conjuncts(premise)))
    for case, equations in cases:
        for goal in goals:
            _identity(proof, panel, replace(replace(goal, case), equations) if case or equations else goal)
    proof.notes.append(f"{len(goals)} identities, {len(cases)} cases")
    return proof


def _cases(premise: list[Term]) -> Iterable[tuple[Mapping[int, Term], Mapping[int, Term]]]:
    """(values of bounded unknowns, replacements of loads) whose union is the premise."""
    ranges: dict[int, int] = {}
    equations: dict[int, Term] = {}
    for part in premise:
        left, right = part.args
        if part.op == "lt" and left.op == "var" and right.op == "const" and right.value <= 4:
            ranges[left.uid] = right.value
        elif part.op == "eq" and left.op == "load":
            equations[left.uid] = right
        else:
            raise NotImplementedError(f"premise {part}")
    for values in product(*(range(n) for n in ranges.values())):
        yield {uid: lift(v) for uid, v in zip(ranges, values, strict=True)}, equations


def _identity(proof: Proof, panel: Panel, goal: Term) -> None:
    if goal.op == "const":
        proof.ask(panel, "constant", [bit_vectors(lift(negate(goal)))], NAMES)
        return
    assert goal.op == "eq"
    left, right = goal.args
    names, equal = _merge(atoms(left, right))
    if equal:
        proof.ask(panel, "atoms", [bit_vectors(lift(negate(conjunction(equal))))], NAMES)
    proof.ask(panel, "identity", [_script(names, left, right)], INTEGER_SOLVERS)


def is_ring(t: Term) -> bool:
    """Whether a term is a sum, difference or product."""
    return t.sort == "u32" and t.op in ("add", "sub", "mul")


def atoms(*roots: Term) -> list[Term]:
    """The largest parts that are neither ring operations nor constants."""
    found: dict[int, Term] = {}
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        t = stack.pop()
        if t.uid in seen:
            continue
        seen.add(t.uid)
        if is_ring(t):
            stack.extend(t.args)
        elif t.op != "const":
            found[t.uid] = t
    return [found[uid] for uid in sorted(found)]


def environment(roots: Iterable[Term], seed: int, count: int = SAMPLES) -> dict[str, Any]:
    """Random values for every unknown."""
    rng = np.random.default_rng(seed)
    names = [t for t in walk(*roots) if t.op == "var"]
    seeds = {t: rng.integers(0, 1 << 63, count, dtype=np.uint64) for t in names if t.sort == "mem"}
    return {t.value: Noise(seeds[t]) if t.sort == "mem" else wild(rng, count) for t in names}


def _merge(parts: list[Term]) -> tuple[dict[int, tuple[str, int]], list[Any]]:
    """(name and constant to add for each atom, the equations that justify them)."""
    values = [np.broadcast_to(v, SAMPLES).astype(np.int64) for v in evaluate(parts, environment(parts, 1))]
    first: dict[bytes, tuple[Term, int]] = {}
    names: dict[int, tuple[str, int]] = {}
    equal: list[Any] = []
    for t, v in zip(parts, values, strict=True):
        same, base = first.setdefault((v - v[0] & MASK).tobytes(), (t, int(v[0])))
        shift = int(v[0]) - base
        names[t.uid] = f"a{same.uid}", shift
        if same is not t:
            equal.append(compare("eq", t, binary("add", same, shift & MASK)))
    return names, equal


def _integer(value: int) -> str:
    signed = value - (1 << 32) if value >> 31 else value
    return f"(- {-signed})" if signed < 0 else str(signed)


def _script(names: Mapping[int, tuple[str, int]], left: Term, right: Term) -> str:
    lines = ["(set-logic QF_NIA)"]
    lines += [f"(declare-const {name} Int)" for name in dict.fromkeys(name for name, _ in names.values())]
    text: dict[int, str] = {}
    for t in _ring_order(left, right):
        if t.op == "const":
            text[t.uid] = _integer(t.value)
        elif t.uid in names:
            name, shift = names[t.uid]
            text[t.uid] = f"(+ {name} {_integer(shift & MASK)})" if shift else name
        else:
            op = {"add": "+", "sub": "-", "mul": "*"}[t.op]
            lines.append(f"(define-fun t{t.uid} () Int ({op} {text[t.args[0].uid]} {text[t.args[1].uid]}))")
            text[t.uid] = f"t{t.uid}"
    return "\n".join([*lines, f"(assert (not (= {text[left.uid]} {text[right.uid]})))", ""])


def _ring_order(*roots: Term) -> list[Term]:
    """The ring part of the terms, arguments first."""
    order: dict[int, Term] = {}

    def visit(t: Term) -> None:
        if t.uid not in order:
            for a in t.args if is_ring(t) else ():
                visit(a)
            order[t.uid] = t

    for root in roots:
        visit(root)
    return list(order.values())


def prove_range(law: Law, panel: Panel) -> Proof:
    """Bounds of the atoms by bit vectors, of each product by integers, of the sum by linear integers."""
    proof = Proof(law.name, law.method)
    bounds = law.fn.body(
        *(var(p, "mem" if k == "Mem" else "u32") for p, k in zip(law.fn.params, law.fn.kinds, strict=True))
    )
    assert isinstance(bounds, Bounds)
    value = claim_of(law)[1][0]
    parts = atoms(value)
    top = [(1 << int(np.max(v)).bit_length()) - 1 for v in evaluate(parts, environment(parts, 2, 400))]
    limits = [compare("le", t, most) for t, most in zip(parts, top, strict=True)]
    proof.ask(panel, "atoms", [bit_vectors(lift(negate(conjunction(limits))))], NAMES)
    known = {t.uid: (0, most) for t, most in zip(parts, top, strict=True)}
    products, script = _range_scripts(value, known, bounds)
    proof.ask(panel, "products", products, INTEGER_SOLVERS)
    proof.ask(panel, "sum", [script], INTEGER_SOLVERS)
    proof.notes.append(f"{bounds.lo} .. {bounds.hi}")
    return proof


def _range_scripts(value: Term, known: dict[int, tuple[int, int]], bounds: Bounds) -> tuple[list[str], str]:
    """Queries for the bounds of each product, and for the sum with the products as unknowns."""
    products: dict[tuple[int, int, int, int], str] = {}
    declared, text = [], {}
    span = dict(known)
    for t in _ring_order(value):
        if t.op == "const":
            number = t.value - (1 << 32) if t.value >> 31 else t.value
            span[t.uid], text[t.uid] = (number, number), _integer(t.value)
            continue
        if t.uid not in known:
            a, b = (span[x.uid] for x in t.args)
            corners = [x * y for x in a for y in b]
            moved = (a[0] + b[0], a[1] + b[1]) if t.op == "add" else (a[0] - b[1], a[1] - b[0])
            span[t.uid] = (min(corners), max(corners)) if t.op == "mul" else moved
        text[t.uid] = f"t{t.uid}"
        if t.uid in known or t.op == "mul":
            lo, hi = (_integer(x & MASK) for x in span[t.uid])
            declared.append(f"(declare-const t{t.uid} Int)(assert (and (<= {lo} t{t.uid}) (<= t{t.uid} {hi})))")
            if t.op == "mul" and t.uid not in known:
                products.setdefault((*a, *b), _product_script(a, b, span[t.uid]))
        else:
            op = "+" if t.op == "add" else "-"
            declared.append(f"(define-fun t{t.uid} () Int ({op} {text[t.args[0].uid]} {text[t.args[1].uid]}))")
    lo, hi = _integer(bounds.lo & MASK), _integer(bounds.hi & MASK)
    goal = f"(assert (not (and (<= {lo} {text[value.uid]}) (<= {text[value.uid]} {hi}))))"
    return list(products.values()), "\n".join(["(set-logic QF_LIA)", *declared, goal, ""])


def _product_script(a: tuple[int, int], b: tuple[int, int], span: tuple[int, int]) -> str:
    ends = [_integer(x & MASK) for x in (*a, *b, *span)]
    return (
        "(set-logic QF_NIA)\n(declare-const x Int)\n(declare-const y Int)\n"
        f"(assert (and (<= {ends[0]} x) (<= x {ends[1]}) (<= {ends[2]} y) (<= y {ends[3]})))\n"
        f"(assert (not (and (<= {ends[4]} (* x y)) (<= (* x y) {ends[5]}))))\n"
    )
