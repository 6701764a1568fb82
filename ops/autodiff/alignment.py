"""A short look at values that are combined: most are aligned already (``functions.rows``)."""

from __future__ import annotations

from typing import Any

from .expr import Expr
from .tape import Parameter, Var


def are_aligned(args: tuple[Any, ...]) -> bool:
    """Whether ``align`` would leave values as they are; also False where that takes longer to find
    out.
    """
    space = None
    dtype = None
    most = 0
    least = None
    for a in args:
        if type(a) is float or type(a) is int:
            continue
        if not isinstance(a, (Var, Parameter, Expr)):
            return False
        rank = len(a.dims) if isinstance(a, Expr) else len(a.shape)
        rows = isinstance(a, Expr) and a.rows
        if isinstance(a, Var) and a.space is not None:
            if space is not None and a.space is not space:
                return False
            space = a.space
            rank = rank - 1
            rows = True
        if dtype is None:
            dtype = a.dtype
        if a.dtype != dtype:
            return False
        most = max(most, rank)
        if rows:
            least = rank if least is None else min(least, rank)
    return dtype is not None and dtype.kind == "f" and (least is None or least == most)
