"""Blame: where the computations of a program and of its graph part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphrun.core.errors import Span
from graphrun.planner.check_terms import ROWWISE

OUTSIDE = frozenset({"weight", "input", "state"})


def difference(keys: Sequence[Any], pair: tuple[int, int], calls: Mapping[int, str], lines: Mapping[int, Span]) -> str:
    """In words, the first difference between two terms, looked for from the results towards the inputs.

    `calls` and `lines` say which call and which line made a term.
    """
    found, right = pair
    call, line = "the program", "the graph"
    while True:
        call = calls.get(found, call)
        line = f"the graph ({lines[right]})" if right in lines else line
        a, b = keys[found], keys[right]
        inside = zip(_children(a), _children(b), strict=False)
        other = [(x, y) for x, y in inside if x != y]
        if a[0] != b[0] or len(_children(a)) != len(_children(b)) or _own(a) != _own(b) or not other:
            return f"{call} has {_words(keys, a)} where {line} has {_words(keys, b)}"
        found, right = other[0]


def _children(key: Sequence[Any]) -> tuple[int, ...]:
    """The terms and regions that a term is made of."""
    if key[0] in ("region", "result"):
        return (key[1],)
    if key[0] == "stack":
        return tuple(term for term, _ in key[1:])
    if key[0] in ROWWISE and not isinstance(key[2], int):
        return (key[1],)
    return () if key[0] in OUTSIDE else tuple(x for x in key[2:] if x is not None)


def _own(key: Sequence[Any]) -> Any:
    """What a term says besides its children."""
    if key[0] == "stack":
        return tuple(rows for _, rows in key[1:])
    if key[0] in ("region", "result") or (key[0] in ROWWISE and not isinstance(key[2], int)):
        return key[2:]
    return key[1:] if key[0] in OUTSIDE else key[1]


def _words(keys: Sequence[Any], key: Sequence[Any]) -> str:
    if key[0] == "region":
        return f"bytes from {key[2]} of {_words(keys, keys[key[1]])}"
    if key[0] == "stack":
        return f"{len(key) - 1} products side by side"
    if key[0] == "result":
        return f"result {key[2]} of {keys[key[1]][0]}"
    if key[0] == "weight" and isinstance(key[1], tuple):
        return f"weight {'+'.join(p.tensor or '0' for p in key[1])}"
    if key[0] in ROWWISE and not isinstance(key[2], int):
        return f"{key[0]} of {key[2][0]}"
    return f"{key[0]} {key[1]}" if key[0] in OUTSIDE else key[0]
