"""Prove the integer core: `python -m tests.prove [--require-all] [--no-mutants] [--record] [LAW ...]`.

Prints a line per law, which parts ran and which were skipped for want of a program, and `N passed, N failed`.
Fails if core/proved.json, which `graphrun verify` shows, does not say what was proved.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from graphrun.core import law

from . import solvers
from .proof import Proof


class Part(NamedTuple):
    """A part of the run: what it is, which programs it lacks, and its results one by one."""

    name: str
    lacks: list[str]
    results: Callable[[solvers.Panel], Iterator[Callable[[], Proof]]]


def _laws(names: list[str]) -> Callable[[solvers.Panel], Iterator[Callable[[], Proof]]]:
    def results(panel: solvers.Panel) -> Iterator[Callable[[], Proof]]:
        from .mutation import LAWS, PROVERS

        for one in LAWS.values():
            if one.method in PROVERS and (not names or one.name in names):
                yield partial(_satisfiable, PROVERS[one.method], one, panel)

    return results


def _satisfiable(prove: Callable[[law.Law, solvers.Panel], Proof], one: law.Law, panel: solvers.Panel) -> Proof:
    """A law's proof, with a witness of its premise: some arguments that meet it."""
    from .samples import arguments

    proof = prove(one, panel)
    if not any(np.any(one.check(*values)[0]) for values in arguments(one, 500, 4)):
        proof.failures.append("no sample meets the premise")
    return proof


def _header(panel: solvers.Panel) -> Iterator[Callable[[], Proof]]:
    from .equal import prove_file

    yield partial(prove_file, panel)


def _vectors(panel: solvers.Panel) -> Iterator[Callable[[], Proof]]:
    from .creader import compilers
    from .vectors import check

    for name, command in compilers():
        yield partial(check, name, command)


def _checks(panel: solvers.Panel) -> Iterator[Callable[[], Proof]]:
    from .programs import FILES, prove_file

    for name in FILES:
        yield partial(prove_file, name)


def _theorems(panel: solvers.Panel) -> Iterator[Callable[[], Proof]]:
    from .programs import COQ, check_theorem

    for path in sorted(COQ.glob("*.v")):
        yield partial(check_theorem, path)


def _mutation(panel: solvers.Panel) -> Iterator[Callable[[], Proof]]:
    from .mutation import score

    yield partial(score, panel)


def _check_mutants(panel: solvers.Panel) -> Iterator[Callable[[], Proof]]:
    from .programs import MUTANTS, reject_mutants

    for name in MUTANTS:
        yield partial(reject_mutants, name)


def parts(names: list[str], with_mutants: bool) -> list[Part]:
    """The parts of a run; given names of laws, only those laws."""
    from .programs import missing

    lacks = solvers.missing()
    programs = missing()
    reader = [] if importlib.util.find_spec("pycparser") else ["pycparser"]
    compiler = [] if reader or _compiler() else ["a C compiler"]
    why3 = [p for p in programs if p != "coqc"]
    every = [
        Part("laws", lacks, _laws(names)),
        Part("header", lacks + reader + compiler, _header),
        Part("vectors", reader + compiler, _vectors),
        Part("checks", why3, _checks),
        Part("theorems", [p for p in programs if p == "coqc"], _theorems),
        Part("mutation", lacks, _mutation),
        Part("check mutants", why3, _check_mutants),
    ]
    if names:
        return every[:1]
    return every if with_mutants else every[:5]


def _compiler() -> bool:
    from .creader import compilers

    return compilers()[0][0] != "zig cc" or importlib.util.find_spec("ziglang") is not None


def run(wanted: Iterable[Part], require_all: bool, *, compared: bool = False, renew: bool = False) -> int:
    """Run the parts and print the table; the number of failures.

    A whole run is compared with the committed record, or with `renew` becomes it.
    """
    panel = solvers.Panel()
    passed = failed = 0
    proofs: dict[str, list[Proof]] = {}
    ran: list[str] = []
    skipped: list[str] = []
    print("law | method | solvers | seconds")
    try:
        for part in wanted:
            if part.lacks:
                skipped.append(f"{part.name} (no {', no '.join(part.lacks)})")
                failed += require_all
                continue
            ran.append(part.name)
            for job in part.results(panel):
                proof = _timed(job)
                proofs.setdefault(part.name, []).append(proof)
                passed, failed = passed + proof.stands, failed + (not proof.stands)
                _print(proof)
        if compared:
            proof = _timed(partial(_recorded, proofs, renew, not failed and not skipped))
            passed, failed = passed + proof.stands, failed + (not proof.stands)
            _print(proof)
    finally:
        panel.close()
    print(f"ran: {', '.join(ran) or 'nothing'}")
    print(f"skipped: {', '.join(skipped) or 'nothing'}")
    print(f"{passed} passed, {failed} failed")
    return failed


def _recorded(proofs: dict[str, list[Proof]], renew: bool, whole: bool) -> Proof:
    from . import record

    if renew and whole:
        record.write(record.record(proofs))
    proof = record.compare(proofs)
    if renew and not whole:
        proof.failures.append("not recorded: a part failed or was skipped")
    return proof


def _timed(job: Callable[[], Proof]) -> Proof:
    start = time.perf_counter()
    proof = job()
    proof.seconds = time.perf_counter() - start
    return proof


def _print(proof: Proof) -> None:
    agreed = ", ".join(f"{name} {count}" for name, count in proof.solvers.items())
    notes = f" | {proof.notes[0]}" if proof.notes else ""
    print(f"{proof.law} | {proof.method} | {agreed or '-'} | {proof.seconds:.2f}{notes}", flush=True)
    for note in proof.notes[1:] if proof.method == "mutation" else ():
        print(f"    {note}")
    for failure in proof.failures:
        print(f"    FAILED {failure}", flush=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description="Prove the integer core.")
    parser.add_argument("laws", nargs="*", help="prove only these laws")
    parser.add_argument("--require-all", action="store_true", help="a missing program is a failure")
    parser.add_argument("--no-mutants", action="store_true", help="leave the mutation score out")
    parser.add_argument("--record", action="store_true", help="write core/proved.json if every part passes")
    given = parser.parse_args()
    wanted = parts(given.laws, not given.no_mutants)
    sys.exit(bool(run(wanted, given.require_all, compared=not given.laws, renew=given.record)))


if __name__ == "__main__":
    main()
