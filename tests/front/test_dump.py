"""Dumps of programs and graphs: text, JSON, dot, and the timeline of the arena."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from handmade import MACHINE, Builder, llama

from graphrun.core.ir import Value
from graphrun.core.program import Program
from graphrun.core.types import tensor
from graphrun.dump import graph_dot, graph_text, program_dot, program_json, program_text
from graphrun.ops import OPS
from graphrun.planner.certificate import lock
from graphrun.planner.lower import lower
from graphrun.timeline import timeline_svg, timeline_text

TYPES = {"wq": "q4_k", "wk": "q4_k", "wv": "q6_k"}
GRAPH = llama(2, embd=256, heads=8, ff=512, dtype="q8_0", types=TYPES)
PROGRAM = lower(GRAPH, OPS, MACHINE)
EMPTY = lower(Builder().graph(), OPS, MACHINE)

LAYER = f"""\
44 nodes -> 24 calls, 22 segments, arena 5888 bytes, 25 buffers, lock {lock(PROGRAM)}
 1   0.attention  rms_norm+quantize  @00900 q8[1, 256]  <-  @00500, norm:f32  1 wg  0.0 MB  hand.yaml:2
 2|  0.attention  gemv_q4_k          @00000 f32[1, 320]  <-  @00900, wq+wk:q4_k  40 wg  0.0 MB  hand.yaml:3
 2|  0.attention  gemv_q6_k          @00d00 f32[1, 64]  <-  @00900, wv:q6_k  8 wg  0.0 MB  hand.yaml:9
 3   0.attention  rope_store         @00900 f32[1, 8, 32]  <-  @00000, @00400, @00d00, *0.attention.keys, \
*0.attention.values, pos  10 wg  hand.yaml:11
 4   0.attention  attn_split+quantize  @00000 q8[1, 256]  <-  @00900, *0.attention.keys, *0.attention.values, pos\
  16 wg  hand.yaml:12
 5   0.attention  gemv_q8_0+add  @01000 f32[1, 256]  <-  @00000, wo:q8_0, @00500  32 wg  0.1 MB  hand.yaml:14
 6   0.ffn  rms_norm+quantize  @01400 q8[1, 256]  <-  @01000, norm:f32  1 wg  0.0 MB  hand.yaml:16
 7   0.ffn  gemv_q8_0  @00000 f32[1, 1024]  <-  @01400, gate+up:q8_0  128 wg  0.3 MB  hand.yaml:17
 8   0.ffn  swiglu+quantize  @01400 q8[1, 512]  <-  @00000, @00800  2 wg  hand.yaml:19
 9   0.ffn  gemv_q8_0+add  @00500 f32[1, 256]  <-  @01400, down:q8_0, @01000  32 wg  0.1 MB  hand.yaml:20
