"""Speed of a model on a backend, printed only after its tokens were found to be the numpy backend's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphrun import backends
from graphrun.backends.gpu import GpuRunner
from graphrun.backends.native import NativeBackend
from graphrun.core.errors import ProgramError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model
from graphrun.planner.certificate import lock
from graphrun.session import CHUNK, Session

CHECKED = 16  # tokens of the greedy check, after as many given ones
READ_BYTES = 1 << 28  # of the memory that the read limit is measured on
READS = 3  # of that memory, for one sample of the limit
VERIFIES = 8  # steps of one repetition, with as many decode steps between them
Done = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """A prompt of so many tokens, then so many generated ones; or steps that each verify so many."""

    prompt: int
    generated: int
    verified: int = 0

    def __str__(self) -> str:
        if self.verified:
            return f"verify{self.verified}"
        parts = [f"pp{self.prompt}"] * (self.prompt > 0) + [f"tg{self.generated}"] * (self.generated > 0)
        return "+".join(parts)

    @property
    def length(self) -> int:
        """Positions of the context that one repetition needs."""
        return self.prompt + self.generated + (VERIFIES * (self.verified + 1) if self.verified else 0)


@dataclass(frozen=True)
class Row:
    """Tokens a second of every repetition of a setting; `weight_bytes` are read for each generated token.

    `limits` are the read limits around each repetition, `ratios` the times of a verify step to those of a decode step.
    """

    setting: Setting
    speeds: tuple[float, ...]
    weight_bytes: int
    limits: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.speeds)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.speeds) if len(self.speeds) > 1 else 0.0

    @property
    def bandwidth(self) -> float | None:
        """Bytes of weights a second, of settings that only generate."""
        return self.weight_bytes * self.median if self.setting.generated and not self.setting.prompt else None

    @property
    def share(self) -> float | None:
        """The median share of the read limit; each repetition has its own, since a machine's other load varies."""
        if self.bandwidth is None or not self.limits:
            return None
        return statistics.median(self.weight_bytes * s / m for s, m in zip(self.speeds, self.limits, strict=True))

    @property
    def ratio(self) -> float | None:
        """The time of a verify step, in decode steps."""
        return statistics.median(self.ratios) if self.ratios else None


@dataclass(frozen=True)
class Report:
    """What was measured, and on what. `limit` is the median bytes a second of plain reading, if they are known."""

    model: str
    nbytes: int
    backend: str
    threads: int
    locks: dict[str, str]
    limit: float | None
    rows: tuple[Row, ...] = field(default=())
    barriers: tuple[int, float] | None = None  # of a decode step in one launch, and seconds of each


def settings(
    prompts: Sequence[int],
    generated: Sequence[int],
    both: Sequence[tuple[int, int]],
    verified: Sequence[int] = (),
) -> list[Setting]:
    """The settings of the options -p, -n, -pg and --verify; zeros are left out. Raises UsageError if none is left."""
    wanted = [Setting(p, 0) for p in prompts] + [Setting(0, n) for n in generated] + [Setting(*pair) for pair in both]
    found = [s for s in wanted if s.prompt or s.generated]
    found += [Setting(0, 0, v) for v in verified if v]
    if not found or any(min(s.prompt, s.generated, s.verified) < 0 for s in found):
        raise UsageError("nothing to measure", "-p 512 -n 128 measures a prompt of 512 tokens and 128 generated ones")
    return found


def bench(model: Model, wanted: Sequence[Setting], repetitions: int, done: Done | None = None) -> Report:
    """Check the model's tokens, then measure every setting `repetitions` times, in turns.

    Raises ProgramError where the greedy check fails, UsageError for a setting that does not fit the model.
    """
    for setting in wanted:
        require(model, setting)
    check(model)
    turns: dict[Setting, list[Turn]] = {setting: [] for setting in wanted}
    for setting in turns:
        _run(model, setting)  # binds programs and warms caches
    for count in range(repetitions):
        for setting, found in turns.items():
            found.append(turn(model, setting))
        if done:
            done(count + 1, repetitions)
    nbytes = model.program("decode").weight_bytes
    rows = tuple(_row(setting, found, nbytes) for setting, found in turns.items())
    limits = [limit for row in rows for limit in row.limits]
    limit = statistics.median(limits) if limits else read_limit(model.backend)
    return Report(*described(model), locks=locks(model), limit=limit, rows=rows, barriers=barriers(model))


def require(model: Model, setting: Setting) -> None:
    """Raise UsageError for a setting that the context is too short for, or that no step can run."""
    if setting.length > model.context:
        raise UsageError(f"{setting} does not fit the context of {model.context}", "give a larger one with -c")
    count = setting.verified
    if count and (count > model.rollback or not model.takes("verify", count)):
        raise UsageError(f"{count} tokens cannot be verified at once", f"2 to {model.rollback} can")


@dataclass(frozen=True, slots=True)
class Turn:
    """One repetition: tokens a second, the read limit around it, and a verify step's time to a decode step's."""

    speed: float
    limit: float | None = None
    ratio: float | None = None


def turn(model: Model, setting: Setting) -> Turn:
    """One repetition; where it reads weights token by token, between two samples of the read limit."""
    if setting.prompt or setting.verified:
        return _run(model, setting)
    before = read_limit(model.backend)
    speed = _run(model, setting).speed
    after = read_limit(model.backend)
    return Turn(speed, None if before is None or after is None else (before + after) / 2)


