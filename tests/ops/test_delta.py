"""The delta-net ops: from llama.cpp's own intermediate tensors, from plain float64, and the bits over tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrun.core.gguf import ModelFile
from graphrun.core.quant import Matrix
from graphrun.ops.delta import chunked, conv_silu, delta_layer, delta_rule, gated_norm, recur
from graphrun.ops.dflash import attend_block, dynamic_conv, lattice, store_ring, topk
from graphrun.ops.gate import concat, halves, sigmoid_gate
from graphrun.ops.rope import rope, turning

A = np.ndarray[Any, Any]
EPS = 1e-6
KEY_HEADS, VALUE_HEADS, DIM, SLOTS = 2, 4, 32, 16
CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * DIM


def near(found: A, golden: A, limit: float = 2e-6) -> bool:
    return float(np.abs(found.astype(np.float64) - golden).max() / np.abs(golden).max()) < limit


def at(value: int) -> A:
    return np.array([value], np.int32)


class Golden:
    """Intermediate tensors of a layer and the file's weights."""

    def __init__(self, folder: Path, layer: int) -> None:
        self.arrays = np.load(folder / "golden" / "qwen35-mtp.F32.inter.npz")
        self.file = ModelFile.open(folder / "models" / "qwen35-mtp.F32.gguf")
        self.layer = layer

    def node(self, name: str) -> A:
        found: A = self.arrays[f"{name}-{self.layer}"]
        return found

    def weight(self, name: str) -> A:
        tensor = f"blk.{self.layer}.{name}"
        return self.file.raw(tensor).view(np.float32).reshape(self.file.tensors[tensor].shape)

    def inputs(self) -> tuple[A, A, A]:
        """Convolved channels, beta and alpha inputs."""
        x = self.node("attn_norm")
        beta, alpha = (x @ self.weight(f"ssm_{n}.weight").T for n in ("beta", "alpha"))
        return self.node("conv_output_silu"), beta, alpha


@pytest.fixture(params=[0, 1])
def layer(request: pytest.FixtureRequest, extra_golden: Path) -> Golden:
    return Golden(extra_golden, request.param)


def test_conv_is_llama_cpps(layer: Golden) -> None:
    x, tail = layer.node("linear_attn_qkv_mixed"), np.full((32, CHANNELS), np.nan, np.float32)
    y, _ = conv_silu(x, layer.weight("ssm_conv1d.weight"), tail, at(0))
    assert near(y, layer.node("conv_output_silu"))
    assert np.array_equal(tail[: len(x)], x)


def test_delta_rule_is_llama_cpps(layer: Golden) -> None:
    c, beta, alpha = layer.inputs()
    s = np.full((SLOTS, VALUE_HEADS, DIM, DIM), np.nan, np.float32)
    dt, a = layer.weight("ssm_dt.bias"), layer.weight("ssm_a")
    o, _ = delta_rule(c, beta, alpha, dt, a, s, at(0), at(0), KEY_HEADS, EPS)
    assert near(o, layer.node("attn_output"), 1e-5)
    y = gated_norm(layer.node("attn_output"), layer.node("z"), layer.weight("ssm_norm.weight"), EPS)
    assert near(y, layer.node("final_output"))


def test_fused_layer_is_its_parts(layer: Golden) -> None:
    _, beta, alpha = layer.inputs()
    states = [np.zeros((32, CHANNELS), np.float32), np.zeros((SLOTS, VALUE_HEADS, DIM, DIM), np.float32)]
    y, tail, s = delta_layer(
        x=layer.node("linear_attn_qkv_mixed"),
        w=layer.weight("ssm_conv1d.weight"),
        tail=states[0],
        b=beta,
        g=alpha,
        dt=layer.weight("ssm_dt.bias"),
        a=layer.weight("ssm_a"),
        s=states[1],
        z=layer.node("z"),
        norm=layer.weight("ssm_norm.weight"),
        pos=at(0),
        slot=at(0),
        heads=KEY_HEADS,
        eps=EPS,
    )
    assert near(y, layer.node("final_output"), 1e-5)
    assert tail is states[0] and s is states[1]


def test_gate_is_llama_cpps(extra_golden: Path) -> None:
    layer = Golden(extra_golden, 3)
    x, gate = layer.node("attn_pregate"), layer.node("gate_sigmoid")
    q = layer.node("attn_norm") @ layer.weight("attn_q.weight").T
    query, raw = halves(q.reshape(len(q), 4, 2 * DIM))
    normed = query / np.sqrt(np.mean(query**2, axis=-1, keepdims=True) + EPS) * layer.weight("attn_q_norm.weight")
    assert near(normed, layer.node("Qcur_normed"))
    assert near(rope(normed, at(0), 1e7, 16, "halves", section_t=3, section_h=3, section_w=2), layer.node("Qcur"))
    assert near(sigmoid_gate(np.ones_like(x), raw.reshape(x.shape)), gate)
    assert np.shares_memory(query, q) and np.shares_memory(raw, q)


