"""What a model will take of a device's memory, known before any weight is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphrun.console import columns, size
from graphrun.core.gguf import ModelFile
from graphrun.core.ir import Part, State, Value
from graphrun.core.program import Program
from graphrun.core.target import Target
from graphrun.graphs.params import steps
from graphrun.model import Model
from graphrun.planner.certificate import lock
from graphrun.session import CHUNK


@dataclass(frozen=True, slots=True)
class Share:
    """A line of the plan: `count` things of one kind that take `nbytes` together."""

    what: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of weights, states and the arena of each step, against the memory of a target.

    A session's steps share one arena, as large as the largest of them.
    """

    weights: tuple[Share, ...]
    states: tuple[Share, ...]
    programs: tuple[Program, ...]
    target: Target
    beside: int = 0  # what the backend keeps to be faster

    @property
    def arena(self) -> int:
        return max((p.arena for p in self.programs), default=0)

    @property
    def total(self) -> int:
        return sum(s.nbytes for s in (*self.weights, *self.states)) + self.arena + self.beside

    @property
    def fits(self) -> bool:
        return self.total <= self.target.memory

    @property
    def verdict(self) -> str:
        """One line: whether it fits, and by how much."""
        have = f"{size(self.target.memory)} that {self.target.name} has free"
        if self.fits:
            return f"fits: {size(self.total)} of {have}"
        return f"does not fit: {size(self.total)} is {size(self.total - self.target.memory)} more than the {have}"

    @property
    def rates(self) -> tuple[str, ...]:
        """What a snapshot and a token of the cache take."""
        states = {s.name: s for p in self.programs for s in p.states}.values()
        snapshots = [s.type for s in states if s.discipline == "snapshot"]
        cache = sum(s.type.nbytes // s.type.shape[0] for s in states if s.discipline == "append")
        found = []
        if snapshots:
            copies = snapshots[0].shape[0]
            each = size(sum(t.nbytes for t in snapshots) // copies)
            found.append(f"{copies} snapshots, {each} each: as many tokens can be verified at once")
        if cache:
            found.append(f"{cache:,} bytes a token of cache")
        return tuple(found)

    def __str__(self) -> str:
        rows = [("weights", "tensors", "bytes", "")]
        rows += [_row(s) for s in self.weights]
        rows += [("states", "count", "", "")]
        rows += [_row(s) for s in self.states]
        rows += [("arena", "tokens", "", "")]
        rows += [(f"  {p.name}", str(p.tokens), f"{p.arena:,}", size(p.arena)) for p in self.programs]
        if self.beside:
            rows += [("unpacked weights", "", f"{self.beside:,}", size(self.beside))]
        rows += [("total", "", f"{self.total:,}", size(self.total))]
        locks = ", ".join(f"{p.name} {p.tokens} {lock(p)}" for p in self.programs)
        return "\n".join((columns(rows, right=(1, 2, 3)), *self.rates, f"lowering locks: {locks}", self.verdict))


def memory_plan(model: Model) -> MemoryPlan:
    """The plan of a model at its context, for the steps as a session runs them; reads only the file's header."""
    most = min(CHUNK, model.context)
    fitting = {name: tokens for name, tokens in steps(model.spec, model.file).items() if tokens.low <= most}
    programs = tuple(model.program(name, min(tokens.high, most)) for name, tokens in fitting.items())
    weights = {(v.parts, v.type): v for p in programs for v in p.weights}
    states = {s.name: s for p in programs for s in p.states}
    return MemoryPlan(
        _shares((kind, n) for v in weights.values() for kind, n in _parts(model.file, v)),
        _shares((_kind(s), s.type.nbytes) for s in states.values()),
        programs,
        model.backend.target,
        model.backend.beside(weights.values(), states.values()),
    )


def _parts(file: ModelFile, weight: Value) -> Iterator[tuple[str, int]]:
    """Kind and bytes of each tensor that a weight is stacked from."""
    for part in weight.parts:
        nbytes = weight.type.dtype.nbytes((part.rows, *weight.type.shape[1:]))
        yield f"{_stored(file, part)} as {weight.type.dtype}", nbytes


def _stored(file: ModelFile, part: Part) -> str:
    return "padding" if part.tensor is None else file.tensors[part.tensor].type


def _kind(state: State) -> str:
    name = state.name.rsplit(".", 1)[-1]
    return f"{name}: {state.discipline} {state.type}"


def _shares(items: Iterator[tuple[str, int]]) -> tuple[Share, ...]:
    """Counts and bytes by kind, largest first."""
    found: dict[str, list[int]] = {}
    for kind, nbytes in items:
        found.setdefault(kind, []).append(nbytes)
    shares = [Share(kind, len(all_bytes), sum(all_bytes)) for kind, all_bytes in found.items()]
    return tuple(sorted(shares, key=lambda share: (-share.nbytes, share.what)))


def _row(share: Share) -> tuple[str, str, str, str]:
    return f"  {share.what}", str(share.count), f"{share.nbytes:,}", size(share.nbytes)
