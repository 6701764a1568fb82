"""Pauses the cyclic garbage collector while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector in this process, if it runs.

    Imports and compilations make many objects that stay until their end, and each of them brings
    the next search through all objects of the process nearer. These searches are a quarter of the
    time of a compilation.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
