"""Embeddings in checkpoints and files of weights: rows of all nodes in the order of node ids.

No worker holds the rows of all: rank 0 gathers a block of nodes at a time and writes it to a
temporary file, whose mapped arrays go into the checkpoint. A resumed run reads them in blocks too,
of which each worker gets its own rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphtheta.base.atomic import make_folder, temporary_file
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.errors import ConfigError
from graphtheta.run.checkpoints.tensors import TABLES

PREFIX, BEST = TABLES
# bytes of a block of rows
BLOCK = 1 << 24

Arrays = dict[str, np.ndarray]


class Spooled(NamedTuple):
    """Arrays in a temporary file.

    Attributes:
        arrays: On rank 0, by name; empty elsewhere.
        failure: Why they could not be written, on rank 0; None if they could.
    """

    arrays: Arrays
    failure: OSError | None


def gathered_tables(
    tables: Sequence[EmbeddingTable], partition: Partition, best: Sequence[np.ndarray], folder: Path
) -> Spooled:
    """Values and states of tables, and the values of the best model, for a checkpoint.

    Args:
        tables: The tables.
        partition: This worker's part of the graph.
        best: Values of this worker's rows of each table in the best model so far; empty if there is
            none.
        folder: Has room for the temporary file.

    Collective: all ranks of the partition.
    """
    own = {
        t.name: {f"{PREFIX}{t.name}/{name}": x for name, x in t.arrays().items()} for t in tables
    }
    for t, values in zip(tables, best, strict=False):
        own[t.name][BEST + t.name] = values
    return _spooled(tables, partition, own, folder)


def gathered_values(
    tables: Sequence[EmbeddingTable], partition: Partition, folder: Path
) -> Spooled:
    """Values of tables for a file of weights; arguments as for ``gathered_tables``.

    Collective: all ranks of the partition.
    """
    return _spooled(
        tables, partition, {t.name: {PREFIX + t.name: t.arrays()["value"]} for t in tables}, folder
    )


def load_tables(
    tables: Sequence[EmbeddingTable], partition: Partition, arrays: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Load this worker's rows from the arrays of a checkpoint; returns the values of the best
    model, if there are any.

    Args:
        tables: The tables.
        partition: This worker's part of the graph.
        arrays: The arrays, on rank 0; others may have none.

    Raises:
        FormatError: They do not fit the tables; on all ranks.

    Collective: all ranks of the partition.
    """
    if not tables:
        return []
    comm = partition.halo_comm
    best = []
    heads = comm.broadcast(
        {name: (x.dtype.str, x.shape) for name, x in arrays.items() if name.startswith(TABLES)}
    )
    like = {
        name: np.broadcast_to(np.zeros((), dtype), shape) for name, (dtype, shape) in heads.items()
    }
    for t in tables:
        at = f"{PREFIX}{t.name}/"
        names = {
            name[len(at) :]: name
            for name in like
            if name.startswith(at) and "/" not in name[len(at) :]
        }
        t.check({name: like[whole] for name, whole in names.items()})
        t.load(
            {
                name: _rows_of(comm, t, arrays.get(whole, like[whole]))
                for name, whole in names.items()
            }
        )
        if BEST + t.name in like:
            best.append(_rows_of(comm, t, arrays.get(BEST + t.name, like[BEST + t.name])))
    return best


def load_values(
    tables: Sequence[EmbeddingTable],
    n_nodes: int,
    arrays: Mapping[str, np.ndarray],
    rows: Mapping[str, np.ndarray] | None = None,
) -> Arrays:
    """Load this worker's rows from the arrays of a file of weights; returns the other arrays.

    Args:
        tables: The tables.
        n_nodes: Nodes of the graph that the weights were trained on.
        arrays: The arrays.
        rows: By the name of a table, the number in that graph of each of its nodes; None if it is
            the graph of the tables.

    Raises:
        ConfigError: An embedding is missing, or has other nodes or another width.
    """
    for t in tables:
        x = arrays.get(PREFIX + t.name)
        wanted = (n_nodes, *t.shape[1:])
        if x is None or x.shape != wanted:
            got = "no such array" if x is None else f"{list(x.shape)}"
            raise ConfigError(
                f"the weights have {got} as {PREFIX}{t.name}, expected {list(wanted)}, a row for"
                " each node; give the graph and the width the weights were trained with"
            )
    for t in tables:
        t.set_values(arrays[PREFIX + t.name][t.masters if rows is None else rows[t.name]])
    names = {PREFIX + t.name for t in tables}
    return {name: x for name, x in arrays.items() if name not in names}


