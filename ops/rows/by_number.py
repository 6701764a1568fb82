"""Rows by number: joined from several sources, and added to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse

from ..parallel.buffers import by_blocks


def assembled(n: int, pieces: Sequence[tuple[np.ndarray, Mapping[str, Any]]]) -> dict[str, Any]:
    """Rows from several sources in one order.

    Args:
        n: Number of rows.
        pieces: Positions of some rows, [m] int, and these rows, [m, ...] by name; each position is
            in one piece.

    Returns:
        [n, ...] by name: arrays, or CSR rows where the pieces have these.
    """
    pieces = [(at, rows) for at, rows in pieces if len(at)] or list(pieces[:1])
    if len(pieces) == 1 and np.array_equal(pieces[0][0], np.arange(n)):
        return dict(pieces[0][1])
    out: dict[str, Any] = {}
    for name, x in pieces[0][1].items():
        if is_sparse(x):
            import scipy.sparse as sp

            row_of = np.empty(n, np.int64)
            row_of[np.concatenate([at for at, _ in pieces])] = np.arange(n)
            out[name] = sp.vstack([rows[name] for _, rows in pieces], format="csr")[row_of]
            continue
        out[name] = np.empty((n, *x.shape[1:]), x.dtype)
        for at, rows in pieces:
            out[name][at] = rows[name]
    return out


def add_distinct(into: np.ndarray, rows: np.ndarray, part: np.ndarray) -> None:
    """into[rows] += part, on all threads; no row twice.

    Args:
        into: [n, ...], contiguous; changed.
        rows: [m], each below n.
        part: [m, ...].
    """
    if not part.size:
        return
    from ..kernels.message_buffer import add

    to, more = (x.reshape(len(x), prod(x.shape[1:])) for x in (into, np.ascontiguousarray(part)))
    by_blocks(lambda b, begin, end: add(to, rows, more, begin, end), len(more), more.shape[1])
