"""Static checks: every name is defined once and before it is used, every call fits what it calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field

from graphrun.core.errors import GraphError, Span, did_you_mean
from graphrun.core.op import Op
from graphrun.core.signature import Tensor
from graphrun.graphs.declare import Equation, StateDecl, StateRef, WeightDecl
from graphrun.graphs.expr import Call, Expr, Name, names, walk
from graphrun.graphs.scalars import CONSTANTS, FUNCTIONS
from graphrun.graphs.spec import Block, Spec
from graphrun.graphs.text import place_of

INPUTS = ("tokens", "pos", "slot")
BUILTINS = ("layers", "rows")  # layers(h, block) applies one block in each layer
RESERVED = {*INPUTS, *CONSTANTS, "h", "i"}
MAX_NESTING = 8
MAX_ERRORS = 50


def arguments(op: Op, call: Call) -> dict[str, Expr]:
    """The call's arguments by parameter name; raises GraphError where they do not fit."""
    parameters, hint = op.signature.parameter_names, f"{op.name}({op.signature})"
    if len(call.args) > len(parameters):
        extra, count = call.args[len(parameters)].span, len(call.args)
        raise GraphError(extra, f"{op.name} takes {len(parameters)} arguments, this is number {count}", hint)
    given = dict(zip(parameters, call.args, strict=False))
    for name, expr in call.named:
        if name not in parameters:
            raise GraphError(expr.span, f"{op.name} has no parameter '{name}'", did_you_mean(name, parameters) or hint)
        if name in given:
            raise GraphError(expr.span, f"{op.name}: {name} is given twice", hint)
        given[name] = expr
    for parameter in op.signature.parameters:
        required = not parameter.optional if isinstance(parameter, Tensor) else parameter.default is None
        if required and parameter.name not in given:
            raise GraphError(call.span, f"{op.name}: {parameter.name} is missing", hint)
    return given


def mistakes(spec: Spec, ops: Mapping[str, Op]) -> list[GraphError]:
    """Every mistake that shows without a model file, in reading order."""
    checker = _Checker(spec, ops)
    with suppress(_Enough):
        checker.run()
    return sorted(checker.errors, key=lambda e: (e.span.line, e.span.col))


class _Enough(Exception):
    """There are more mistakes than anybody reads."""


