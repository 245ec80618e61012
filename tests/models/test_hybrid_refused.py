"""qwen35 and dflash files that cannot be run are refused with the name of what is wrong; odd ones that can are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_hybrid
from hybrid import Files, error

from graphrun import load
from graphrun.core.errors import GraphrunError, ModelError, UsageError
from graphrun.core.gguf import ModelFile
from graphrun.draft import DFlashDrafter, MtpDrafter

E = tiny_hybrid.E
VISION = {"v.patch_embd.weight": (E, 16)}
EXPERTS = {"blk.0.ffn_gate_exps.weight": (4, 8, E)}


def refusal(path: Path, **changes: Any) -> str:
    """The message for a model with these changes."""
    with pytest.raises(GraphrunError) as error:
        load(tiny_hybrid.qwen35(path / "m.gguf", **changes), context=64).session().decode(1)
    return str(error.value)


def key(name: str, value: object) -> dict[str, Any]:
    return {"metadata": {f"qwen35.{name}": value}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "vision": ({"tensors": VISION}, "v.patch_embd.weight is in the model file"),
    "experts": ({"tensors": EXPERTS}, "blk.0.ffn_gate_exps.weight is in the model file"),
    "expert count": (key("expert_count", 8), "n_expert = 8"),
    "unknown key": (key("ssm.dt_b_c_rms", True), "'qwen35.ssm.dt_b_c_rms', which this graph does not read"),
    "no sections": (key("rope.dimension_sections", None), "no key 'qwen35.rope.dimension_sections'"),
    "three sections": (key("rope.dimension_sections", [3, 3, 2]), "len(sections) == 4"),
    "empty sections": (key("rope.dimension_sections", [0, 0, 0, 8]), "sections[0] + sections[1] + sections[2] > 0"),
    "inner size": (key("ssm.inner_size", 96), "d_inner = 96, heads_v = 4, d_state = 32"),
    "head counts": (key("ssm.group_count", 3), "heads_v % heads_k == 0"),
    "value length": (key("attention.value_length", 16), "value_dim == head_dim"),
    "rope scaling": (key("rope.scaling.type", "yarn"), 'scaling == "none"'),
    "two MTP layers": (key("nextn_predict_layers", 2), "n_mtp = 2"),
    "recurrent layers": (key("attention.recurrent_layers", [True] * 4), "len(recurrent) in (0, n_block)"),
    "no norm": ({"tensors": {"blk.0.ssm_norm.weight": None}}, "no tensor 'blk.0.ssm_norm.weight'"),
    "no gate": ({"tensors": {"blk.1.attn_gate.weight": None}}, "no tensor 'blk.1.attn_gate.weight'"),
    "no eh_proj": ({"tensors": {"blk.4.nextn.eh_proj.weight": None}}, "no tensor 'blk.4.nextn.eh_proj.weight'"),
    "MTP not announced": (key("nextn_predict_layers", None), "blk.4"),
    "ffn_norm": (
        {"tensors": {"blk.0.post_attention_norm.weight": None, "blk.0.ffn_norm.weight": (E,)}},
        "no tensor 'blk.0.post_attention_norm.weight'",
    ),
    "ssm_a with suffix": ({"tensors": {"blk.0.ssm_a": None, "blk.0.ssm_a.weight": (4,)}}, "no tensor 'blk.0.ssm_a'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    changes, message = REFUSED[case]
    found = refusal(tmp_path, **changes)
    assert message in found.replace("\n", " "), found


@pytest.mark.parametrize("name", ["conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size"])
def test_every_ssm_key_is_needed(name: str, tmp_path: Path) -> None:
    assert f"no key 'qwen35.ssm.{name}'" in refusal(tmp_path, **key(f"ssm.{name}", None))


@pytest.mark.parametrize("layers", [1, 2, 3, 5, 6])
def test_layers_that_the_interval_does_not_divide(layers: int, tmp_path: Path) -> None:
    model = load(tiny_hybrid.qwen35(tmp_path / "m.gguf", layers=layers), context=64)
    scopes = [c.scope for c in model.program("decode").calls if c.op.name in ("delta_layer", "attend")]
    assert scopes == [f"{i}.attention" if i % 4 == 3 else f"{i}.delta" for i in range(layers)]
    assert np.isfinite(model.session().prefill([1, 2, 3])).all()


@pytest.mark.parametrize("kind", [bool, int])
def test_recurrent_layers_win_over_the_interval(kind: type, tmp_path: Path) -> None:
    full = [0, 2]
    listed = [kind(i not in full) for i in range(5)]
    made = tiny_hybrid.shapes(4)
    moved = {n: t for n, t in made.items() if n.startswith(("blk.0.", "blk.2.", "blk.3.")) and "ffn" not in n}
    right = {
        **tiny_hybrid.attention(0),
        **tiny_hybrid.attention(2),
        **tiny_hybrid.delta(3),
        "blk.3.ssm_a": -np.ones(4, np.float32),
    }
    keep = {n: made[n] for n in moved if "post_attention" in n}
    tensors: dict[str, Any] = {**dict.fromkeys(moved), **right, **keep}
    path = tiny_hybrid.qwen35(tmp_path / "m.gguf", tensors=tensors, **key("attention.recurrent_layers", listed))
    model = load(path, context=64)
    scopes = [c.scope for c in model.program("decode").calls if c.op.name in ("delta_layer", "attend")]
    assert scopes == ["0.attention", "1.delta", "2.attention", "3.delta"]
    model.session().decode(1)


def logits(path: Path, **changes: Any) -> Any:
    model = load(tiny_hybrid.qwen35(path / "m.gguf", **changes), context=64, activations="exact")
    return np.stack(list(model.session().score([int(t) for t in range(30)])))


def test_sections_that_turn_every_pair_are_plain(tmp_path: Path) -> None:
    plain = logits(tmp_path)
    assert np.array_equal(plain, logits(tmp_path, **key("rope.dimension_sections", [8, 8, 8, 0])))
    assert error(logits(tmp_path, **key("rope.dimension_sections", [8, 0, 0, 0])), plain) > 1e-4


@pytest.mark.parametrize("tensor", ["embed_tokens", "shared_head_head"])
def test_mtp_with_its_own_embedding_or_head(tensor: str, tmp_path: Path) -> None:
    """The optional tensors are used if they are there: copies of the shared ones change nothing, others do."""
    drafts = []
    shared = {"embed_tokens": "token_embd.weight", "shared_head_head": "output.weight"}[tensor]
    base = ModelFile.open(tiny_hybrid.qwen35(tmp_path / "m.gguf"))
    copy = base.raw(shared).view(np.float32).reshape(base.tensors[shared].shape)
    for values in (None, copy, np.roll(copy, 1, axis=0)):
        path = tiny_hybrid.qwen35(tmp_path / "n.gguf", tensors={f"blk.4.nextn.{tensor}.weight": values})
        model = load(path, context=64, activations="exact")
        drafter = MtpDrafter(model)
        model.session(drafter).prefill([1, 2, 3])
        drafts.append(drafter.draft(4, 6))
    assert drafts[0] == drafts[1] != drafts[2]


def test_mtp_head_norm_is_optional(tmp_path: Path) -> None:
    path = tiny_hybrid.qwen35(tmp_path / "m.gguf", tensors={"blk.4.nextn.shared_head_norm.weight": None})
    model = load(path, context=64)
    assert "output_norm" in {
        v.parts[0].tensor.split(".")[0] for v in model.program("draft", 1).weights if v.parts[0].tensor
    }


def test_mtp_file_of_another_width(tmp_path: Path, files: Files) -> None:
    model, other = load(tiny_hybrid.qwen35(tmp_path / "m.gguf")), load(files.path("models/qwen35-k.Q4_K_M.gguf"))
    with pytest.raises(UsageError, match="no MTP layer"):
        MtpDrafter(model, other)
    with pytest.raises(UsageError, match="no MTP layer"):
        MtpDrafter(other)
    with pytest.raises(ModelError, match="embedding_length: is 64, the model that it drafts for has 256"):
        MtpDrafter(other, model)


def copy_of(source: Path, target: Path, metadata: dict[str, Any]) -> Path:
    """A file of plain f32 tensors with other keys."""
    file = ModelFile.open(source)
    tensors = {n: np.zeros(t.shape, np.float32) for n, t in file.tensors.items()}
    keys: dict[str, Any] = {**file.metadata, **metadata}
    return tiny.write(target, file.architecture, keys, tensors)


DRAFTERS: dict[str, tuple[dict[str, Any], str]] = {
    "no target layers": ({"dflash.target_layers": None}, "dflash.target_layers: is missing"),
    "empty target layers": ({"dflash.target_layers": 3}, "dflash.target_layers: is missing"),
    "target has fewer layers": ({"dflash.target_layers": [1, 3, 60]}, "the model has 8 layers"),
    "another width": ({"dflash.embedding_length": 128}, "dflash.embedding_length: is 128"),
    "another vocabulary": ({"tokenizer.ggml.tokens": ["a", "b"]}, "tokenizer.ggml.tokens: is 2"),
    "causal": ({"dflash.attention.causal": True}, "causal == false"),
    "a window without its pattern": ({"dflash.attention.sliding_window_pattern": None}, "len(windowed) == n_layer"),
    "groups": ({"dflash.conv_group_size": 7}, "n_embd % group == 0"),
    "no selector": ({"dflash.selector_top_k": None}, "no key 'dflash.selector_top_k'"),
    "a scale": ({"dflash.attention.scale": 0.5}, "'dflash.attention.scale', which this graph does not read"),
}


@pytest.mark.parametrize("case", DRAFTERS)
def test_drafters_refused(case: str, tmp_path: Path, files: Files) -> None:
    changes, message = DRAFTERS[case]
    path = copy_of(files.path("models/dflash.Q4_0.gguf"), tmp_path / "d.gguf", changes)
    target = load(files.path("models/qwen35-heads.F32.gguf"))
    with pytest.raises(GraphrunError) as caught:
        DFlashDrafter(target, path).draft(1, 3)
    assert message in str(caught.value)


def test_a_drafter_of_another_architecture(tmp_path: Path, files: Files) -> None:
    model = load(tiny_hybrid.qwen35(tmp_path / "m.gguf"))
    with pytest.raises(ModelError, match="is 'qwen35', a drafter's is 'dflash'"):
        DFlashDrafter(model, tmp_path / "m.gguf")
