"""Model: opens a file, picks its graph, compiles steps and asks a backend to load them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal

from graphrun import backends
from graphrun.backends.base import Backend, Progress, Runner
from graphrun.backends.build import Say
from graphrun.backends.fallback import Fallback
from graphrun.chat import Chat
from graphrun.core.errors import GraphError, ModelError, UsageError, did_you_mean
from graphrun.core.gguf import ModelFile
from graphrun.core.gguf_read import shown
from graphrun.core.ir import Graph, State, Value
from graphrun.core.op import Op
from graphrun.core.program import Program
from graphrun.draft import Drafter
from graphrun.generate import Generation
from graphrun.graphs.elaborate import elaborate
from graphrun.graphs.params import params, steps
from graphrun.graphs.spec import Spec, known, load_spec
from graphrun.hub import resolve
from graphrun.ops import OPS
from graphrun.planner.lower import lower
from graphrun.sampling import Sampling
from graphrun.session import Session
from graphrun.tokenizer import Tokenizer

Activations = Literal["q8", "exact"]
DEFAULT_CONTEXT = 4096
LARGEST_CHUNK = 512
MOST_ROLLBACK = 16


class Model:
    """A model file with its graph on a backend; weights are packed when a session first needs them.

    `context` is the positions a sequence may use, by default the trained length but at most 4096. With
    activations="exact" activations and the cache stay f32, which is slower and what logits are compared with.
    `rollback` fixes how many tokens can be verified at once; `taps` are layers whose input a drafter reads.
    """

    def __init__(
        self,
        file: ModelFile,
        spec: Spec,
        backend: Backend,
        *,
        context: int | None = None,
        activations: Activations = "q8",
        progress: Progress | None = None,
        rollback: int | None = None,
        taps: tuple[int, ...] = (),
        ops: Mapping[str, Op] = OPS,
    ) -> None:
        self.ops = ops
        self.taps = taps
        self.file = file
        self.spec = spec
        self.backend = backend
        self.exact = activations == "exact"
        self.progress = progress
        with naming(file):
            self.params = params(spec, file)
        self.trained = trained_context(file, self.params)
        self.context = min(self.trained, DEFAULT_CONTEXT) if context is None else context or self.trained
        self._programs: dict[tuple[str, int], Program] = {}
        self._rollback = rollback
        if self.context < 1:
            raise UsageError(f"a context of {self.context} positions is too short")

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        graph: str | None = None,
        backend: str = "auto",
        threads: int | None = None,
        context: int | None = None,
        activations: Activations = "q8",
        progress: Progress | None = None,
        say: Say | None = None,
    ) -> Model:
        """Open a GGUF file, "demo" or "hf:org/repo:file".

        `graph` names a graph or a graph file, by default that of the file's architecture; backend "auto" is native
        where its kernels are there or can be compiled, else numpy, which the runner's notes tell. `say` is told of
        kernels that are compiled; by default stderr shows that, and also the note.

        Raises ModelError, GraphError, BackendError or UsageError.
        """
        if activations not in ("q8", "exact"):
            raise UsageError(f"activations must be q8 or exact, not '{activations}'")
        device = backends.open(backend, threads=threads, say=say or _on_stderr)
        if say is None and isinstance(device, Fallback):
            _on_stderr(device.reason)
        file = ModelFile.open(resolve(path))
        spec = graph_of(file, graph)
        return cls(file, spec, device, context=context, activations=activations, progress=progress)

    def graph(self, step: str = "decode", tokens: int | None = None) -> Graph:
        """The typed graph of a step, before any pass."""
        if step not in self.spec.steps:
            raise UsageError(
                f"{self.spec.arch} has no step '{step}'",
                did_you_mean(step, self.spec.steps) or f"known: {', '.join(self.spec.steps)}",
            )
        count = tokens or self.spec.steps[step].largest(min(LARGEST_CHUNK, self.context))
        return self._elaborate(step, count, self.rollback)

    def _elaborate(self, step: str, tokens: int, rollback: int) -> Graph:
        file, context, exact, taps = self.file, self.context, self.exact, self.taps
        with naming(file):
            return elaborate(
                self.spec, file, self.ops, step, tokens, context=context, exact=exact, rollback=rollback, taps=taps
            )

    @cached_property
    def rollback(self) -> int:
        """Tokens of the longest step that can be taken back in part: 16, or 8 where memory is short of snapshots."""
        if self._rollback is not None:
            return self._rollback
        first = next(iter(steps(self.spec, self.file).items()), None)
        if first is None:
            return MOST_ROLLBACK
        graph = self._elaborate(first[0], first[1].low, MOST_ROLLBACK)
        if all(state.discipline != "snapshot" for state in graph.states):
            return MOST_ROLLBACK
        need = sum(v.type.nbytes for v in graph.weights) + sum(s.type.nbytes for s in graph.states)
        return MOST_ROLLBACK if need <= self.backend.target.memory else MOST_ROLLBACK // 2

    def program(self, step: str = "decode", tokens: int | None = None) -> Program:
        """A step lowered and checked for `tokens` tokens (by default the most it takes)."""
        key = (step, tokens or 0)
        if key not in self._programs:
            self._programs[key] = lower(self.graph(step, tokens), self.ops, self.backend.target, exact=self.exact)
        return self._programs[key]

    def takes(self, step: str, tokens: int) -> bool:
        """Whether the graph has that step and it can run on so many tokens."""
        return step in self.spec.steps and self.spec.steps[step].takes(tokens)

    def has(self, step: str) -> bool:
        """Whether this model file has what the step needs."""
        return step in steps(self.spec, self.file)

    @cached_property
    def runner(self) -> Runner:
        """Weights and states on the device, loaded at the first use."""
        weights: dict[Value, None] = {}
        states: dict[str, State] = {}
        for step, tokens in steps(self.spec, self.file).items():
            if tokens.low > self.context:
                continue
            program = self.program(step, min(tokens.high, LARGEST_CHUNK, self.context))
            weights |= dict.fromkeys(program.weights)
            states |= {s.name: s for s in program.states}
        return self.backend.load(self.file, list(weights), list(states.values()), self.progress)

    @cached_property
    def vocabulary(self) -> int:
        """Every token id is below this: the fewest rows of a matrix that a single token is looked up in."""
        graph = self.graph("decode")
        readers = (node.inputs for node in graph.nodes if graph.inputs["tokens"] in node.inputs)
        tables = (v.type.shape[0] for inputs in readers for v in inputs if v is not None and v.kind == "weight")
        return min(tables, default=1 << 31)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(self.file)

    @cached_property
    def chat(self) -> Chat:
        return Chat.from_file(self.file, self.tokenizer)

    def tap(self, layers: tuple[int, ...]) -> None:
        """From now on steps also make the input of these layers, as outputs input.0, input.1, ..."""
        self.taps = layers
        self._programs.clear()

    def session(self, drafter: Drafter | None = None) -> Session:
        """A new sequence at position 0; a model has one at a time, since its states are the model's.

        What a drafter guesses changes how many steps a text takes, never the text.
        """
        return Session(self, drafter)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 128,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        on_prefill: Callable[[int, int], None] | None = None,
        drafter: Drafter | None = None,
    ) -> Iterator[str]:
        """The continuation of a prompt (text, or token ids), piece by piece."""
        ids = self.tokenizer.encode(prompt, special=True) if isinstance(prompt, str) else list(prompt)
        yield from Generation(self.session(drafter), ids, max_tokens, sampling or Sampling(), stop, on_prefill)


@contextmanager
def naming(file: ModelFile) -> Iterator[None]:
    """Errors of a graph that come from what it finds in a model file name that file."""
    try:
        yield
    except GraphError as error:
        error.model = str(file.path)
        raise


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def trained_context(file: ModelFile, values: Mapping[str, object]) -> int:
    """The positions a model was trained for, if its graph reads them; raises ModelError."""
    trained = values.get("n_ctx", DEFAULT_CONTEXT)
    if isinstance(trained, bool) or not isinstance(trained, int) or trained < 1:
        raise ModelError(file.path, f"{file.architecture}.context_length", f"{trained!r} is not a number of positions")
    return trained


def graph_of(file: ModelFile, graph: str | None) -> Spec:
    """The graph named, or the one of the file's architecture."""
    if graph is not None:
        return load_spec(graph)
    arch = file.architecture
    if arch not in known():
        raise ModelError(
            file.path,
            "general.architecture",
            f"there is no graph for {shown(arch)}",
            f"known: {', '.join(known())}; write one and give it with --graph FILE",
        )
    return load_spec(arch)
