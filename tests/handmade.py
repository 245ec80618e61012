"""Graphs put together by hand, node by node, without a graph file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphrun.core.errors import Span
from graphrun.core.ir import Discipline, Graph, Node, Part, State, Value, View, infer
from graphrun.core.op import Op
from graphrun.core.signature import Tensor
from graphrun.core.target import Target
from graphrun.core.types import tensor
from graphrun.ops import OPS

MACHINE = Target("test", "numpy", memory=1 << 40, bandwidth=1e12, flops=1e13)


class Builder:
    """Collects nodes; `call` appends one and gives its first output, or all of them if there are more."""

    def __init__(self, tokens: int = 1, context: int = 64, ops: Mapping[str, Op] = OPS) -> None:
        self.tokens, self.context, self.ops = tokens, context, ops
        self.scope = ""
        self.nodes: list[Node] = []
        self.inputs = {
            "tokens": Value("tokens", tensor("i32", tokens), "input", self.span),
            "pos": Value("pos", tensor("i32", 1), "input", self.span),
        }
        self._latest: dict[State, Value] = {}

    @property
    def span(self) -> Span:
        """A line of its own for every node."""
        return Span("dir/hand.yaml", len(self.nodes) + 1 if hasattr(self, "nodes") else 1, 7, "")

    def input(self, name: str, dtype: str, *shape: int) -> Value:
        self.inputs[name] = Value(name, tensor(dtype, *shape), "input", self.span)
        return self.inputs[name]

    def weight(self, name: str, dtype: str, *shape: int) -> Value:
        source = f"{self.scope}.{name}" if self.scope else name
        return Value(name, tensor(dtype, *shape), "weight", self.span, self.scope, (Part(source, shape[0]),))

    def state(self, name: str, dtype: str, *shape: int, discipline: Discipline = "append") -> Value:
        full = f"{self.scope}.{name}" if self.scope else name
        state = State(full, discipline, tensor(dtype, *shape))
        return Value(name, state.type, "state", self.span, self.scope, state=state)

    def call(self, op: str, *inputs: Value | None, name: str = "", **attrs: int | float | str) -> Value:
        return self.calls(op, *inputs, names=(name,) if name else (), **attrs)[0]

    def calls(
        self, op: str, *inputs: Value | None, names: tuple[str, ...] = (), **attrs: int | float | str
    ) -> tuple[Value, ...]:
        kind = self.ops[op]
        signature = kind.signature
        full = tuple(inputs) + (None,) * (len(signature.inputs) - len(inputs))
        values = {a.name: attrs.get(a.name, a.default) for a in signature.attrs}
        known = {k: v for k, v in values.items() if v is not None}
        made = []
        for output, type_ in zip(signature.outputs, infer(kind, full, known), strict=True):
            label = output.name if isinstance(output, Tensor) else output
            old = full[signature.input_names.index(output)] if isinstance(output, str) else None
            made.append(Value(label, type_, "node", self.span, self.scope, state=old.state if old else None))
        for position, label in enumerate(names):
            made[position] = replace(made[position], name=label)
        if kind.view:
            made = _views(kind, full[0], made, known)
        self.nodes.append(Node(kind, full, known, tuple(made), self.scope, self.span))
        return tuple(made)

    def graph(self, **outputs: Value) -> Graph:
        graph = Graph("hand", self.tokens, self.context, tuple(self.nodes), self.inputs, outputs)
        graph.verify()
        return graph


def _views(op: Op, base: Value | None, made: list[Value], attrs: Mapping[str, int | float | str]) -> list[Value]:
    assert base is not None
    room = np.zeros(base.offset + base.root.type.nbytes, np.uint8)
    array = np.ndarray(base.type.shape, np.float32, room.data, base.offset, base.strides)
    found = op(array, **attrs)
    views = []
    for value, result in zip(made, found if isinstance(found, tuple) else (found,), strict=True):
        assert np.shares_memory(result, array)
        start = result.__array_interface__["data"][0] - room.__array_interface__["data"][0]
        views.append(replace(value, view=View(base.root, start, result.strides)))
    return views


def llama(
    layers: int = 1,
    tokens: int = 1,
    *,
    embd: int = 64,
    ff: int = 96,
    heads: int = 4,
    kv: int = 2,
    dim: int = 32,
    vocab: int = 80,
    dtype: str = "q8_0",
    types: Mapping[str, str] = {},  # noqa: B006 - never changed
    bias: bool = False,
    tied: bool = False,
    rows: str = "all",
    context: int = 64,
) -> Graph:
    """A llama (with `bias`, a qwen2) as a graph file elaborates to; `types` overrides the layout of single weights."""
    b = Builder(tokens, context)
    table = b.weight("token_embd", types.get("token_embd", dtype), vocab, embd)
    head = table if tied else b.weight("output", types.get("output", dtype), vocab, embd)
    norm = b.weight("output_norm", "f32", embd)
    h = b.call("embed", b.inputs["tokens"], table, name="h")
    for layer in range(layers):
        h = _attention(b, layer, h, (heads, kv, dim, embd), {"": dtype} | dict(types), bias)
        b.scope = f"{layer}.ffn"
        x = b.call("rms_norm", h, b.weight("norm", "f32", embd), eps=1e-5, name="x")
        gate = b.call("linear", x, b.weight("gate", types.get("gate", dtype), ff, embd))
        up = b.call("linear", x, b.weight("up", types.get("up", dtype), ff, embd))
        down = b.call("linear", b.call("swiglu", gate, up), b.weight("down", types.get("down", dtype), embd, ff))
        h = b.call("add", h, down, name="h")
    b.scope = ""
    hidden = b.call("rms_norm", h, norm, eps=1e-5, name="hidden")
    logits = b.call("linear", b.call("last", hidden) if rows == "last" else hidden, head, name="logits")
    return b.graph(hidden=hidden, logits=logits, token=b.call("argmax", logits, name="token"))


def _attention(
    b: Builder, layer: int, h: Value, sizes: tuple[int, int, int, int], types: Mapping[str, str], bias: bool
) -> Value:
    heads, kv, dim, embd = sizes
    b.scope = f"{layer}.attention"
    x = b.call("rms_norm", h, b.weight("norm", "f32", embd), eps=1e-5, name="x")
    pos = b.inputs["pos"]

    def project(name: str, count: int) -> Value:
        weight = b.weight(f"w{name}", types.get(f"w{name}", types[""]), count * dim, embd)
        offset = b.weight(f"b{name}", "f32", count * dim) if bias else None
        return b.call("heads", b.call("linear", x, weight, offset, name=name), n=count)

    q = b.call("rope", project("q", heads), pos, name="q", base=10000.0, width=dim, pairs="halves")
    k = b.call("rope", project("k", kv), pos, name="k", base=10000.0, width=dim, pairs="halves")
    v = project("v", kv)
    keys, values = (b.state(name, "f16", b.context, kv, dim) for name in ("keys", "values"))
    keys, values = b.calls("store", k, v, keys, values, pos)
    o = b.call("flat", b.call("attend", q, keys, values, pos, name="o"))
    wo = b.weight("wo", types.get("wo", types[""]), embd, heads * dim)
    return b.call("add", h, b.call("linear", o, wo), name="h")


def delta(
    tokens: int = 1, *, embd: int = 64, heads_k: int = 2, heads_v: int = 4, dim: int = 32, copies: int = 8
) -> Graph:
    """One gated-delta block with its residual, in the layouts of a mixed file."""
    b = Builder(tokens)
    slot = b.input("slot", "i32", 1)
    h = b.input("x", "f32", tokens, embd)
    inner, conv, taps = heads_v * dim, (heads_v + 2 * heads_k) * dim, 4
    b.scope = "0.delta"
    x = b.call("rms_norm", h, b.weight("norm", "f32", embd), eps=1e-5, name="x")
    z = b.call("linear", x, b.weight("gate", "q8_0", inner, embd), name="z")
    beta = b.call("linear", x, b.weight("beta", "f32", heads_v, embd), name="b")
    alpha = b.call("linear", x, b.weight("alpha", "f32", heads_v, embd), name="g")
    tail = b.state("tail", "f32", 16, conv, discipline="ring")
    s = b.state("s", "f32", copies, heads_v, dim, dim, discipline="snapshot")
    qkv = b.call("linear", x, b.weight("qkv", "q8_0", conv, embd), name="qkv")
    c = b.call("conv_silu", qkv, b.weight("conv", "f32", conv, taps), tail, b.inputs["pos"])
    dt, a = b.weight("dt", "f32", heads_v), b.weight("a", "f32", heads_v)
    o = b.call("delta_rule", c, beta, alpha, dt, a, s, b.inputs["pos"], slot, heads=heads_k, eps=1e-6)
    y = b.call("gated_norm", o, z, b.weight("o_norm", "f32", dim), eps=1e-6)
    return b.graph(h=b.call("add", h, b.call("linear", y, b.weight("out", "q8_0", embd, inner)), name="h"))


def gated_attention(tokens: int = 1, *, embd: int = 256, heads: int = 4, kv: int = 2, dim: int = 64) -> Graph:
    """One attention block with normed queries and keys, and a gate that shares the query projection."""
    b = Builder(tokens)
    h, pos = b.input("x", "f32", tokens, embd), b.inputs["pos"]
    b.scope = "3.attention"
    x = b.call("rms_norm", h, b.weight("norm", "f32", embd), eps=1e-6, name="x")
    wide = b.call("linear", x, b.weight("wq", "q4_k", 2 * heads * dim, embd), name="q")
    q, gate = b.calls("halves", b.call("heads", wide, n=heads), names=("q", "gate"))
    k = b.call("heads", b.call("linear", x, b.weight("wk", "q4_k", kv * dim, embd), name="k"), n=kv)
    v = b.call("heads", b.call("linear", x, b.weight("wv", "q6_k", kv * dim, embd), name="v"), n=kv)
    q = b.call("rms_norm", q, b.weight("q_norm", "f32", dim), eps=1e-6)
    k = b.call("rms_norm", k, b.weight("k_norm", "f32", dim), eps=1e-6)
    q, k = (b.call("rope", u, pos, base=1e6, width=dim // 2, pairs="halves") for u in (q, k))
    keys, values = (b.state(name, "f16", b.context, kv, dim) for name in ("keys", "values"))
    keys, values = b.calls("store", k, v, keys, values, pos)
    o = b.call("sigmoid_gate", b.call("attend", q, keys, values, pos, name="o"), gate)
    wo = b.weight("wo", "q4_k", embd, heads * dim)
    return b.graph(h=b.call("add", h, b.call("linear", b.call("flat", o), wo), name="h"))
