"""Progress bars on a terminal's stderr, shown only once something has lasted a second."""

from __future__ import annotations

import sys
from threading import Lock, Timer
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn

PATIENCE = 1.0  # seconds before a bar appears


class Bar:
    """A block of work whose steps call this with (done, total); the bar goes when all is done or the block ends."""

    def __init__(self, label: str, *, in_bytes: bool = False) -> None:
        count = DownloadColumn() if in_bytes else MofNCompleteColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), count)
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(label, total=None)
        self._timer = Timer(PATIENCE, self._appear)
        self._timer.daemon = True
        self._lock = Lock()
        self._over = not sys.stderr.isatty()

    def __enter__(self) -> Bar:
        if not self._over:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Take the bar away for good, or never show it."""
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._progress.live.is_started:
                self._progress.stop()

    def _appear(self) -> None:
        with self._lock:
            if not self._over:
                self._progress.start()
