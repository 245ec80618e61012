"""Generation on the command line: text streamed to stdout, what it took to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from graphrun.console import Stream, printable, replacing
from graphrun.core.errors import UsageError
from graphrun.drafting import NO_DRAFTS, Drafting
from graphrun.generate import Generation
from graphrun.loading import load
from graphrun.logits import RecordingSession
from graphrun.model import Model
from graphrun.perplexity import perplexity
from graphrun.progress import Bar
from graphrun.prompt import has_tokenizer, joined
from graphrun.sampling import Sampling
from graphrun.timing import NO_TIMING, Timing


def answer(
    model: Model,
    ids: Sequence[int],
    max_tokens: int,
    sampling: Sampling,
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    logits: Path | None = None,
    drafting: Drafting = NO_DRAFTS,
    scored: int | None = None,
    timing: Timing = NO_TIMING,
) -> None:
    """Stream the continuation of `ids`, writing the logits of every position to a file if one is named.

    With `scored`, print their perplexity from that position on instead.
    `max_tokens` -1 means until the model stops or the context is full. Without a tokenizer the ids are printed.
    """
    if scored is not None:
        return score(model, ids, scored, timing)
    if logits is not None and sampling.temp > 0:
        raise UsageError("--dump-logits goes with greedy decoding only", "leave --temp away")
    if logits is not None and drafting.wanted:
        raise UsageError("--dump-logits runs one token a step", "leave drafts away")
    drafted = drafting.session(model)
    load(model)
    with ExitStack() as stack:
        stack.enter_context(timing.of(model))
        session = drafted if logits is None else RecordingSession(model, stack.enter_context(replacing(logits)))
        bar = stack.enter_context(Bar("reading the prompt"))
        count = model.context if max_tokens < 0 else max_tokens
        ids_only = not has_tokenizer(model.file)
        generation = Generation(session, ids, count, sampling, stop, bar, ignore_eos or ids_only)
        if ids_only:
            print(f"ids: {joined(list(generation.tokens()))}")
        else:
            stream(generation)
    notes(model)
    print(generation.speed, file=sys.stderr)


def stream(generation: Generation, shown: list[str] | None = None) -> None:
    """Show the text of a generation as it comes, and add its pieces to `shown`."""
    with Stream() as show:
        for piece in generation:
            show(piece)
            if shown is not None:
                shown.append(piece)


def score(model: Model, ids: Sequence[int], first: int, timing: Timing) -> None:
    """Print the perplexity of token ids."""
    load(model)
    with timing.of(model), Bar("scoring") as bar:
        result = perplexity(model.session(), ids, first, bar)
    print(result)
    notes(model)


def notes(model: Model) -> None:
    """What the user should know of the tokenizer and the device, on stderr."""
    doubts = model.tokenizer.warnings if has_tokenizer(model.file) else ()
    for note in (*doubts, *model.runner.notes):
        print(f"note: {printable(note)}", file=sys.stderr)
