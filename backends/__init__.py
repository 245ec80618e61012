"""Backends by name."""

from __future__ import annotations

from collections.abc import Callable

from graphrun.backends.base import Backend, Runner
from graphrun.core.errors import BackendError, UsageError, did_you_mean

NAMES = ("auto", "native", "numpy")


def open(name: str, *, threads: int | None = None, say: Callable[[str], None] | None = None) -> Backend:
    """The backend of that name; auto is native where its kernels can be built, else numpy, which says why.

    `say` is told when kernels are compiled. Raises UsageError for an unknown name, BackendError for a native
    backend that cannot be built.
    """
    from graphrun.backends.reference import NumpyBackend

    if name == "numpy":
        return NumpyBackend(threads)
    if name in ("native", "auto"):
        from graphrun.backends.native import NativeBackend

        try:
            return NativeBackend(threads, say=say)
        except BackendError as error:
            if name == "native":
                raise
            from graphrun.backends.fallback import Fallback

            return Fallback(threads, f"slow: {str(error).splitlines()[0]}; the numpy backend runs instead")
    hint = did_you_mean(name, NAMES) or f"known: {', '.join(NAMES)}"
    raise UsageError(f"there is no backend '{name}'", hint)


__all__ = ["NAMES", "Backend", "Runner", "open"]
