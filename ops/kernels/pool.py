"""Blocks of rows spread over the threads of this process.

Kernels release the interpreter lock. Each thread takes the next block when it is done with one, so uneven blocks do
not leave threads idle; which thread does which block has no influence on the result.
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
    """Say how many threads compute at present, each of which calls kernels; these use the cores that are left."""
    global _computing
    _computing = max(computing, 1)


def run_blocks(block: Callable[[int], object], n: int) -> None:
    """Call block(0) ... block(n - 1), each once, on this thread and all that have nothing else to do."""
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
