"""Rows of a table chosen by integers, such as the vector of an edge's type."""
from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.expr import Expr
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.traits import Traits
from .rows import has_rows


@primitive("embedding", traits=Traits(free=True))
def embedding_p(table: Any, index: Any, *, of: str = "the index", among: str = "the table") -> Any:
    """Rows of a table by number."""
    check_range(index, len(table), of, among)
    return table[index]


def _embedding_table(g: Any, y: Any, table: Any, index: Any, of: str = "", among: str = "") -> Any:
    out = np.zeros_like(table)
    np.add.at(out, index, g)
    return out


defvjp(embedding_p, table=_embedding_table, index=None)


def check_range(index: np.ndarray | None, size: int, of: str, among: str) -> None:
    """Every index is a row of the table.

    Args:
        index: Integers of any shape; None for those in which a kernel has found one that is not.
        size: Rows of the table.
        of, among: What the index and the table are called.

    Raises:
        ShapeError: One is not; negative ones do not count from the end.
    """
    if index is None:
        raise ShapeError(f"embedding: {of} holds numbers outside of 0 to {size - 1}, the rows of {among}")
    if index.size and not (int(index.min()) >= 0 and int(index.max()) < size):
        raise ShapeError(f"embedding: {of} holds numbers from {index.min()} to {index.max()}; expected 0 to {size - 1}, "
                         f"the rows of {among}")


def embedding(table: Any, index: Any) -> Any:
    """Rows of a parameter chosen by an integer value of each node or edge, such as its type.

    Args:
        table: [k, ...], rowless.
        index: [n] or [n, ...] integers in [0, k).

    Returns:
        [*index.shape, *table.shape[1:]].

    Raises:
        UserFunctionError: The index is not of an integer type, or the table has rows.
        ShapeError: An index is out of range.
    """
    if has_rows(table) or np.dtype(index.dtype).kind not in "iu":
        raise UserFunctionError("embedding looks up rows of a parameter by an integer value, such as a column of gt.Graph(..., "
                                f"node_columns=..., edge_columns=...); expected (parameter, integers), got {table!r} and {index!r}")
    of = repr(index) if isinstance(index, Expr) else getattr(index, "name", "")
    among = getattr(table, "name", "")
    return embedding_p(table, index, of=of or "the index", among=f"the table {among}" if among else "the table")
