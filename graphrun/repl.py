"""A conversation on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from graphrun.answer import stream
from graphrun.console import complain
from graphrun.core.errors import GraphrunError
from graphrun.drafting import NO_DRAFTS, Drafting
from graphrun.generate import Generation
from graphrun.model import Model
from graphrun.progress import Bar
from graphrun.sampling import Sampling
from graphrun.session import Session

HELP = "/clear starts anew, /exit or Ctrl-D ends, Ctrl-C stops an answer"


class Conversation:
    """Turns of user and model over one session, whose cache is kept as far as its tokens stay the same."""

    def __init__(
        self,
        model: Model,
        sampling: Sampling,
        max_tokens: int,
        system: str | None = None,
        drafting: Drafting = NO_DRAFTS,
    ) -> None:
        self.model = model
        self.sampling = sampling
        self.max_tokens = model.context if max_tokens < 0 else max_tokens
        self.session = drafting.session(model)
        self.system = [{"role": "system", "content": system}] if system is not None else []
        self.turns: list[dict[str, str]] = []

    def clear(self) -> None:
        """Forget every turn."""
        self.turns = []

    def ask(self, text: str) -> Generation:
        """Show the answer to a user's turn; Ctrl-C ends it there, and what was shown is its answer.

        After an error the turn is forgotten.
        """
        asked = [*self.turns, {"role": "user", "content": text}]
        ids = self.model.chat.encode([*self.system, *asked])
        rest = ids[keep(self.session, ids) :]
        shown: list[str] = []
        with Bar("reading the prompt") as bar:
            generation = Generation(self.session, rest, self.max_tokens, self.sampling, (), bar)
            try:
                stream(generation, shown)
            except KeyboardInterrupt:
                generation.ended = "interrupted"
        self.turns = [*asked, {"role": "assistant", "content": "".join(shown)}]
        return generation


def keep(session: Session, ids: list[int]) -> int:
    """Rewind a session to the longest prefix of `ids` it has seen, short of all of them; returns its length."""
    differing = (i for i, (ours, theirs) in enumerate(zip(session.tokens, ids, strict=False)) if ours != theirs)
    shared = next(differing, min(len(session.tokens), len(ids) - 1))
    return session.rewind(shared)


def talk(conversation: Conversation, read: Callable[[str], str] = input) -> None:
    """Read turns until /exit or the end of the input, and answer them."""
    mark = "> " if sys.stdin.isatty() else ""
    if mark:
        print(HELP, file=sys.stderr)
    while True:
        try:
            line = read(mark).strip()
        except EOFError:
            break
        except KeyboardInterrupt:
            print(f"\n{HELP}", file=sys.stderr)
            continue
        if line == "/exit":
            return
        if line == "/clear":
            conversation.clear()
        elif line.startswith("/"):
            print(HELP, file=sys.stderr)
        elif line:
            _answer(conversation, line)
    if mark:
        print()


def _answer(conversation: Conversation, line: str) -> None:
    try:
        generation = conversation.ask(line)
    except GraphrunError as error:
        complain(error)
    else:
        print(generation.speed, file=sys.stderr)
