"""Context variables that are set for the length of a ``with`` block."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


@contextmanager
def value_scope(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set ``variable`` to ``value`` in this thread inside the block, and restore it afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
