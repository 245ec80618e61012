"""Views: the bytes of a value that are a part of another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graph import Header, Tensor, small_header

from graphrun.core.errors import GraphError
from graphrun.graphs.elaborate import elaborate
from graphrun.graphs.spec import parse_spec
from graphrun.ops import OPS

VIEWS = """\
arch: small
params: {n_embd: embedding_length, n_vocab: len(tokenizer.ggml.tokens)}
ignored: [block_count, context_length, attention.head_count, attention.layer_norm_rms_epsilon]
weights: {table: "token_embd.weight [n_vocab, n_embd]"}
graphs:
  main:
    e: embed(tokens, table)
    a, b: halves(heads(e, 4))
    c, d: halves(b)
    one: last(flat(a + b))
    y: rope(d, pos, 10.0, 4, "halves")
steps: {run: {graph: main, tokens: 1..64}}
"""


@given(tokens=st.integers(1, 64))
def test_views_read_what_the_op_returns(tokens: int) -> None:
    header = Header(small_header().metadata, {"token_embd.weight": Tensor("f32", (32, 64))})
    graph = elaborate(parse_spec(VIEWS, "views.yaml"), header, OPS, "run", tokens, context=64)
    values = {graph.nodes[0].outputs[0]: np.random.default_rng(tokens).random((tokens, 64), np.float32)}
    views = 0
    for node in graph.nodes[1:]:
        if not node.op.view:
            values[node.outputs[0]] = np.ones(node.outputs[0].type.shape, np.float32)
            continue
        inputs = [values[v] for v in node.inputs if v is not None]
        results = node.op(*inputs, *node.attrs.values())
        for value, expected in zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True):
            assert value.view is not None
            assert value.view.base.view is None, "views lead to the value that holds the bytes"
            root = values[value.view.base]
            read = np.ndarray(value.type.shape, np.float32, root.tobytes(), value.view.offset, value.view.strides)
            np.testing.assert_array_equal(read, expected)
            values[value] = expected
            views += 1
    assert views == 7


def test_a_view_that_would_copy_is_refused() -> None:
    text = VIEWS.replace("last(flat(a + b))", "last(flat(a))")
    header = Header(small_header().metadata, {"token_embd.weight": Tensor("f32", (32, 64))})
    with pytest.raises(GraphError, match="flat: the input is not laid out in one piece"):
        elaborate(parse_spec(text, "views.yaml"), header, OPS, "run", 2, context=64)
