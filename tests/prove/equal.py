"""Header and Python are equal, function by function, for all words and arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import creader
from .header import PATH, header, kernel_functions
from .proof import Proof
from .smt import bit_vectors
from .solvers import NAMES, Panel
from .term import Term, body, compare, inline, lift, negate, node, parameters


def prove_file(panel: Panel, path: Path = PATH) -> Proof:
    """The committed header is the generated one, and every function in it means what Python's means."""
    proof = Proof("header_is_generated", "equality")
    if not path.exists() or path.read_text(encoding="utf-8") != header():
        proof.failures.append(f"{path.name} is not what `python -m tests.prove.header` writes")
    return proof if proof.failures else prove_equal(panel, creader.read(path), proof)


def prove_equal(panel: Panel, functions: dict[str, creader.CFunction], proof: Proof) -> Proof:
    """Each function by comparing terms; by the solvers where the terms differ."""
    wanted = {fn.name: fn for fn in kernel_functions()}
    if wanted.keys() != functions.keys():
        proof.failures.append(f"functions differ: {sorted(wanted.keys() ^ functions.keys())}")
        return proof
    solved = 0
    for name, fn in wanted.items():
        c = functions[name]
        if [p.sort for p in c.params] != [p.sort for p in parameters(fn)] or c.sort != body(fn).sort:
            proof.failures.append(f"{name}: another type")
            continue
        ours, theirs = inline(body(fn)), _instance(c, parameters(fn))
        if ours is not theirs:
            solved += 1
            proof.ask(panel, name, [bit_vectors(lift(negate(compare("eq", ours, theirs))))], NAMES)
    proof.notes.append(f"{len(wanted) - solved} functions are the same term, {solved} by solvers")
    return proof


def _instance(c: creader.CFunction, args: list[Term]) -> Term:
    def bodies(function: Any) -> tuple[list[Term], Term]:
        return function.params, function.body

    return inline(node("call", tuple(args), c, c.sort), bodies)
