"""The learnable node features of a job: the table ``x`` of a graph that has no features."""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.column import Role
from graphtheta.engine.store.store import ColumnStore
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.errors import ConfigError, DataError
from graphtheta.job.job import Job, flag
from graphtheta.ops.optimisers.row_optimiser import RowAdagrad, RowAdam, RowOptimiser, RowSGD

OPTIMISERS: dict[str, type[RowOptimiser]] = {"adam": RowAdam, "adagrad": RowAdagrad, "sgd": RowSGD}
# what reads or stores features once, though rows of an embedding change in every step, or computes with rows of other workers
REFUSED = {"mode": ("cooperative",), "staleness": (0,), "clip_norm": (0.0,), "feature_cache": ("0",), "machine_cache": ("0",),
           "precompute": ("no",), "history": ("none",), "exchange": ("exact",)}


def check_embedding(job: Job, graph: Graph) -> None:
    """Check that a job can train an embedding, if it asks for one.

    Raises:
        ConfigError: It also asks for something that needs features that never change.
        DataError: The graph has features.
    """
    if not job.embedding:
        return
    if graph.x is not None:
        raise DataError(f"embedding={job.embedding} makes node features x that are learned, but {graph.name or 'the graph'} has features "
                        "x; drop --embedding, or give a graph without x")
    for key, allowed in REFUSED.items():
        if getattr(job, key) not in allowed:
            raise ConfigError(f"embedding={job.embedding} makes node features that change in every step, and cannot be combined with "
                              f"{key}={job.as_text(key)}; drop {flag(key)} or --embedding")


def with_embedding(job: Job, partition: Partition) -> tuple[Partition, tuple[EmbeddingTable, ...]]:
    """The partition with the job's embedding as node column ``x``, and the embedding; without one, as it is and nothing.

    Args:
        job: Gives width, optimiser, learning rate, seed and type.
        partition: This worker's part of a graph without features.
    """
    if not job.embedding:
        return partition, ()
    optimiser = OPTIMISERS[job.embedding_optimiser](job.embedding_lr or job.lr)
    table = EmbeddingTable("x", partition.masters, job.embedding, optimiser, job.seed, np.dtype(job.dtype))
    store = ColumnStore(partition.n_masters, {table.name: (Role.FEATURE, table)})
    return replace(partition, node=partition.node.joined(store)), (table,)
