"""Unrolling: the equations of one graph become typed nodes, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphrun.core.errors import GraphError, Span
from graphrun.core.ir import Node, Value
from graphrun.core.op import Op
from graphrun.core.types import I32, TensorType
from graphrun.graphs import weights
from graphrun.graphs.apply import Applier
from graphrun.graphs.declare import Equation
from graphrun.graphs.expr import Binary, Call, Choice, Expr
from graphrun.graphs.header import FileHeader
from graphrun.graphs.names import arguments, outside
from graphrun.graphs.params import Sink
from graphrun.graphs.scalars import CONSTANTS, FUNCTIONS, Evaluator, Result, Scalar, describe
from graphrun.graphs.spec import Spec

MAX_LAYERS = 4096
MAX_CALLS = 30_000


class Skipped(Exception):
    """The value depends on a mistake that the sink already has."""


@dataclass(frozen=True)
class Job:
    """What a graph is unrolled for. A sink that returns gets every mistake; what depends on one is left out."""

    spec: Spec
    header: FileHeader
    ops: Mapping[str, Op]
    params: Mapping[str, Scalar]
    tokens: int
    last: bool
    context: int
    exact: bool
    sink: Sink


@dataclass
class Unrolled:
    """A graph's nodes, inputs, outputs, the names of the tensors it uses, and the earlier graphs it reads from."""

    nodes: list[Node] = field(default_factory=list)
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    earlier: dict[str, Unrolled] = field(default_factory=dict)

    def use(self, values: Iterable[Result]) -> None:
        self.used.update(p.tensor for v in values if isinstance(v, Value) for p in v.parts if p.tensor)


def unroll(job: Job, graph: str, earlier: Mapping[str, Unrolled] | None = None) -> Unrolled:
    """Unroll a graph that has passed the static checks; `earlier` are graphs unrolled already, for any step."""
    try:
        return _Unrolling(job, graph, dict(earlier or {})).run()
    except RecursionError:
        place = job.spec.place("graphs", graph, key=True)
        raise GraphError(place, f"graph {graph} is nested too deeply") from None


class _Unrolling:
    def __init__(self, job: Job, graph: str, earlier: dict[str, Unrolled]) -> None:
        self.job, self.graph = job, graph
        self.result = Unrolled(earlier=earlier)
        self.apply = Applier(job.ops, self.result.nodes)
        self.outside = outside(job.spec, graph)
        self.instances: dict[tuple[str, Scalar | None], dict[str, Result]] = {}
        self.arguments: dict[Call, dict[str, Expr]] = {}
        self.sizes = weights.StateSizes.of(job.spec, job.context)
        self.count = 0

    def run(self) -> Unrolled:
        job, result, equations = self.job, self.result, self.job.spec.graphs[self.graph]
        here = job.spec.place("graphs", self.graph, key=True)
        for name, size in (("tokens", job.tokens), ("pos", 1), ("slot", 1)):
            result.inputs[name] = Value(name, TensorType(I32, (size,)), "input", here)
        self.globals: dict[str, Result] = {**job.params, **result.inputs}
        self.globals |= weights.bind(job.spec.weights, job.header, job.params, "", job.sink)
        result.use(self.globals.values())
        known = dict(self.globals)
        self.equations(equations, known, "")
        if not any(result.inputs["slot"] in node.inputs for node in result.nodes):
            del result.inputs["slot"]  # only graphs with snapshots need one
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

    def read_outside(self, name: str) -> Value:
        """The input that stands for an earlier graph's result of this name, one row a token."""
        if name not in self.result.inputs:
            graph, earlier = self.outside.get(name), self.result.earlier
            if graph is None:
                raise Skipped
            if graph not in earlier:
                earlier[graph] = unroll(self.job, graph, earlier)
            source = earlier[graph].outputs.get(name)
            if source is None:
                raise Skipped
            type_ = TensorType(source.type.dtype, (self.job.tokens, *source.type.shape[1:]))
            self.result.inputs[name] = Value(name, type_, "input", source.span)
        return self.result.inputs[name]

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
            **weights.states(block.states, known, scope, self.sizes, job.exact),
        }
        self.result.use(bound.values())
        return bound

    def layers(self, h: Result) -> Result:
        """Apply the layers' expression for i = 0, 1, ..."""
        layers = self.job.spec.layers
        assert layers is not None  # the static checks saw to it
        repeat = Evaluator(self.job.params).size(layers.repeat)
        if repeat > MAX_LAYERS:
            raise GraphError(layers.repeat.span, f"{repeat} layers are more than {MAX_LAYERS}")
        for i in range(repeat):
            h = _Scope(self, {**self.globals, "h": h, "i": i}, "", ("h",)).value(layers.body)
        return h

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
        return self.run.read_outside(name)

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
            return self.run.layers(self.tensor(call.args[0]))
        if name == "rows":
            return self.rows(call, labels)
        assert name in FUNCTIONS  # the static checks saw to it
        return super().call(call)

    def layer(self) -> Scalar | None:
        i = self.names.get("i")
        return None if isinstance(i, Value | tuple) else i

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
