"""The mutation score of the laws: every mutant breaks a law, or equals the original wherever it may be called.

A mutant is killed by random samples of a law, else by a proof of a law that fails. One that survives both must be
proved equal to the original, for all words or for those that its parameters' limits allow.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from graphrun.core import ie, ie_plan, law, laws, laws_layout, laws_pin
from graphrun.core.ie import FUNCTIONS
from graphrun.core.u32 import Fn

from . import address, bits, plans, polynomial, samples
from .mutants import Mutant, mutants
from .proof import Proof
from .smt import bit_vectors
from .solvers import NAMES, Panel
from .term import Term, binary, body, compare, conjunction, inline, lift, negate, parameters

LAWS = law.laws_of([laws, laws_pin, laws_layout])
PROVERS: dict[str, Callable[[law.Law, Panel], Proof]] = {
    "bits": bits.prove,
    "polynomial": polynomial.prove,
    "range": polynomial.prove_range,
    "address": address.prove,
}
# What callers promise about parameters, beyond being words.
LIMITS = {"e": 16, "k": 16, "w": 8, "j": 32, "h": 2}
LIMITS_IN = {"ie_byte": {"e": 4}, "ie_q6k_vw": {"k": 4}, "ie_q6k_sw": {"k": 4}}
PLAN_FUNCTIONS = ("buf_ok", "buf_sep", "first_overlap", "first_fault", "plan_check")
PLAN_READERS = ("ie_pairs_ok", "ie_bufs_ok", "ie_in_buf", "ie_live")
# Survivors that no solver is asked about, with the reason why they are no mistakes.
EQUIVALENT = {
    "ie_strided_sum: #0 32 -> 33": "the fuel for one lane more is never used: lanes end at 31",
    "ie_tree: #9 32 -> 33": "33 >> m is 32 >> m for the m = 1 .. 5 that 32 lanes have",
}


def uses() -> dict[str, list[law.Law]]:
    """The laws that reach each function, by running every law once."""
    seen: dict[str, list[law.Law]] = {fn.name: [] for fn in FUNCTIONS}
    current: list[law.Law] = []

    def recorder(fn: Fn[Any]) -> Callable[..., Any]:
        original = fn.body

        def record(*args: Any) -> Any:
            if current and current[0] not in seen[fn.name]:
                seen[fn.name].append(current[0])
            return original(*args)

        return record

    originals = {fn: fn.body for fn in FUNCTIONS}
    for fn in FUNCTIONS:
        fn.body = recorder(fn)
    for one in LAWS.values():
        current[:] = [one]
        one.check(*next(samples.arguments(one, 50, 1)))
    for fn, original in originals.items():
        fn.body = original
    return seen


class Score:
    """The mutants so far, by what became of them."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.count: Counter[str] = Counter()
        self.survivors: list[str] = []
        self.equal: list[str] = []
        self.reach = uses()
        self.samples = {x.name: [next(samples.arguments(x, 240, seed)) for seed in (1, 2, 3)] for x in LAWS.values()}

    def words(self, fn: Fn[Any]) -> None:
        """Every mutant of a function of words."""
        original = fn.body
        before = inline(body(fn)) if "Fuel" not in fn.kinds else None
        try:
            for mutant in mutants(original):
                fn.body = mutant.body
                self._note(mutant, self._judge(fn, before))
        finally:
            fn.body = original

    def _note(self, mutant: Mutant, verdict: str) -> None:
        self.count["mutants"] += 1
        if verdict == "survived":
            verdict = "equivalent" if mutant.name in EQUIVALENT else verdict
        self.count[verdict] += 1
        if verdict == "survived":
            self.survivors.append(mutant.name)
        if verdict.startswith("equ"):
            self.equal.append(f"{mutant.name} ({EQUIVALENT.get(mutant.name, verdict)})")

    def _judge(self, fn: Fn[Any], before: Term | None) -> str:
        for one in self.reach[fn.name]:
            if any(self._breaks(one, values) for values in self.samples[one.name]):
                return "killed by samples"
        if before is not None:
            where = self._equal(fn, before)
            if where:
                return where
        for one in self.reach[fn.name]:
            if one.method in PROVERS and not self._proved(one):
                return "killed by proof"
        return "survived"

    @staticmethod
    def _breaks(one: law.Law, values: list[Any]) -> bool:
        try:
            with seconds(20), np.errstate(all="ignore"):
                return not np.all(one.check(*values)[1])
        except Exception:  # a mutant that cannot be run has been noticed
            return True

    def _proved(self, one: law.Law) -> bool:
        try:
            return PROVERS[one.method](one, self.panel).stands
        except Exception:  # nor has a law that no longer makes sense
            return False

    def _equal(self, fn: Fn[Any], before: Term) -> str:
        """How the mutant is proved equal to the original, or nothing."""
        try:
            differ = lift(negate(compare("eq", inline(body(fn)), before)))
        except Exception:
            return ""
        limits = {**LIMITS, **LIMITS_IN.get(fn.name, {})}
        allowed = conjunction(compare("lt", t, limits[t.value[1:]]) for t in parameters(fn) if t.value[1:] in limits)
        for name, condition in (("equal for all words", lift(True)), ("equal where it may be called", allowed)):
            script = bit_vectors(binary("and", condition, differ))
            answers = self.panel.ask([script], NAMES, 5)
            if sum(a.answer == "unsat" for a in answers) >= 2:
                return name
        return ""

    def plan(self, module: Any, name: str) -> None:
        """Every mutant of a function of the plan check, against the judge that paints."""
        original = getattr(module, name)
        try:
            for mutant in mutants(original):
                setattr(module, name, mutant.body)
                self._note(mutant, "killed by samples" if plans_break() else "survived")
        finally:
            setattr(module, name, original)

    def run(self) -> None:
        """Everything."""
        for fn in FUNCTIONS:
            self.words(fn)
        for name in PLAN_FUNCTIONS:
            self.plan(ie_plan, name)
        for name in PLAN_READERS:
            self.plan(ie, name)


def plans_break() -> bool:
    """Whether random plans tell the check from the painting judge."""
    rng = np.random.default_rng(3)
    try:
        for _ in range(400):
            with seconds(2):
                p = plans.random_plan(rng)
                if plans.judge(p) and p.n > 1:
                    for _ in range(8):
                        plans.probe(p, rng)
    except Exception:  # an assertion, an index error, an endless loop
        return True
    return False


@contextmanager
def seconds(limit: int) -> Iterator[None]:
    """Raise TimeoutError in the block after some seconds."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def score(panel: Panel) -> Proof:
    """The mutation score; every mutant that survives is a failure."""
    proof = Proof("mutation_score", "mutation")
    found = Score(panel)
    found.run()
    proof.failures += [f"survives: {name}" for name in found.survivors]
    proof.failures += [f"no such mutant: {name}" for name in EQUIVALENT if not any(name in e for e in found.equal)]
    if found.count["mutants"] < 600:
        proof.failures.append(f"only {found.count['mutants']} mutants")
    proof.notes.append(", ".join(f"{n} {what}" for what, n in found.count.items()))
    proof.notes += found.equal
    return proof
