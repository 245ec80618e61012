"""The provers prove no false law, the C reader refuses what it does not know, and the header is the generated one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from graphrun.core.ie import ie_byte, ie_q4_dst_word, ie_q4_nib, ie_sext8
from graphrun.core.law import Bounds, Claim, law
from graphrun.core.u32 import Mem
from prove.header import PATH, header

pytest.importorskip("z3")
pytest.importorskip("bitwuzla")
pytest.importorskip("cvc5")
pytest.importorskip("pycparser")

from prove import __main__ as runner  # noqa: E402
from prove import address, bits, creader, equal, polynomial  # noqa: E402
from prove.proof import Proof  # noqa: E402
from prove.solvers import Panel, Solver  # noqa: E402


@pytest.fixture(scope="module")
def panel() -> Iterator[Panel]:
    made = Panel()
    yield made
    made.close()


@law("bits")
def nibble_of_any_index(word: int, j: int) -> Claim:
    """False: weight j is byte j mod 4 of the word only for j < 16."""
    return Claim(j < 32, (ie_q4_nib(word, j) == ie_byte(word, j & 3) % 16,))


@law("polynomial")
def signed_is_unsigned(x: Mem, i: int) -> Claim:
    """False: a byte is its sign extension only below 128."""
    return Claim(True, (ie_sext8(x[i]) * 3 == 3 * (x[i] & 255),))


@law("address")
def no_bound_on_sizes(rows: int, nb: int, r: int, b: int) -> Claim:
    """True of integers and false of words: without a bound on the sizes the address wraps."""
    return Claim((r < rows) & (b < nb), (ie_q4_dst_word(r, b, 0, nb) < rows * nb * 4,))


@law("address")
def off_by_one(rows: int, nb: int, r: int, b: int) -> Claim:
    """False: the last word is 4*rows*nb - 1."""
    small = (rows < 1 << 10) & (nb < 1 << 10)
    return Claim(small & (r < rows) & (b < nb), (ie_q4_dst_word(r, b, 3, nb) + 1 < rows * nb * 4,))


@law("address")
def impossible(r: int, rows: int) -> Claim:
    """A premise that nothing meets proves anything, and must not count."""
    return Claim((r < rows) & (rows < r), (r == rows + 1,))


@law("range")
def too_tight(x: Mem, i: int) -> Bounds:
    """False: an int8 can be -128."""
    return Bounds(ie_sext8(x[i]) + ie_sext8(x[i + 1]), -255, 254)


@pytest.mark.parametrize(
    ("prove", "wrong"),
    [
        (bits.prove, nibble_of_any_index),
        (polynomial.prove, signed_is_unsigned),
        (address.prove, no_bound_on_sizes),
        (address.prove, off_by_one),
        (address.prove, impossible),
        (polynomial.prove_range, too_tight),
    ],
)
def test_no_false_law_is_proved(panel: Panel, prove: Any, wrong: Any) -> None:
    assert not prove(wrong, panel).stands


def test_a_query_ends_in_time_and_its_solver_starts_again() -> None:
    hard = "(set-logic QF_NIA)\n" + "".join(f"(declare-const {x} Int)\n" for x in "abc")
    hard += "(assert (> a 2))(assert (> b 2))(assert (> c 2))(assert (= (+ (* a a a) (* b b b)) (* c c c)))\n"
    solver = Solver("z3")
    try:
        assert solver.ask(hard, limit=1).answer != "unsat"
        assert solver.ask("(set-logic QF_LIA)\n(assert false)\n", limit=5).answer == "unsat"
        assert solver.ask("(set-logic QF_LIA)\n(assert nonsense)\n", limit=5).answer.startswith("error")
    finally:
        solver.close()


def test_the_committed_header_is_the_generated_one() -> None:
    assert PATH.read_text(encoding="utf-8") == header()


def _read(text: str) -> Any:
    return creader.read_text("typedef unsigned int u32;\n" + text)


@pytest.mark.parametrize(
    "text",
    [
        "static inline u32 f(u32 x) { return x + 1; }",
        "static inline u32 f(u32 x) { return x + 010u; }",
        "static inline u32 f(u32 x) { return x + 4294967296u; }",
        "static inline u32 f(int x) { return x; }",
        "static inline u32 f(u32 x) { u32 y = x; return y; }",
        "static inline u32 f(u32 x) { x = x + 1u; return x; }",
        "static inline u32 f(u32 x) { while (x < 2u) { } return x; }",
        "static inline u32 f(u32 x) { return x < 2u; }",
        "static inline _Bool f(u32 x) { return x; }",
        "static inline u32 f(u32 x) { return (x < 2u) + x; }",
        "static inline u32 f(u32 x) { return x ? 1u : 2u; }",
        "static inline u32 f(u32 *x) { return x[0u]; }",
        "static inline u32 f(const u32 *x) { return *x; }",
        "static inline u32 f(u32 x) { return -x; }",
        "static inline u32 f(u32 x) { return (u32)x; }",
        "static inline u32 f(u32 x) { return g(x); }",
        "static u32 f = 1u;",
        "typedef int u64;",
    ],
)
def test_c_of_unsure_meaning_is_refused(text: str) -> None:
    with pytest.raises(creader.Refused):
        _read(text)


@pytest.fixture(scope="module")
def functions() -> dict[str, creader.CFunction]:
    return creader.read(PATH)


BY_HAND = "static inline u32 ie_sext8(u32 v) { return (v & 128u) != 0u ? (v & 255u) | 0xFFFFFF00u : v & 255u; }"


def test_a_header_written_by_hand_is_proved_by_the_solvers(panel: Panel, functions: Any) -> None:
    proof = equal.prove_equal(panel, functions | _read(BY_HAND), Proof("by_hand", "equality"))
    assert proof.stands and proof.solvers["z3"] >= 1


def test_a_wrong_digit_in_the_header_is_found(panel: Panel, functions: Any) -> None:
    wrong = functions | _read(BY_HAND.replace("128u", "64u"))
    assert not equal.prove_equal(panel, wrong, Proof("wrong", "equality")).stands
    short = {name: f for name, f in functions.items() if name != "ie_byte"}
    assert not equal.prove_equal(panel, short, Proof("short", "equality")).stands


def test_the_run_says_what_it_skipped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.run(runner.parts(["grid_cover"], with_mutants=False), require_all=True) == 0
    said = capsys.readouterr().out
    assert "grid_cover | address | z3" in said and "ran: laws\nskipped: nothing\n1 passed, 0 failed" in said
    monkeypatch.setattr("prove.solvers.missing", lambda: ["cvc5"])
    skipping = runner.parts(["grid_cover"], with_mutants=False)
    assert runner.run(skipping, require_all=False) == 0
    assert "skipped: laws (no cvc5)\n0 passed, 0 failed" in capsys.readouterr().out
    assert runner.run(skipping, require_all=True) == 1
