"""Speed of a model on a backend, printed only after its tokens were found to be the numpy backend's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphrun import backends
from graphrun.backends.native import NativeBackend
from graphrun.core.errors import ProgramError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.model import Model
from graphrun.planner.certificate import lock
from graphrun.session import CHUNK, Session

CHECKED = 16  # tokens of the greedy check, after as many given ones
READ_BYTES = 1 << 28  # of the memory that the read limit is measured on
Done = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """A prompt of so many tokens, then so many generated ones."""

    prompt: int
    generated: int

    def __str__(self) -> str:
        parts = [f"pp{self.prompt}"] * (self.prompt > 0) + [f"tg{self.generated}"] * (self.generated > 0)
        return "+".join(parts)


@dataclass(frozen=True)
class Row:
    """Tokens a second of every repetition of a setting; `weight_bytes` are read for each generated token."""

    setting: Setting
    speeds: tuple[float, ...]
    weight_bytes: int

    @property
    def median(self) -> float:
        return statistics.median(self.speeds)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.speeds) if len(self.speeds) > 1 else 0.0

    @property
    def bandwidth(self) -> float | None:
        """Bytes of weights a second, of settings that only generate."""
        return None if self.setting.prompt else self.weight_bytes * self.median


@dataclass(frozen=True)
class Report:
    """What was measured, and on what. `limit` is the bytes a second that plain reading reaches, if it is known."""

    model: str
    nbytes: int
    backend: str
    threads: int
    locks: dict[str, str]
    limit: float | None
    rows: tuple[Row, ...] = field(default=())


def settings(prompts: Sequence[int], generated: Sequence[int], both: Sequence[tuple[int, int]]) -> list[Setting]:
    """The settings of the options -p, -n and -pg; zeros are left out. Raises UsageError if none is left."""
    wanted = [Setting(p, 0) for p in prompts] + [Setting(0, n) for n in generated] + [Setting(*pair) for pair in both]
    found = [s for s in wanted if s.prompt or s.generated]
    if not found or any(min(s.prompt, s.generated) < 0 for s in found):
        raise UsageError("nothing to measure", "-p 512 -n 128 measures a prompt of 512 tokens and 128 generated ones")
    return found


def bench(model: Model, wanted: Sequence[Setting], repetitions: int, done: Done | None = None) -> Report:
    """Check the model's tokens, then measure every setting `repetitions` times, in turns.

    Raises ProgramError where the greedy check fails, UsageError for a setting that does not fit the context.
    """
    for setting in wanted:
        if setting.prompt + setting.generated > model.context:
            raise UsageError(f"{setting} does not fit the context of {model.context}", "give a larger one with -c")
    check(model)
    limit = read_limit(model.backend)
    speeds: dict[Setting, list[float]] = {setting: [] for setting in wanted}
    for setting in speeds:
        _run(model, setting)  # binds programs and warms caches
    for count in range(repetitions):
        for setting, found in speeds.items():
            found.append(_run(model, setting))
        if done:
            done(count + 1, repetitions)
    decode = model.program("decode")
    rows = tuple(Row(s, tuple(found), decode.weight_bytes) for s, found in speeds.items())
    return Report(*described(model), locks=locks(model), limit=limit, rows=rows)


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


def read_limit(backend: backends.Backend) -> float | None:
    """Bytes a second that the backend's threads read from memory, the best of some runs; None where unknown."""
    return backend.pool.read_limit(READ_BYTES) if isinstance(backend, NativeBackend) else None


def _run(model: Model, setting: Setting) -> float:
    """Tokens a second of one repetition, from an empty sequence."""
    session = model.session()
    prompt, generated = _tokens(model, setting.prompt), _tokens(model, setting.generated)
    begin = time.perf_counter()
    if prompt:
        session.prefill(prompt)
    for token in generated:
        session.decode(token)
    return (len(prompt) + len(generated)) / (time.perf_counter() - begin)


def _tokens(model: Model, count: int) -> list[int]:
    """Always the same random tokens."""
    rng = np.random.default_rng(0)
    vocabulary = int(model.params.get("n_vocab", model.vocabulary))
    return [int(t) for t in rng.integers(0, vocabulary, count)]


def lines(report: Report) -> Iterator[dict[str, str | int | float]]:
    """One record a row, of plain values."""
    for row in report.rows:
        share = row.bandwidth / report.limit if row.bandwidth and report.limit else None
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
            "share_of_read_limit": round(share, 3) if share else "",
            "lowering": " ".join(f"{step}:{value}" for step, value in report.locks.items()),
        }
