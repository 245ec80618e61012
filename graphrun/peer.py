"""This engine and llama.cpp on one file, measured in turns: python -m graphrun.peer MODEL.gguf [-t N] [-r N]."""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphrun import backends
from graphrun.bench import check
from graphrun.core.errors import UsageError
from graphrun.core.gguf import ModelFile
from graphrun.hub import resolve
from graphrun.model import Model, graph_of

Run = Callable[[Sequence[int], bool], None]  # token ids, and whether one at a time


def main(arguments: Sequence[str] | None = None) -> None:
    """Print tokens a second of both engines and the ratio of each turn's."""
    parser = argparse.ArgumentParser(prog="python -m graphrun.peer", description=__doc__)
    parser.add_argument("model", help="demo, or the path of a GGUF file")
    parser.add_argument("-p", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("-n", type=int, default=128, help="tokens that are generated")
    parser.add_argument("-t", type=int, default=1, help="threads of both engines")
    parser.add_argument("-r", type=int, default=5, help="turns")
    given = parser.parse_args(arguments)
    path = Path(resolve(given.model))
    file = ModelFile.open(path)
    model = Model(file, graph_of(file, None), backends.open("native", threads=given.t), context=given.p + given.n)
    check(model)
    engines: dict[str, Run] = {"graphrun": ours(model), "llama.cpp": theirs(path, given.t, given.p + given.n)}
    rng = np.random.default_rng(0)
    tokens = [int(t) for t in rng.integers(0, model.vocabulary, max(given.p, given.n))]
    for name, count, single in ((f"pp{given.p}", given.p, False), (f"tg{given.n}", given.n, True)):
        print(compare(name, engines, tokens[:count], single, given.r))


def compare(name: str, engines: dict[str, Run], tokens: Sequence[int], single: bool, turns: int) -> str:
    """One line: the medians of both engines, and the median, least and largest ratio of a turn."""
    speeds: dict[str, list[float]] = {engine: [] for engine in engines}
    for turn in range(turns + 1):  # the first one warms up
        for engine, run in engines.items():
            begin = time.perf_counter()
            run(tokens, single)
            if turn:
                speeds[engine].append(len(tokens) / (time.perf_counter() - begin))
    medians = ", ".join(f"{engine} {statistics.median(found):.1f} t/s" for engine, found in speeds.items())
    ratios = [a / b for a, b in zip(*speeds.values(), strict=True)]
    return f"{name}: {medians}, ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def ours(model: Model) -> Run:
    """Prefill or decode from an empty sequence."""

    def run(tokens: Sequence[int], single: bool) -> None:
        session = model.session()
        if not single:
            session.prefill(tokens)
        for token in tokens if single else ():
            session.decode(token)

    return run


def theirs(path: Path, threads: int, context: int) -> Run:
    """The same through llama-cpp-python; raises UsageError if it is not installed."""
    try:
        import llama_cpp as api
    except ImportError:
        raise UsageError("llama-cpp-python is not installed", "pip install llama-cpp-python") from None
    lib: Any = api
    lib.llama_backend_init()
    silent = lib.llama_log_callback(lambda *_: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    wanted = lib.llama_model_default_params()
    wanted.n_gpu_layers = 0
    loaded = lib.llama_model_load_from_file(str(path).encode(), wanted)
    options = lib.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = context, context, 512
    options.n_threads = options.n_threads_batch = threads
    session = lib.llama_init_from_model(loaded, options)
    if not session:
        raise UsageError(f"llama.cpp cannot load {path}")

    def decode(tokens: Sequence[int]) -> None:
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        if lib.llama_decode(session, lib.llama_batch_get_one(array, len(tokens))):
            raise UsageError(f"llama.cpp cannot run {len(tokens)} tokens")
        lib.llama_synchronize(session)

    def run(tokens: Sequence[int], single: bool, keep: object = silent) -> None:
        lib.llama_memory_clear(lib.llama_get_memory(session), True)
        for start in range(0, len(tokens), 1 if single else len(tokens)):
            decode(tokens[start : start + 1] if single else tokens)

    return run


if __name__ == "__main__":
    main()
