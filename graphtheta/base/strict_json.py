"""Writes JSON that every parser reads. JSON has no NaN and no infinity: they become null."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def to_json(value: Any, **layout: Any) -> str:
    """The JSON text of a value.

    Args:
        value: Texts, numbers, truth values, None, and lists, tuples and dicts of these. Numbers
            that are not finite become null.
        **layout: ``indent``, ``separators``, ``sort_keys`` and ``ensure_ascii`` of ``json.dumps``.

    Raises:
        TypeError: It holds something else.
        ValueError, RecursionError: It holds itself, or a dict has a key that is not finite.
    """
    try:
        return json.dumps(value, allow_nan=False, **layout)
    except ValueError:
        # finite values, the usual ones, are not copied
        return json.dumps(_finite(value), allow_nan=False, **layout)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(x) for key, x in value.items()}
    return [_finite(x) for x in value] if isinstance(value, (list, tuple)) else value
