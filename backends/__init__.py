"""Backends by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphrun.backends.base import Backend, Runner
from graphrun.core.errors import BackendError, UsageError, did_you_mean

if TYPE_CHECKING:
    from graphrun.backends.gpu import GpuBackend

NAMES = ("auto", "hip", "cuda", "native", "numpy")
Say = Callable[[str], None]


def open(name: str, *, threads: int | None = None, say: Say | None = None) -> Backend:
    """The backend of that name; auto is the first of hip, cuda, native and numpy that this machine can run.

    `say` is told when kernels are compiled, and by auto which GPU it found, or why it does not use one that is there.
    Raises UsageError for an unknown name, BackendError for a backend that cannot be had.
    """
    from graphrun.backends.reference import NumpyBackend

    if name == "numpy":
        return NumpyBackend(threads)
    if name == "native":
        return _native(threads, say)
    if name in ("hip", "cuda"):
        return _gpu(name, say)
    if name == "auto":
        return _first(threads, say)
    hint = did_you_mean(name, NAMES) or f"known: {', '.join(NAMES)}"
    raise UsageError(f"there is no backend '{name}'", hint)


def _first(threads: int | None, say: Say | None) -> Backend:
    """The best backend that this machine can run."""
    from graphrun.backends.device import NoDevice
    from graphrun.backends.fallback import Fallback

    say = say or (lambda text: None)
    for name in ("hip", "cuda"):
        try:
            found = _gpu(name, say)
            say(f"running on {found.description}")
            return found
        except NoDevice:
            continue
        except BackendError as error:
            say(f"the {name} backend is not used: {str(error).splitlines()[0]}")
    try:
        return _native(threads, say)
    except BackendError as error:
        return Fallback(threads, f"slow: {str(error).splitlines()[0]}; the numpy backend runs instead")


def _native(threads: int | None, say: Say | None) -> Backend:
    from graphrun.backends.native import NativeBackend

    return NativeBackend(threads, say=say)


def _gpu(name: str, say: Say | None) -> GpuBackend:
    """A GPU of AMD's (hip) or NVIDIA's (cuda); raises BackendError."""
    from graphrun.backends.codeobject import GFX1201, SM_90, code_object
    from graphrun.backends.cuda import CudaDevice
    from graphrun.backends.gpu import GpuBackend
    from graphrun.backends.hip import HipDevice
    from graphrun.backends.resident import Resident

    device, chip = (HipDevice(), GFX1201) if name == "hip" else (CudaDevice(), SM_90)
    found = GpuBackend(device, code_object(chip, say=say))
    found.stay(Resident.opened(device, lambda source: code_object(chip, source, say=say), say or (lambda text: None)))
    return found


__all__ = ["NAMES", "Backend", "Runner", "open"]
