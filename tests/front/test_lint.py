"""What a graph does not need is named with its place; the graphs of the repository need all they have."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import GOLDEN, ROOT
from small_graph import SMALL
from typer.testing import CliRunner

from graphrun.cli import app
from graphrun.lint import lint

MODELS = GOLDEN / "models"
GRAPHS = sorted([*(ROOT / "graphs").glob("*.yaml"), *(ROOT / "examples").glob("*.yaml")])


def found(tmp_path: Path, *changes: tuple[str, str]) -> list[str]:
    """Findings in SMALL with texts replaced: line:col: message, and the hint if there is one."""
    text = SMALL
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = tmp_path / "g.yaml"
    path.write_text(text)
    place = str(path)
    return [
        f"{str(e.span).removeprefix(place + ':')}: {e.message}{f' ({e.hint})' if e.hint else ''}" for e in lint(place)
    ]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda path: path.name)
def test_the_graphs_of_the_repository_are_clean(graph: Path) -> None:
    assert lint(str(graph)) == []


@pytest.mark.parametrize(
    "name", ["llama-s.Q4_0", "llama-tied.F32", "qwen2-s.F32", "qwen35-mtp.Q4_0", "qwen35-k.Q4_K_M"]
)
def test_with_a_model_too(name: str) -> None:
    assert lint(name.split("-")[0], MODELS / f"{name}.gguf") == []


def test_the_small_graph_is_clean(tmp_path: Path) -> None:
    assert found(tmp_path) == []


Change = tuple[str, str]


def before(line: str, *added: str) -> Change:
    """Lines added before the one that begins like this."""
    return f"\n{line}", "".join(f"\n{a}" for a in (*added, line))


K = "      k: heads"
ROWS = "logits: linear(rows(h), table, bias)"
EMBEDDED = "h: layers(embed(tokens, table))"
FINDINGS: list[tuple[list[Change], list[str]]] = [
    (
        [before("let:", "  spare: attention.key_length or 1")],
        ["8:3: param 'spare' is never read (if its key changes nothing, list the key under ignored)"],
    ),
    ([before("  dim:", "  half: n_embd // 2")], ["9:3: 'half' is never read"]),
    ([before("weights:", "inputs: {more: 'f32[n_embd]'}")], ["13:10: input 'more' is never read"]),
    ([before("  bias:", "  spare: spare.weight [n_embd] or none")], ["15:3: weight 'spare' is never read"]),
    (
        [before("      wk:", "      wo: blk.{i}.o [n_embd] or none")],
        ["21:7: weight 'wo' of block attention is never read"],
    ),
    ([before(K, "      z: rms_norm(x, norm, eps)")], ["28:7: 'z' is never read"]),
    (
        [before(K, "      a: rms_norm(x, norm, eps)", "      b: a + x", "      c: b * a")],
        ["28:7: 'a' is never read", "29:7: 'b' is never read", "30:7: 'c' is never read"],
    ),
    ([before(K, "      a, b: halves(q)")], ["28:7: 'a' is never read", "28:10: 'b' is never read"]),
    ([before(K, "      a, b: halves(q)"), ("attend(q, K", "attend(a, K")], []),  # b comes with a
    (
        [before("      keys:", "      more: append f16[n_head, dim]")],
        ["23:7: state 'more' of block attention is never used"],
    ),
    (
        [("flat(attend(q, K, V, pos))", "flat(q)")],
        [
            "23:7: state 'keys' of block attention is written, but never read",
            "24:7: state 'values' of block attention is written, but never read",
        ],
    ),
    (
        [before("layers:", "  spare: {body: {h: other(h)}}", "  other: {body: {h: h + h}}")],
        ["31:3: no step reaches block spare", "32:3: no step reaches block other"],
    ),
    ([(EMBEDDED, "h: attention(embed(tokens, table), i=0)")], ["31:1: no step reaches the layers"]),
    ([(EMBEDDED, "h: layers(embed(tokens, table), attention)")], []),  # the number of layers is used
    ([before("steps:", "  spare: {logits: 'embed(tokens, table)'}")], ["38:3: graph spare belongs to no step"]),
    (
        [before("  prefill:", "  spare: {graph: main, tokens: 1, when: not true}")],
        ["40:41: step spare can never run, its condition is false"],
    ),
    (
        [before("  dim:", "  flat: n_embd"), before("  - n_embd", "  - flat > 0")],
        ["9:3: 'flat' is also the name of an op"],
    ),
    (
        [before("  dim:", "  sqrt: n_embd"), before("  - n_embd", "  - sqrt > 0")],
        ["9:3: 'sqrt' is also the name of a function"],
    ),
    (
        [(ROWS, "attention: rows(h)\n    logits: linear(attention, table, bias)")],
        ["37:5: 'attention' is also the name of a block"],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), FINDINGS)
def test_findings(changes: list[Change], expected: list[str], tmp_path: Path) -> None:
    assert found(tmp_path, *changes) == expected


def test_a_name_that_is_defined_twice_is_a_mistake(tmp_path: Path) -> None:
    """A block's weight named like a global one, or like a param."""
    for name in ("table", "n_embd", "dim"):
        changes = [("      wk: blk", f"      {name}: blk.{{i}}.o [n_embd]\n      wk: blk")]
        assert found(tmp_path, *changes) == [f"21:7: '{name}' is already defined (names are assigned once)"]


def test_tensors_that_no_step_of_a_model_reads(tmp_path: Path) -> None:
    graph = tmp_path / "g.yaml"
    text = (ROOT / "graphs" / "llama.yaml").read_text()
    old = "      y: swiglu(linear(x, gate, b_gate), linear(x, up, b_up))\n"
    assert old in text
    graph.write_text(text.replace(old, "      y: linear(x, gate, b_gate) if n_expert == 0 else linear(x, up, b_up)\n"))
    errors = lint(str(graph), MODELS / "llama-s.F32.gguf")
    assert [e.message for e in errors] == [
        f"blk.{i}.ffn_up.weight is bound here, but no step of this model reads it" for i in (0, 1)
    ]
    assert str(errors[0]).splitlines()[1].strip() == "up:     blk.{i}.ffn_up.weight   [n_ff, n_embd]"


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(SMALL.replace("let:\n", "let:\n  half: n_embd // 2\n"))
    result = CliRunner().invoke(app, ["lint", str(path)])
    assert result.exit_code == 1
    assert result.stdout == f"{path}:9:3: 'half' is never read\n      half: n_embd // 2\n      ^\n"
    result = CliRunner().invoke(app, ["lint", "llama", str(MODELS / "llama-s.F32.gguf")])
    assert (result.exit_code, result.stdout) == (0, "ok\n")
    assert CliRunner().invoke(app, ["lint", "nothing"]).exit_code == 2
