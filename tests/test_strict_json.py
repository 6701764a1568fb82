"""JSON that every parser reads: no NaN, no infinity, in any file of the product."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtheta.base.strict_json import to_json

ROOT = Path(__file__).resolve().parent.parent
PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3)
VALUES = st.recursive(
    PLAIN,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3),
    max_leaves=9,
)


def strict(text: str) -> Any:
    """What a parser reads that knows JSON and nothing else."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def expected(x: Any) -> Any:
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, dict):
        return {key: expected(value) for key, value in x.items()}
    return list(map(expected, x)) if isinstance(x, list) else x


@given(VALUES)
def test_numbers_that_are_not_finite_are_null(value: Any) -> None:
    assert strict(to_json(value)) == expected(value)
    assert strict(to_json(value, indent=1)) == expected(value)


def test_tuples_numbers_of_numpy_and_what_is_no_json() -> None:
    assert to_json({"a": (1, np.float64("nan"), float("-inf"))}) == '{"a": [1, null, null]}'
    assert to_json({"b": 1, "a": 2}, sort_keys=True, separators=(",", ":")) == '{"a":2,"b":1}'
    with pytest.raises(TypeError):
        to_json({"a": np.zeros(2)})


def test_everything_is_written_with_it() -> None:
    for path in [
        p
        for folder in ("graphtheta", "ops", "engine", "models")
        for p in (ROOT / folder).rglob("*.py")
    ]:
        text = path.read_text(encoding="utf-8")
        # to parse a file takes a thousand times as long as to search it
        if path.name == "strict_json.py" or "json" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            of_json = (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "json"
            )
            assert not (of_json and node.attr in ("dump", "dumps", "JSONEncoder")), (
                f"{path}:{node.lineno}: use to_json"
            )
