"""Whether a model fits a device, said before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable

from graphrun.core.errors import BackendError
from graphrun.core.ir import State, Value
from graphrun.core.target import Target


def require_room(target: Target, weights: Iterable[Value], states: Iterable[State]) -> int:
    """Bytes of packed weights, each given once, and states; raises BackendError if the target has not so many."""
    packed, kept = sum(v.type.nbytes for v in weights), sum(s.type.nbytes for s in states)
    if packed + kept > target.memory:
        need, have = (packed + kept) / 1e9, target.memory / 1e9
        hint = "a smaller -c (context) needs less" if kept > packed / 4 else "use a smaller model"
        raise BackendError(f"the model needs {need:.1f} GB, {have:.1f} GB of memory are available", hint)
    return packed + kept
