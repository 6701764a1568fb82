"""A pool of threads that run blocks of rows.

Kernels release the interpreter lock. A thread that has finished a block takes the next one, so
uneven blocks leave no thread idle. Results do not depend on which thread runs which block.
"""
from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numba

_pool: list[ThreadPoolExecutor] = []
_computing = 1


def threads() -> int:
    """Threads that kernels called from this thread may use."""
    return int(numba.get_num_threads())


def set_threads(n: int) -> None:
    """Choose the number of threads for kernels called from this thread."""
    numba.set_num_threads(n)


def share_threads(computing: int) -> None:
    """Set how many threads call kernels at present; their kernels share the remaining cores."""
    global _computing
    _computing = max(computing, 1)


def run_blocks(block: Callable[[int], object], n: int) -> None:
    """Call block(0) ... block(n - 1), each once, on this thread and idle threads of the pool."""
    threads = 1 if n <= 1 else min(numba.get_num_threads() - _computing + 1, n)
    if threads <= 1:
        for b in range(n):
            block(b)
        return
    if not _pool:
        _pool.append(ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, thread_name_prefix="graphtheta"))  # type: ignore[attr-defined]
    # next() of a count is atomic under the interpreter lock
    turn = count()

    def work() -> None:
        while (b := next(turn)) < n:
            block(b)

    others = [_pool[0].submit(work) for _ in range(threads - 1)]
    work()
    for done in others:
        done.result()
