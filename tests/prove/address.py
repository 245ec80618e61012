"""Laws about addresses: over the integers, with proof that no operation wraps and that every lemma used is true."""

from __future__ import annotations

from graphrun.core.law import Law

from .integers import Reading
from .proof import Proof
from .solvers import Panel
from .term import claim_of

SOLVERS = ("z3", "cvc5")
_audited: dict[str, bool] = {}


def prove(law: Law, panel: Panel) -> Proof:
    """The side conditions, every goal, and every kind of lemma instance not seen before."""
    proof = Proof(law.name, law.method)
    premise, goals = claim_of(law)
    reading = Reading()
    given = reading.value(premise)
    wanted = [reading.value(g) for g in goals]
    reading.complete()
    sides = list(reading.obligations(premise))
    sides += [side for g in goals for side in reading.obligations(g, (given,))]
    sides = list(dict.fromkeys(sides))
    queries = [reading.script(f"(not (and true {' '.join(sides)}))")]
    queries += [reading.script(given, f"(not {goal})") for goal in wanted]
    proof.ask(panel, "goals and side conditions", queries, SOLVERS)
    fresh = [s for s in reading.audits() if s not in _audited]
    if fresh and proof.ask(panel, "lemmas", fresh, SOLVERS, 10):
        _audited.update(dict.fromkeys(fresh, True))
    if panel.ask([reading.script(given)], ["z3"])[0].answer != "sat":
        proof.failures.append("facts and premise contradict each other")
    proof.notes.append(f"{len(goals)} goals, {len(sides)} side conditions, {len(reading.products)} products")
    proof.notes.append(f"{len(fresh)} new lemmas")
    return proof
