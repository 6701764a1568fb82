"""Writes columns of a store into another one, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.graph.store.writer import StoreWriter
from graphtheta.importing.ingest.write import write_runs
from graphtheta.importing.rewriting.nodes import Runs

# for each block of a worker, its rows in the old store, and where they go
RunBlocks = Callable[[], Iterator[tuple[slice, Runs]]]


def write_rows(
    writer: StoreWriter,
    comm: Comm,
    group: str,
    name: str,
    values: np.ndarray,
    blocks: RunBlocks,
    n: int,
) -> None:
    """Write a column with a row for each node or edge.

    Args:
        writer: The new store.
        comm: The workers.
        group, name: Of the column.
        values: The old column, [n_old, ...].
        blocks: Where its rows go.
        n: Rows of the new column.

    Collective: all ranks of comm.
    """
    column = writer.column(group, name, n, values.shape[1:], values.dtype)
    with comm.agreed():
        for rows, runs in blocks():
            write_runs(column, values[rows], runs)


def write_lists(
    writer: StoreWriter,
    comm: Comm,
    group: str,
    bounds: tuple[str, np.ndarray],
    parts: Sequence[tuple[str, np.ndarray]],
    blocks: RunBlocks,
    n: int,
) -> None:
    """Write a column of rows of different lengths: the entries of CSR rows, or the bytes of texts.

    Args:
        writer, comm, group, blocks, n: As for ``write_rows``.
        bounds: Name and values of the bounds of the rows in the old column, [n_old + 1].
        parts: Names and values of the entries.

    Collective: all ranks of comm.
    """
    where, old = bounds
    own = np.zeros(2, np.int64)
    for rows, runs in blocks():
        lengths = np.diff(old[rows.start : rows.stop + 1])
        own[: len(runs)] += [int(lengths[picked].sum()) for _, picked in runs]
    every = np.array(comm.all_gather(own))
    # added rows come behind those of all workers that stay
    first, added = every[: comm.rank].sum(axis=0).tolist()
    size = int(every.sum())
    starts = (first, int(every[:, 0].sum()) + added)
    kind = old.dtype if size <= np.iinfo(old.dtype).max else np.dtype(np.int64)
    index = writer.column(group, where, n + 1, (), kind)
    columns = [(writer.column(group, name, size, (), x.dtype), x) for name, x in parts]
    with comm.agreed():
        if comm.rank == 0:
            index.write(0, np.zeros(1, kind))
        at = list(starts)
        for rows, runs in blocks():
            block = old[rows.start : rows.stop + 1].astype(np.int64)
            lengths = np.diff(block)
            for k, (begin, picked) in enumerate(runs):
                index.write(begin + 1, (at[k] + np.cumsum(lengths[picked])).astype(kind))
                entries = np.repeat(picked, lengths)
                for column, x in columns:
                    column.write(at[k], x[block[0] : block[-1]][entries])
                at[k] += int(lengths[picked].sum())


def write_once(writer: StoreWriter, comm: Comm, group: str, name: str, values: Any) -> None:
    """Write a small column, from rank 0.

    Collective: all ranks of comm.
    """
    column = writer.column(group, name, len(values), values.shape[1:], values.dtype)
    with comm.agreed():
        if comm.rank == 0:
            column.write(0, values)
