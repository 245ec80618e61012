"""What a graph file has and does not need: weights, values and steps that nothing uses, and names with two meanings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from graphrun.check import mistakes
from graphrun.core.errors import GraphError, Span
from graphrun.core.gguf import ModelFile
from graphrun.core.op import Op
from graphrun.graphs.declare import Equation, StateRef, WeightDecl
from graphrun.graphs.elaborate import elaborate
from graphrun.graphs.expr import Call, Expr, Name, names, walk
from graphrun.graphs.params import steps
from graphrun.graphs.scalars import CONSTANTS, FUNCTIONS, Evaluator
from graphrun.graphs.spec import Block, Spec, load_spec
from graphrun.graphs.text import place_of
from graphrun.ops import OPS

READ_OUTSIDE = frozenset({"n_ctx"})  # the context is the session's


def lint(graph: str, path: Path | None = None, ops: Mapping[str, Op] = OPS) -> list[GraphError]:
    """Everything that a graph does not need, in reading order; its mistakes instead if it has any.

    With a model file also the tensors that no step of this model reads.
    Raises UsageError for a graph that is not there, ModelError for a file that cannot be read.
    """
    wrong = mistakes(graph, path)
    if wrong:
        return wrong
    spec = load_spec(graph)
    found = [*_Linter(spec, ops).findings()]
    if path is not None:
        with ModelFile.open(path) as file:
            found += _unread_tensors(spec, file, ops)
    return sorted(found, key=lambda e: (e.span.line, e.span.col))


class _Linter:
    def __init__(self, spec: Spec, ops: Mapping[str, Op]) -> None:
        self.spec, self.ops = spec, ops
        self.bodies = [*(b.body for b in spec.blocks.values()), *spec.graphs.values()]
        self.equations = [e for body in self.bodies for e in body]
        self.called = self._called()

    def findings(self) -> Iterator[GraphError]:
        yield from self._unread_numbers()
        yield from self._unread_weights()
        yield from self._states()
        yield from self._dead_values()
        yield from self._unreachable()
        yield from self._two_meanings()

    def _unread_numbers(self) -> Iterator[GraphError]:
        spec = self.spec
        read = set(_read(self._numbers()))
        for name in spec.params:
            if name not in read | READ_OUTSIDE:
                hint = "if its key changes nothing, list the key under ignored"
                yield GraphError(place_of(name), f"param '{name}' is never read", hint)
        for name in spec.let:
            if name not in read:
                yield GraphError(place_of(name), f"'{name}' is never read")
        tensors = set(_read(self._tensors()))
        for name in spec.inputs:
            if name not in tensors:
                yield GraphError(place_of(name), f"input '{name}' is never read")

    def _numbers(self) -> Iterator[Expr]:
        """Every expression that may read a number."""
        spec = self.spec
        yield from (source for param in spec.params.values() for source in param.sources)
        yield from (*spec.let.values(), *spec.check, *self._tensors())
        yield from (dim for given in spec.inputs.values() for dim in given.dims.items)
        for weights in (spec.weights, *(b.weights for b in spec.blocks.values())):
            yield from (e for w in weights.values() for e in (*w.names, *w.dims.items))
        states = (s for b in spec.blocks.values() for s in b.states.values() if not isinstance(s, StateRef))
        yield from (dim for state in states for dim in state.dims.items)
        yield from (step.when for step in spec.steps.values() if step.when)

    def _tensors(self) -> Iterator[Expr]:
        """Every expression that may read a tensor."""
        yield from (e.expr for e in self.equations)
        if self.spec.layers:
            yield from (self.spec.layers.repeat, self.spec.layers.body)

    def _unread_weights(self) -> Iterator[GraphError]:
        spec = self.spec
        sections = [spec.weights, *(b.weights for b in spec.blocks.values())]
        stand_ins = {w.other.name for weights in sections for w in weights.values() if w.other}
        read = {*_read(self._tensors()), *stand_ins}
        yield from (_unread("weight", name) for name in spec.weights if name not in read)
        for block, body in spec.blocks.items():
            own = {*_read(e.expr for e in body.body), *(w.other.name for w in body.weights.values() if w.other)}
            yield from (_unread("weight", name, block) for name in body.weights if name not in own)

    def _states(self) -> Iterator[GraphError]:
        declared = [s for b in self.spec.blocks.values() for s in b.states.values()]
        shared = {(s.block, s.state) for s in declared if isinstance(s, StateRef)}
        for block, body in self.spec.blocks.items():
            read = set(_read(e.expr for e in body.body))
            for name in body.states:
                if name not in read:
                    message = f"state '{name}' of block {block} is never used"
                    yield GraphError(place_of(name), message)
                elif (block, name) not in shared and self._only_written(name, body, read):
                    yield GraphError(place_of(name), f"state '{name}' of block {block} is written, but never read")

    def _only_written(self, state: str, body: Block, read: set[str]) -> bool:
        """Whether all that a state goes through are ops that make nothing but states, and these are not read."""
        for equation in body.body:
            if state in _read([equation.expr]):
                call = equation.expr
                op = self.ops.get(call.function) if isinstance(call, Call) else None
                stores = op is not None and all(isinstance(o, str) for o in op.signature.outputs)
                if not stores or read.intersection(equation.targets):
                    return False
        return True

    def _dead_values(self) -> Iterator[GraphError]:
        for body in (b.body for b in self.spec.blocks.values()):
            yield from self._dead(body, outputs={"h"})
        for equations in self.spec.graphs.values():
            yield from self._dead(equations, outputs={str(t) for e in equations for t in e.targets if t != "h"})

    def _dead(self, body: tuple[Equation, ...], outputs: set[str]) -> Iterator[GraphError]:
        """Equations none of whose results lead to an output or a state; later ones first."""
        needed = set(outputs)
        for equation in reversed(body):
            if needed.intersection(equation.targets) or self._keeps_state(equation.expr):
                needed.update(_read([equation.expr]))
            else:
                yield from (GraphError(t.span, f"'{t}' is never read") for t in equation.targets)

    def _keeps_state(self, expr: Expr) -> bool:
        """Whether something called here, or further down, changes a state."""
        spec, inner = self.spec, []
        for name in _calls(expr):
            if name in self.ops and any(isinstance(o, str) for o in self.ops[name].signature.outputs):
                return True
            if name in spec.blocks:
                inner += [e.expr for e in spec.blocks[name].body]
            elif name == "layers()" and spec.layers:
                inner.append(spec.layers.body)
        return any(map(self._keeps_state, inner))

    def _called(self) -> set[str]:
        """Blocks that some step's graph reaches, and `layers` if it repeats anything."""
        spec = self.spec
        waiting = [e.expr for step in spec.steps.values() for e in spec.graphs[step.graph]]
        reached: set[str] = set()
        while waiting:
            for name in _calls(waiting.pop()) - reached:
                reached.add(name)
                if name in spec.blocks:
                    waiting += [e.expr for e in spec.blocks[name].body]
                elif name == "layers()" and spec.layers:
                    waiting.append(spec.layers.body)
        return reached

    def _unreachable(self) -> Iterator[GraphError]:
        spec = self.spec
        run = {str(step.graph) for step in spec.steps.values()}
        for name in spec.blocks:
            if name not in self.called:
                yield GraphError(place_of(name), f"no step reaches block {name}")
        if spec.layers and "layers" not in self.called:
            yield GraphError(spec.place("layers", key=True), "no step reaches the layers")
        for name in spec.graphs:
            if name not in run:
                yield GraphError(place_of(name), f"graph {name} belongs to no step")
        for name, step in spec.steps.items():
            if step.when and _never(step.when):
                yield GraphError(step.when.span, f"step {name} can never run, its condition is false")

    def _two_meanings(self) -> Iterator[GraphError]:
        for name in self._defined():
            kinds = (("an op", self.ops), ("a block", self.spec.blocks), ("a function", FUNCTIONS))
            for kind, known in kinds:
                if name in known:
                    yield GraphError(place_of(name), f"'{name}' is also the name of {kind}")

    def _defined(self) -> Iterator[str]:
        spec = self.spec
        yield from (*spec.params, *spec.let, *spec.inputs, *spec.weights)
        for block in spec.blocks.values():
            yield from (*block.weights, *block.states)
        yield from (t for e in self.equations for t in e.targets)


