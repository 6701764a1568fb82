"""The learnable node features of a job: those of all nodes of a graph without features, or of some
types beside their features.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.column import Column, Role
from graphtheta.engine.store.store import ColumnStore
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.engine.train.table import LearnedTable
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import TYPE
from graphtheta.ops.optimisers.row_optimiser import RowAdagrad, RowAdam, RowOptimiser, RowSGD
from graphtheta.run.embeddings.types import ROW_NUMBER, TypedFeatures, widths_of
from graphtheta.run.job.job import Job
from graphtheta.run.job.rules import flag

OPTIMISERS: dict[str, type[RowOptimiser]] = {"adam": RowAdam, "adagrad": RowAdagrad, "sgd": RowSGD}
# what reads or stores features once, or of earlier steps, though rows of an embedding change in
# every step
REFUSED = {
    "staleness": (0,),
    "feature_cache": ("0",),
    "machine_cache": ("0",),
    "precompute": ("no",),
    "history": ("none",),
    "exchange": ("exact",),
}


def check_embedding(job: Job, graph: Graph) -> None:
    """Check that a job can train an embedding, if it asks for one.

    Raises:
        ConfigError: It also asks for something that needs features that never change.
        DataError: The graph has features, and no types are named.
    """
    if not job.embedding:
        return
    if job.embedding_types:
        widths_of(job.embedding_types, job.embedding, graph)
    elif graph.x is not None:
        raise DataError(
            f"embedding={job.embedding} makes node features x that are learned, but"
            f" {graph.name or 'the graph'} has features x; drop --embedding, give a graph without"
            " x, or name the types of nodes that learn some with --embedding-types"
        )
    for key, allowed in REFUSED.items():
        if getattr(job, key) not in allowed:
            raise ConfigError(
                f"embedding={job.embedding} makes node features that change in every step, and"
                f" cannot be combined with {key}={job.as_text(key)}; drop {flag(key)} or"
                " --embedding"
            )


def width_of(job: Job, graph: Graph) -> int:
    """Width of the node features that a model reads."""
    if not job.embedding_types:
        return job.embedding or graph.n_features
    return graph.n_features + sum(widths_of(job.embedding_types, job.embedding, graph).values())


def learned_types(job: Job, graph: Graph) -> dict[str, str]:
    """The type whose nodes have the rows of each table, by name of the table; an empty one stands
    for all nodes.
    """
    if not job.embedding_types:
        return {"x": ""} if job.embedding else {}
    return {
        f"x/{(name := graph.node_types[code])}": name
        for code in widths_of(job.embedding_types, job.embedding, graph)
    }


def learned_bytes(job: Job, graph: Graph) -> int:
    """Bytes of the learned features of all nodes, with the state of their optimiser, in the memory
    of all workers.
    """
    optimiser = OPTIMISERS[job.embedding_optimiser](job.embedding_lr or job.lr)
    dtype = np.dtype(job.dtype)

    def of(n: int, width: int) -> int:
        return n * (
            width * dtype.itemsize
            + sum(x.nbytes for x in optimiser.start(1, width, dtype).values())
        )

    if not job.embedding_types:
        return of(graph.n_nodes, job.embedding)
    widths = widths_of(job.embedding_types, job.embedding, graph)
    counts = np.bincount(graph.node_columns[TYPE], minlength=len(graph.node_types))
    return sum(
        of(int(counts[code]), width) + graph.n_nodes * ROW_NUMBER.itemsize
        for code, width in widths.items()
    )


def with_embedding(
    job: Job, graph: Graph, partition: Partition
) -> tuple[Partition, tuple[LearnedTable, ...], tuple[EmbeddingTable, ...]]:
    """The partition with learned features in the node column ``x``.

    Args:
        job: Gives widths, optimiser, learning rate, seed and type.
        graph: Gives the types.
        partition: This worker's part of it.

    Returns:
        The partition, the columns that training changes, and the tables with their learned rows;
        without any, the partition as it is.
    """
    if not job.embedding:
        return partition, (), ()
    optimiser = OPTIMISERS[job.embedding_optimiser](job.embedding_lr or job.lr)
    dtype = np.dtype(job.dtype)
    if not job.embedding_types:
        table = EmbeddingTable(
            name="x",
            masters=partition.masters,
            width=job.embedding,
            optimiser=optimiser,
            seed=job.seed,
            dtype=dtype,
        )
        return _with_x(partition, table), (table,), (table,)
    tables = []
    rows = []
    types = partition.node.read(TYPE)
    for name, (code, width) in zip(
        learned_types(job, graph),
        widths_of(job.embedding_types, job.embedding, graph).items(),
        strict=True,
    ):
        rows.append(np.flatnonzero(types == code))
        tables.append(
            EmbeddingTable(
                name=name,
                masters=partition.masters[rows[-1]],
                width=width,
                optimiser=optimiser,
                seed=job.seed,
                dtype=dtype,
            )
        )
    stored = partition.node.column("x") if "x" in partition.node else None
    x = TypedFeatures(partition.n_masters, stored, tables, rows)
    return _with_x(partition, x), (x,), tuple(tables)


def _with_x(partition: Partition, x: Column) -> Partition:
    return replace(
        partition,
        node=partition.node.joined(ColumnStore(partition.n_masters, {"x": (Role.LEARNED, x)})),
    )
