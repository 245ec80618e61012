"""The command line's arguments and options, as annotated types that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from typer import Argument, Option

from graphrun.core.errors import UsageError

_OfModel = partial(Option, rich_help_panel="Model")
_OfPrompt = partial(Option, rich_help_panel="Prompt")
_OfDrafts = partial(Option, rich_help_panel="Drafts (the text stays the same)")
_OfSampling = partial(Option, rich_help_panel="Sampling")

_NAME = "demo, the path of a GGUF file, or hf:ORG/REPO:FILE (only this form downloads)"
_CONTEXT = "positions a sequence may use; 0 = as trained; else as trained, at most 4096"
_ACTIVATIONS = "exact keeps activations and cache f32: slower, for comparison"
_LOGITS = "write 'position token l0 l1 ...' of each position, one token a step; greedy only"
_STOP = "end before this text; repeatable (a stop token of the model always ends)"

ModelArgument: TypeAlias = Annotated[str | None, Argument(metavar="MODEL", help=_NAME, show_default=False)]
ModelOption: TypeAlias = Annotated[str | None, _OfModel("-m", "--model", metavar="MODEL", help="MODEL as an option")]
Graph: TypeAlias = Annotated[str | None, _OfModel(metavar="GRAPH", help="graph or graph file; else the model's own")]
_BACKEND = "what to run on: hip (AMD), cuda (NVIDIA), native, numpy; auto = the first that works here"
Backend: TypeAlias = Annotated[str, _OfModel(metavar="NAME", help=_BACKEND)]
Threads: TypeAlias = Annotated[
    int | None, _OfModel("-t", "--threads", metavar="N", min=1, max=1024, help="else the usable cores")
]
Context: TypeAlias = Annotated[int | None, _OfModel("-c", "--ctx-size", metavar="N", min=0, help=_CONTEXT)]
Activations: TypeAlias = Annotated[Literal["q8", "exact"], _OfModel(help=_ACTIVATIONS)]

Text: TypeAlias = Annotated[str | None, _OfPrompt("-p", "--prompt", metavar="TEXT", help="the prompt")]
PromptFile: TypeAlias = Annotated[
    Path | None, _OfPrompt("-f", "--file", metavar="FILE", help="a UTF-8 file as prompt, - for stdin")
]
Tokens: TypeAlias = Annotated[str | None, _OfPrompt(metavar="1,2,3", help="token ids as prompt")]
TokensFile: TypeAlias = Annotated[Path | None, _OfPrompt(metavar="FILE", help="a file of token ids as prompt")]
Raw: TypeAlias = Annotated[bool, _OfPrompt("--raw", help="continue the text, even if the model has a chat template")]
System: TypeAlias = Annotated[str | None, _OfPrompt(metavar="TEXT", help="system text of the chat")]

Predict: TypeAlias = Annotated[
    int, Option("-n", "--n-predict", metavar="N", min=-1, help="tokens to generate; -1 = until the model stops")
]
Stop: TypeAlias = Annotated[list[str] | None, Option(metavar="TEXT", help=_STOP)]
IgnoreEos: TypeAlias = Annotated[bool, Option("--ignore-eos", help="go on after a stop token")]
DumpLogits: TypeAlias = Annotated[Path | None, Option(metavar="FILE", help=_LOGITS)]
Ppl: TypeAlias = Annotated[bool, Option("--ppl", help="perplexity of the prompt; generate nothing")]
PplFirst: TypeAlias = Annotated[int, Option(metavar="N", min=0, help="first position that is scored")]

Trace: TypeAlias = Annotated[
    Path | None, Option(metavar="FILE", help="write a step of a GPU's resident kernel, for ui.perfetto.dev")
]
Timed: TypeAlias = Annotated[bool, Option("--profile", help="show where the time went, by kernel; runs slower")]

Temperature: TypeAlias = Annotated[float, _OfSampling(metavar="T", min=0.0, help="0 = greedy: the likeliest token")]
TopK: TypeAlias = Annotated[int, _OfSampling(metavar="K", min=0, help="only the K likeliest; 0 = all")]
TopP: TypeAlias = Annotated[float, _OfSampling(metavar="P", min=0.0, max=1.0, help="only the likeliest with share P")]
MinP: TypeAlias = Annotated[float, _OfSampling(metavar="P", min=0.0, max=1.0, help="only above P times the likeliest")]
RepeatPenalty: TypeAlias = Annotated[float, _OfSampling(metavar="X", help="above 1 disfavours recent tokens; 1 = off")]
RepeatLastN: TypeAlias = Annotated[int, _OfSampling(metavar="N", min=-1, help="how many are recent; -1 = all")]
Seed: TypeAlias = Annotated[int, _OfSampling("-s", "--seed", metavar="N", min=0, help="of the draws")]

Draft: TypeAlias = Annotated[
    int | None,
    _OfDrafts("--draft", metavar="N", help="guess up to N tokens a step (1 to 15), by the model's MTP layer"),
]
DraftPMin: TypeAlias = Annotated[
    float | None,
    _OfDrafts("--draft-pmin", metavar="P", help="only guesses with this probability; else 0.6, DFlash 0.3"),
]
Mtp: TypeAlias = Annotated[str | None, _OfDrafts(metavar="FILE", help="guess with the MTP layer of this file")]
Dflash: TypeAlias = Annotated[str | None, _OfDrafts(metavar="FILE", help="guess with this DFlash 2 file")]
Lookup: TypeAlias = Annotated[
    bool, _OfDrafts("--lookup", help="guess what followed the same tokens before; works for every model")
]

Step: TypeAlias = Annotated[str, Option(metavar="NAME", help="a step of the graph")]
StepTokens: TypeAlias = Annotated[
    int | None, Option("--tokens", metavar="N", min=1, help="tokens of the step; else the most it takes")
]
Layer: TypeAlias = Annotated[int | None, Option(metavar="N", min=0, help="one layer only")]
Stage: TypeAlias = Annotated[str, Option(metavar="NAME", help="spec, graph, a pass, or program")]
Json: TypeAlias = Annotated[bool, Option("--json", help="as JSON")]
Dot: TypeAlias = Annotated[bool, Option("--dot", help="as a Graphviz graph of what waits for what")]
Cost: TypeAlias = Annotated[bool, Option("--cost", help="add bytes, operations and roofline time of each call")]
Timeline: TypeAlias = Annotated[bool, Option("--timeline", help="draw the arena over the step as text")]
Svg: TypeAlias = Annotated[Path | None, Option(metavar="FILE", help="draw the arena over the step to a file")]

Against: TypeAlias = Annotated[str | None, Option(metavar="NAME", help="the other device")]
AgainstActivations: TypeAlias = Annotated[Literal["q8", "exact"] | None, Option(help="the other run's activations")]
AsWritten: TypeAlias = Annotated[bool, Option("--raw", help="against the graph as written, before any pass, on numpy")]
Rtol: TypeAlias = Annotated[
    float | None, Option(metavar="X", min=0.0, help="largest difference, to the largest value; else the op's")
]
Until: TypeAlias = Annotated[str | None, Option(metavar="OP", help="nothing after the first call of this op or kernel")]

GraphArgument: TypeAlias = Annotated[str, Argument(metavar="GRAPH", help="a graph's name, or a graph file")]
Time: TypeAlias = Annotated[bool, Option("--time", help="show how long the checks take")]
OpArgument: TypeAlias = Annotated[str | None, Argument(metavar="NAME", help="an op", show_default=False)]
Tensors: TypeAlias = Annotated[bool, Option("--tensors", help="list every tensor")]

PromptSizes: TypeAlias = Annotated[str, Option("-p", "--n-prompt", metavar="N,...", help="prompts of so many tokens")]
GeneratedSizes: TypeAlias = Annotated[str, Option("-n", "--n-gen", metavar="N,...", help="so many generated tokens")]
Pairs: TypeAlias = Annotated[list[str] | None, Option("-pg", metavar="PP,TG", help="a prompt, then generated tokens")]
Repetitions: TypeAlias = Annotated[
    int, Option("-r", "--repetitions", metavar="N", min=1, max=1000, help="of each test")
]
TableForm: TypeAlias = Annotated[str, Option("-o", "--output", metavar="FORM", help="md, csv, json or jsonl")]


def one_model(argument: str | None, option: str | None) -> str:
    """The model named in either way; raises UsageError."""
    if (argument is None) == (option is None):
        raise UsageError("name one model, as MODEL or with -m", 'graphrun run demo -p "Hello"')
    name = argument if argument is not None else option
    if not name:
        raise UsageError("the name of the model is empty")
    return name


def at_most_one_model(argument: str | None, option: str | None) -> str | None:
    """The model named in either way, None if there is none; raises UsageError."""
    return None if argument is None and option is None else one_model(argument, option)


def one_form(json: bool, dot: bool) -> str:
    """The form of a dump; raises UsageError for two."""
    if json and dot:
        raise UsageError("give one of --json and --dot")
    return "json" if json else "dot" if dot else "text"


def numbers(text: str) -> list[int]:
    """The whole numbers of a list like 128,512; raises UsageError."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"'{text}' is not a list of whole numbers", "128,512 is one") from None


def pairs(texts: Sequence[str]) -> list[tuple[int, int]]:
    """The two numbers of each text like 512,128; raises UsageError."""
    found = [numbers(text) for text in texts]
    if any(len(pair) != 2 for pair in found):
        raise UsageError("-pg takes two numbers", "-pg 512,128 is a prompt of 512 tokens, then 128 generated ones")
    return [(pair[0], pair[1]) for pair in found]
