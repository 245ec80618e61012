"""The record of what was proved, and whether it is about the source that runs here."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

CORE = ("ie", "ie_base", "ie_k", "ie_plan", "ie_sums", "law", "laws", "laws_layout", "laws_pin", "u32")
SOURCES = (
    *(("graphrun.core", f"{name}.py") for name in CORE),
    ("graphrun.planner", "check_lists.py"),
    ("graphrun.kernels", "ie_core.h"),
)


@dataclass(frozen=True, slots=True)
class Record:
    """Laws by name with their method, goals that Why3 proved by file, theorems of Coq by file, and versions."""

    source: str
    laws: Mapping[str, str]
    goals: Mapping[str, int]
    theorems: Mapping[str, list[str]]
    versions: Mapping[str, str]

    @classmethod
    def read(cls) -> Record:
        """The record that was made of the last whole run of the proofs, part of the package."""
        return cls(**json.loads(files("graphrun.core").joinpath("proved.json").read_text(encoding="utf-8")))

    @property
    def holds(self) -> bool:
        """Whether the source here is the one that was proved."""
        return self.source == source_hash()

    def lines(self) -> list[str]:
        """The record in words."""
        v = self.versions
        methods = ", ".join(f"{count} {method}" for method, count in Counter(self.laws.values()).most_common())
        goals = ", ".join(f"{name} ({count} goals)" for name, count in self.goals.items())
        names = ", ".join(name for found in self.theorems.values() for name in found)
        return [
            f"{len(self.laws)} laws ({methods}): bitwuzla {v['bitwuzla']}, cvc5 {v['cvc5']}, z3 {v['z3-solver']},"
            " at least two for each; no certificate",
            f"{goals}: why3 {v['why3']} with z3 {v['z3']}",
            f"{names}: coq {v['coq']}, no axioms",
            f"proved for exactly this source ({self.source[:16]})"
            if self.holds
            else f"this source ({source_hash()[:16]}) differs from what was proved ({self.source[:16]}): make prove",
        ]


def source_hash() -> str:
    """SHA-256 of the files that the proofs are about, whatever the ends of their lines."""
    digest = hashlib.sha256()
    for package, name in SOURCES:
        text = files(package).joinpath(name).read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{package} {name} {len(text)}\n".encode() + text)
    return digest.hexdigest()
