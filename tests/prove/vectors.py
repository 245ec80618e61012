"""One vector, four readings: compiled C with undefined behaviour trapped, terms, NumPy and ints must agree.

The C library is called in a child process (`python -m tests.prove.vectors LIBRARY`), which a trap ends.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.core.u32 import Fn

from .header import PATH, kernel_functions
from .proof import Proof
from .samples import Noise, below, words_for
from .term import body, evaluate, inline

COUNT = 200
WORDS = 512
CTYPES: dict[str, Any] = {"int": ctypes.c_uint32, "bool": ctypes.c_bool, "Mem": ctypes.POINTER(ctypes.c_uint32)}
# Where C has a meaning: shift counts below 32, indices inside the arrays; the other parameters are any word.
LIMITS = {"e": 16, "k": 16, "j": 32, "h": 2, "b": 1 << 20}
BASES = {"qb", "ab", "hb", "sb", "ub"}
LIMITS_IN = {"ie_byte": {"e": 4}}


def check(name: str, command: list[str]) -> Proof:
    """Compile the header with one compiler and compare."""
    proof = Proof(f"vectors_{name.replace(' ', '_')}", "agreement")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "core.c"), Path(folder, "core.so")
        source.write_text('#define IE_FN\n#include "ie_core.h"\n', encoding="utf-8")
        trap = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", *trap, "-shared", "-fPIC", f"-I{PATH.parent}"]
        build = [*command, *flags, "-o", str(library), str(source)]
        made = subprocess.run(build, capture_output=True, text=True, timeout=300)
        if made.returncode:
            proof.failures.append(f"{name}: {made.stderr.strip()[:200]}")
            return proof
        again = [sys.executable, "-m", __spec__.name, str(library)]
        ran = subprocess.run(again, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    if ran.returncode:
        proof.failures.append(f"{name}: exit {ran.returncode} {ran.stdout.strip()[-200:]} {ran.stderr.strip()[-200:]}")
    proof.notes.append(ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else "no output")
    return proof


def arguments(fn: Fn[Any]) -> tuple[dict[str, Any], int]:
    """(arguments by name with COUNT words each, the number of vectors)."""
    rng = np.random.default_rng([7, *fn.name.encode()])
    limits = {**LIMITS, **LIMITS_IN.get(fn.name, {})}
    names = [p for p, kind in zip(fn.params, fn.kinds, strict=True) if kind == "int"]
    words = words_for(rng, fn.name, names, COUNT)
    for p in names:
        if p in BASES or p in limits:
            words[p] = below(rng, np.full(COUNT, 400 if p in BASES else limits[p], dtype=np.uint32))
    memory = Noise(11)[np.arange(WORDS)]
    made = {p: words[p] if kind == "int" else memory for p, kind in zip(fn.params, fn.kinds, strict=True)}
    return made, COUNT if names else 1


def compare(library: ctypes.CDLL) -> Iterator[str]:
    """One line per function on which the readings differ."""
    for fn in kernel_functions():
        values, count = arguments(fn)
        call = getattr(library, fn.name)
        call.restype, call.argtypes = CTYPES[fn.result], [CTYPES[kind] for kind in fn.kinds]
        arrays = np.broadcast_to(fn(*values.values()), count)
        env = {
            f"%{p}": v if kind == "int" else _Array(v) for (p, v), kind in zip(values.items(), fn.kinds, strict=True)
        }
        terms = np.broadcast_to(evaluate([inline(body(fn))], env)[0], count)
        for at in range(count):
            one = [int(v[at]) if k == "int" else v for v, k in zip(values.values(), fn.kinds, strict=True)]
            c = call(*(x.ctypes.data_as(CTYPES["Mem"]) if isinstance(x, np.ndarray) else x for x in one))
            if not c == fn(*one) == arrays[at] == terms[at]:
                yield f"{fn.name}{tuple(x for x in one if isinstance(x, int))}: C {c}, int {fn(*one)}"
                break


class _Array:
    """An array that the term reading can index with any words."""

    def __init__(self, words: Any) -> None:
        self.words = words

    def __getitem__(self, index: Any) -> Any:
        return self.words[np.asarray(index, dtype=np.int64)]


def main() -> None:
    """Compare the library named on the command line with the other readings."""
    differences = list(compare(ctypes.CDLL(sys.argv[1])))
    print("\n".join(differences) or f"{len(kernel_functions())} functions, {COUNT} vectors each")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