def _blocks(
    table: EmbeddingTable, n_nodes: int, row_bytes: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Bounds of blocks of node ids, and the rows of this worker in them, by id."""
    order = np.argsort(table.masters)
    step = max(BLOCK // max(row_bytes, 1), 1)
    ids = table.masters[order]
    for a in range(0, n_nodes, step):
        first, last = np.searchsorted(ids, (a, a + step))
        yield a, min(a + step, n_nodes), order[first:last]


def _spooled(
    tables: Sequence[EmbeddingTable], partition: Partition, own: Mapping[str, Arrays], folder: Path
) -> Spooled:
    """Arrays of all nodes by node id, from those of each worker's rows by table and name. A node
    without a row has 0.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    spool = None
    for t in tables:
        for name, x in own[t.name].items():
            if comm.rank == 0:
                spool = spool or Spool(folder)
                spool.begin(name, x.dtype, (partition.n_nodes, *x.shape[1:]))
            for a, b, rows in _blocks(
                t, partition.n_nodes, x.dtype.itemsize * int(np.prod(x.shape[1:]))
            ):
                ids = comm.gather_rows(t.masters[rows])
                parts = comm.gather_rows(x[rows])
                if spool is not None and ids is not None and parts is not None:
                    block = np.zeros((b - a, *x.shape[1:]), x.dtype)
                    for nodes, part in zip(ids, parts, strict=True):
                        block[nodes - a] = part
                    spool.write(block)
    return Spooled({}, None) if spool is None else spool.end()


def _rows_of(comm: Comm, table: EmbeddingTable, x: np.ndarray) -> np.ndarray:
    """This worker's rows of an array with a row for each node, which rank 0 has; others give its
    type and shape.

    Collective: all ranks of comm.
    """
    out = np.empty((len(table.masters), *x.shape[1:]), x.dtype)
    for a, b, rows in _blocks(table, len(x), x.dtype.itemsize * int(np.prod(x.shape[1:]))):
        wanted = comm.gather_rows(table.masters[rows])
        block = x[a:b]
        parts = (
            [block[:0]] * comm.size
            if wanted is None
            else [np.asarray(block[ids - a]) for ids in wanted]
        )
        out[rows] = comm.all_to_all(parts)[0]
    return out


class Spool:
    """A file without a name, which is deleted when nobody maps it any more; an error is kept until
    the end.
    """

    def __init__(self, folder: Path):
        self._heads: dict[str, tuple[int, np.dtype, tuple[int, ...]]] = {}
        self._end = 0
        self._failure = None
        try:
            make_folder(folder)
            self._file = temporary_file(folder)
        except OSError as e:
            self._failure = e

    def begin(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """The next blocks are those of this array."""
        # numbers of 8 bytes are aligned
        self._end += -self._end % 8
        self._heads[name] = self._end, dtype, shape

    def write(self, block: np.ndarray) -> None:
        if self._failure is None:
            try:
                self._file.seek(self._end)
                self._file.write(block.data)
                self._end += block.nbytes
            except OSError as e:
                self._failure = e

    def end(self) -> Spooled:
        """The arrays."""
        if self._failure is not None:
            return Spooled({}, self._failure)
        try:
            self._file.flush()
        except OSError as e:
            return Spooled({}, e)
        return Spooled(
            {
                name: (
                    np.memmap(self._file, dtype, "r", begin, shape)
                    if np.prod(shape)
                    else np.zeros(shape, dtype)
                )
                for name, (begin, dtype, shape) in self._heads.items()
            },
            None,
        )
