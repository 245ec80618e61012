"""What to say of the time that a run takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graphrun.model import Model
from graphrun.profile import profiled
from graphrun.step_trace import traced


@dataclass(frozen=True, slots=True)
class Timing:
    """`profile` times every call; `trace` is a file for one step of a GPU's resident kernel."""

    profile: bool = False
    trace: Path | None = None

    @contextmanager
    def of(self, model: Model) -> Iterator[None]:
        """Do that for the steps that the block runs; raises UsageError as `traced` does."""
        if self.trace:
            with traced(model, self.trace):
                yield
        elif self.profile:
            with profiled(model):
                yield
        else:
            yield


NO_TIMING = Timing()
