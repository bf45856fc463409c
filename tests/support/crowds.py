"""Work that starts at the same moment in several processes, which stay for the next one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

SECONDS = 120.0


class Crowd:
    """As many processes as were asked for.

    Args:
        pool: The processes.
        barrier: Makes a barrier for so many of them.
        size: How many there are.
    """

    def __init__(self, pool: ProcessPoolExecutor, barrier: Callable[[int], Any], size: int) -> None:
        self._pool = pool
        self._barrier = barrier
        self.size = size

    def run(self, work: Callable[..., Any], *arguments: Any, count: int | None = None) -> list[Any]:
        """Run ``work(number, barrier, *arguments)`` in ``count`` processes at once; what each returned."""
        count = count or self.size
        # None of them is done before all have come to the barrier, so that each has a process of its own.
        barrier = self._barrier(count)
        waiting = [self._pool.submit(work, number, barrier, *arguments) for number in range(count)]
        return [one.result(timeout=SECONDS) for one in waiting]


@contextmanager
def crowd(size: int) -> Iterator[Crowd]:
    """Start the processes; they end with the block."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(size, mp_context=context) as pool:
        yield Crowd(pool, manager.Barrier, size)