def random_step(rng: np.random.Generator, tokens: int) -> tuple[A, A, A]:
    shapes = ((tokens, CHANNELS), (tokens, VALUE_HEADS), (tokens, VALUE_HEADS))
    c, b, g = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return c, b, g


def float64_rule(c: A, b: A, g: A, dt: A, a: A) -> tuple[A, A]:
    """The recurrence from position 0, written out: outputs and last state."""
    c, b, g = c.astype(np.float64), b.astype(np.float64), g.astype(np.float64)
    state = np.zeros((VALUE_HEADS, DIM, DIM))
    out = np.zeros((len(c), VALUE_HEADS, DIM))
    for t, row in enumerate(c.reshape(len(c), -1, DIM)):
        q, k, v = np.split(row, [KEY_HEADS, 2 * KEY_HEADS])
        for h in range(VALUE_HEADS):
            qh, kh = (x[h % KEY_HEADS] / np.sqrt((x[h % KEY_HEADS] ** 2).sum() + EPS) for x in (q, k))
            state[h] *= np.exp(a[h] * np.log1p(np.exp(g[t, h] + dt[h])))
            state[h] += np.outer(kh, (v[h] - state[h].T @ kh) / (1 + np.exp(-b[t, h])))
            out[t, h] = state[h].T @ qh / np.sqrt(DIM)
    return out, state


DT = np.array([0.5, -1, 2, 25], np.float32)
DECAY = -np.array([0.1, 1, 3, 0.01], np.float32)


def run(c: A, b: A, g: A, sizes: list[int], copies: int = SLOTS) -> tuple[A, A, int]:
    """Steps of these sizes: outputs, states and the number of the current one."""
    s = np.full((copies, VALUE_HEADS, DIM, DIM), np.nan, np.float32)
    outputs, pos, slot = [], 0, 0
    for size in sizes:
        part = slice(pos, pos + size)
        o, _ = delta_rule(c[part], b[part], g[part], DT, DECAY, s, at(pos), at(slot), KEY_HEADS, EPS)
        outputs.append(o)
        pos, slot = pos + size, (slot + size - 1) % copies
    return np.concatenate(outputs), s, slot


@pytest.mark.parametrize("sizes", [[1] * 70, [70], [33, 37], [17, 17, 17, 19], [3, 64, 3], [20, 1, 32, 17]])
def test_every_form_is_the_recurrence(sizes: list[int]) -> None:
    c, b, g = random_step(np.random.default_rng(1), 70)
    expected, state = float64_rule(c, b, g, DT, DECAY)
    o, s, slot = run(c, b, g, sizes)
    assert near(o, expected, 5e-6)
    assert near(s[slot], state, 5e-6)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 16), st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from([8, 16]))
