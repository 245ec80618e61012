"""Mistakes in a graph file, each with its whole message (mistakes.txt)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_graph import SMALL, Header, Tensor, small_header

from graphrun.core.errors import GraphError, UsageError
from graphrun.graphs.elaborate import check, elaborate
from graphrun.graphs.spec import load_spec, parse_spec
from graphrun.ops import OPS

HEADER = small_header()


@dataclass(frozen=True)
class Case:
    """A changed graph file or model file, and the first message about it."""

    name: str
    text: str
    header: Header
    message: str


def read_case(section: str) -> Case:
    name, *lines = section.rstrip("\n").split("\n")
    text, header, old, message = SMALL, HEADER, "", []
    for line in lines:
        mark, _, rest = line.partition(" ")
        key, _, value = rest.partition(" = ")
        if mark == "-":
            old = rest.replace("\\n", "\n")
            assert old in SMALL
        elif mark == "+":
            text = SMALL.replace(old, rest.replace("\\n", "\n"), 1)
        elif mark == "key":
            header = header.change(**{key: json.loads(value)})
        elif mark == "tensor":
            type_, _, shape = value.partition(" ")
            header = header.with_tensors(**{key: Tensor(type_, tuple(json.loads(shape))) if shape else None})
        else:
            message.append(line)
    assert (text, header) != (SMALL, HEADER)
    return Case(name, text, header, "\n".join(message))


_, *SECTIONS = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8").split("\n== ")
CASES = [read_case(section) for section in SECTIONS]


def test_the_unchanged_file_has_no_mistakes() -> None:
    assert check(SMALL, HEADER, OPS) == []
    assert check(SMALL, None, OPS) == []


def test_every_kind_of_mistake_is_there_once() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 59


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message(case: Case) -> None:
    """Found without the model file where the graph file alone is wrong, else with it; and never elaborated."""
    found = check(case.text, None, OPS, "small.yaml") or check(case.text, case.header, OPS, "small.yaml")
    assert str(found[0]) == case.message
    with pytest.raises(GraphError):
        elaborate(parse_spec(case.text, "small.yaml"), case.header, OPS, "decode", 1, context=8)


def test_what_shows_without_a_model() -> None:
    """Only types, shapes and metadata need one."""
    alone = [case.name for case in CASES if check(case.text, None, OPS)]
    assert alone == [case.name for case in CASES[: len(alone)]] and len(alone) >= 34


def test_check_finds_every_mistake() -> None:
    text = SMALL.replace("rms_norm(h", "rmsnorm(h").replace("attend(q", "attend(qq").replace("attention(h)", "at(h)")
    assert [e.span.line for e in check(text, None, OPS)] == [26, 30, 33]
    text = SMALL.replace("keys: append", "keys: apend").replace("rows: last", "rows: first").replace("  eps:", "  e-s:")
    assert [e.span.line for e in check(text, None, OPS)] == [7, 23, 40]
    header = HEADER.with_tensors(blk__0__attn_q__weight=None, blk__0__attn_k__weight=Tensor("f32", (4, 4)))
    assert [e.span.line for e in check(SMALL, header, OPS)] == [20, 21]


def test_places_count_characters_and_lines() -> None:
    text = SMALL.replace("heads(linear(x, wk), n_head)", 'heads(linear(x, wk),\n              rope("é", qq))')
    error = check(text, None, OPS, "small.yaml")[-1]
    assert (error.message, str(error.span)) == ("'qq' is not defined", "small.yaml:29:25")
    error = check(SMALL.replace("body: attention(h)", "body: 'attention(g)'"), None, OPS, "small.yaml")[0]
    assert (error.message, str(error.span)) == ("'g' is not defined", "small.yaml:33:20")


def test_names_of_graphs() -> None:
    with pytest.raises(UsageError, match="there is no graph 'lama'\n  hint: did you mean 'llama'"):
        load_spec("lama")
    with pytest.raises(UsageError, match="known graphs: .*llama"):
        load_spec("/no/such/file.yaml")
    with pytest.raises(UsageError, match="there is no graph"):
        load_spec("\0")


def test_steps_and_sizes_that_do_not_exist() -> None:
    spec = parse_spec(SMALL, "small.yaml")
    with pytest.raises(UsageError, match="small.yaml has no step 'decod'\n  hint: did you mean 'decode'"):
        elaborate(spec, HEADER, OPS, "decod", 1, context=8)
    with pytest.raises(UsageError, match=r"step prefill of small.yaml takes 2..64 tokens, not 65"):
        elaborate(spec, HEADER, OPS, "prefill", 65, context=128)
    with pytest.raises(UsageError, match="a context of 8 positions is not between 9 and"):
        elaborate(spec, HEADER, OPS, "prefill", 9, context=8)
