"""Values and copies of them, as gt.check compares state."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphtheta.inspect.checking.alike import alike


def cyclic() -> list[Any]:
    cycle: list[Any] = [1.0]
    cycle.append(cycle)
    return cycle


NOTHING = object()
VALUES = [
    1,
    float("nan"),
    {"a": [1, (2.0, "b")], 3: {4, 5}},
    np.array([1.0, np.nan]),
    np.array([NOTHING, np.zeros(2), None], object),
    SimpleNamespace(inner=SimpleNamespace(numbers=[object(), np.arange(5000)])),
    deque([1, 2]),
    cyclic(),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_copy_is_alike(value: Any) -> None:
    assert alike(value, value) and alike(deepcopy(value), value)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 2),
        (1, 1.0),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"b": 1}),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(5000), np.arange(5000.0) == 2500),
        (np.array([1, None]), np.array([2, None])),
        (SimpleNamespace(a=SimpleNamespace(b=1)), SimpleNamespace(a=SimpleNamespace(b=2))),
        (deque([1, 2]), deque([1, 3])),
        ([inner := [1], inner], [[1], [2]]),
        ({1, 2}, {1, 3}),
    ],
    ids=repr,
)
def test_a_change_is_found(a: Any, b: Any) -> None:
    assert not alike(a, b) and not alike(b, a)
