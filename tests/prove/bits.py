"""Laws about bits: one bit-vector query per law, for all three solvers."""

from __future__ import annotations

from graphrun.core.law import Law

from .proof import Proof
from .smt import bit_vectors
from .solvers import NAMES, Panel
from .term import binary, claim_of, conjunction, negate


def prove(law: Law, panel: Panel) -> Proof:
    """No words meet the premise and break a goal."""
    proof = Proof(law.name, law.method)
    premise, goals = claim_of(law)
    broken = binary("and", premise, negate(conjunction(goals)))
    proof.ask(panel, "law", [bit_vectors(broken)], NAMES)
    return proof
