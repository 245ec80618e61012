"""A solver in a process of its own: reads {"script", "seconds"} as JSON lines, answers {"answer", "seconds"}."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any


def z3(solver: Any, script: str, seconds: float) -> str:
    """Answer of z3, by the logic that the script names."""
    logic = script.split("(set-logic ")[1].split(")")[0]
    s = solver.Solver() if logic == "ALL" else solver.SolverFor(logic)
    s.set("timeout", int(seconds * 1000))
    s.from_string(script)
    return str(s.check())


def bitwuzla(solver: Any, script: str, seconds: float) -> str:
    """Answer of bitwuzla."""
    options = solver.Options()
    options.set(solver.Option.TIME_LIMIT_PER, int(seconds * 1000))
    parser = solver.Parser(solver.TermManager(), options)
    parser.parse(script, True, False)
    return str(parser.bitwuzla().check_sat()).lower().split(".")[-1]


def cvc5(solver: Any, script: str, seconds: float) -> str:
    """Answer of cvc5, which wants the query in the script."""
    s = solver.Solver(solver.TermManager())
    s.setOption("tlimit-per", str(int(seconds * 1000)))
    parser = solver.InputParser(s)
    parser.setStringInput(solver.InputLanguage.SMT_LIB_2_6, script + "(check-sat)\n", "query")
    symbols, answer = parser.getSymbolManager(), "none"
    while not (command := parser.nextCommand()).isNull():
        answer = command.invoke(s, symbols).strip() or answer
    return answer


def main() -> None:
    """Answer queries until the input ends."""
    solve: Callable[[Any, str, float], str] = {"z3": z3, "bitwuzla": bitwuzla, "cvc5": cvc5}[sys.argv[1]]
    solver = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        query = json.loads(line)
        start = time.perf_counter()
        try:
            answer = solve(solver, query["script"], query["seconds"])
        except Exception as error:  # whatever a solver's binding raises is an answer that is not unsat
            answer = f"error {type(error).__name__}: {error}"
        print(json.dumps({"answer": answer, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main()
