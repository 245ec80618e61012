"""Unrolling: the equations of one graph become typed nodes, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphrun.core.errors import GraphError, Span
from graphrun.core.ir import Node, State, Value
from graphrun.core.op import Op
from graphrun.core.types import F32, I32, TensorType
from graphrun.graphs import weights
from graphrun.graphs.apply import Applier
from graphrun.graphs.declare import Equation, StateDecl, StateRef
from graphrun.graphs.expr import Binary, Call, Choice, Expr, Name
from graphrun.graphs.header import FileHeader
from graphrun.graphs.names import arguments
from graphrun.graphs.params import Sink
from graphrun.graphs.scalars import CONSTANTS, FUNCTIONS, Evaluator, Known, List, Result, Scalar, describe
from graphrun.graphs.spec import Spec

MAX_LAYERS = 4096
MAX_CALLS = 30_000


class Skipped(Exception):
    """The value depends on a mistake that the sink already has."""


@dataclass(frozen=True)
class Job:
    """What a graph is unrolled for; `taps` are layers whose input becomes an output, input.0 that of the first.

    A sink that returns gets every mistake; what depends on one is left out."""

    spec: Spec
    header: FileHeader
    ops: Mapping[str, Op]
    params: Mapping[str, Known]
    tokens: int
    last: bool
    context: int
    exact: bool
    sink: Sink
    rollback: int = 1
    taps: tuple[int, ...] = ()


@dataclass
class Unrolled:
    """A graph's nodes, inputs, outputs, and the names of the tensors it uses."""

    nodes: list[Node] = field(default_factory=list)
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def use(self, values: Iterable[Result]) -> None:
        self.used.update(p.tensor for v in values if isinstance(v, Value) for p in v.parts if p.tensor)


def unroll(job: Job, graph: str) -> Unrolled:
    """Unroll a graph that has passed the static checks."""
    try:
        return _Unrolling(job, graph).run()
    except RecursionError:
        place = job.spec.place("graphs", graph, key=True)
        raise GraphError(place, f"graph {graph} is nested too deeply") from None