def _calls(expr: Expr) -> set[str]:
    """Names of all that an expression calls; a block in layers(h, block) counts, layers(h) counts as layers() too."""
    found: set[str] = set()
    for call in (c for c in walk(expr) if isinstance(c, Call)):
        found.add(call.function)
        if call.function == "layers":
            found |= {"layers()"} if len(call.args) == 1 else {a.name for a in call.args[1:] if isinstance(a, Name)}
    return found


def _unread(kind: str, name: str, block: str = "") -> GraphError:
    return GraphError(place_of(name), f"{kind} '{name}'{f' of block {block}' if block else ''} is never read")


def _read(exprs: Iterable[Expr]) -> Iterator[str]:
    return (name.name for expr in exprs for name in names(expr))


def _never(condition: Expr) -> bool:
    """Whether a condition of constants only is false."""
    parts = [p for p in walk(condition) if isinstance(p, Name | Call)]
    return all(isinstance(p, Name) and p.name in CONSTANTS for p in parts) and not Evaluator({}).truth(condition)


def _unread_tensors(spec: Spec, file: ModelFile, ops: Mapping[str, Op]) -> Iterator[GraphError]:
    """Tensors bound to weights that no node of any step reads."""
    read: set[str | None] = set()
    for step, tokens in steps(spec, file).items():
        graph = elaborate(spec, file, ops, step, tokens.low, context=tokens.low)
        read |= {part.tensor for value in graph.weights for part in value.parts}
    for tensor in file.tensors:
        if tensor not in read:
            span = _declared(spec, tensor)
            yield GraphError(span, f"{tensor} is bound here, but no step of this model reads it")


def _declared(spec: Spec, tensor: str) -> Span:
    """Where the weight of a tensor's name is declared."""
    sections = (spec.weights, *(b.weights for b in spec.blocks.values()))
    fitting = (w for weights in sections for w in weights.values() if re.fullmatch(_pattern(w), tensor))
    return next((w.span for w in fitting), spec.place("weights", key=True))


def _pattern(weight: WeightDecl) -> str:
    """The names that a declaration's tensor may have, as a regular expression."""
    return "[^.]+".join(map(re.escape, re.split(r"\{\w+\}", weight.tensor)))
