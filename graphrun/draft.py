"""Where drafts come from: the MTP layer of a model, or a DFlash 2 file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphrun.core.borrow import Borrowing
from graphrun.core.errors import ModelError, UsageError
from graphrun.core.gguf import ModelFile

if TYPE_CHECKING:
    from graphrun.model import Model

A = np.ndarray[Any, Any]
Read = Callable[[str], A]
CHUNK = 256
BORROWED = ("token_embd.weight", "output.weight")  # a DFlash file without them uses the target's


class Drafter(Protocol):
    """Guesses tokens that the model will choose; the output never depends on the guesses."""

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None:
        """Tokens at positions start, start + 1, ... are final; `read` gives outputs of the step that ran them, in
        whose rows they come first."""

    def draft(self, token: int, count: int) -> list[int]:
        """At most `count` guesses of what follows `token`, which is at the first position not followed yet."""


class MtpDrafter:
    """Drafts with the model's own MTP layer, or with that of a file that has only this layer.

    Its row of position p reads token p and the hidden state of position p - 1 (zeros before the first), and has its
    own keys and values. `p_min` is the least probability of a guess.
    """

    def __init__(self, model: Model, source: Model | None = None, p_min: float = 0.0) -> None:
        self.source = source or model
        if not self.source.has("draft"):
            raise UsageError(f"{self.source.file.path} has no MTP layer to draft with")
        for key, name in (("n_embd", "embedding_length"), ("n_vocab", "tokens")):
            ours, theirs = self.source.params[key], model.params[key]
            if ours != theirs:
                raise ModelError(self.source.file.path, name, f"is {ours}, the model that it drafts for has {theirs}")
        self.p_min = p_min
        self.zeros = np.zeros(int(model.params["n_embd"]), np.float32)
        self.restart()

    def restart(self, pos: int = 0) -> None:
        self.pos = pos  # rows that are final
        self.last = self.zeros
        self.queue: list[tuple[int, A]] = []
        self.ahead: int | None = None  # token of a final row that the session has not accepted yet

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None:
        if start != self.pos + len(self.queue) - (self.ahead is not None):
            self.restart(start)
        hidden = read("hidden")[: len(tokens)]
        rows = list(zip(tokens, [self.last, *hidden[:-1]], strict=True))
        if self.ahead is not None:
            self.pos, rows = (self.pos, rows[1:]) if self.ahead == tokens[0] else (self.pos - 1, rows)
        self.queue += rows
        self.last, self.ahead = hidden[-1], None
        if len(self.queue) > CHUNK:
            self._run_queue()

    def draft(self, token: int, count: int) -> list[int]:
        return list(self.guesses(token, count))

    def guesses(self, token: int, count: int) -> Iterator[int]:
        """What `draft` returns, one at a time, each computed when it is asked for; to be asked once for a token."""
        count = min(count, self.source.context - self.pos - len(self.queue) - 1)
        if count < 1:
            return
        self.queue.append((token, self.last))
        logits, hidden = self._run_queue()
        self.ahead = token
        pos = self.pos
        while (guess := likeliest(logits, self.p_min)) is not None:
            yield guess
            if (pos := pos + 1) == self.pos + count:
                return
            logits, hidden = self._row(pos - 1, guess, hidden)

    def _run_queue(self) -> tuple[A, A]:
        """Run all waiting rows; logits and hidden of the last."""
        result = (self.zeros, self.zeros)
        while self.queue:
            part, self.queue = self.queue[:CHUNK], self.queue[CHUNK:]
            result = self._run(self.pos, [t for t, _ in part], np.stack([h for _, h in part]))
            self.pos += len(part)
        return result

    def _row(self, pos: int, token: int, hidden: A) -> tuple[A, A]:
        return self._run(pos, [token], hidden[None])

    def _run(self, pos: int, tokens: Sequence[int], previous: A) -> tuple[A, A]:
        runner = self.source.runner
        runner.step(self.source.program("draft", len(tokens)), tokens, pos, 0, {"previous": previous})
        return runner.read("logits")[-1], runner.read("hidden")[-1]


class DFlashDrafter:
    """Drafts a block of tokens in one step, from the inputs of some layers of the model.

    `p_min` is the least probability of a guess, by the scores of its candidates.
    """

    def __init__(self, model: Model, path: str | Path, p_min: float = 0.0) -> None:
        from graphrun.model import Model, graph_of

        own = ModelFile.open(path)
        if own.architecture != "dflash":
            raise ModelError(path, "general.architecture", f"is '{own.architecture}', a drafter's is 'dflash'")
        file = Borrowing(own, model.file, BORROWED)
        self.targets = checked_targets(own, model)
        self.source = Model(
            file,
            graph_of(own, None),
            model.backend,
            context=model.context,
            activations="exact" if model.exact else "q8",
            ops=model.ops,
        )
        self.block = int(self.source.params["block"])
        self.mask = int(self.source.params["mask"])
        self.p_min = p_min
        self.pos = 0
        model.tap(self.targets)

    def follow(self, start: int, tokens: Sequence[int], read: Read) -> None:
        features = np.concatenate([read(f"input.{i}")[: len(tokens)] for i in self.targets], axis=1)
        for first in range(0, len(tokens), CHUNK):
            part = slice(first, first + CHUNK)
            self.remember(start + first, tokens[part], features[part])

    def remember(self, start: int, tokens: Sequence[int], features: A) -> None:
        """Add rows of features, f32[T, targets * n_embd], to the context."""
        program = self.source.program("context", len(tokens))
        self.source.runner.step(program, tokens, start, 0, {"features": features})
        self.pos = start + len(tokens)

    def draft(self, token: int, count: int) -> list[int]:
        size = min(self.block, self.source.context - self.pos)
        if size < 2:
            return []
        runner = self.source.runner
        runner.step(self.source.program("draft", size), [token] + [self.mask] * (size - 1), self.pos)
        return walk(runner.read("ids"), runner.read("scores"), self.p_min)[:count]


def checked_targets(file: ModelFile, model: Model) -> tuple[int, ...]:
    """The layers whose input the drafter reads; ModelError if it is a drafter of another model."""
    layers = file.metadata.get("dflash.target_layers")
    if not isinstance(layers, list) or not layers:
        raise ModelError(file.path, "dflash.target_layers", "is missing: which layers does the drafter read?")
    n_layer = int(model.params["n_layer"])
    targets = tuple(i for i in layers if isinstance(i, int) and 0 <= i <= n_layer)
    if len(targets) < len(layers):
        raise ModelError(file.path, "dflash.target_layers", f"is {layers}, but the model has {n_layer} layers")
    for key, name in (("dflash.embedding_length", "n_embd"), ("tokenizer.ggml.tokens", "n_vocab")):
        found = file.metadata.get(key)
        size = len(found) if isinstance(found, list) else found
        if size != model.params[name]:
            raise ModelError(file.path, key, f"is {size}, the model that it drafts for has {model.params[name]}")
    return targets


def walk(ids: A, scores: A, p_min: float = 0.0) -> list[int]:
    """The greedy path through candidates ids[T, k] with scores[T, predecessor, candidate], rows 1, 2, ..., up to the
    first that is less probable than `p_min`."""
    found: list[int] = []
    place = 0
    for row_ids, row_scores in zip(ids[1:], scores[1:], strict=True):
        choice = likeliest(row_scores[place], p_min)
        if choice is None:
            break
        place = choice
        found.append(int(row_ids[place]))
    return found


def likeliest(scores: A, p_min: float) -> int | None:
    """Index of the largest score, the first among equals; None if its softmax probability is below `p_min`."""
    best = int(np.argmax(scores))
    shifted = np.exp(scores.astype(np.float64) - float(scores[best]))
    return best if 1 / shifted.sum() >= p_min else None


def accepted(drafts: Sequence[int], chosen: Sequence[int]) -> int:
    """How many drafts the model's own choices confirm: chosen[0] follows the first verified token."""
    right = (d == c for d, c in zip(drafts, chosen, strict=False))
    return next((i for i, same in enumerate(right) if not same), len(drafts))
