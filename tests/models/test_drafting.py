"""Drafts never change what is generated: neither tokens, nor random numbers, nor what the session has run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import tiny_hybrid
from conftest import GOLDEN
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphrun import load
from graphrun.core.errors import ModelError, UsageError
from graphrun.draft import DFlashDrafter, Drafter, MtpDrafter, Read
from graphrun.drafting import Drafting
from graphrun.generate import Generation
from graphrun.lookup import DFlashWithLookup, Lookup, MtpWithLookup
from graphrun.model import Model
from graphrun.sampling import Sampling
from graphrun.session import Session

MODELS = GOLDEN / "models"
FILES = {"llama": "llama-s.Q4_0", "qwen35": "qwen35-mtp.Q4_0", "k": "qwen35-k.Q4_K_M"}
DFLASH = str(MODELS / "dflash.Q8_0.gguf")
PROMPT = [226, 104, 75, 310, 57, 102, 202]
REPEATED = [5, 6, 7, 8, 9] * 4
SETTINGS = settings(max_examples=12, derandomize=True, deadline=None)
SAMPLINGS = st.builds(
    Sampling,
    temp=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    top_k=st.sampled_from([0, 3, 40]),
    top_p=st.sampled_from([1.0, 0.8]),
    repeat_penalty=st.sampled_from([1.0, 1.0, 1.4]),
    repeat_last_n=st.sampled_from([-1, 3, 64]),
    seed=st.integers(0, 1000),
)


@cache
def model(name: str, context: int = 256) -> Model:
    return load(MODELS / f"{FILES[name]}.gguf", context=context)


@cache
def tapped() -> Model:
    """A model of its own for drafters that read the inputs of its layers."""
    return load(MODELS / "qwen35-mtp.Q4_0.gguf")


class Oracle:
    """Guesses what is known to come, wrong at every `miss`-th guess."""

    def __init__(self, known: Sequence[int], miss: int) -> None:
        self.known, self.miss, self.asked, self.pos = list(known), miss, 0, 0

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None:
        self.pos = start + len(tokens)

    def draft(self, token: int, count: int) -> list[int]:
        self.asked += 1
        ahead = self.known[self.pos + 1 :][:count]
        return [t if (i + self.asked) % self.miss else (t + 1) % 320 for i, t in enumerate(ahead)]


def generated(
    session: Session, prompt: Sequence[int], sampling: Sampling, count: int, stops: frozenset[int], left_at: int = 1000
) -> tuple[tuple[object, ...], Generation]:
    """What must not depend on drafts, and the generation; `left_at` is how many tokens are taken."""
    generation = Generation(session, prompt, count, sampling)
    generation.stop_ids = stops
    with closing(generation.tokens()) as tokens:
        found = list(islice(tokens, left_at))
    state = generation.sampler.generator.state
    return (found, generation.ids, generation.ended, state, session.tokens), generation


def plain_and(
    opened: Model, drafter: Drafter, drafts: int, prompt: Sequence[int], sampling: Sampling, count: int,
    stops: frozenset[int] = frozenset(), left_at: int = 1000,
) -> Generation:  # fmt: skip
    """Check that a drafter changes nothing."""
    expected, _ = generated(opened.session(), prompt, sampling, count, stops, left_at)
    found, generation = generated(Session(opened, drafter, drafts), prompt, sampling, count, stops, left_at)
    assert found == expected
    return generation


@pytest.mark.parametrize("name", ["llama", "qwen35", "k"])
@SETTINGS
@given(data=st.data(), sampling=SAMPLINGS)
def test_right_and_wrong_guesses(name: str, data: st.DataObject, sampling: Sampling) -> None:
    """The length, the end of the context, a stop token or the reader may end it inside an accepted run."""
    opened = model(name, data.draw(st.sampled_from([256, 24]), label="context"))
    count = data.draw(st.integers(0, 28), label="max_tokens")
    (_, known, *_), _ = generated(opened.session(), PROMPT, sampling, 28, frozenset())
    assert isinstance(known, list)
    stops = data.draw(st.one_of(st.just(frozenset[int]()), st.sampled_from(known).map(lambda t: frozenset([t]))))
    oracle = Oracle([*PROMPT, *known], data.draw(st.sampled_from([2, 3, 7, 1000]), label="miss"))
    drafts = data.draw(st.integers(1, 15), label="drafts")
    left_at = data.draw(st.sampled_from([1000, 1, 3, 8]), label="left at")
    plain_and(opened, oracle, drafts, PROMPT, sampling, count, stops, left_at)


def test_right_guesses_take_few_steps() -> None:
    opened = model("qwen35")
    known = generated(opened.session(), PROMPT, Sampling(), 33, frozenset())[1].ids
    for drafts, steps in ((15, 2), (7, 4), (1, 16)):
        generation = plain_and(opened, Oracle([*PROMPT, *known], 1000), drafts, PROMPT, Sampling(), 33)
        assert (generation.steps, generation.accepted, generation.drafted) == (steps, 32 - steps, 32 - steps)
        assert generation.speed.endswith(
            f"drafts {32 - steps} of {32 - steps} accepted, {32 / steps:.2f} tokens a step"
        )


def test_a_stop_token_is_no_draft() -> None:
    """It is chosen, never run, and ends the text although a guess had it right."""
    opened = model("qwen35")
    known = generated(opened.session(), PROMPT, Sampling(), 20, frozenset())[1].ids
    at = next(i for i in range(8, 20) if known[i] not in known[:i])
    generation = plain_and(opened, Oracle([*PROMPT, *known], 1000), 15, PROMPT, Sampling(), 20, frozenset([known[at]]))
    assert generation.ended == "stop token" and generation.ids == known[: at + 1]
    assert generation.session.tokens == [*PROMPT, *known[:at]]
    assert (generation.steps, generation.accepted) == (1, at - 1)


def test_the_context_ends_inside_a_run() -> None:
    opened = model("qwen35", 24)
    known = generated(opened.session(), PROMPT, Sampling(), 100, frozenset())[1].ids
    assert len(known) == 24 - len(PROMPT) + 1
    generation = plain_and(opened, Oracle([*PROMPT, *known, *known], 1000), 15, PROMPT, Sampling(), 100)
    assert generation.ended == "context full" and generation.steps == 2


@pytest.mark.parametrize("kind", ["mtp", "mtp and lookup", "dflash", "dflash and lookup", "lookup"])
@settings(SETTINGS, max_examples=6)
@given(
    sampling=SAMPLINGS,
    drafts=st.integers(1, 15),
    p_min=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    prompt=st.sampled_from([PROMPT, REPEATED, [1]]),
)
@example(sampling=Sampling(), drafts=15, p_min=0.0, prompt=REPEATED)
def test_drafters(kind: str, sampling: Sampling, drafts: int, p_min: float, prompt: list[int]) -> None:
    opened = tapped() if "dflash" in kind else model("qwen35")
    plain_and(opened, drafter_of(kind, opened, p_min), drafts, prompt, sampling, 14)


def drafter_of(kind: str, opened: Model, p_min: float) -> Drafter:
    match kind:
        case "mtp":
            return MtpDrafter(opened, p_min=p_min)
        case "mtp and lookup":
            return MtpWithLookup(MtpDrafter(opened, p_min=p_min), 7)
        case "dflash":
            return DFlashDrafter(opened, DFLASH, p_min)
        case "dflash and lookup":
            return DFlashWithLookup(DFlashDrafter(opened, DFLASH, p_min))
    return Lookup()


@pytest.mark.parametrize("seed", range(6))
def test_lookup_on_llama(seed: int) -> None:
    for temp in (0.0, 0.5):
        plain_and(model("llama"), Lookup(), 15, REPEATED, Sampling(temp, seed=seed, repeat_penalty=1.1), 40)


def test_lookup_of_a_text_that_repeats() -> None:
    """A greedy text that has run into a loop takes few steps; the plain one is the same."""
    opened = model("llama")
    prompt = opened.tokenizer.encode("in the", special=True)
    generation = plain_and(opened, Lookup(), 15, prompt, Sampling(), 128)
    assert generation.accepted > 0 and generation.steps < 127


class TestDrafting:
    def test_which_drafter(self, tmp_path: Path) -> None:
        opened = model("qwen35")
        for wanted, kind, most in (
            (Drafting(), type(None), 15),
            (Drafting(5), MtpDrafter, 5),
            (Drafting(lookup=True), Lookup, 15),
            (Drafting(3, lookup=True), MtpWithLookup, 15),
            (Drafting(mtp=str(MODELS / "qwen35-mtp.Q8_0.gguf")), MtpDrafter, 7),
        ):
            session = wanted.session(opened)
            assert type(session.drafter) is kind and session.drafts == most
        other = load(MODELS / "qwen35-mtp.Q4_0.gguf")
        assert type(Drafting(dflash=DFLASH).session(other).drafter) is DFlashDrafter
        assert type(Drafting(4, dflash=DFLASH, lookup=True).session(other).drafter) is DFlashWithLookup

    def test_least_probabilities(self) -> None:
        opened = model("qwen35")
        for wanted, p_min in ((Drafting(2), 0.6), (Drafting(2, 0.0), 0.0), (Drafting(2, 0.9), 0.9)):
            drafter = wanted.session(opened).drafter
            assert isinstance(drafter, MtpDrafter) and drafter.p_min == p_min

    def test_an_mtp_file(self, tmp_path: Path) -> None:
        whole = load(tiny_hybrid.qwen35(tmp_path / "whole.gguf"))
        drafter = Drafting(mtp=str(tmp_path / "whole.gguf"), p_min=0.0).session(whole).drafter
        assert drafter is not None
        plain_and(whole, drafter, 7, PROMPT, Sampling(0.7), 16)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Drafting(0), "--draft 0 makes no sense: it must be between 1 and 15"),
            (lambda: Drafting(16), "--draft 16 makes no sense: it must be between 1 and 15"),
            (lambda: Drafting(2, 1.5), "--draft-pmin 1.5 makes no sense: it must be between 0 and 1"),
            (lambda: Drafting(p_min=0.5), "--draft-pmin goes with --draft, --mtp or --dflash"),
            (lambda: Drafting(mtp="a", dflash="b"), "give one of --mtp and --dflash"),
            (
                lambda: Drafting(3).session(model("llama")),
                f"{MODELS / 'llama-s.Q4_0.gguf'} has no MTP layer to draft with\n"
                "  hint: --lookup drafts from the text itself, --mtp FILE and --dflash FILE with other files",
            ),
            (
                lambda: Drafting(mtp=str(MODELS / "llama-s.Q4_0.gguf")).session(model("qwen35")),
                f"{MODELS / 'llama-s.Q4_0.gguf'} has no MTP layer to draft with",
            ),
        ],
    )
    def test_errors(self, make: object, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            make()  # type: ignore[operator]
        assert str(caught.value) == message

    def test_a_graph_without_verify(self, tmp_path: Path) -> None:
        graph = tmp_path / "g.yaml"
        text = (MODELS.parents[2] / "graphs" / "llama.yaml").read_text()
        graph.write_text("\n".join(line for line in text.splitlines() if not line.startswith("  verify:")))
        opened = load(MODELS / "llama-s.Q4_0.gguf", graph=str(graph))
        with pytest.raises(UsageError, match="^llama has no step verify for 2 tokens or more, which drafts need$"):
            Drafting(lookup=True).session(opened)

    def test_a_drafter_of_another_model(self) -> None:
        with pytest.raises(ModelError, match="a drafter's is 'dflash'"):
            Drafting(dflash=str(MODELS / "llama-s.Q4_0.gguf")).session(model("qwen35"))
