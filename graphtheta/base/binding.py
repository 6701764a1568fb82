"""Binding of threads to processors."""

from __future__ import annotations

import os
from collections.abc import Iterable


def can_bind() -> bool:
    """Whether the platform binds threads to processors; macOS and Windows do not."""
    return hasattr(os, "sched_setaffinity")


def bind(processors: Iterable[int]) -> None:
    """Bind this thread, and those that it starts afterwards, to some processors.

    Raises:
        OSError: None of them may be used any more.
    """
    os.sched_setaffinity(0, processors)


def unbind() -> None:
    """Let this thread run wherever the first thread of the process may, which is never bound.

    Threads that serve all others call it, since one that is bound may have started them.
    """
    if can_bind():
        bind(os.sched_getaffinity(os.getpid()))
