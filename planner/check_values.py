"""Values: a program run on a symbolic arena leaves in its outputs and states what its graph says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from graphrun.core.errors import ProgramError, Span
from graphrun.core.ir import Graph, Value, dense_strides
from graphrun.core.op import Op
from graphrun.core.program import Call, Operand, Program
from graphrun.planner.check_access import Access, access, call_text, span_text, value_text
from graphrun.planner.check_blame import difference
from graphrun.planner.check_lists import holder
from graphrun.planner.check_terms import Terms, Typed


def check_values(program: Program, ops: Mapping[str, Op]) -> int:
    """Run the calls in order on an arena whose bytes know what they are part of, then compare with the graph.

    Every read must find one value, the one that the program says, with every byte in its place; the outputs and the
    states afterwards must be the terms that the graph before any pass has for them. Returns how many values were
    compared.
    """
    terms = Terms(ops, program.exact)
    run = _Run(program, terms)
    for index, call in enumerate(program.calls):
        run.call(index, call)
    found = {f"output {n}": run.read(len(program.calls), access(o)) for n, o in program.outputs.items()}
    found |= {f"state {n}": term for n, term in run.states.items()}
    terms.mark = len(terms.keys)
    wanted, makers = graph_terms(program.graph, terms)
    if found.keys() != wanted.keys():
        odd = ", ".join(sorted(found.keys() ^ wanted.keys()))
        raise ProgramError(f"{program.name}: {odd} is made by the program or by its graph, but not by both")
    for what, term in found.items():
        if term != wanted[what]:
            texts = {t: call_text(program, i) for t, i in run.makers.items()}
            raise ProgramError(f"{program.name}: {what}: {difference(terms.keys, (term, wanted[what]), texts, makers)}")
    return run.reads + len(found)


def graph_terms(graph: Graph, terms: Terms) -> tuple[dict[str, int], dict[int, Span]]:
    """The regions of a graph's outputs and the terms of the states it updates; and the line of each term."""
    known: dict[Value, int] = {}
    found: dict[str, int] = {}
    lines: dict[int, Span] = {}

    def region(value: Value) -> int:
        root = value.root
        term = known.get(root)
        return terms.region(terms.outside(root) if term is None else term, value.offset, value.type, value.strides)

    for node in graph.nodes:
        if not node.op.view:
            inputs = [None if v is None else (region(v), v.type) for v in node.inputs]
            for value, term in zip(node.outputs, terms.apply(node.op, inputs, node.attrs), strict=True):
                known[value] = term
                lines.setdefault(term, node.span)
                if value.state is not None:
                    found[f"state {value.state.name}"] = term
    return found | {f"output {name}": region(value) for name, value in graph.outputs.items()}, lines


class _Run:
    """The arena as the list of all writes to it; what holds a byte is the last write to it."""

    def __init__(self, program: Program, terms: Terms) -> None:
        self.program, self.terms = program, terms
        self.lo: list[int] = []
        self.hi: list[int] = []
        self.held: list[tuple[Value, int, int]] = []  # the value, where its first byte would be, and the call
        self.term: dict[Value, int] = {}
        self.states: dict[str, int] = {}
        self.makers: dict[int, int] = {}  # a term and the first call that made it
        self.reads = 0

    def call(self, index: int, call: Call) -> None:
        """All ops of a call read, compute, and then write."""
        inner: dict[Value, int] = {}
        made: list[tuple[Operand, int]] = []
        for part in (call, *call.epilogues):
            inputs: list[Typed | None] = []
            for operand in part.inputs:
                if operand is None:
                    inputs.append(None)
                    continue
                value = operand.value
                own = inner.get(value.root)
                if own is None:
                    region = self.read(index, access(operand))
                else:
                    region = self.terms.region(own, value.offset, operand.type, value.strides)
                inputs.append((region, operand.type))
            results = self.terms.apply(part.op, inputs, part.attrs)
            inner |= {o.value: term for o, term in zip(part.outputs, results, strict=True)}
            made += zip(part.outputs, results, strict=True)
        for operand, term in made:
            self._write(index, operand, term)

    def _write(self, index: int, operand: Operand, term: int) -> None:
        value = operand.value
        self.term[value] = term
        self.makers.setdefault(term, index)
        if operand.place == "state" and value.state is not None:
            self.states[value.state.name] = term
        elif operand.place == "arena":
            stored = access(operand, True)
            if value.view is not None or operand.strides != dense_strides(operand.type):
                self._refuse(index, "writes", stored, "with gaps")
            self.lo.append(stored.lo)
            self.hi.append(stored.hi)
            self.held.append((value, operand.offset, index))
        elif operand.place != "none":
            self._refuse(index, "writes", access(operand, True), "which no call may")

    def read(self, index: int, touched: Access) -> int:
        """The region that an operand's bytes are; ProgramError unless its value is the one that the program names."""
        operand, root = touched.operand, touched.root
        self.reads += 1
        base = 0
        if operand.place == "arena":
            base = self._base(index, touched)
            term = self.term[root]
        elif root.state is not None:
            before = self.terms.number("state", root.state.name)
            term = self.term.get(root, before)
            if term != self.states.get(root.state.name, before):
                self._refuse(index, "reads", touched, "which another call has updated")
        elif operand.place in ("weight", "input"):
            term = self.terms.outside(root)
        else:
            self._refuse(index, "reads", touched, "which has no bytes")
        return self.terms.region(term, operand.offset - base, operand.type, operand.strides)

    def _base(self, index: int, touched: Access) -> int:
        """Where the first byte of an operand's value is: every byte of the operand must be that value's."""
        wanted = (touched.root, touched.operand.offset - touched.operand.value.offset)
        at = holder(self.lo, self.hi, touched.lo, touched.hi)
        if at < 0 or self.held[at][:2] != wanted:
            for lo, hi in zip(*touched.rows(), strict=True):
                at = holder(self.lo, self.hi, lo, hi)
                if at < 0 or self.held[at][:2] != wanted:
                    self._clobbered(index, touched, wanted, lo, hi)
        return wanted[1]

    def _clobbered(self, index: int, touched: Access, wanted: tuple[Value, int], lo: int, hi: int) -> None:
        found = "but nothing has written all of them"
        for start, end, (value, base, writer) in zip(self.lo[::-1], self.hi[::-1], self.held[::-1], strict=True):
            if start < hi and lo < end and (value, base) != wanted:
                a, b = max(lo, start), min(hi, end)
                found = f"but {call_text(self.program, writer)} has put {value_text(value)} at bytes {a} to {b}"
                break
        self._refuse(index, "reads", touched, found)

    def _refuse(self, index: int, does: str, touched: Access, problem: str) -> NoReturn:
        who = call_text(self.program, index) if index < len(self.program.calls) else "the caller"
        name = value_text(touched.root)
        raise ProgramError(f"{self.program.name}: {who} {does} {name}, {span_text(touched)}, {problem}")
