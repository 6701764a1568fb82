"""Context variables that are set for the length of a ``with`` block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any


class value_scope:
    """A ``with`` block inside which ``variable`` is ``value`` in this thread."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: Any):
        self._variable = variable
        self._value = value
        self._token: Token[Any] | None = None

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        self._variable.reset(self._token)