"""


def squeezed(text: str) -> list[str]:
    """Lines with runs of spaces made one."""
    return [re.sub(" +", " ", line).strip() for line in text.splitlines()]


def test_a_layer_as_text() -> None:
    assert squeezed(program_text(PROGRAM, layer=0)) == squeezed(LAYER)


def test_columns_are_aligned() -> None:
    lines = program_text(PROGRAM).splitlines()[1:]
    assert len(lines) == len(PROGRAM.calls)
    assert len({line.index("<-") for line in lines}) == 1
    assert len({line.index("hand.yaml") for line in lines}) == 1
    assert not any(line.endswith(" ") for line in lines)


def test_costs_are_columns_and_a_total() -> None:
    lines = program_text(PROGRAM, layer=0, cost=True).splitlines()
    assert re.search(r"  0\.28 MB moved  +0\.52 Mflop  +0\.28 us  hand\.yaml:17$", lines[8])
    assert re.fullmatch(r"1\.\d MB, 2\.\d Mflop, at least 1\.\d us on test with .* 64 positions in use", lines[-1])


def test_a_layer_that_is_not_there_leaves_the_header() -> None:
    assert program_text(PROGRAM, layer=7).splitlines() == [LAYER.splitlines()[0]]


def test_graph_text_names_every_result_once_in_its_block() -> None:
    raw = graph_text(GRAPH)
    assert squeezed(raw)[0] == "hand: 44 nodes, 1 tokens, context 64"
    assert "0.attention q: f32[1, 256] = linear(x, wq) hand.yaml:3" in squeezed(raw)
    assert "outputs: hidden = hidden, logits = logits, token = token" in raw
    names = [line.split()[:2] for line in raw.splitlines()[1:-1]]
    assert len({tuple(n) for n in names}) == len(names)


def test_graph_text_shows_epilogues_and_kernels() -> None:
    text = graph_text(lower(GRAPH, OPS, MACHINE, until="select"))
    assert re.search(r"y\S*: f32\[1, 256\] = gemv\[gemv_q8_0\]\(\S+, wo\) \+ h: f32\[1, 256\] = add\(h, y", text)
    assert "eps=1e-05" in text and "factor=" not in text


def test_json_holds_every_call_and_slot() -> None:
    facts = json.loads(program_json(PROGRAM))
    assert (facts["nodes"], facts["segments"], facts["arena"]) == (44, 22, PROGRAM.arena)
    assert [c["kernel"] for c in facts["calls"]] == [c.kernel.name for c in PROGRAM.calls]
    joint = facts["calls"][2]
    assert joint["inputs"]["w"]["tensors"] == ["0.attention.wq", "0.attention.wk"]
    assert joint["source"] == "hand.yaml:3:7"
    assert facts["calls"][4]["inputs"]["kc"]["state"] == "0.attention.keys"
    assert facts["calls"][1]["epilogues"][0]["op"] == "quantize"
    assert len(facts["slots"]) == len(PROGRAM.slots)
    assert facts["outputs"]["logits"]["place"] == "arena"


@pytest.mark.parametrize("text", [program_dot(PROGRAM), graph_dot(GRAPH)])
def test_dot_is_well_formed(text: str) -> None:
    lines = text.splitlines()
    assert lines[0] == 'digraph "hand" {' and lines[-1] == "}"
    quoted = r'"(?:[^"\\]|\\.)*"'
    statement = rf"  (node \[shape=box\]|n\d+ \[label={quoted}\]|n\d+ -> n\d+ \[label={quoted}\]);"
    assert all(re.fullmatch(statement, line) for line in lines[1:-1])


def test_dot_edges_are_reads() -> None:
    text = program_dot(PROGRAM)
    assert 'n1 -> n2 [label="y"];' in text
    assert "n2 -> n1 " not in text
    assert not re.search(r"n(\d+) -> n\1 ", text)


def test_dot_quotes_names() -> None:
    b = Builder()
    odd = Value('a"\\', tensor("f32", 1, 64), "input", b.span)
    x = b.call("rms_norm", odd, b.weight("n", "f32", 64), eps=1e-5, name='b"\\')
    graph = replace(b.graph(y=b.call("add", x, x)), name='say "hi"')
    assert graph_dot(graph).startswith('digraph "say \\"hi\\"" {')
    assert 'n0 -> n1 [label="b\\"\\\\"];' in graph_dot(graph)


def awkward(name: str) -> Program:
    slots = [replace(s, value=replace(s.value, name=name)) for s in PROGRAM.slots]
    return replace(PROGRAM, slots=tuple(slots))


def test_timeline_svg_has_a_titled_rectangle_for_each_buffer() -> None:
    root = ElementTree.fromstring(timeline_svg(PROGRAM))
    space = "{http://www.w3.org/2000/svg}"
    titles = [e.text or "" for e in root.iter(f"{space}title")]
    assert len(titles) == len(PROGRAM.slots)
    assert f"h: f32[1, 256], bytes {PROGRAM.slots[0].offset} to" in titles[0]
    assert "0.attention.y: q8[1, 256]" in titles[1]


def test_timeline_svg_escapes_names() -> None:
    name = "<script>&\"'"
    root = ElementTree.fromstring(timeline_svg(awkward(name)))
    titles = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles and all(name in title for title in titles)


def test_timeline_rectangles_do_not_overlap() -> None:
    root = ElementTree.fromstring(timeline_svg(PROGRAM))
    boxes = [
        tuple(float(e.attrib[k]) for k in ("x", "y", "width", "height"))
        for e in root.iter("{http://www.w3.org/2000/svg}rect")
        if len(e)
    ]
    for i, (x, y, w, h) in enumerate(boxes):
        for p, q, u, v in boxes[:i]:
            assert x + w <= p or p + u <= x or y + h <= q + 0.02 or q + v <= y + 0.02


@pytest.mark.parametrize("width", [20, 60, 100])
def test_timeline_text_fits_its_width_and_fills_what_is_used(width: int) -> None:
    text = timeline_text(PROGRAM, width)
    head, *bands, foot = text.splitlines()
    assert (
        head
        == f"arena 5888 bytes, 25 buffers, {PROGRAM.arena / PROGRAM.bound:.2f} times the least any arena could need"
    )
    assert len(bands) == 23
    assert all(len(line) <= width for line in bands)
    assert foot.strip().startswith("segments 0 to 21")
    if width == 100:  # a column for each segment, a band for each 256 bytes: cells are full or empty
        used = sum(s.size // 256 * (s.last - s.first + 1) for s in PROGRAM.slots)
        assert sum(line[6:].count("@") for line in bands) == used
        assert set("".join(line[6:] for line in bands)) <= {"@", " "}


def test_programs_without_calls_can_be_shown() -> None:
    assert program_text(EMPTY) == f"0 nodes -> 0 calls, 0 segments, arena 0 bytes, 0 buffers, lock {lock(EMPTY)}\n"
    assert json.loads(program_json(EMPTY))["calls"] == []
    assert "arena 0 bytes" in timeline_text(EMPTY)
    assert ElementTree.fromstring(timeline_svg(EMPTY)) is not None


def test_file_names_are_shown_without_folders() -> None:
    for text in (program_text(PROGRAM), graph_text(GRAPH), program_json(PROGRAM), graph_dot(GRAPH)):
        assert "dir/" not in text and "hand.yaml:2" in text