class _Unrolling:
    def __init__(self, job: Job, graph: str) -> None:
        self.job, self.graph = job, graph
        self.result = Unrolled()
        self.apply = Applier(job.ops, self.result.nodes)
        self.instances: dict[tuple[str, Scalar | None], dict[str, Result]] = {}
        self.arguments: dict[Call, dict[str, Expr]] = {}
        self.sizes = weights.StateSizes(job.context, job.rollback)
        self.states: set[str] = set()
        self.count = 0

    def run(self) -> Unrolled:
        job, result, equations = self.job, self.result, self.job.spec.graphs[self.graph]
        here = job.spec.place("graphs", self.graph, key=True)
        for name, size in (("tokens", job.tokens), ("pos", 1), ("slot", 1)):
            result.inputs[name] = Value(name, TensorType(I32, (size,)), "input", here)
        for name, given in job.spec.inputs.items():
            dims = tuple(Evaluator(job.params).size(dim) for dim in given.dims.items)
            result.inputs[name] = Value(name, TensorType(F32, (job.tokens, *dims)), "input", given.span)
        self.globals: dict[str, Result] = {**job.params, **result.inputs}
        self.globals |= weights.bind(job.spec.weights, job.header, job.params, "", job.sink)
        result.use(self.globals.values())
        known = dict(self.globals)
        self.equations(equations, known, "")
        read = {v.root for node in result.nodes for v in node.inputs if v is not None}
        for name in [n for n, v in result.inputs.items() if n not in ("tokens", "pos") and v not in read]:
            del result.inputs[name]  # snapshots need the slot, and few graphs have other inputs
        for target in (str(t) for e in equations for t in e.targets if t != "h"):
            value = known.get(target)
            if isinstance(value, Value):
                result.outputs[target] = value
            elif target in known:
                job.sink(GraphError(here, f"{target} is {describe(value)}, a graph makes tensors"))
        return result

    def equations(self, equations: tuple[Equation, ...], known: dict[str, Result], scope: str) -> None:
        """Evaluate equations in order, adding their names to `known`; those with mistakes are not defined."""
        for equation in equations:
            labels = tuple(map(str, equation.targets))
            try:
                result = _Scope(self, known, scope, labels).value(equation.expr)
                results = result if isinstance(result, tuple) else (result,)
                if len(results) != len(labels):
                    raise GraphError(equation.targets[0].span, f"{len(labels)} names for {describe(result)}")
                known.update(zip(labels, results, strict=True))
            except (GraphError, Skipped) as error:
                for label in labels:
                    known.pop(label, None)
                if isinstance(error, GraphError):
                    self.job.sink(error)

    def block(self, call: Call, h: Result, i: Scalar | None) -> Result:
        """Apply a block; its weights and states belong to (block, i)."""
        self.tick(call.span)
        name, block = call.function, self.job.spec.blocks[call.function]
        scope = name if i is None else f"{describe(i)}.{name}"
        bound = self.instances.get((name, i))
        if bound is None:
            bound = self.instances[name, i] = self.bind(name, scope, i)
        elif block.states:
            raise GraphError(call.span, f"{scope} is called a second time, but its states belong to one call")
        known = {**bound, "h": h}
        self.equations(block.body, known, scope)
        if "h" not in known:
            raise Skipped
        return known["h"]

    def bind(self, name: str, scope: str, i: Scalar | None) -> dict[str, Result]:
        block, job = self.job.spec.blocks[name], self.job
        known = self.globals if i is None else {**self.globals, "i": i}
        bound = {
            **known,
            **weights.bind(block.weights, job.header, known, scope, job.sink),
            **{str(label): self.state(str(label), name, scope, known) for label in block.states},
        }
        self.result.use(bound.values())
        return bound

    def state(self, label: str, block: str, scope: str, known: Mapping[str, Result]) -> Value:
        """The first version of a block's state; its memory is named after the block that declares it."""
        blocks, owner, name = self.job.spec.blocks, block, label
        declared = blocks[block].states[label]
        span = declared.span
        if isinstance(declared, StateRef):
            owner, name = declared.block, declared.state
            declared = blocks[owner].states[name]
            assert isinstance(declared, StateDecl)  # the static checks saw to it
        memory = f"{scope.removesuffix(block)}{owner}.{name}"
        if memory in self.states:
            raise GraphError(span, f"state {memory} is used twice, by two blocks of one graph")
        self.states.add(memory)
        type_ = weights.state_type(declared, known, self.sizes, self.job.exact)
        return Value(label, type_, "state", span, scope, state=State(memory, declared.discipline, type_))

    def layers(self, h: Result, block: Call | None) -> Result:
        """Apply the layers' expression, or one block, for i = 0, 1, ..."""
        layers, taps = self.job.spec.layers, self.job.taps if block is None else ()
        assert layers is not None  # the static checks saw to it
        repeat = Evaluator(self.job.params).size(layers.repeat)
        if repeat > MAX_LAYERS:
            raise GraphError(layers.repeat.span, f"{repeat} layers are more than {MAX_LAYERS}")
        if max(taps, default=0) > repeat:
            raise GraphError(layers.repeat.span, f"the input of layer {max(taps)} is wanted, there are {repeat} layers")
        for i in range(repeat):
            self.tap(i, h, taps)
            h = _Scope(self, {**self.globals, "h": h, "i": i}, "", ("h",)).value(block or layers.body)
        self.tap(repeat, h, taps)
        return h

    def tap(self, i: int, h: Result, taps: tuple[int, ...]) -> None:
        if i in taps and isinstance(h, Value):
            self.result.outputs[f"input.{i}"] = h

    def tick(self, span: Span) -> None:
        self.count += 1
        if self.count > MAX_CALLS:
            raise GraphError(span, f"the graph has more than {MAX_CALLS} calls")


