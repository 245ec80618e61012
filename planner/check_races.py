"""Races: no call of a segment may touch bytes that another call of it writes, nor any call its own inputs."""

from __future__ import annotations

from collections.abc import Sequence

from graphrun.core.errors import ProgramError
from graphrun.core.program import Program
from graphrun.planner.check_access import Access, call_text, span_text, value_text
from graphrun.planner.check_lists import next_clash, no_clash, rows_apart

Step = tuple[int, int, Access]  # the call, who it is in the comparison, the access


def check_races(program: Program, every: Sequence[Sequence[Access]]) -> int:
    """Check each segment's calls against each other, and each call's results against each other and its inputs.

    A call runs on many workgroups without an order between them. Returns the number of pairs compared.
    """
    pairs = 0
    segments: dict[int, list[Step]] = {}
    for index, found in enumerate(every):
        segments.setdefault(program.calls[index].segment, []).extend((index, index, a) for a in found if not a.inner)
        inner = [a for a in found if a.place == "arena" and not a.inner]
        alone = [(index, k + 1 if a.write else 0, a) for k, a in enumerate(inner)]
        pairs += _compare(program, alone)
    for steps in segments.values():
        if steps[0][0] != steps[-1][0]:
            pairs += _compare(program, [s for s in steps if s[2].place == "arena"])
            pairs += _compare_states(program, [s for s in steps if s[2].place == "state"])
    return pairs


def _compare(program: Program, steps: Sequence[Step]) -> int:
    """Compare from first to last byte, and row by row where that is not enough."""
    who, write = [s[1] for s in steps], [int(s[2].write) for s in steps]
    lo, hi = [s[2].lo for s in steps], [s[2].hi for s in steps]
    if not no_clash(who, write, lo, hi):
        for i in range(len(steps)):
            j = next_clash(who, write, lo, hi, i, i + 1)
            while j < len(steps):
                if not rows_apart(*steps[i][2].rows(), *steps[j][2].rows()):
                    _refuse(program, steps[i], steps[j])
                j = next_clash(who, write, lo, hi, i, j + 1)
    return len(steps) * (len(steps) - 1) // 2


def _compare_states(program: Program, steps: Sequence[Step]) -> int:
    """Which rows of a state a call touches is known only when it runs, so the whole state counts."""
    writer = {a.root.state: (index, k, a) for index, k, a in steps if a.write}
    for step in steps:
        other = writer.get(step[2].root.state)
        if other is not None and other[0] != step[0]:
            _refuse(program, *sorted((step, other), key=lambda s: s[0]))
    return len(steps) * len(writer)


def _refuse(program: Program, first: Step, second: Step) -> None:
    (a, _, x), (b, _, y) = first, second
    does = [f"{'writes' if s.write else 'reads'} {value_text(s.root)}, {span_text(s)}" for s in (x, y)]
    if a == b:
        raise ProgramError(
            f"{program.name}: {call_text(program, a)} {does[0]}, and {does[1]}: its workgroups run in any order"
        )
    raise ProgramError(
        f"{program.name}: {call_text(program, a)} {does[0]}, while {call_text(program, b)} of the same segment"
        f" {program.calls[a].segment} {does[1]}"
    )
