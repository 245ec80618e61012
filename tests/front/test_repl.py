"""Conversations: turns, what is kept of the cache, interruptions, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny

from graphrun import load, repl
from graphrun.drafting import Drafting
from graphrun.generate import Generation
from graphrun.model import Model
from graphrun.repl import Conversation, keep, talk
from graphrun.sampling import Sampling


@pytest.fixture
def model(tmp_path: Path) -> Model:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    return load(tiny.llama(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": template}))


def conversation(model: Model, system: str | None = None) -> Conversation:
    return Conversation(model, Sampling(), 6, system)


def typed(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """A stand-in for input that gives these lines, or raises."""
    left = iter(lines)

    def read(mark: str) -> str:
        line = next(left)
        if isinstance(line, str):
            return line
        raise line

    return read


@pytest.mark.parametrize("system", [None, "to the"])
def test_a_later_turn_is_what_a_new_session_answers(model: Model, system: str | None) -> None:
    talked = conversation(model, system)
    first = talked.ask("in the")
    second = talked.ask("and")
    messages = [*talked.system, *talked.turns[:-1]]
    ids = model.chat.encode(messages)
    fresh = "".join(Generation(model.session(), ids, 6, Sampling()))
    assert talked.turns[-1] == {"role": "assistant", "content": fresh}
    assert [t["role"] for t in talked.turns] == ["user", "assistant"] * 2
    assert len(second.prompt) < len(ids) and len(first.prompt) + len(second.prompt) < 2 * len(ids)


def test_drafts_change_no_turn(model: Model) -> None:
    """Also after an answer that was left off in the middle of drafts."""
    answers = []
    for drafting in (Drafting(), Drafting(lookup=True)):
        talked = Conversation(model, Sampling(), 24, drafting=drafting)
        for text in ("in the in the in the", "and in the in the"):
            talked.ask(text)
        generation = Generation(talked.session, [5, 6, 7, 5, 6, 7, 5], 30, Sampling())
        next(iter(generation))
        answers.append([*talked.turns, talked.session.tokens, talked.ask("in the in the").ids, talked.session.tokens])
    assert answers[0] == answers[1]


def test_keep_leaves_a_token_to_run(model: Model) -> None:
    session = model.session()
    session.prefill([5, 6, 7, 8])
    assert keep(session, [5, 6, 9, 8]) == 2 and session.tokens == [5, 6]
    assert keep(session, [5, 6]) == 1
    assert keep(session, [9]) == 0 and session.tokens == []


def test_commands(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    talked = conversation(model)
    talk(talked, typed("in the", "/clear", "  ", "/what", "and", "/exit", "unread"))
    assert [t["content"] for t in talked.turns if t["role"] == "user"] == ["and"]
    out, err = capsys.readouterr()
    assert len(out.splitlines()) >= 2 and err.count(repl.HELP) == 1 and err.count("prompt ") == 2


def test_end_of_input_and_ctrl_c_at_the_mark(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    talk(conversation(model), typed(KeyboardInterrupt, EOFError))
    assert repl.HELP in capsys.readouterr().err


def test_ctrl_c_keeps_the_part_that_was_shown(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Generation) -> Iterator[str]:
        self.session.prefill(self.prompt)
        yield "half an "
        raise KeyboardInterrupt

    talked = conversation(model)
    monkeypatch.setattr(Generation, "__iter__", interrupted)
    assert talked.ask("in the").ended == "interrupted"
    assert talked.turns[-1] == {"role": "assistant", "content": "half an "}
    assert capsys.readouterr().out == "half an \n"
    monkeypatch.undo()
    assert talked.ask("and").ids


def test_an_error_forgets_its_turn(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    talked = conversation(model)
    talk(talked, typed("in the " * 200, "in the", EOFError))
    err = capsys.readouterr().err
    assert err.startswith("error: ") and "do not fit the context of 256" in err
    assert [t["role"] for t in talked.turns] == ["user", "assistant"]
