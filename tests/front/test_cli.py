"""Running models by command, and mistakes in any command: what is printed, where, and the exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from conftest import GOLDEN
from typer.testing import CliRunner, Result

from graphrun import load
from graphrun.cli import app
from graphrun.sampling import Sampling

MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
MODEL = str(GOLDEN / "models" / "llama-s.F32.gguf")
TOKENS24, TOKENS96 = (",".join(map(str, MANIFEST[key])) for key in ("tokens24", "tokens96"))
SPEED = re.compile(r"prompt (\d+) tokens, [\d.]+ tokens/s; generation (\d+) tokens, [\d.]+ tokens/s")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def good(*args: object) -> str:
    """The stdout of a command that must succeed."""
    result = call(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def counts(result: Result) -> tuple[int, int]:
    """Prompt and generated tokens by the last line of stderr."""
    match = SPEED.fullmatch(result.stderr.splitlines()[-1])
    assert match, result.stderr
    return int(match[1]), int(match[2])


def arrays() -> dict[str, Any]:
    """The reference outputs of MODEL."""
    with np.load(GOLDEN / "golden" / "llama-s.F32.npz") as file:
        return dict(file)


@pytest.fixture
def chat_model(tmp_path: Path) -> Path:
    return tiny.llama(tmp_path / "chat.gguf", metadata={"tokenizer.chat_template": TEMPLATE})


class TestRun:
    def test_logits_and_choice_are_the_reference(self, tmp_path: Path) -> None:
        path = tmp_path / "logits.txt"
        exact = ("--activations", "exact", "--ignore-eos")
        result = call("run", MODEL, "--tokens", TOKENS24, "-n", 16, *exact, "--dump-logits", path)
        assert result.exit_code == 0 and counts(result) == (24, 16)
        rows = np.loadtxt(path)
        reference = arrays()
        assert rows[:, 0].tolist() == list(range(24 + 15))
        assert rows[:, 1].tolist() == MANIFEST["tokens24"] + reference["greedy_ids"][:-1].tolist()
        assert rows[23:, 2:].argmax(axis=1).tolist() == reference["greedy_ids"].tolist()
        golden = reference["logits_seq"]
        assert np.abs(rows[:24, 2:] - golden).max() < 2e-5 * np.abs(golden).max()

    @pytest.mark.parametrize("sampling", [(), ("--temp", 0.8, "--top-k", 40, "--top-p", 0.9, "-s", 3)])
    def test_text_is_that_of_the_library(self, sampling: tuple[object, ...]) -> None:
        out = good("run", "-m", MODEL, "-p", "in the", "-n", 20, "--ignore-eos", *sampling)
        model = load(MODEL)
        ids = model.tokenizer.encode("in the", special=True)
        model.tokenizer.stop_ids = frozenset()
        chosen = Sampling(0.8, 40, 0.9, seed=3) if sampling else Sampling()
        text = "".join(model.generate(ids, max_tokens=20, sampling=chosen))
        assert out.rstrip("\n") == text.rstrip("\n") and len(text) > 5

    def test_perplexity_is_the_reference(self) -> None:
        nll = arrays()["nll96"].astype(np.float64)
        for first in (0, 50):
            options = ("--ppl", "--ppl-first", first, "--activations", "exact")
            match = re.fullmatch(
                r"ppl: (\d+) tokens scored, mean nll ([\d.]+), perplexity [\d.]+\n",
                good("run", MODEL, "--tokens", TOKENS96, *options),
            )
            assert match and int(match[1]) == 95 - first
            assert float(match[2]) == pytest.approx(nll[first:].mean(), rel=1e-5)

    @pytest.mark.parametrize("sampling", [(), ("--temp", 0.8, "--repeat-penalty", 1.2, "-s", 3)])
    def test_drafts_change_nothing_but_the_last_line(self, sampling: tuple[object, ...]) -> None:
        hybrid, dflash = (GOLDEN / "models" / f"{n}.gguf" for n in ("qwen35-mtp.Q4_0", "dflash.Q8_0"))
        for model, drafts in (
            (MODEL, ("--lookup",)),
            (hybrid, ("--draft", 3, "--draft-pmin", 0)),
            (hybrid, ("--mtp", hybrid, "--lookup")),
            (hybrid, ("--dflash", dflash)),
        ):
            command = ("run", model, "--tokens", "5,6,7,5,6,7,5,6", "-n", 12, "--ignore-eos", *sampling)
            result = call(*command, *drafts)
            assert result.exit_code == 0 and result.stdout == good(*command)
            line = r".*; drafts (\d+) of (\d+) accepted, [\d.]+ tokens a step"
            match = re.fullmatch(line, result.stderr.splitlines()[-1])
            assert match and int(match[1]) <= int(match[2]), result.stderr
            assert int(match[2]) > 0 or "--draft-pmin" not in drafts

    def test_drafts_that_cannot_be(self) -> None:
        for options, message in (
            (("--draft", 3), "has no MTP layer to draft with"),
            (("--draft", 16), "--draft 16 makes no sense: it must be between 1 and 15"),
            (("--lookup", "--dump-logits", "x"), "--dump-logits runs one token a step"),
            (("--dflash", MODEL), "a drafter's is 'dflash'"),
        ):
            result = call("run", MODEL, "-p", "in the", *options)
            assert result.exit_code == (1 if "--dflash" in options else 2) and message in result.stderr

    def test_nothing_to_generate(self) -> None:
        result = call("run", MODEL, "-p", "in the", "-n", 0)
        assert (result.exit_code, result.stdout) == (0, "")
        assert counts(result)[1] == 0

    def test_until_the_context_is_full(self) -> None:
        result = call("run", MODEL, "-p", "in the", "-n", -1, "-c", 32, "--ignore-eos")
        prompt, generated = counts(result)
        assert (result.exit_code, prompt + generated) == (0, 33)  # the last one is chosen, but has no position

    def test_a_chunk_smaller_than_the_context(self) -> None:
        assert good("run", MODEL, "-p", "in the", "-n", 3, "-c", 7) == good("run", MODEL, "-p", "in the", "-n", 3)

    def test_ends_before_a_stop_text(self) -> None:
        whole = good("run", MODEL, "-p", "in the", "-n", 20)
        stop = whole[4:6]
        assert good("run", MODEL, "-p", "in the", "-n", 20, "--stop", stop).rstrip("\n") == whole[: whole.index(stop)]

    def test_prompts_of_all_kinds_agree(self, tmp_path: Path) -> None:
        ids = load(MODEL).tokenizer.encode("in the", special=True)
        text, tokens = tmp_path / "p.txt", tmp_path / "p.ids"
        text.write_text("in the", encoding="utf-8")
        tokens.write_text("\n".join(map(str, ids)), encoding="utf-8")
        outs = {good("run", MODEL, "-n", 8, *p) for p in (("-p", "in the"), ("-f", text), ("--tokens-file", tokens))}
        stdin = CliRunner().invoke(app, ["run", MODEL, "-n", "8", "-f", "-"], input="in the")
        assert outs == {stdin.stdout}

    def test_a_prompt_is_a_turn_where_the_model_chats(self, chat_model: Path) -> None:
        chat = load(chat_model).tokenizer
        for options, text in [
            ((), "user: in the\n"),
            (("--system", "to"), "system: to\nuser: in the\n"),
            (("--raw",), "in the"),
        ]:
            result = call("run", chat_model, "-p", "in the", "-n", 1, *options)
            assert (result.exit_code, counts(result)[0]) == (0, len(chat.encode(text))), options

    def test_perplexity_never_uses_the_template(self, chat_model: Path) -> None:
        count = len(load(chat_model).tokenizer.encode("in the tin"))
        assert good("run", chat_model, "-p", "in the tin", "--ppl").startswith(f"ppl: {count - 1} tokens scored")

    def test_only_a_prompt_spells_control_tokens(self) -> None:
        text = "in the<|im_end|>in the"
        tokenizer = load(MODEL).tokenizer
        plain, special = (len(tokenizer.encode(text, special=flag)) for flag in (False, True))
        assert special < plain
        assert counts(call("run", MODEL, "-p", text, "-n", 0))[0] == special
        assert good("run", MODEL, "-p", text, "--ppl").startswith(f"ppl: {plain - 1} tokens scored")

    def test_ids_where_there_is_no_tokenizer(self, tmp_path: Path) -> None:
        path = tiny.llama(tmp_path / "m.gguf", metadata={"tokenizer.ggml.model": "none"})
        ids = good("run", path, "--tokens", "1,2,3", "-n", 5)
        assert re.fullmatch(r"ids: \d+(,\d+){4}\n", ids)
        assert call("run", path, "-p", "text").exit_code == 1

    def test_a_split_model(self, tmp_path: Path) -> None:
        whole = tiny.llama(tmp_path / "whole.gguf")
        tiny.llama(tmp_path / "m.gguf", split=8)
        parts = sorted(tmp_path.glob("m-*.gguf"))
        assert len(parts) > 1
        expected = good("run", whole, "-p", "in the", "-n", 8)
        assert all(good("run", part, "-p", "in the", "-n", 8) == expected for part in parts)
        assert f"parts          {len(parts)}\n" in good("info", parts[0])

    def test_a_model_that_computes_nan(self, tmp_path: Path) -> None:
        bad = {"blk.1.ffn_norm.weight": np.full(tiny.E, np.nan, np.float32)}
        path, logits = tiny.llama(tmp_path / "m.gguf", tensors=bad), tmp_path / "logits.txt"
        result = call("run", path, "-p", "in the", "--dump-logits", logits)
        assert (result.exit_code, result.stdout) == (1, "")
        assert re.match(r"error: decode at position 0: call \d+, rms_norm.* of 1\.ffn, made a value", result.stderr)
        assert not logits.exists()

    def test_a_model_that_does_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graphrun.backends.reference.free_memory", lambda: 1000)
        result = call("run", MODEL, "-p", "in the")
        assert result.exit_code == 1 and "memory" in result.stderr
        plan = call("plan", MODEL)
        assert plan.exit_code == 1 and plan.stdout.splitlines()[-1].startswith("does not fit")


BAD = [
    (("run",), 2, "name one model"),
    (("run", MODEL, "-m", MODEL, "-p", "x"), 2, "name one model"),
    (("run", MODEL), 2, "there is no prompt"),
    (("run", MODEL, "-p", ""), 2, "the prompt is empty"),
    (("run", MODEL, "-p", "x", "--tokens", "1"), 2, "give one of"),
    (("run", MODEL, "--tokens", "1,x"), 2, "'x' is not a token id"),
    (("run", MODEL, "--tokens", "1,320"), 2, "there is no token 320"),
    (("run", MODEL, "-f", "missing.txt"), 2, "missing.txt: cannot be read"),
    (("run", "missing.gguf", "-p", "x"), 1, "missing.gguf: no such file"),
    (("run", str(GOLDEN), "-p", "x"), 1, "is a directory"),
    (("run", __file__, "-p", "x"), 1, "not a GGUF file"),
    (("run", "hf:nothing", "-p", "x"), 2, "names no file"),
    (("run", MODEL, "-p", "x", "--graph", "lama"), 2, "did you mean 'llama'"),
    (("run", MODEL, "-p", "x", "--graph", "qwen2"), 1, "llama"),
    (("run", MODEL, "-p", "x", "--backend", "abacus"), 2, "there is no backend 'abacus'"),
    (("run", MODEL, "-p", "in the", "-c", "2"), 2, "do not fit the context of 2"),
    (("run", MODEL, "-p", "x", "-c", "1000000000000"), 2, "context"),
    (("run", MODEL, "-p", "x", "-n", "-2"), 2, "--n-predict"),
    (("run", MODEL, "-p", "x", "--temp", "nan"), 2, "--temp"),
    (("run", MODEL, "-p", "x", "--stop", ""), 2, "a stop string is empty"),
    (("run", MODEL, "-p", "x", "--system", "y"), 2, "--system needs"),
    (("run", MODEL, "-p", "x", "--temp", "1", "--dump-logits", "F"), 2, "greedy"),
    (("run", MODEL, "-p", "x", "--dump-logits", "missing/F"), 2, "cannot be written"),
    (("run", MODEL, "--tokens", "1", "--ppl"), 2, "nothing to score"),
    (("run", MODEL, "-p", "x", "--no-such-option"), 2, "--no-such-option"),
    (("sing", MODEL), 2, "sing"),
    (("dump", MODEL, "--step", "decoed"), 2, "did you mean 'decode'"),
    (("dump", MODEL, "--tokens", "2"), 2, "takes 1 tokens, not 2"),
    (("dump", MODEL, "--stage", "fused"), 2, "did you mean 'fuse'"),
    (("dump", MODEL, "--layer", "2"), 2, "layers are 0 to 1"),
    (("dump", MODEL, "--json", "--dot"), 2, "give one of"),
    (("dump", MODEL, "--stage", "graph", "--cost"), 2, "for the program"),
    (("check", "lama"), 2, "did you mean 'llama'"),
    (("check", "qwen2", MODEL), 1, "qwen2.yaml:"),
    (("ops", "rms_nrom"), 2, "did you mean 'rms_norm'"),
    (("info", "missing.gguf"), 1, "no such file"),
]


@pytest.mark.parametrize(
    ("args", "code", "message"), BAD, ids=lambda v: " ".join(v)[-40:] if type(v) is tuple else None
)
def test_mistakes(
    args: tuple[str, ...], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr and "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []
