"""Typical mistakes in the hybrid model and its drafters, one at a time, against the reference models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hybrid import LIMIT, RECORDS, Files, error, exact, mtp_rows, tokens
from models.test_mistakes import changed, given, interleaved_heads

from graphrun import backends
from graphrun.core.fmath import silu
from graphrun.core.gguf import ModelFile
from graphrun.core.op import Op
from graphrun.draft import DFlashDrafter, MtpDrafter
from graphrun.graphs.spec import parse_spec, read_source
from graphrun.model import Model
from graphrun.ops import OPS, delta

A = np.ndarray[Any, Any]
Body = Callable[..., Any]
Change = Callable[[dict[str, Op]], None]
NAME = "qwen35-mtp.Q8_0"


def nothing(ops: dict[str, Op]) -> None:
    """The control."""


def text_of(arch: str, *edits: tuple[str, str]) -> str:
    text = read_source(arch)[0].decode()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def model(files: Files, change: Change, text: str) -> Model:
    ops = {k: v for k, v in OPS.items() if v.fuses is None}  # a fused op would still hold the unchanged one
    change(ops)
    file = ModelFile.open(files.path(RECORDS[NAME]["file"]))
    return Model(file, parse_spec(text, "changed"), backends.open("numpy"), activations="exact", ops=ops)


def trunk_error(files: Files, change: Change = nothing, text: str = "") -> float:
    session, arrays = model(files, change, text or text_of("qwen35")).session(), files.arrays(NAME)
    return error(np.stack([session.decode(t) for t in tokens(arrays)]), exact(arrays, "logits"))


def repeated_key_heads(rule: Body) -> Body:
    """Value head h uses key head h // (value heads / key heads)."""

    def wrong(c: A, heads: int, s: A, **rest: Any) -> Any:
        n_head, dim = s.shape[1:3]
        split = c.reshape(len(c), -1, dim)
        q, k, v = np.split(split, [heads, 2 * heads], axis=1)
        wide = np.concatenate([np.repeat(x, n_head // heads, axis=1) for x in (q, k)] + [v], axis=1)
        return rule(c=wide.reshape(len(c), -1), heads=n_head, s=s, **rest)

    return wrong


def unscaled(rule: Body) -> Body:
    def wrong(s: A, **rest: Any) -> Any:
        o, s = rule(s=s, **rest)
        return o * np.float32(s.shape[-1] ** 0.5), s

    return wrong


def gate_inside(norm: Body) -> Body:
    def wrong(o: A, z: A, w: A, eps: float) -> Any:
        return norm(o=o * silu(z).reshape(o.shape), z=np.full_like(z, 50), w=w, eps=eps) / 50

    return wrong


def sigmoid_of_z(norm: Body) -> Body:
    return lambda z, **rest: norm(z=z, **rest) / z


def one_norm(norm: Body) -> Body:
    """All heads together."""
    return lambda o, w, **rest: norm(o=o.reshape(len(o), 1, -1), w=np.tile(w, o.shape[1]), **rest)


def big_halves(halves: Body) -> Body:
    def wrong(x: A) -> Any:
        tokens, heads, channels = x.shape
        return tuple(x.reshape(tokens, 2, heads, channels // 2)[:, i] for i in range(2))

    return wrong


def no_decay_first(q: A, k: A, v: A, beta: A, decay: A, state: A) -> A:
    """The delta from the state before decay."""
    d = (v - (k[:, None] @ state)[:, 0]) * beta[:, None]
    state *= np.exp(decay)[:, None, None]
    state += k[:, :, None] * d[:, None]
    return (q[:, None] @ state)[:, 0]


def read_first(q: A, k: A, v: A, beta: A, decay: A, state: A) -> A:
    """The output from the state before the update."""
    state *= np.exp(decay)[:, None, None]
    o: A = (q[:, None] @ state)[:, 0]
    d = (v - (k[:, None] @ state)[:, 0]) * beta[:, None]
    state += k[:, :, None] * d[:, None]
    return o


def mean_norm(x: A, eps: float) -> A:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps))  # type: ignore[no-any-return]


def without_silu(conv: Body) -> Body:
    def wrong(**arguments: Any) -> Any:
        with patch.object(delta, "silu", lambda x: x):
            return conv(**arguments)

    return wrong


def reversed_taps(conv: Body) -> Body:
    return lambda w, **rest: conv(w=w.f32()[:, ::-1], **rest)


TRUNK: dict[str, Change] = {
    "key head is h // ratio": changed("delta_rule", repeated_key_heads),
    "norm of q and k as x / max(|x|, eps)": changed("delta_rule", given(eps=0.0)),
    "1 / sqrt(d) left out": changed("delta_rule", unscaled),
    "ssm_a is the logarithm of A": changed("delta_rule", lambda body: lambda a, **rest: body(a=-np.exp(a), **rest)),
    "taps reversed": changed("conv_silu", reversed_taps),
    "no SiLU after the convolution": changed("conv_silu", without_silu),
    "gate inside the norm": changed("gated_norm", gate_inside),
    "sigmoid(z) instead of silu(z)": changed("gated_norm", sigmoid_of_z),
    "one norm over all heads": changed("gated_norm", one_norm),
    "q and gate in two halves": changed("halves", big_halves),
    "gate before q": changed("halves", lambda body: lambda x: body(x)[::-1]),
    "silu(gate) instead of sigmoid(gate)": changed(
        "sigmoid_gate", lambda body: lambda x, gate: body(x=x, gate=gate) * gate
    ),
    "adjacent pairs rotated": changed("rope", given(pairs="adjacent")),
    "the whole head rotated": changed("rope", given(width=32)),
    "kv head is h % n_kv": changed("attend", interleaved_heads),
    "beta left out": changed("delta_rule", lambda body: lambda b, **rest: body(b=b + 100, **rest)),
}
INSIDE: dict[str, tuple[str, Any]] = {
    "delta before decay": ("recur", no_decay_first),
    "output before the update": ("recur", read_first),
    "norm with the mean of squares": ("unit", mean_norm),
}
NORM_AFTER = (
    ("rope(rms_norm(q, q_norm, eps), pos", "rope(q, pos"),
    ("attend(qr, K", "attend(rms_norm(qr, q_norm, eps), K"),
)


def test_no_change_agrees(files: Files) -> None:
    assert trunk_error(files) < LIMIT


@pytest.mark.parametrize("mistake", TRUNK)
def test_trunk_mistake_is_caught(mistake: str, files: Files) -> None:
    assert trunk_error(files, TRUNK[mistake]) > 50 * LIMIT


@pytest.mark.parametrize("mistake", INSIDE)
def test_mistake_inside_the_delta_rule_is_caught(mistake: str, files: Files) -> None:
    name, wrong = INSIDE[mistake]
    with patch.object(delta, name, wrong):
        assert trunk_error(files) > 50 * LIMIT


def test_rotation_before_the_norm_is_caught(files: Files) -> None:
    assert trunk_error(files, text=text_of("qwen35", *NORM_AFTER)) > 50 * LIMIT


def mtp_error(files: Files, change: Change = nothing, text: str = "", shift: int = 0, same: bool = False) -> float:
    """Error of the MTP rows; `shift` moves their positions, `same` pairs tokens with their own hidden state."""
    opened, arrays = model(files, change, text or text_of("qwen35")), files.arrays(NAME)
    drafter = MtpDrafter(opened)
    opened.session(drafter).prefill(tokens(arrays))
    if same:
        states = [h for _, h in drafter.queue[1:]] + [drafter.last]
        drafter.queue = [(t, h) for (t, _), h in zip(drafter.queue, states, strict=True)]
    golden = exact(arrays, "mtp_logits")
    if shift:
        drafter.queue = drafter.queue[shift:]  # row p runs at position p - shift
        golden = golden[shift:]
    return error(mtp_rows(drafter)[0], golden)


MTP: dict[str, dict[str, Any]] = {
    "[h, e] instead of [e, h]": {"change": changed("concat", lambda body: lambda a, b: body(a=b, b=a))},
    "hidden state of the same position": {"same": True},
    "row of position 0 left out, positions one lower": {"shift": 1},
    "output_norm instead of shared_head_norm": {
        "text": ("hidden: rms_norm(h, mtp_norm, eps)", "hidden: rms_norm(h, output_norm, eps)")
    },
    "hidden before output_norm": {
        "text": (
            "hidden: rms_norm(h, output_norm, eps)\n    logits: linear(rows(hidden), output)",
            "hidden: h\n    logits: linear(rows(rms_norm(h, output_norm, eps)), output)",
        )
    },
}


def test_no_change_of_the_mtp_layer_agrees(files: Files) -> None:
    assert mtp_error(files) < LIMIT


@pytest.mark.parametrize("mistake", MTP)
def test_mtp_mistake_is_caught(mistake: str, files: Files) -> None:
    options = dict(MTP[mistake])
    if "text" in options:
        options["text"] = text_of("qwen35", options["text"])
    assert mtp_error(files, **options) > 50 * LIMIT


def block_error(files: Files, change: Change = nothing, *edits: tuple[str, str]) -> float:
    """Error of the drafter's block logits; the reference rounds activations, which is 0.03."""
    ops = {k: v for k, v in OPS.items() if v.fuses is None}
    change(ops)
    arrays, heads = files.arrays("dflash.Q8_0"), files.path("models/qwen35-heads.F32.gguf")
    spec = parse_spec(text_of("qwen35"), "qwen35")
    target = Model(ModelFile.open(heads), spec, backends.open("numpy"), activations="exact", ops=ops)
    drafter = DFlashDrafter(target, files.path("models/dflash.Q8_0.gguf"))
    drafter.source.spec = parse_spec(text_of("dflash", *edits), "changed")
    drafter.remember(0, tokens(arrays), arrays["features"])
    drafter.draft(int(arrays["block_tokens"][0]), 7)
    return error(drafter.source.runner.read("logits"), arrays["block_logits"])


def causal(attend: Body) -> Body:
    def wrong(q: A, k: A, v: A, **rest: Any) -> A:
        rows = [attend(q=q[: t + 1], k=k[: t + 1], v=v[: t + 1], **rest)[-1] for t in range(len(q))]
        return np.stack(rows)

    return wrong


def regrouped(conv: Body) -> Body:
    """Coefficients as [side][group][tap]."""

    def wrong(dyn: A, base: A, **rest: Any) -> Any:
        taps = base.shape[1]
        other = dyn.reshape(len(dyn), 2, -1, taps).swapaxes(2, 3).reshape(dyn.shape)
        return conv(dyn=np.ascontiguousarray(other), base=base, **rest)

    return wrong


def forward(conv: Body) -> Body:
    return lambda x, dyn, **rest: conv(x=x[::-1], dyn=dyn[::-1], **rest)[::-1]


DFLASH: dict[str, Change] = {
    "causal within the block": changed("attend_block", causal),
    "window ignored": changed("attend_block", given(window=0)),
    "sides swapped": changed("dynamic_conv", lambda body: lambda side, **rest: body(side=1 - side, **rest)),
    "coefficients by group first": changed("dynamic_conv", regrouped),
    "convolution without its base": changed(
        "dynamic_conv", lambda body: lambda base, **rest: body(base=np.zeros_like(base), **rest)
    ),
    "taps look forward": changed("dynamic_conv", forward),
}


def test_no_change_of_the_drafter_agrees(files: Files) -> None:
    assert block_error(files) < 0.05


@pytest.mark.parametrize("mistake", DFLASH)
def test_drafter_mistake_is_caught(mistake: str, files: Files) -> None:
    assert block_error(files, DFLASH[mistake]) > 0.15


def test_features_without_their_norm_are_caught(files: Files) -> None:
    edit = ("rms_norm(linear(features, fc), fc_norm, eps)", "linear(features, fc)")
    assert block_error(files, nothing, edit) > 0.15
