"""Divides the graph of a job over workers."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.graph.data.graph import Graph
from graphtheta.partitioners.auto import TrainingWork, pair_for
from graphtheta.partitioners.pairs import Pair
from graphtheta.run.job.job import Job


def choose_pair(job: Job, graph: Graph, comm: Comm, epochs: int) -> Pair:
    """Node partitioner and edge placement of a job, which may leave the choice to the graph.

    Args:
        job: The job.
        graph: The message-passing graph.
        comm: The workers.
        epochs: Passes over the graph, which a better division must be worth.

    Collective: all ranks of comm, for "auto".
    """
    return pair_for(
        partitioner=job.partitioner,
        masters=job.masters,
        graph=graph,
        work=TrainingWork(job.hops, job.hidden, epochs, job.seed),
        comm=comm,
    )


def divide(
    job: Job, graph: Graph, pair: Pair, comm: Comm, job_comm: Comm | None = None
) -> Partition:
    """This worker's part of the graph of a job.

    Args:
        job: The job.
        graph: The message-passing graph.
        pair: Divides it.
        comm: The workers, by the communicator that moves rows.
        job_comm: The workers, by that which sums gradients; by default the same.

    Collective: all ranks of comm.
    """
    return build_partition(
        graph=graph,
        comm=comm,
        edge_placement=pair.partitioner,
        node_partitioner=pair.masters,
        seed=job.seed,
        dtype=np.dtype(job.dtype),
        job_comm=job_comm,
        short=job.values == "bfloat16",
    )
