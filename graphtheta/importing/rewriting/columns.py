"""Writes columns of a store into another one, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.graph.store.writer import StoreWriter
from graphtheta.importing.ingest.write import RaggedRows, write_ragged, write_runs
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
    """Write a column of rows of different lengths.

    Args:
        writer, comm, group, blocks, n: As for ``write_rows``.
        bounds: Name and values of the bounds of the rows in the old column, [n_old + 1].
        parts: Names and values of the entries.

    Collective: all ranks of comm.
    """
    name, old = bounds

    def runs() -> Iterator[RaggedRows]:
        for rows, block_runs in blocks():
            block = old[rows.start : rows.stop + 1].astype(np.int64)
            for begin, picked in block_runs:
                yield begin, np.diff(block)[picked], partial(_entries, parts, block, picked)

    write_ragged(
        writer=writer,
        comm=comm,
        group=group,
        bounds=name,
        parts=[(part, values.dtype) for part, values in parts],
        runs=runs,
        n=n,
        smallest=old.dtype,
    )


def _entries(
    parts: Sequence[tuple[str, np.ndarray]], block: np.ndarray, picked: np.ndarray
) -> list[np.ndarray]:
    """Entries of some rows of a block, whose bounds are given."""
    inside = np.repeat(picked, np.diff(block))
    return [values[block[0] : block[-1]][inside] for _, values in parts]
