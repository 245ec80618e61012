"""The first call whose result differs between two backends, two modes of activation, or a plan and its graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphrun import backends
from graphrun.core.errors import GraphError, UsageError, did_you_mean
from graphrun.model import LARGEST_CHUNK, Activations, Model
from graphrun.trace import AsWritten, Key, Made, Place, Planned, Run, Trace

A = np.ndarray[Any, Any]
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True, eq=False)
class Difference:
    """Two values that should be equal; `absolute` is the largest difference, `relative` to the largest value."""

    place: Place
    name: str
    pos: int
    tokens: int
    titles: tuple[str, str]
    absolute: float
    relative: float
    rtol: float
    where: tuple[int, ...]
    values: tuple[float, float]

    def __str__(self) -> str:
        place = self.place
        head = f"call {place.index}, {place.label} of {place.scope or 'the head'}, makes another {self.name}"
        at = ", ".join(map(str, self.where))
        positions = (
            f"position {self.pos}" if self.tokens == 1 else f"positions {self.pos} to {self.pos + self.tokens - 1}"
        )
        (one, two), (first, second) = self.values, self.titles
        return "\n".join(
            [
                str(GraphError(place.span, f"at {positions}, {head}")),
                f"  {first}: {self.name}[{at}] = {one:.9g}; {second}: {two:.9g}",
                f"  largest difference {self.absolute:.3g}, {self.relative:.2g} of the largest value; "
                f"tolerance {self.rtol:.2g}",
            ]
        )


@dataclass
class Report:
    """How far two runs agree: steps, calls and values compared, and the first difference if there is one."""

    titles: tuple[str, str]
    steps: int = 0
    calls: int = 0
    values: int = 0
    largest: float = 0.0
    difference: Difference | None = None

    def __str__(self) -> str:
        if self.difference is not None:
            return str(self.difference)
        equal = (
            "every value is the same" if self.largest == 0 else f"the largest relative difference is {self.largest:.2g}"
        )
        counts = f"{self.values} values of {self.calls} calls in {self.steps} step{'s' * (self.steps != 1)}"
        return f"{self.titles[0]} and {self.titles[1]} agree: {counts} compared, {equal}"


def diff(
    model: Model,
    against: Model | None = None,
    *,
    step: str = "decode",
    tokens: Sequence[int] = TOKENS,
    rtol: float | None = None,
    layer: int | None = None,
    until: str | None = None,
) -> Report:
    """Run `tokens` from position 0 in steps of one kind, as many tokens in each as it takes, until a call differs.

    The other run is of the same file by another model object, or without one the graph as written, before any pass.
    A value differs if the largest difference exceeds `rtol` times the largest value; by default that is the op's
    tolerance, and 0 against the graph as written. `layer` compares this layer only, `until` ends each step's
    comparison after the first call with that op or kernel. Other inputs than tokens are random, always the same.
    Raises UsageError for tokens, a layer or an op that do not exist; GraphError for a step that the model has not.
    """
    _check(model, step, tokens)
    report: Report | None = None
    for run, one, other in _steps(model, against, step, tokens):
        _check_bounds(one, layer, until)
        report = report or Report((one.title, other.title))
        _compare(report, one, other, run, 0.0 if against is None and rtol is None else rtol, layer, until)
        if report.difference is not None:
            break
    assert report is not None
    if not report.values:
        raise UsageError(f"{report.titles[0]} and {report.titles[1]} have no value in common there")
    return report


def counterpart(
    model: Model, backend: str | None, threads: int | None, activations: Activations | None, raw: bool
) -> Model | None:
    """The model of the same file on another backend or with other activations; None for the graph as written.

    Raises UsageError where nothing differs, or where both are asked for.
    """
    if raw:
        if backend is not None or activations is not None:
            raise UsageError("--raw is the graph as written; it goes without --against and --against-activations")
        return None
    if backend is None and activations is None:
        raise UsageError("against what?", "give --against BACKEND, --against-activations exact, or --raw")
    return Model(
        model.file,
        model.spec,
        model.backend if backend is None else backends.open(backend, threads=threads),
        context=model.context,
        activations=activations or ("exact" if model.exact else "q8"),
        rollback=model.rollback,
        ops=model.ops,
    )


def _check(model: Model, step: str, tokens: Sequence[int]) -> None:
    model.graph(step, model.spec.steps[step].tokens.low if step in model.spec.steps else None)
    vocabulary = model.vocabulary if model.has("decode") else model.params.get("n_vocab", 0)
    for token in tokens:
        if not 0 <= token < int(vocabulary):
            raise UsageError(f"there is no token {token}: the vocabulary has {vocabulary}")
    if len(tokens) > model.context:
        raise UsageError(f"{len(tokens)} tokens do not fit the context of {model.context}")
    if len(tokens) < model.spec.steps[step].tokens.low:
        raise UsageError(f"step {step} takes {model.spec.steps[step].tokens} tokens, not {len(tokens)}")


def _steps(
    model: Model, against: Model | None, step: str, tokens: Sequence[int]
) -> Iterator[tuple[Run, Planned, Trace]]:
    """Every step; tokens at the end that are too few for one are left out."""
    allowed, pos, slot = model.spec.steps[step].tokens, 0, 0
    rng = np.random.default_rng(0)
    known: dict[int, tuple[Planned, Trace]] = {}
    written: AsWritten | None = None
    while pos + allowed.low <= len(tokens):
        count = min(allowed.high, LARGEST_CHUNK, len(tokens) - pos)
        if count not in known:
            program = model.program(step, count)
            if against is None:
                written = AsWritten(model, program, written)
                known[count] = Planned(model, program), written
            else:
                known[count] = Planned(model, program), Planned(against, against.program(step, count))
        one, two = known[count]
        shapes = {n: v.type.shape for n, v in one.program.inputs.items() if n not in ("tokens", "pos", "slot")}
        given = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        yield Run(tokens[pos : pos + count], pos, slot, given), one, two
        pos, slot = pos + count, (slot + count - 1) % model.rollback


def _check_bounds(one: Planned, layer: int | None, until: str | None) -> None:
    places = [place for place, _ in one.plan if layer is None or _layer(place) == layer]
    if not places:
        raise UsageError(f"there is no layer {layer} in {one.program.name}")
    names = {name for place in places for name in place.names}
    if until is not None and until not in names:
        hint = did_you_mean(until, names) or f"its ops and kernels: {', '.join(sorted(names))}"
        raise UsageError(f"no call of {one.program.name} has the op '{until}'", hint)


def _layer(place: Place) -> int | None:
    first = place.scope.split(".", 1)[0]
    return int(first) if first.isdigit() else None


def _compare(
    report: Report, one: Planned, other: Trace, run: Run, rtol: float | None, layer: int | None, until: str | None
) -> None:
    """One step on both; values of the other run wait until their counterparts are made."""
    waiting: dict[Key, A] = {}
    others = other.run(run)
    report.steps += 1
    done = False
    for place, made in one.run(run):
        if done or (layer is not None and _layer(place) != layer):
            continue
        before = report.values
        for value in made:
            if (match := _match(value.key, other.keys)) is None:
                continue
            while match not in waiting:
                waiting |= {m.key: m.array for m in next(others)[1]}
            limit = place.rtol if rtol is None else rtol
            difference = _difference(place, value, waiting[match], run, report, limit)
            if difference is not None:
                report.difference, done = difference, True
                break
        report.calls += report.values > before
        done = done or until in place.names
    for _ in others:
        pass


def _match(key: Key, theirs: frozenset[Key]) -> Key | None:
    """The other run's value to compare with: the same, or that which it only has rounded, or never rounds."""
    number, rounded = key
    return next((k for k in (key, (number, not rounded)) if k in theirs), None)


def _difference(place: Place, value: Made, other: A, run: Run, report: Report, rtol: float) -> Difference | None:
    a, b = value.array.astype(np.float64), other.astype(np.float64).reshape(value.array.shape)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        delta = np.where(same, 0.0, np.abs(a - b))
    delta = np.where(np.isnan(delta), np.inf, delta)
    finite = np.abs(b[np.isfinite(b)])
    largest, scale = float(delta.max(initial=0.0)), float(finite.max(initial=0.0))
    relative = largest / scale if scale else np.inf if largest else 0.0
    report.values += 1
    report.largest = max(report.largest, relative)
    if relative <= rtol:
        return None
    where = tuple(int(i) for i in np.unravel_index(int(delta.argmax()), delta.shape))
    values = (float(a[where]), float(b[where]))
    return Difference(
        place, value.name, run.pos, len(run.tokens), report.titles, largest, relative, rtol, where, values
    )