@dataclass
class _Checker:
    spec: Spec
    ops: Mapping[str, Op]
    errors: list[GraphError] = field(default_factory=list)

    def fail(self, span: Span, message: str, hint: str | None = None) -> None:
        self.add(GraphError(span, message, hint))

    def add(self, error: GraphError) -> None:
        self.errors.append(error)
        if len(self.errors) >= MAX_ERRORS:
            raise _Enough

    def run(self) -> None:
        spec, scalars = self.spec, set[str]()
        for name, param in spec.params.items():
            for source in param.sources:
                self.scalar(source, scalars)
            self.define(name, scalars)
        for name, expr in spec.let.items():
            self.scalar(expr, scalars)
            self.define(name, scalars)
        for condition in spec.check:
            self.scalar(condition, scalars)
        known = set(scalars)
        for name, given in spec.inputs.items():
            for expr in given.dims.items:
                self.scalar(expr, scalars)
            self.define(name, known)
        self.weights(spec.weights, scalars, known)
        for name, block in spec.blocks.items():
            self.block_name(name)
            self.block(block, scalars | {"i"}, known)
        self.recursion()
        if spec.layers:
            self.scalar(spec.layers.repeat, scalars)
            self.tensor(spec.layers.body, known | {"h", "i", *INPUTS})
        for equations in spec.graphs.values():
            self.equations(equations, set(known), set(INPUTS))
        self.steps(scalars)

    def define(self, name: str, known: set[str], *, again: Iterable[str] = ()) -> None:
        if name in RESERVED and name not in again:
            self.fail(place_of(name), f"'{name}' is part of the language and cannot be defined")
        elif name in known:
            self.fail(place_of(name), f"'{name}' is already defined", "names are assigned once")
        known.add(str(name))

    def block_name(self, name: str) -> None:
        if name in self.ops:
            self.fail(place_of(name), f"'{name}' is an op; a block needs a name of its own")
        elif name in BUILTINS or name in FUNCTIONS:
            self.fail(place_of(name), f"'{name}' is part of the language; a block needs a name of its own")

    def weights(self, weights: Mapping[str, WeightDecl], scalars: Set[str], known: set[str]) -> None:
        stand_ins = {str(name) for name in self.spec.weights if name in known}
        for name, weight in weights.items():
            for expr in (*weight.names, *weight.dims.items):
                self.scalar(expr, scalars)
            if weight.other and not weight.optional and weight.other.name not in stand_ins:
                message = f"'{weight.other.name}' is not a weight defined above"
                self.fail(weight.other.span, message, did_you_mean(weight.other.name, stand_ins))
            self.define(name, known)
            stand_ins.add(str(name))

    def block(self, block: Block, scalars: Set[str], known: Set[str]) -> None:
        local = set(known)
        self.weights(block.weights, scalars, local)
        for name, state in block.states.items():
            if isinstance(state, StateRef):
                self.reference(state)
            else:
                for expr in state.dims.items:
                    self.scalar(expr, scalars)
            self.define(name, local)
        self.equations(block.body, local, {"h", "i", *INPUTS})
        if not any(target == "h" for e in block.body for target in e.targets):
            place = block.body[0].targets[0].span if block.body else self.spec.place("blocks", key=True)
            self.fail(place, "this block does not assign h", "a block maps h to h")

    def reference(self, state: StateRef) -> None:
        owner = self.spec.blocks.get(state.block)
        if owner is None:
            hint = did_you_mean(state.block, self.spec.blocks)
            self.fail(state.span, f"there is no block '{state.block}'", hint)
        elif not isinstance(owner.states.get(state.state), StateDecl):
            hint = did_you_mean(state.state, owner.states)
            self.fail(state.span, f"block {state.block} declares no state '{state.state}'", hint)

    def equations(self, equations: tuple[Equation, ...], defined: set[str], given: Set[str]) -> None:
        later = {str(t) for e in equations for t in e.targets}
        visible = defined | given
        assigned: set[str] = set()
        for equation in equations:
            self.tensor(equation.expr, visible, later)
            self.outputs(equation)
            for target in equation.targets:
                if target in assigned:
                    self.fail(target.span, f"'{target}' is already defined", "names are assigned once")
                else:
                    self.define(target, defined, again=("h",))
                assigned.add(str(target))
                visible.add(str(target))

    def outputs(self, equation: Equation) -> None:
        count, expr = 1, equation.expr
        if isinstance(expr, Call) and expr.function in self.ops:
            count = len(self.ops[expr.function].signature.outputs)
        if count != len(equation.targets):
            names = f"{len(equation.targets)} name{'s' * (len(equation.targets) > 1)}"
            self.fail(equation.targets[0].span, f"{names} for {count} value{'s' * (count > 1)}")

    def scalar(self, expr: Expr, known: Set[str]) -> None:
        """Names and functions of an expression over numbers."""
        for part in walk(expr):
            if isinstance(part, Call) and part.function not in FUNCTIONS:
                hint = f"numbers have the functions {', '.join(FUNCTIONS)}"
                self.fail(part.span, f"'{part.function}' cannot be called here", hint)
        self.names(expr, known, set())

    def tensor(self, expr: Expr, known: Set[str], later: Set[str] = frozenset()) -> None:
        """Names and calls of an equation."""
        for part in walk(expr):
            if isinstance(part, Call):
                self.call(part)
                if "i" not in known and not part.named and self.reads_layer(part.function):
                    name = part.function
                    self.fail(part.span, f"block {name} needs the layer i, which is not known here", f"{name}(h, i=0)")
        self.names(expr, known, later)

    def reads_layer(self, block: str) -> bool:
        """Whether the weights or states of a block depend on i."""
        if block not in self.spec.blocks:
            return False
        weights, states = self.spec.blocks[block].weights.values(), self.spec.blocks[block].states.values()
        exprs = [e for w in weights for e in (*w.names, *w.dims.items)] + [
            e for s in states if isinstance(s, StateDecl) for e in s.dims.items
        ]
        return any(name.name == "i" for expr in exprs for name in names(expr))

    def names(self, expr: Expr, known: Set[str], later: Set[str]) -> None:
        blocks = {c.args[1] for c in walk(expr) if isinstance(c, Call) and c.function == "layers" and len(c.args) == 2}
        for part in walk(expr):
            if isinstance(part, Name) and part.name not in {*known, *CONSTANTS} and part not in blocks:
                hint = "it is defined further down" if part.name in later else did_you_mean(part.name, known)
                self.fail(part.span, f"'{part.name}' is not defined", hint)

    def call(self, call: Call) -> None:
        name = call.function
        if name in self.ops:
            try:
                arguments(self.ops[name], call)
            except GraphError as error:
                self.add(error)
        elif name in self.spec.blocks:
            if len(call.args) != 1 or any(key != "i" for key, _ in call.named) or len(call.named) > 1:
                self.fail(call.span, f"block {name} takes h, and i by name", f"{name}(h) or {name}(h, i=0)")
        elif name in BUILTINS:
            block = call.args[1] if name == "layers" and len(call.args) == 2 else None
            if (len(call.args) != 1 and block is None) or call.named:
                self.fail(call.span, f"{name} takes one tensor", f"{name}(h)")
            if block is not None and not (isinstance(block, Name) and block.name in self.spec.blocks):
                self.fail(block.span, "a block is needed here", "layers(h, block) applies it in every layer")
            if name == "layers" and self.spec.layers is None:
                self.fail(call.span, "this file has no section 'layers'")
        elif name not in FUNCTIONS:
            known = [*self.ops, *map(str, self.spec.blocks), *BUILTINS]
            self.fail(call.span, f"unknown op or block '{name}'", did_you_mean(name, known))

    def recursion(self) -> None:
        """Blocks may call blocks, but never themselves, and not without end."""
        calls = {
            str(name): [c for e in block.body for c in walk(e.expr) if isinstance(c, Call)]
            for name, block in self.spec.blocks.items()
        }
        depth: dict[str, int] = {}

        def visit(name: str, path: tuple[str, ...]) -> int:
            if name in depth:
                return depth[name]
            deepest = 0
            for call in calls[name]:
                if call.function == "layers":
                    self.fail(call.span, "a block cannot call layers, only a graph can")
                elif call.function in (*path, name):
                    self.fail(
                        call.span, f"block {call.function} calls itself: {' -> '.join((*path, name, call.function))}"
                    )
                elif call.function in calls and len(path) < MAX_NESTING:
                    deepest = max(deepest, 1 + visit(call.function, (*path, name)))
                elif call.function in calls:
                    self.fail(call.span, f"blocks are nested more than {MAX_NESTING} deep")
            depth[name] = deepest
            return deepest

        for name in calls:
            visit(name, ())
        if self.spec.layers:
            for part in walk(self.spec.layers.body):
                if isinstance(part, Call) and part.function == "layers":
                    self.fail(part.span, "layers calls itself")

    def steps(self, scalars: Set[str]) -> None:
        for name, step in self.spec.steps.items():
            if step.graph not in self.spec.graphs:
                hint = did_you_mean(step.graph, map(str, self.spec.graphs))
                self.fail(step.graph.span, f"steps.{name}: there is no graph '{step.graph}'", hint)
            if step.when:
                self.scalar(step.when, scalars)
