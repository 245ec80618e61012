"""Typical mistakes in an op or a graph, each of which the golden logits must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from models.test_golden import EXACT_LIMIT, MANIFEST, error, reference

from graphrun import backends
from graphrun.core.gguf import ModelFile
from graphrun.core.op import Op
from graphrun.graphs.spec import load_spec
from graphrun.model import Model
from graphrun.ops import OPS

A = np.ndarray[Any, Any]


def deviation(name: str, change: Callable[[dict[str, Op]], None]) -> float:
    """Largest difference to the golden logits, relative to the largest, with changed ops."""
    ops = {k: v for k, v in OPS.items() if v.fuses is None}  # a fused op would still hold the unchanged one
    change(ops)
    record = MANIFEST["models"][name]
    file = ModelFile.open(GOLDEN / record["file"])
    model = Model(file, load_spec(file.architecture), backends.open("numpy"), activations="exact", ops=ops)
    arrays = np.load(GOLDEN / record["golden"])
    logits = np.stack(list(model.session().score(arrays["tokens"].tolist())))
    return error(logits, reference({k: arrays[k] for k in arrays.files}))


def changed(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[dict[str, Op]], None]:
    """A change that replaces the numpy body of one op by `make(body)`."""

    def change(ops: dict[str, Op]) -> None:
        ops[name] = replace(ops[name], function=make(ops[name].function))

    return change


def given(**fixed: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A body that ignores what the graph says and takes these arguments instead."""
    return lambda body: lambda **arguments: body(**{**arguments, **{k: v for k, v in fixed.items()}})


def interleaved_heads(attend: Callable[..., A]) -> Callable[..., A]:
    """Query head h reads kv head h % G."""

    def wrong(q: A, kc: A, vc: A, pos: A) -> A:
        n_head, n_kv = q.shape[1], kc.shape[1]
        order = np.argsort(np.arange(n_head) % n_kv, kind="stable")
        y = np.empty_like(q)
        y[:, order] = attend(q[:, order], kc, vc, pos)
        return y

    return wrong


def multiplied(rope: Callable[..., A]) -> Callable[..., A]:
    return lambda factors=None, **rest: rope(factors=None if factors is None else 1 / factors, **rest)


def acausal(attend: Callable[..., A]) -> Callable[..., A]:
    """Every token sees the whole batch."""

    def wrong(q: A, kc: A, vc: A, pos: A) -> A:
        end = np.array([int(pos[0]) + q.shape[0] - 1], np.int32)
        return np.concatenate([attend(q[t : t + 1], kc, vc, end) for t in range(q.shape[0])])

    return wrong


MISTAKES: dict[str, tuple[str, Callable[[dict[str, Op]], None]]] = {
    "llama rotates halves": ("llama-s.F32", changed("rope", given(pairs="halves"))),
    "kv head is h % n_kv": ("llama-s.F32", changed("attend", interleaved_heads)),
    "eps 1e-5 although the file says 2e-3": ("llama-tied.F32", changed("rms_norm", given(eps=1e-5))),
    "rope_freqs ignored": ("llama-tied.F32", changed("rope", given(factors=None))),
    "rope_freqs multiplied": ("llama-tied.F32", changed("rope", multiplied)),
    "linear rope scaling ignored": ("llama-linear.F32", changed("rope", given(factor=1.0))),
    "qwen2 rotates adjacent pairs": ("qwen2-s.F32", changed("rope", given(pairs="adjacent"))),
    "qwen2 biases ignored": ("qwen2-s.F32", changed("gemv_f32", given(b=None))),
    "no causal mask": ("llama-s.F32", changed("attend", acausal)),
    "gate and up swapped": (
        "llama-s.F32",
        changed("swiglu", lambda body: lambda gate, up: body(gate=up, up=gate)),
    ),
    "softmax not scaled": (
        "llama-s.F32",
        changed("attend", lambda body: lambda q, **rest: body(q=q * np.float32(np.sqrt(q.shape[-1])), **rest)),
    ),
    "positions one too high": (
        "llama-tied.F32",
        changed("rope", lambda body: lambda pos, x, **rest: body(pos=pos + (x.shape[1] > 2), x=x, **rest)),
    ),
}


@pytest.mark.parametrize("name", sorted({model for model, _ in MISTAKES.values()}))
def test_no_change_agrees(name: str) -> None:
    assert deviation(name, lambda ops: None) < EXACT_LIMIT


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_caught(mistake: str) -> None:
    name, change = MISTAKES[mistake]
    assert deviation(name, change) > 50 * EXACT_LIMIT