def test_few_tokens_have_the_bits_of_one(tokens: int, before: int, seed: int, copies: int) -> None:
    """Outputs, the state after every token that has a copy, and a continuation after keeping a part."""
    rng = np.random.default_rng(seed)
    c, b, g = random_step(rng, before + tokens)
    start = [before] if before else []
    single, s1, slot1 = run(c, b, g, [*start, *[1] * tokens], copies)
    together, s2, slot2 = run(c, b, g, [*start, tokens], copies)
    assert np.array_equal(single, together)
    assert np.array_equal(s1[slot1], s2[slot2])
    if tokens <= copies:
        first = slot2 - tokens + 1
        for kept in range(1, tokens + 1):
            _, s, slot = run(c, b, g, [*start, *[1] * kept], copies)
            assert np.array_equal(s[slot], s2[(first + kept - 1) % copies])


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(1, 40), st.integers(0, 80), st.integers(0, 2**32 - 1))
def test_conv_over_the_ring(tokens: int, before: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((before + tokens, 24), dtype=np.float32)
    w = rng.standard_normal((24, 4), dtype=np.float32)
    padded = np.concatenate([np.zeros((3, 24)), x]).astype(np.float64)
    plain = np.array([(padded[t : t + 4] * w.T).sum(axis=0) for t in range(len(x))])
    tail = np.full((32, 24), np.nan, np.float32)
    one = np.concatenate([conv_silu(x[t : t + 1], w, tail, at(t))[0] for t in range(len(x))])
    ring = np.full((32, 24), np.nan, np.float32)
    if before:
        conv_silu(x[:before], w, ring, at(0))
    y, _ = conv_silu(x[before:], w, ring, at(before))
    assert np.array_equal(y, one[before:])
    assert np.array_equal(ring, tail, equal_nan=True)
    assert near(one, plain / (1 + np.exp(-plain)), 5e-6)


def test_segments_of_the_chunked_form_do_not_overflow() -> None:
    """Decays of e^-60 a token: sums of logarithms reach -2000 within a segment."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((40, VALUE_HEADS, DIM), dtype=np.float32) / 8 for _ in range(3))
    beta = np.full((40, VALUE_HEADS), 0.9, np.float32)
    decay = np.where(rng.random((40, VALUE_HEADS)) < 0.5, -60, -1e-3).astype(np.float32)
    state = rng.standard_normal((VALUE_HEADS, DIM, DIM), dtype=np.float32)
    one = state.copy()
    expected = np.stack([recur(q[t], k[t], v[t], beta[t], decay[t], one) for t in range(40)])
    o, last = chunked(q, k, v, beta, decay, state)
    assert near(o, expected, 5e-6) and near(last, one, 5e-6)


@pytest.mark.parametrize(
    ("sections", "turn"),
    [((11, 11, 10), 32), ((8, 0, 0), 3), ((4, 2, 2), 7), ((3, 3, 2), 8), ((1, 0, 0), 1), ((0, 1, 0), 1)],
)
def test_sections_choose_pairs(sections: tuple[int, int, int], turn: int) -> None:
    pairs = 32 if turn == 32 else 8
    assert turning(pairs, sections).sum() == turn
    if sections == (8, 0, 0):
        assert np.flatnonzero(turning(pairs, sections)).tolist() == [0, 3, 6]


def test_concat() -> None:
    a, b = np.ones((2, 3), np.float32), np.zeros((2, 5), np.float32)
    assert concat(a, b).tolist() == [[1] * 3 + [0] * 5] * 2


def test_dynamic_conv_looks_back_within_the_block() -> None:
    rng = np.random.default_rng(0)
    x, base = rng.standard_normal((5, 8), dtype=np.float32), rng.standard_normal((2, 2, 8), dtype=np.float32)
    dyn = rng.standard_normal((5, 2 * 2 * 2), dtype=np.float32)
    kernel = base + np.repeat(dyn.reshape(5, 2, 2, 2), 4, axis=3)
    for side in (0, 1):
        y = dynamic_conv(x, dyn, base, side, 4)
        for t in range(5):
            past = x[t - 1] if t else np.zeros(8)
            assert np.allclose(y[t], kernel[t, side, 0] * x[t] + kernel[t, side, 1] * past, atol=1e-6)


@pytest.mark.parametrize(("window", "first"), [(0, 0), (0, 19), (16, 5), (16, 50), (4, 2)])
def test_attend_block(window: int, first: int) -> None:
    """Against a float64 softmax over a cache without a ring."""
    rng = np.random.default_rng(first)
    keys, values = (rng.standard_normal((first + 8, 2, 4), dtype=np.float32) for _ in range(2))
    size = 40 if window else first + 8
    kc, vc = (np.full((size, 2, 4), np.nan, np.float32) for _ in range(2))
    for t in range(first):
        store_ring(keys[t : t + 1], values[t : t + 1], kc, vc, at(t))
    q = rng.standard_normal((8, 4, 4), dtype=np.float32)
    y = attend_block(q, keys[first:], values[first:], kc, vc, at(first), window)
    for t in range(8):
        seen = [p for p in range(first + 8) if not window or first + t - p < window]
        for h in range(4):
            scores = keys[seen, h // 2].astype(np.float64) @ q[t, h] / 2
            weights = np.exp(scores - scores.max())
            assert np.allclose(y[t, h], weights @ values[seen, h // 2] / weights.sum(), atol=1e-5)


def test_candidates_and_their_scores() -> None:
    x = np.array([[1, 3, 3, 0], [5, 1, 5, 7], [0, 0, 0, 0]], np.float32)
    top, ids = topk(x, 2)
    assert ids.tolist() == [[1, 2], [3, 0], [0, 1]] and top.tolist() == [[3, 3], [7, 5], [0, 0]]
    rng = np.random.default_rng(0)
    before, after, gate = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 3), (4, 3), (3, 3)))
    anchor = np.array([2, 0, 0], np.int32)
    scores = lattice(top, ids, gate, Matrix.dense(before), Matrix.dense(after), anchor)
    for t in (1, 2):
        for p in range(2):
            left = before[2] if t == 1 else before[ids[t - 1, p]]
            expected = top[t] + (left * gate[t]) @ after[ids[t]].T
            assert np.allclose(scores[t, p], expected, atol=1e-6)
