"""Commands about the machine: what it offers, and how fast a model runs on it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from graphrun import options
from graphrun.bench import bench as measure
from graphrun.bench import settings, turn
from graphrun.bench_table import known_form, table
from graphrun.console import FAILED, printable
from graphrun.doctor import findings, healthy
from graphrun.loading import load, opened
from graphrun.profile import profiled
from graphrun.progress import Bar

VerifySizes: TypeAlias = Annotated[
    str, typer.Option("--verify", metavar="N,...", help="steps that verify so many drafted tokens")
]


def bench(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    n_prompt: options.PromptSizes = "512",
    n_gen: options.GeneratedSizes = "128",
    pg: options.Pairs = None,
    verify: VerifySizes = "",
    repetitions: options.Repetitions = 5,
    output: options.TableForm = "md",
    profile: options.Timed = False,
    graph: options.Graph = None,
    backend: options.Backend = "auto",
    threads: options.Threads = None,
    ctx_size: options.Context = None,
    activations: options.Activations = "q8",
) -> None:
    """Measure tokens a second of prompts and of generated tokens, once a short text was found to be numpy's."""
    name = options.one_model(model, model_option)
    wanted = settings(
        options.numbers(n_prompt), options.numbers(n_gen), options.pairs(pg or ()), options.numbers(verify)
    )
    known_form(output)
    loaded = opened(name, graph, backend, threads, ctx_size, activations)
    load(loaded)
    with Bar("measuring") as bar:
        report = measure(loaded, wanted, repetitions, bar)
    print(table(report, output))
    if profile:
        with profiled(loaded):
            for setting in wanted:
                turn(loaded, setting)


def doctor() -> None:
    """Check what this machine offers: compiler, kernels, and a product on each; exit code 1 if native cannot run."""
    found = []
    for finding in findings():
        print(printable(str(finding)))
        found.append(finding)
    if not healthy(found):
        raise typer.Exit(FAILED)
