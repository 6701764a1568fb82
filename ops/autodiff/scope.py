"""A context variable that has a value for the length of a ``with`` block."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


@contextmanager
def holding(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """``variable`` has ``value`` inside, in this thread, and its former value afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
