"""This engine and llama.cpp on the same files, measured in turns: python -m graphrun.peer MODEL... [-t N,...]."""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphrun import backends
from graphrun.bench import Row, Setting, check, read_limit
from graphrun.bench_table import markdown, share
from graphrun.console import complain
from graphrun.core.errors import GraphrunError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.hub import resolve
from graphrun.loading import load
from graphrun.model import Model, graph_of
from graphrun.options import numbers
from graphrun.progress import Bar

HEAD = ("model", "threads", "test", "graphrun t/s", "llama.cpp t/s", "ratio", "least", "most", "GB/s", "of limit")
MOST_THREADS = 512  # llama.cpp's GGML_MAX_N_THREADS


class Engine(Protocol):
    """Runs tokens from an empty sequence, together or one at a time."""

    def run(self, tokens: Sequence[int], single: bool) -> None: ...


@dataclass(frozen=True)
class Comparison:
    """Tokens a second of each turn on both engines; the read limit around each turn is `limits`, where known."""

    setting: Setting
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    weight_bytes: int = 0
    limits: tuple[float, ...] = ()
    ratios: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratios", tuple(a / b for a, b in zip(self.ours, self.theirs, strict=True)))

    def cells(self) -> list[str]:
        """The row of a table, from its test on: medians, and the ratios of turns."""
        speeds = [f"{statistics.median(found):.1f}" for found in (self.ours, self.theirs)]
        ratios = [f"{pick(self.ratios):.2f}" for pick in (statistics.median, min, max)]
        return [
            str(self.setting),
            *speeds,
            *ratios,
            *share(Row(self.setting, self.ours, self.weight_bytes, self.limits)),
        ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table of all models and thread counts, once graphrun's tokens were found to be numpy's."""
    parser = argparse.ArgumentParser(prog="python -m graphrun.peer", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="demo, or the path of a GGUF file")
    parser.add_argument("-p", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("-n", type=int, default=128, help="tokens that are generated")
    parser.add_argument("-t", default="1,2", metavar="N,...", help="threads of both engines")
    parser.add_argument("-r", type=int, default=5, help="turns")
    given = parser.parse_args(arguments)
    try:
        threads = numbers(given.t)
        settings = [s for s in (Setting(given.p, 0), Setting(0, given.n)) if s.length > 0]
        if not settings or not threads or min(threads) < 1 or max(threads) > MOST_THREADS or given.r < 1:
            raise UsageError("nothing to measure", "-p 512 -n 128 -t 1,2 -r 5 measures as usual")
        rows = list(table_rows([Path(resolve(name)) for name in given.models], threads, settings, given.r))
    except GraphrunError as error:
        complain(error)
        sys.exit(1)
    print(markdown(HEAD, rows, 3))
    print("\nmedians; ratio: median, least and largest of a turn's; limit: median share of plain reading around a turn")


def table_rows(
    paths: Sequence[Path], threads: Sequence[int], settings: Sequence[Setting], turns: int
) -> Iterator[list[str]]:
    """The rows of every model and thread count."""
    for path in paths:
        file = ModelFile.open(path)
        length = max(s.length for s in settings)
        for number, count in enumerate(threads):
            device = backends.open("native", threads=count)
            model = Model(file, graph_of(file, None), device, context=length if number else max(length, 64))
            load(model)
            if not number:
                check(model)
            with closing(LlamaCpp(path, count, length)) as theirs:
                for setting in settings:
                    found = compare(model, theirs, setting, turns)
                    yield [path.stem, str(count), *found.cells()]


def compare(model: Model, theirs: Engine, setting: Setting, turns: int) -> Comparison:
    """Both engines in turns, after a first one that warms up; generation lies between samples of the read limit."""
    single = setting.generated > 0
    rng = np.random.default_rng(0)
    tokens = [int(t) for t in rng.integers(0, model.vocabulary, setting.length)]
    limit: Callable[[], float | None] = (lambda: read_limit(model.backend)) if single else lambda: None
    engines: tuple[Engine, ...] = (Graphrun(model), theirs)
    speeds: list[list[float]] = [[] for _ in engines]
    limits: list[float] = []
    with Bar(f"{setting}, {model.file.path.stem}") as bar:
        for turn in range(turns + 1):
            before = limit()
            found = []
            for engine in engines:
                begin = time.perf_counter()
                engine.run(tokens, single)
                found.append(len(tokens) / (time.perf_counter() - begin))
            after = limit()
            if turn:
                for one, speed in zip(speeds, found, strict=True):
                    one.append(speed)
                limits += [(before + after) / 2] if before and after else []
            bar(turn + 1, turns + 1)
    nbytes = model.program("decode").weight_bytes
    return Comparison(setting, tuple(speeds[0]), tuple(speeds[1]), nbytes, tuple(limits))


@dataclass(frozen=True)
class Graphrun:
    """Prefill or decode from an empty sequence."""

    model: Model

    def run(self, tokens: Sequence[int], single: bool) -> None:
        session = self.model.session()
        if not single:
            session.prefill(tokens)
        for token in tokens if single else ():
            session.decode(token)


class PoolParams(ctypes.Structure):
    """llama.cpp's ggml_threadpool_params."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * MOST_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


class LlamaCpp:
    """The same through llama-cpp-python, with threads that stay, as those of llama-bench do.

    Raises UsageError if the package is not installed, or if llama.cpp cannot load the file.
    """

    def __init__(self, path: Path, threads: int, context: int) -> None:
        try:
            import llama_cpp as api
        except ImportError:
            raise UsageError("llama-cpp-python is not installed", "make peer installs and runs it") from None
        self.lib: Any = api
        self.raw: Any = api.llama_cpp._lib  # functions of libggml too
        self.model: Any = None
        self.session: Any = None
        self.pool: Any = None
        self.silent = api.llama_log_callback(lambda *_: None)
        self.lib.llama_log_set(self.silent, ctypes.c_void_p(0))
        self.lib.llama_backend_init()
        wanted = self.lib.llama_model_default_params()
        wanted.n_gpu_layers = 0
        self.model = self.lib.llama_model_load_from_file(str(path).encode(), wanted)
        options = self.lib.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = context, max(context, 512), 512
        options.n_threads = options.n_threads_batch = threads
        self.session = self.lib.llama_init_from_model(self.model, options) if self.model else None
        if not self.session:
            self.close()
            raise UsageError(f"llama.cpp cannot load {path}")
        self._keep_threads(threads)

    def _keep_threads(self, threads: int) -> None:
        """Without a pool of its own a context starts and ends its threads at every step."""
        params = PoolParams()
        self.raw.ggml_threadpool_params_init(ctypes.byref(params), threads)
        self.raw.ggml_threadpool_new.restype = ctypes.c_void_p
        pool = self.raw.ggml_threadpool_new(ctypes.byref(params))
        self.pool = ctypes.c_void_p(pool)
        self.raw.llama_attach_threadpool(ctypes.c_void_p(self._address(self.session)), self.pool, self.pool)

    @staticmethod
    def _address(pointer: Any) -> int | None:
        return pointer if isinstance(pointer, int) else ctypes.cast(pointer, ctypes.c_void_p).value

    def run(self, tokens: Sequence[int], single: bool) -> None:
        """Raises UsageError where llama.cpp fails."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.session), True)
        step = 1 if single else len(tokens)
        for start in range(0, len(tokens), step):
            array = (ctypes.c_int32 * step)(*tokens[start : start + step])
            if self.lib.llama_decode(self.session, self.lib.llama_batch_get_one(array, step)):
                raise UsageError(f"llama.cpp cannot run {step} tokens")
            self.lib.llama_synchronize(self.session)
        self.raw.ggml_threadpool_pause(self.pool)  # until the next step, so that no thread of it waits busily

    def close(self) -> None:
        """Free what was loaded."""
        if self.session:
            self.lib.llama_free(self.session)
        if self.pool:
            self.raw.ggml_threadpool_free(self.pool)
        if self.model:
            self.lib.llama_model_free(self.model)


if __name__ == "__main__":
    main()
