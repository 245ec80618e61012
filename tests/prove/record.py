"""The committed record of what was proved: made from a whole run, and compared with every later one."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from graphrun import core, proved
from graphrun.proved import Record

from .proof import Proof

PATH = Path(core.__file__ or "").with_name("proved.json")
PINNED = ("bitwuzla", "cvc5", "z3-solver")
PROGRAMS = {"why3": ["why3", "--version"], "z3": ["z3", "--version"], "coq": ["coqc", "--version"]}


def record(proofs: Mapping[str, Sequence[Proof]]) -> Record:
    """The record of a run of at least the parts laws, checks and theorems, given its proofs by part."""
    versions = {name: version(name) for name in PINNED} | {name: _version(c) for name, c in PROGRAMS.items()}
    return Record(
        source=proved.source_hash(),
        laws={p.law: p.method for p in proofs["laws"]},
        goals={p.law: sum(p.solvers.values()) for p in proofs["checks"]},
        theorems={p.law: p.notes[0].split(", ") for p in proofs["theorems"]},
        versions=versions,
    )


def write(made: Record) -> None:
    """Commit to this record."""
    PATH.write_text(json.dumps(dataclasses.asdict(made), indent=1) + "\n", encoding="utf-8")


def compare(proofs: Mapping[str, Sequence[Proof]]) -> Proof:
    """Whether the committed record is about this source and says what the parts that ran have proved."""
    proof = Proof("record", "comparison")
    kept = Record.read()
    proof.notes.append(f"source {kept.source[:16]}")
    if not kept.holds:
        proof.failures.append("core/proved.json is about another source: python -m tests.prove --record")
    found = {
        "laws": {p.law: p.method for p in proofs.get("laws", ())},
        "goals": {p.law: kept.goals.get(p.law) for p in proofs.get("checks", ())},  # how many is up to Why3
        "theorems": {p.law: p.notes[0].split(", ") for p in proofs.get("theorems", ())},
    }
    for what, now in found.items():
        if now and now != getattr(kept, what):
            proof.failures.append(f"core/proved.json has other {what}: python -m tests.prove --record")
    if found["laws"]:
        used = {name: version(name) for name in PINNED}
        proof.failures += [
            f"core/proved.json names {n} {kept.versions[n]}, this is {v}"
            for n, v in used.items()
            if kept.versions[n] != v
        ]
    return proof


def _version(command: Sequence[str]) -> str:
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    assert found, command
    return found[0]
