"""Embeddings in checkpoints and files of weights: rows of all nodes in the order of node ids."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.errors import ConfigError

PREFIX, BEST = "embedding/", "best_embedding/"

Arrays = dict[str, np.ndarray]


def gathered_tables(tables: Sequence[EmbeddingTable], partition: Partition, best: Sequence[np.ndarray]) -> Arrays:
    """Values and states of tables, and the values of the best model, for a checkpoint, on rank 0; empty elsewhere.

    Args:
        tables: The tables.
        partition: This worker's part of the graph.
        best: Values of this worker's rows of each table in the best model so far; empty if there is none.

    Collective: all ranks of the partition.
    """
    own = {f"{PREFIX}{t.name}/{name}": (t, x) for t in tables for name, x in t.arrays().items()}
    # there are none before the first evaluation
    own |= {BEST + t.name: (t, values) for t, values in zip(tables, best, strict=False)}
    return _by_node(partition, own)


def gathered_values(tables: Sequence[EmbeddingTable], partition: Partition) -> Arrays:
    """Values of tables for a file of weights, on rank 0; empty elsewhere.

    Collective: all ranks of the partition.
    """
    return _by_node(partition, {PREFIX + t.name: (t, t.values()) for t in tables})


def load_tables(tables: Sequence[EmbeddingTable], found: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Load this worker's rows from the arrays of a checkpoint; returns the values of the best model, if there are any.

    Raises:
        FormatError: They do not fit the tables.
    """
    for t in tables:
        at = f"{PREFIX}{t.name}/"
        t.load({name[len(at):]: x for name, x in found.items() if name.startswith(at) and "/" not in name[len(at):]})
    return [found[BEST + t.name][t.masters] for t in tables if BEST + t.name in found]


def load_values(tables: Sequence[EmbeddingTable], partition: Partition, found: Mapping[str, np.ndarray]) -> Arrays:
    """Load this worker's rows from the arrays of a file of weights; returns the other arrays.

    Raises:
        ConfigError: An embedding is missing, or has other nodes or another width.
    """
    for t in tables:
        x, wanted = found.get(PREFIX + t.name), (partition.n_nodes, *t.shape[1:])
        if x is None or x.shape != wanted:
            got = "no such array" if x is None else f"{list(x.shape)}"
            raise ConfigError(f"the weights have {got} as {PREFIX}{t.name}, expected {list(wanted)}, a row for each node; give the graph "
                              "and the width the weights were trained with")
    for t in tables:
        t.set_values(found[PREFIX + t.name][t.masters])
    names = {PREFIX + t.name for t in tables}
    return {name: x for name, x in found.items() if name not in names}


def _by_node(partition: Partition, own: Mapping[str, tuple[EmbeddingTable, np.ndarray]]) -> Arrays:
    """Arrays of all nodes in the order of node ids, from those of each worker's rows, on rank 0; empty elsewhere.

    A node without a row in the table of an array has 0.
    """
    found, comm = {}, partition.halo_comm
    of_tables = {name: comm.gather_rows(t.masters) for name, t in {t.name: t for t, _ in own.values()}.items()}
    for name, (table, x) in own.items():
        ids, parts = of_tables[table.name], comm.gather_rows(x)
        if ids is not None and parts is not None:
            found[name] = np.zeros((partition.n_nodes, *x.shape[1:]), x.dtype)
            for nodes, part in zip(ids, parts, strict=True):
                found[name][nodes] = part
    return found
