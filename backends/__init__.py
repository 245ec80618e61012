"""Backends by name."""

from __future__ import annotations

from graphrun.backends.base import Backend, Runner
from graphrun.core.errors import UsageError, did_you_mean

NAMES = ("numpy",)


def open(name: str, *, threads: int | None = None) -> Backend:
    """The backend of that name; raises UsageError for an unknown one."""
    if name == "numpy":
        from graphrun.backends.reference import NumpyBackend

        return NumpyBackend(threads)
    hint = did_you_mean(name, NAMES) or f"known: {', '.join(NAMES)}"
    raise UsageError(f"there is no backend '{name}'", hint)


__all__ = ["NAMES", "Backend", "Runner", "open"]
