"""The graphrun command."""

from __future__ import annotations

from typing import Annotated

import typer

from graphrun import __version__, options
from graphrun.answer import answer
from graphrun.check import mistakes
from graphrun.console import FAILED, Commands, complain, printable, replacing, use_any_encoding
from graphrun.core.gguf import ModelFile
from graphrun.diff import TOKENS, counterpart
from graphrun.diff import diff as compare
from graphrun.drafting import Drafting
from graphrun.hub import resolve
from graphrun.info import describe
from graphrun.kernel_report import kernels
from graphrun.lint import lint as findings
from graphrun.loading import load, opened
from graphrun.machine import bench, doctor
from graphrun.opdoc import explain, overview
from graphrun.plan import memory_plan
from graphrun.prompt import Prompt
from graphrun.proved import Record
from graphrun.repl import Conversation, talk
from graphrun.sampling import Sampling
from graphrun.stages import stage_text
from graphrun.timeline import timeline_svg, timeline_text
from graphrun.timing import Timing
from graphrun.verify import certificate

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run language models whose architectures are graph files.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"graphrun {__version__}")
        raise typer.Exit


@app.callback()
def graphrun(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    pass


@app.command(help="Answer a prompt (with a chat template in the file) or continue it; greedy unless --temp says else.")
def run(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    prompt: options.Text = None,
    file: options.PromptFile = None,
    tokens: options.Tokens = None,
    tokens_file: options.TokensFile = None,
    raw: options.Raw = False,
    system: options.System = None,
    n_predict: options.Predict = 128,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    temp: options.Temperature = 0.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    repeat_penalty: options.RepeatPenalty = 1.0,
    repeat_last_n: options.RepeatLastN = 64,
    seed: options.Seed = 1,
    draft: options.Draft = None,
    draft_pmin: options.DraftPMin = None,
    mtp: options.Mtp = None,
    dflash: options.Dflash = None,
    lookup: options.Lookup = False,
    dump_logits: options.DumpLogits = None,
    ppl: options.Ppl = False,
    ppl_first: options.PplFirst = 0,
    profile: options.Timed = False,
    trace: options.Trace = None,
    graph: options.Graph = None,
    backend: options.Backend = "auto",
    threads: options.Threads = None,
    ctx_size: options.Context = None,
    activations: options.Activations = "q8",
) -> None:
    more = Drafting(draft, draft_pmin, mtp, dflash, lookup), ppl_first if ppl else None, Timing(profile, trace)
    sampling = Sampling(temp, top_k, top_p, min_p, repeat_penalty, repeat_last_n, seed)
    loaded = opened(options.one_model(model, model_option), graph, backend, threads, ctx_size, activations)
    ids = Prompt.given(prompt, file, tokens, tokens_file).encode(loaded, raw=raw or ppl, special=not ppl, system=system)
    answer(loaded, ids, n_predict, sampling, stop or (), ignore_eos, dump_logits, *more)


@app.command()
def chat(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    system: options.System = None,
    n_predict: options.Predict = -1,
    temp: options.Temperature = 0.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    repeat_penalty: options.RepeatPenalty = 1.0,
    repeat_last_n: options.RepeatLastN = 64,
    seed: options.Seed = 1,
    draft: options.Draft = None,
    draft_pmin: options.DraftPMin = None,
    mtp: options.Mtp = None,
    dflash: options.Dflash = None,
    lookup: options.Lookup = False,
    graph: options.Graph = None,
    backend: options.Backend = "auto",
    threads: options.Threads = None,
    ctx_size: options.Context = None,
    activations: options.Activations = "q8",
) -> None:
    """Talk with a model; Ctrl-C stops an answer, /clear starts anew, /exit or Ctrl-D ends."""
    name = options.one_model(model, model_option)
    drafting = Drafting(draft, draft_pmin, mtp, dflash, lookup)
    sampling = Sampling(temp, top_k, top_p, min_p, repeat_penalty, repeat_last_n, seed)
    loaded = opened(name, graph, backend, threads, ctx_size, activations)
    conversation = Conversation(loaded, sampling, n_predict, system, drafting)
    load(loaded)
    talk(conversation)


@app.command()
def dump(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    step: options.Step = "decode",
    tokens: options.StepTokens = None,
    layer: options.Layer = None,
    stage: options.Stage = "program",
    as_json: options.Json = False,
    as_dot: options.Dot = False,
    cost: options.Cost = False,
    graph: options.Graph = None,
    backend: options.Backend = "numpy",
    ctx_size: options.Context = None,
    activations: options.Activations = "q8",
) -> None:
    """Show a step's program, or the step before or after any pass; reads only the file's header."""
    name = options.one_model(model, model_option)
    form = options.one_form(as_json, as_dot)
    header = opened(name, graph, backend, None, ctx_size, activations)
    print(stage_text(header, step, tokens, stage=stage, layer=layer, cost=cost, form=form, graph=graph).rstrip("\n"))


@app.command()
def plan(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    step: options.Step = "decode",
    tokens: options.StepTokens = None,
    timeline: options.Timeline = False,
    svg: options.Svg = None,
    graph: options.Graph = None,
    backend: options.Backend = "numpy",
    ctx_size: options.Context = None,
    activations: options.Activations = "q8",
) -> None:
    """Show the memory a model takes of a device, before any weight is read; exit code 1 if it does not fit."""
    header = opened(options.one_model(model, model_option), graph, backend, None, ctx_size, activations)
    memory = memory_plan(header)
    print(memory)
    if timeline:
        print(f"\n{timeline_text(header.program(step, tokens))}")
    if svg is not None:
        with replacing(svg) as file:
            file.write(timeline_svg(header.program(step, tokens)))
    if not memory.fits:
        raise typer.Exit(FAILED)


@app.command()
def check(graph: options.GraphArgument, model: options.ModelArgument = None) -> None:
    """Look for mistakes in a graph file, and in how it fits a model; exit code 1 if there are any."""
    found = mistakes(graph, resolve(model) if model is not None else None)
    for mistake in found:
        complain(mistake)
    if found:
        raise typer.Exit(FAILED)
    print("ok")


@app.command()
def lint(graph: options.GraphArgument, model: options.ModelArgument = None) -> None:
    """Look for what a graph file does not need: unread weights, dead values, unreachable steps; exit code 1 if any."""
    found = findings(graph, resolve(model) if model is not None else None)
    for finding in found:
        print(printable(str(finding)))
    if found:
        raise typer.Exit(FAILED)
    print("ok")


@app.command()
def diff(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    against: options.Against = None,
    against_activations: options.AgainstActivations = None,
    raw: options.AsWritten = False,
    step: options.Step = "decode",
    layer: options.Layer = None,
    until: options.Until = None,
    rtol: options.Rtol = None,
    prompt: options.Text = None,
    file: options.PromptFile = None,
    tokens: options.Tokens = None,
    tokens_file: options.TokensFile = None,
    graph: options.Graph = None,
    backend: options.Backend = "numpy",
    threads: options.Threads = None,
    ctx_size: options.Context = None,
    activations: options.Activations = "q8",
) -> None:
    """Run a model in two ways and show the first call that makes something else; exit code 1 if there is one."""
    name = options.one_model(model, model_option)
    ids = (
        Prompt.given(prompt, file, tokens, tokens_file)
        if prompt or file or tokens or tokens_file
        else Prompt(ids=TOKENS)
    )
    loaded = opened(name, graph, backend, threads, ctx_size, activations)
    other = counterpart(loaded, against, threads, against_activations, raw)
    report = compare(loaded, other, step=step, tokens=ids.encode(loaded, raw=True), rtol=rtol, layer=layer, until=until)
    print(printable(str(report)))
    if report.difference is not None:
        raise typer.Exit(FAILED)


@app.command()
def verify(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    graph: options.Graph = None,
    backend: options.Backend = "numpy",
    ctx_size: options.Context = None,
    activations: options.Activations = "q8",
    time: options.Time = False,
) -> None:
    """Show what is proved of the core and check every program of a model; exit code 1 if the core was changed since.

    Reads only the file's header. Without a model, only what is proved is shown.
    """
    name = options.at_most_one_model(model, model_option)
    header = None if name is None else opened(name, graph, backend, None, ctx_size, activations)
    print(certificate(header, timed=time))
    if not Record.read().holds:
        raise typer.Exit(FAILED)


@app.command()
def ops(name: options.OpArgument = None) -> None:
    """List the ops of graph files, or explain one."""
    print(overview() if name is None else explain(name))


@app.command()
def info(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    tensors: options.Tensors = False,
) -> None:
    """Show what a model file holds and what its tensors become."""
    with ModelFile.open(resolve(options.one_model(model, model_option))) as file:
        print(describe(file, every_tensor=tensors))


app.command()(bench)
app.command()(doctor)
app.command()(kernels)


def main() -> None:
    """The command as a program."""
    use_any_encoding()
    app()
