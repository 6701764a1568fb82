"""Compares values with copies of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.engine.layer.reached import parts

# what a value of these types is, equality says
COMPARED = (int, float, complex, str, bytes, set, frozenset, np.generic)


def alike(a: Any, b: Any) -> bool:
    """Whether two values are the same, or lead to equal numbers and texts in the same places.

    Objects of other types are alike if all that they lead to is, and so are those that lead to
    nothing and have no text of their own, such as ``object()`` and its copy.
    """
    left = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while left:
        x, y = left.pop()
        pair = id(x), id(y)
        if x is y or pair in seen:
            continue
        if type(x) is not type(y):
            return False
        seen.add(pair)
        if isinstance(x, np.ndarray):
            if x.dtype != y.dtype or x.shape != y.shape:
                return False
            if x.dtype.kind == "O":
                left += zip(x.flat, y.flat, strict=True)
            elif not np.array_equal(x, y, equal_nan=x.dtype.kind in "fc"):
                return False
        elif isinstance(x, COMPARED):
            # NaN is like NaN
            if not (x == y or x != x):
                return False
        else:
            of_x = parts(x)
            of_y = parts(y)
            if [name for name, _ in of_x] != [name for name, _ in of_y]:
                return False
            if not of_x and not _equal_texts(x, y):
                return False
            left += [(p, q) for (_, p), (_, q) in zip(of_x, of_y, strict=True)]
    return True


def _equal_texts(x: Any, y: Any) -> bool:
    # the text that every object has names its place in memory
    text: Any = type(x).__repr__
    return text is object.__repr__ or repr(x) == repr(y)