def _row(setting: Setting, turns: Sequence[Turn], weight_bytes: int) -> Row:
    limits = tuple(t.limit for t in turns if t.limit is not None)
    ratios = tuple(t.ratio for t in turns if t.ratio is not None)
    return Row(setting, tuple(t.speed for t in turns), weight_bytes, limits, ratios)


def check(model: Model) -> None:
    """Raise ProgramError unless a short greedy text is the numpy backend's, token by token."""
    other = Model(
        model.file,
        model.spec,
        backends.open("numpy"),
        context=model.context,
        activations="exact" if model.exact else "q8",
        ops=model.ops,
    )
    start = _tokens(model, CHECKED)
    ours, reference = (greedy(m.session(), start, CHECKED) for m in (model, other))
    if ours != reference:
        first = next(i for i, (a, b) in enumerate(zip(ours, reference, strict=True)) if a != b)
        name = model.backend.target.name
        raise ProgramError(
            f"token {first} after the prompt is {ours[first]} on {name}, but {reference[first]} on numpy: "
            "no speed of a wrong result is printed (graphrun diff shows the first call that differs)"
        )


def greedy(session: Session, start: Sequence[int], count: int) -> list[int]:
    """The likeliest tokens after `start`, one after the other."""
    logits, found = session.prefill(start), []
    for _ in range(count):
        found.append(int(np.argmax(logits)))
        logits = session.decode(found[-1])
    return found


def described(model: Model) -> tuple[str, int, str, int]:
    """The model's name, its file's size, the backend with its instruction set, and its threads."""
    file = model.file
    name = str(file.metadata.get("general.name", file.path.stem)) if isinstance(file, ModelFile) else "model"
    backend = model.backend
    if isinstance(backend, NativeBackend):
        return name, file.path.stat().st_size, f"native/{backend.pool.kernels.name}", backend.pool.threads
    threads = getattr(getattr(backend, "workers", None), "threads", 1)
    return name, file.path.stat().st_size, backend.target.name, int(threads)


def locks(model: Model) -> dict[str, str]:
    """The lowering lock of each step that is measured."""
    steps = {"decode": 1, "prefill": min(CHUNK, model.context)}
    return {step: lock(model.program(step, n)) for step, n in steps.items() if model.takes(step, n)}


def barriers(model: Model) -> tuple[int, float] | None:
    """Barriers of a decode step in one launch, and the seconds of one alone; None without a resident kernel."""
    if not isinstance(model.runner, GpuRunner) or model.runner.resident is None:
        return None
    steps = model.runner.bind(model.program("decode")).steps
    return None if steps is None else (steps.barriers, model.runner.resident.barrier_seconds())


def read_limit(backend: backends.Backend) -> float | None:
    """Bytes a second that the backend's threads read from memory, the median of some runs; of a GPU by its clock.

    None where unknown.
    """
    if not isinstance(backend, NativeBackend):
        return backend.target.bandwidth or None
    return statistics.median(backend.pool.read_limit(READ_BYTES, runs=1) for _ in range(READS))


def _run(model: Model, setting: Setting) -> Turn:
    """One repetition, from an empty sequence."""
    if setting.verified:
        return _verify(model, setting.verified)
    session = model.session()
    prompt, generated = _tokens(model, setting.prompt), _tokens(model, setting.generated)
    begin = time.perf_counter()
    if prompt:
        session.prefill(prompt)
    for token in generated:
        session.decode(token)
    return Turn((len(prompt) + len(generated)) / (time.perf_counter() - begin))


def _verify(model: Model, count: int) -> Turn:
    """Steps that verify `count` tokens and keep them all, each after a decode step."""
    session, tokens = model.session(), _tokens(model, count)
    single = several = 0.0
    for _ in range(VERIFIES):
        begin = time.perf_counter()
        session.decode(tokens[0])
        between = time.perf_counter()
        session.verify(tokens)
        session.keep(count)
        several += time.perf_counter() - between
        single += between - begin
    return Turn(VERIFIES * count / several, ratio=several / single)


def _tokens(model: Model, count: int) -> list[int]:
    """Always the same random tokens."""
    rng = np.random.default_rng(0)
    vocabulary = int(model.params.get("n_vocab", model.vocabulary))
    return [int(t) for t in rng.integers(0, vocabulary, count)]


def lines(report: Report) -> Iterator[dict[str, str | int | float]]:
    """One record a row, of plain values."""
    for row in report.rows:
        yield {
            "model": report.model,
            "model_size": report.nbytes,
            "backend": report.backend,
            "threads": report.threads,
            "test": str(row.setting),
            "n_prompt": row.setting.prompt,
            "n_gen": row.setting.generated,
            "median_ts": round(row.median, 3),
            "stddev_ts": round(row.deviation, 3),
            "samples_ts": " ".join(f"{s:.3f}" for s in row.speeds),
            "weights_gb_s": round(row.bandwidth / 1e9, 3) if row.bandwidth else "",
            "share_of_read_limit": round(row.share, 3) if row.share else "",
            "n_verify": row.setting.verified,
            "in_decode_steps": round(row.ratio, 3) if row.ratio else "",
            "lowering": " ".join(f"{step}:{value}" for step, value in report.locks.items()),
        }
