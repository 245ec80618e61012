"""A small thread pool for independent pieces of one numpy computation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


class Workers:
    """Threads that share work; numpy lets go of the interpreter lock inside its loops."""

    def __init__(self, threads: int | None = None) -> None:
        """`threads` counts the calling one; None uses every core that this process may run on."""
        self.threads = _usable_cores() if threads is None else threads
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def share(self, work: Callable[[Iterator[T]], object], items: Iterable[T]) -> None:
        """Call `work` once in each thread, with one iterator that gives every item to one of them.

        Returns when all are done; raises what a `work` raised.
        """
        todo = list(items)
        left = iter(todo)  # the iterator of a list may be advanced by several threads
        helpers = min(self.threads, len(todo)) - 1
        others = [self._pool.submit(work, left) for _ in range(helpers)] if self._pool else []
        try:
            work(left)
        finally:
            for other in others:
                other.result()


_current: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def using(workers: Workers) -> Iterator[None]:
    """Ops computed inside may have the help of these threads."""
    token = _current.set(workers)
    try:
        yield
    finally:
        _current.reset(token)


def share(work: Callable[[Iterator[T]], object], items: Iterable[T]) -> None:
    """`Workers.share` by the threads that `using` gave, else by the calling one alone."""
    workers = _current.get()
    if workers is None:
        work(iter(items))
    else:
        workers.share(work, items)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
