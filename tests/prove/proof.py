"""What a prover hands back: which solvers agreed on how many queries, and why it failed if it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .solvers import Answer, Panel


@dataclass
class Proof:
    """A law's proof; it stands if at least two solvers answered every query of every kind with unsat."""

    law: str
    method: str
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    solvers: dict[str, int] = field(default_factory=dict)  # queries answered unsat
    notes: list[str] = field(default_factory=list)

    @property
    def stands(self) -> bool:
        """Whether the law is proved."""
        return not self.failures

    def ask(self, panel: Panel, what: str, scripts: Sequence[str], names: Sequence[str], limit: float = 60.0) -> bool:
        """Ask for unsat from all the named solvers; anything else is a failure."""
        assert len(names) >= 2, "one solver is no proof"
        answers = panel.ask(scripts, names, limit)
        for a in answers:
            if a.answer == "unsat":
                self.solvers[a.solver] = self.solvers.get(a.solver, 0) + 1
        bad = [a for a in answers if a.answer != "unsat"]
        self.failures += [f"{what}: {a.solver} says {a.answer}" for a in _distinct(bad)]
        return not bad


def _distinct(answers: Sequence[Answer]) -> list[Answer]:
    return list({(a.solver, a.answer): a for a in answers}.values())
