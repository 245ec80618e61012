"""Files that are no graph files, and files made to exhaust whoever reads them."""

from __future__ import annotations

import pytest
from small_graph import SMALL, small_header

from graphrun.graphs.elaborate import check
from graphrun.ops import OPS

HEADER = small_header()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "g.yaml:1:1: the file is empty"),
        (b"# nothing\n", "g.yaml:1:1: the file is empty"),
        (b"arch: \xff\n", "g.yaml:1:1: the file is not UTF-8 text"),
        (b"arch: a\n---\narch: b\n", "g.yaml:2:1: a graph file is one YAML document, this starts another"),
        (b"arch: \x01\n", "g.yaml:1:7: this character is not allowed in YAML"),
        (b"- arch\n", "g.yaml:1:1: a graph file is a mapping of sections"),
        (b"[a]: b\n", "g.yaml:1:1: a key must be plain text"),
        (b"#" * (2 << 20), "g.yaml:1:1: the file is larger than 1048576 bytes"),
        (b"a: " + b"[" * 40 + b"]" * 40, "g.yaml:1:20: the file is nested too deeply"),
        (b"a: [" + b"x," * 6000 + b"]", "g.yaml:1:9999: the file is too large"),
        (b"document: 1\n", "g.yaml:1:1: unknown key 'document'"),
    ],
)
def test_files_that_are_no_graph_files(data: bytes, message: str) -> None:
    assert str(check(data, None, OPS, "g.yaml")[0]).split("\n")[0] == message


def test_alias_bomb_is_refused_at_once() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(40))
    assert "anchors or aliases" in str(check(bomb, None, OPS)[0])


@pytest.mark.parametrize(
    "expression",
    ["(" * 300, "-" * 1500 + "h", "not " * 400 + "h", "h" + "+h" * 900, "h" * 3000, "9" * 1900, "1e999", "h if " * 300],
)
def test_expression_bombs(expression: str) -> None:
    found = check(SMALL.replace("h + flat(attend(q, K, V, pos))", expression), HEADER, OPS)
    assert found and found[0].span.line == 30


def test_numbers_that_explode() -> None:
    lets = "let:\n  a0: 99999999999\n" + "".join(f"  a{n}: a{n - 1} * a{n - 1}\n" for n in range(1, 60)) + "  dim:"
    [error] = check(SMALL.replace("let:\n  dim:", lets), HEADER, OPS)
    assert error.message == "the result is too large"


def test_blocks_that_double_without_end() -> None:
    blocks = "".join(f"  b{n}:\n    body:\n      h: b{n - 1}(b{n - 1}(h)) + b{n - 1}(h)\n" for n in range(1, 8))
    deep = f"blocks:\n  b0:\n    body:\n      h: {' + '.join(['h'] * 25)}\n{blocks}  attention:"
    text = SMALL.replace("blocks:\n  attention:", deep).replace("body: attention(h)", "body: b7(b7(attention(h)))")
    assert [e.message for e in check(text, HEADER, OPS)] == ["the graph has more than 30000 calls"]
