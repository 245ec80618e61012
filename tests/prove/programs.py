"""The proofs that other programs check: the plan check by Why3, the theorems by Coq."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphrun.core import ie_plan

from .proof import Proof

COQ = Path(__file__).with_name("coq")
PLAN = Path(ie_plan.__file__ or "")
GOAL_SECONDS = 10  # a goal takes a fraction of a second
MUTANT_SECONDS = 3
# Mutants of the plan check that must be refused: each is wrong in a way that a test might miss.
PLAN_MUTANTS = {
    "a buffer may end past the arena": ("size[i] <= cap - off[i]", "size[i] <= cap"),
    "an offset may be negative": ("return 0 <= off[i] and 0", "return 0"),
    "a multiple of 128 will do": (
        "off[i] % 256 == 0 and first[i] <= last[i]\n",
        "off[i] % 128 == 0 and first[i] <= last[i]\n",
    ),
    "one step in common is no overlap": ("last[i] < first[j] or last[j]", "last[i] <= first[j] or last[j]"),
    "one byte in common is no overlap": ("off[i] + size[i] <= off[j] or", "off[i] + size[i] <= off[j] + 1 or"),
    "neighbours are never compared": ("last, i, i + 1) <", "last, i, i + 2) <"),
    "the last buffer is never looked at": ("while i < len(off) and", "while i < len(off) - 1 and"),
    "everything is accepted": ("cap, 0) == len(off)", "cap, 0) <= len(off)"),
}


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in ("why3", "z3", "coqc") if shutil.which(name) is None]


@functools.cache
def _config() -> tempfile.TemporaryDirectory[str]:
    """A folder with a configuration of Why3 that knows the provers at hand; it lives as long as this process."""
    folder = tempfile.TemporaryDirectory()
    command = ["why3", "config", "detect", "-C", str(Path(folder.name, "why3.conf"))]
    subprocess.run(command, capture_output=True, check=True, timeout=120)
    return folder


def _why3(path: Path, goal_seconds: int = GOAL_SECONDS) -> Iterator[str]:
    """The verdict on each goal, in order, until the reader has seen enough."""
    config = str(Path(_config().name, "why3.conf"))
    command = ["why3", "prove", "-C", config, "-P", "z3", "-t", str(goal_seconds), "-a", "split_vc", str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert child.stdout
    try:
        for line in child.stdout:
            found = re.match(r"Prover result is: (\w+)", line)
            if found:
                yield found[1]
            elif "error" in line.lower():
                yield line.strip()
    finally:
        child.kill()
        child.communicate()


def prove_plan() -> Proof:
    """Why3 proves every contract of the file that Python imports."""
    proof = Proof("plan_check", "why3")
    verdicts = list(_why3(PLAN))
    valid = sum(v == "Valid" for v in verdicts)
    proof.solvers["why3+z3"] = valid
    proof.failures += sorted({f"a goal is {v}" for v in verdicts if v != "Valid"})
    if valid < 40:
        proof.failures.append(f"only {valid} goals")
    proof.notes.append("plan_fits, plan_aligned, plan_no_clobber, accepts exactly")
    return proof


def reject_plan_mutants() -> Proof:
    """Why3 refuses each mutant of the plan check."""
    proof = Proof("plan_mutants", "why3")
    text = PLAN.read_text(encoding="utf-8")
    for what, (old, new) in PLAN_MUTANTS.items():
        code = [line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#@")]
        if sum(old in line for line in code) != 1:
            proof.failures.append(f"{what}: does not apply")
            continue
        lines = [x if x.lstrip().startswith("#@") else x.replace(old, new) for x in text.splitlines(keepends=True)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ie_plan.py")
            path.write_text("".join(lines), encoding="utf-8")
            refused = any(v != "Valid" for v in _why3(path, MUTANT_SECONDS))
        if not refused:
            proof.failures.append(f"accepted: {what}")
    proof.notes.append(f"{len(PLAN_MUTANTS)} mutants refused" if proof.stands else "")
    return proof


def check_theorem(path: Path) -> Proof:
    """Coq checks a file, and every theorem that it prints depends on no axiom."""
    proof = Proof(path.stem, "coq")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        ran = subprocess.run(["coqc", "-q", copy.name], cwd=folder, capture_output=True, text=True, timeout=300)
    wanted = re.findall(r"^Print Assumptions (\w+)\.", path.read_text(encoding="utf-8"), re.MULTILINE)
    closed = ran.stdout.count("Closed under the global context")
    if ran.returncode or closed != len(wanted) or not wanted or "Axioms" in ran.stdout:
        proof.failures.append(f"coqc: {(ran.stderr or ran.stdout).strip()[:200]}")
    proof.solvers["coq"] = closed
    proof.notes.append(", ".join(wanted))
    return proof
