"""Rows of tables chosen by integers, such as the vector of an edge's type."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.expr import Expr
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.tape import current
from ..autodiff.traits import Traits
from ..rows.columns import sums_by_number
from .rows import has_rows, same_rows, trailing


@primitive("embedding", traits=Traits(free=True))
def embedding_p(table: Any, index: Any, *, of: str = "the index", among: str = "the table") -> Any:
    """Rows of a table by number."""
    check_range(index, len(table), of, among)
    return table[index]


def _embedding_table(g: Any, y: Any, table: Any, index: Any, of: str = "", among: str = "") -> Any:
    rows = g.reshape(index.size, *table.shape[1:])
    return sums_by_number(rows, index.ravel(), len(table)).astype(table.dtype)


defvjp(embedding_p, table=_embedding_table, index=None)


@primitive("own_embedding", traits=Traits(free=True))
def own_embedding_p(
    tables: Any, index: Any, *, of: str = "the index", among: str = "the table"
) -> Any:
    """A row of the table that each row has, by number."""
    check_range(index, tables.shape[1], of, among)
    return tables[np.arange(len(index)), index]


def _own_embedding_tables(
    g: Any, y: Any, tables: Any, index: Any, of: str = "", among: str = ""
) -> Any:
    out = np.zeros_like(tables)
    out[np.arange(len(index)), index] = g
    return out


defvjp(own_embedding_p, tables=_own_embedding_tables, index=None)


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
        raise ShapeError(
            f"embedding: {of} holds numbers outside of 0 to {size - 1}, the rows of {among}"
        )
    if index.size and not (int(index.min()) >= 0 and int(index.max()) < size):
        raise ShapeError(
            f"embedding: {of} holds numbers from {index.min()} to {index.max()}; expected 0 to"
            f" {size - 1}, the rows of {among}"
        )


@operation
def embedding(table: Any, index: Any) -> Any:
    """Rows of a table chosen by an integer value of each node or edge, such as its type or
    relation.

    Args:
        table: [k, ...], rowless; or [n, k, ...], a table for each node or edge, such as the node's
            values for each relation. In ``gather`` the latter is a column, ``edge.src.z``, or its
            product with matrices, ``edge.src.h @ weight`` with a weight [d, k, ...].
        index: [n] or, for a rowless table, [n, ...] integers in [0, k).

    Returns:
        [*index.shape, ...].

    Raises:
        UserFunctionError: The index is not of an integer type, or a table that has rows is computed
            on the edge.
        ShapeError: An index is out of range, or shapes do not fit.
    """
    if np.dtype(index.dtype).kind not in "iu":
        raise UserFunctionError(
            "embedding looks up rows of a table by an integer value, such as a column of"
            " gt.Graph(..., node_columns=..., edge_columns=...); expected (table, integers), got"
            f" {shown(table)} and {shown(index)}"
        )
    of = repr(index) if isinstance(index, Expr) else getattr(index, "name", "")
    among = getattr(table, "name", "")
    named = {"of": of or "the index", "among": f"the table {among}" if among else "the table"}
    if not has_rows(table):
        constant = isinstance(table, np.ndarray) and table.dtype.kind == "f"
        return embedding_p(table.astype(current().dtype) if constant else table, index, **named)
    if isinstance(table, Expr) and not _of_one_end(table):
        raise UserFunctionError(
            f"embedding: the table {table!r} is computed on the edge; return it from transform, and"
            " read it as edge.src.NAME or edge.dst.NAME"
        )
    if not trailing(table) or trailing(index) or not has_rows(index):
        raise ShapeError(
            "embedding: a table with rows is [rows, k, ...] and its index [rows]; got"
            f" {shown(table)} and {shown(index)}"
        )
    return own_embedding_p(*same_rows(table, index), **named)


def _of_one_end(table: Expr) -> bool:
    """Whether a table is a column of a node, or a product of one with matrices, which the planner
    may compute at the nodes.
    """
    if table.leaf is not None:
        return True
    x = table.args[0]
    return (
        table.traits.contraction
        and x.leaf is not None
        and x.leaf[0] in ("src", "dst")
        and not table.args[1].rows
    )