class _Scope(Evaluator):
    """Evaluates an equation; `labels` name the results of its outermost op."""

    def __init__(self, run: _Unrolling, names: Mapping[str, Result], scope: str, labels: tuple[str, ...]) -> None:
        super().__init__(names)
        self.run, self.scope, self.labels, self.target = run, scope, labels, labels[0]
        self.unnamed = Counter[str]()

    def name(self, name: str, span: Span) -> Result:
        if name in self.names:
            return self.names[name]
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name == "i":
            raise GraphError(span, "'i' is not given here", "name it where the block is called: (h, i=0)")
        raise Skipped

    def choice(self, expr: Choice) -> Result:
        test = Evaluator(self.names).truth(expr.test)  # apart, so that the labels are left to the chosen side
        return self.value(expr.then if test else expr.other)

    def call(self, call: Call) -> Result:
        labels, self.labels = self.labels, ()
        name = call.function
        if name in self.run.job.ops:
            return self.op(call, labels)
        if name in self.run.job.spec.blocks:
            h = self.tensor(call.args[0])
            i = dict(call.named).get("i")
            return self.run.block(call, h, Evaluator(self.names).scalar(i) if i else self.layer())
        if name == "layers":
            h = self.tensor(call.args[0])
            return self.run.layers(h, next((_applied(b) for b in call.args[1:] if isinstance(b, Name)), None))
        if name == "rows":
            return self.rows(call, labels)
        assert name in FUNCTIONS  # the static checks saw to it
        return super().call(call)

    def layer(self) -> Scalar | None:
        i = self.names.get("i")
        return None if isinstance(i, Value | tuple | List) else i

    def op(self, call: Call, labels: tuple[str, ...]) -> Result:
        op = self.run.job.ops[call.function]
        given = self.run.arguments.get(call)
        if given is None:
            given = self.run.arguments[call] = arguments(op, call)
        values = {name: (self.value(expr), expr.span) for name, expr in given.items()}
        return self.make(op, values, call.span, labels)

    def make(self, op: Op, values: Mapping[str, tuple[Result, Span]], span: Span, labels: tuple[str, ...]) -> Result:
        self.run.tick(span)
        if not labels:
            self.unnamed[op.name] += 1
            number = self.unnamed[op.name]
            labels = (f"{self.target}.{op.name}{number if number > 1 else ''}",)
        results = self.run.apply(op, values, span, self.scope, labels)
        return results if len(results) > 1 else results[0]

    def binary(self, expr: Binary) -> Result:
        """+ and * of two tensors are the ops add and mul."""
        labels, self.labels = self.labels, ()
        op = self.run.job.ops.get({"+": "add", "*": "mul"}.get(expr.op, ""))
        if op is None:
            return super().binary(expr)
        left, right = self.value(expr.left), self.value(expr.right)
        tensors = isinstance(left, Value) + isinstance(right, Value)
        if tensors == 1:
            odd, value = (expr.left, left) if isinstance(right, Value) else (expr.right, right)
            raise GraphError(odd.span, f"'{expr.op}' needs two tensors or two numbers, this is {describe(value)}")
        if not isinstance(left, Value) or not isinstance(right, Value):
            return self.combine(expr, left, right)
        x, y = op.signature.parameter_names[:2]
        return self.make(op, {x: (left, expr.left.span), y: (right, expr.right.span)}, expr.span, labels)

    def tensor(self, expr: Expr) -> Value:
        value = self.value(expr)
        if not isinstance(value, Value):
            raise GraphError(expr.span, f"a tensor is needed here, not {describe(value)}")
        return value

    def rows(self, call: Call, labels: tuple[str, ...]) -> Result:
        """The last row where the step wants no other, else all of them."""
        job, x = self.run.job, self.tensor(call.args[0])
        if not job.last or job.tokens == 1:
            return x
        if "last" not in job.ops:
            raise GraphError(call.span, "rows needs the op 'last'")
        op = job.ops["last"]
        return self.make(op, {op.signature.parameter_names[0]: (x, call.args[0].span)}, call.span, labels)


def _applied(block: Name) -> Call:
    """The call BLOCK(h)."""
    return Call(block.name, (Name("h", block.span),), (), block.span)
