"""The proofs that other programs check: the plan check by Why3, the theorems by Coq."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from graphrun.core import ie_plan
from graphrun.planner import check_lists

from .proof import Proof

COQ = Path(__file__).with_name("coq")
# What Why3 proves: the file, the fewest goals it has, and what they say.
FILES = {
    "plan_check": (Path(ie_plan.__file__ or ""), 40, "plan_fits, plan_aligned, plan_no_clobber, accepts exactly"),
    "check_lists": (
        Path(check_lists.__file__ or ""),
        100,
        "reads after writes, written once, in bounds, tiles cover once, no races, the last write holds",
    ),
}
GOAL_SECONDS = 10  # a goal takes a fraction of a second
MUTANT_SECONDS = 2
# Mutants that must be refused: each is wrong in a way that a test might miss.
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
    "one byte in common does not stop the loop": ("end <= off[j] or", "end <= off[j] + 1 or"),
}
LIST_MUTANTS = {
    "what a read finds is never looked at": (
        "if done[value[k]] != 1 and given",
        "if done[value[k]] == 2 and given",
    ),
    "a second write is no write": ("if done[value[k]] > 0 or given", "if done[value[k]] > k + 1 or given"),
    "an access may pass the end of its buffer": ("ceiling[k] < hi[k] or floor", "ceiling[k] + 1 < hi[k] or floor"),
    "a buffer may pass the end of the arena": (
        "floor[k] < 0 or cap < ceiling[k]",
        "floor[k] < 0 or cap + 1 < ceiling[k]",
    ),
    "the last tile may be missing": ("return end == size", "return end <= size"),
    "tiles may overlap": ("if lo[k] != end or", "if lo[k] > end or"),
    "tiles may leave a hole": ("hi[k] <= lo[k]:", "hi[k] <= 0:"),
    "two writes are no race": ("(write[i] == 1 or write[j] == 1) and lo", "write[i] != write[j] and lo"),
    "neighbours are never compared": ("lo, hi, i, i + 1) <", "lo, hi, i, i + 2) <"),
    "rows are passed too early": ("if ahi[i] <= blo[j]:", "if alo[i] <= blo[j]:"),
    "an older write is good enough": (
        "while 0 <= k and (hi[k] <= a or b <= lo[k])",
        "while 0 <= k and not (lo[k] <= a and b <= hi[k])",
    ),
    "half of the bytes are good enough": ("if 0 <= k and lo[k] <= a and b <= hi[k]", "if 0 <= k and lo[k] <= a"),
}
MUTANTS = {"plan_check": PLAN_MUTANTS, "check_lists": LIST_MUTANTS}


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
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert child.stdout
    try:
        for line in child.stdout:
            found = re.match(r"Prover result is: (\w+)", line)
            if found:
                yield found[1]
            elif "error" in line.lower():
                yield line.strip()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # with the prover that it waits for
        child.communicate()


def prove_file(name: str) -> Proof:
    """Why3 proves every contract of a file that Python imports."""
    path, least, what = FILES[name]
    proof = Proof(name, "why3")
    verdicts = list(_why3(path))
    valid = sum(v == "Valid" for v in verdicts)
    proof.solvers["why3+z3"] = valid
    proof.failures += sorted({f"a goal is {v}" for v in verdicts if v != "Valid"})
    if valid < least:
        proof.failures.append(f"only {valid} goals")
    proof.notes.append(what)
    return proof


def reject_mutants(name: str) -> Proof:
    """Why3 refuses each mutant of a file; the part of the file that it reads for that is accepted as it is."""
    proof = Proof(f"{name}_mutants", "why3")
    text = FILES[name][0].read_text(encoding="utf-8")
    parts = {what: _around(text, old) for what, (old, _) in MUTANTS[name].items()}
    changed = {what: _changed(parts[what], old, new) for what, (old, new) in MUTANTS[name].items()}
    _config()
    with ThreadPoolExecutor(2) as pool:
        whole = list(dict.fromkeys(parts.values()))
        sound = dict(zip(whole, pool.map(partial(_judged, goal_seconds=GOAL_SECONDS), whole), strict=True))
        after = pool.map(partial(_judged, goal_seconds=MUTANT_SECONDS), changed.values())
        for what, judged in zip(changed, after, strict=True):
            if (sound[parts[what]], judged) != ("accepted", "refused"):
                proof.failures.append(f"{what}: {sound[parts[what]]} before, {judged} with it")
    proof.notes.append(f"{len(MUTANTS[name])} mutants refused" if proof.stands else "")
    return proof


def _changed(text: str, old: str, new: str) -> str:
    """The text with other code in the one line that has `old`; nothing if there is no such line, or a second."""
    lines = text.splitlines(keepends=True)
    at = [k for k, line in enumerate(lines) if old in line and not line.lstrip().startswith("#@")]
    if len(at) != 1:
        return ""
    lines[at[0]] = lines[at[0]].replace(old, new)
    return "".join(lines)


def _around(text: str, code: str) -> str:
    """The predicates, the function with this code, and those it calls; callers know only its contract."""
    head, *functions = re.split(r"^(?=def )", text, flags=re.MULTILINE)
    bodies = {re.findall(r"def (\w+)", f)[0]: f for f in functions}
    plain = {n: "".join(x for x in f.splitlines(True) if not x.lstrip().startswith("#@")) for n, f in bodies.items()}
    wanted = [name for name, body in plain.items() if code in body]
    for name in wanted:
        wanted += [n for n in re.findall(r"\b(\w+)\(", plain[name]) if n in bodies and n not in wanted]
    return head + "".join(body for name, body in bodies.items() if name in wanted)


def _judged(text: str, goal_seconds: int) -> str:
    """Whether Why3 proves every goal of a text: accepted, refused, or unread if it finds none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "part.py")
        path.write_text(text, encoding="utf-8")
        judged = "unread"
        for verdict in _why3(path, goal_seconds):
            if not re.fullmatch(r"\w+", verdict):
                return "unread"
            if verdict != "Valid":
                return "refused"
            judged = "accepted"
    return judged


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
