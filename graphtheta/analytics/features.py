"""Structural features: results of graph algorithms as further node features of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphtheta.analytics.algorithm import Algorithm
from graphtheta.analytics.analyse import analyse
from graphtheta.analytics.registry import make_algorithm
from graphtheta.base.npy import in_files
from graphtheta.base.sparse import is_sparse
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.store.column import is_column
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.run.job.job import Job
from graphtheta.samplers.hidden import refuse
from graphtheta.tasks.kinds.kind import TaskKind
from graphtheta.tasks.kinds.registry import kind_for

KEY = "structural_features"


# in ``meta`` of a graph: mean, and mean and deviation of the logarithms, of each structural feature
SCALE = "structural_scale"


def with_structural_features(
    job: Job,
    graph: Graph,
    comm: Comm,
    kind: TaskKind | None = None,
    scale: Sequence[Sequence[float]] = (),
) -> Graph:
    """A graph with the job's structural features behind the others; without any, as it is.

    They are computed on the edges that messages are passed along, so those held out by a link task
    do not count.

    Args:
        job: The job.
        graph: The graph, the same on all workers.
        comm: The workers.
        kind: Chooses these edges; by default the kind of task of the job.
        scale: Figures of each feature in the graph of the training, see ``scaled``; by default
            those of this graph.

    Raises:
        ConfigError: The job names something else than algorithms of numbers of at least 0, or has a
            sampler that hides edges.
        DataError: The graph is of a kind that an algorithm does not take, or its features cannot be
            extended.

    Collective: all ranks of comm if the job has structural features.
    """
    if not job.structural_features:
        return graph
    refuse(KEY, job)
    chosen = [make_algorithm(text, KEY) for text in job.structural_features.split("+")]
    if graph.x is not None and (is_column(graph.x) or in_files(graph.x)):
        raise DataError(
            f"{KEY}: the node features of {graph.name or 'the graph'} are in files and cannot be"
            " extended; write the values with graphtheta analyse, and import them as features"
        )
    passed = (kind or kind_for(job.task, graph)(job)).take(graph)
    values = [
        analyse(
            passed, one, comm=comm, masters=job.masters, partitioner=job.partitioner, seed=job.seed
        )
        for one in chosen
    ]
    figures = scale or [figures_of(one, x) for one, x in zip(chosen, values, strict=True)]
    columns = [scaled(x, *own) for x, own in zip(values, figures, strict=True)]
    return graph.replace(
        x=joined(graph.x, np.stack(columns, axis=1).astype(np.float32)),
        meta={**graph.meta, SCALE: [list(own) for own in figures]},
    )


def figures_of(algorithm: Algorithm, values: np.ndarray) -> tuple[float, float, float]:
    """The mean m of values x, and the mean and the deviation of log(1 + x / m); a deviation of 0 is
    that of equal values.

    Raises:
        ConfigError: The values are not one number of at least 0 for each node.
    """
    if (
        algorithm.gives_nodes
        or values.ndim > 1
        or not np.isfinite(values).all()
        or (values < 0).any()
    ):
        raise ConfigError(
            f"{KEY}: values of {algorithm.name} are not a number of at least 0 for each node;"
            " choose others, such as pagerank+core_number"
        )
    mean = max(float(values.mean()), np.finfo(float).tiny)
    x = np.log1p(values / mean)
    deviation = float((x - x.mean()).std())
    return mean, float(x.mean()), deviation if deviation > 1e-9 else 0.0


def scaled(values: np.ndarray, mean: float, centre: float, deviation: float) -> np.ndarray:
    """log(1 + x / mean) of values x, less ``centre`` and divided by ``deviation``, [n_nodes]
    float64; 0 if that is 0.
    """
    x = np.log1p(values / mean) - centre
    return x / deviation if deviation else np.zeros(len(x))


def joined(x: Any, columns: np.ndarray) -> Any:
    """Features with further columns; sparse ones stay sparse."""
    if x is None:
        return columns
    if is_sparse(x):
        import scipy.sparse as sp

        return sp.csr_array(sp.hstack([x.tocsr(), sp.csr_array(columns)]))
    return np.concatenate((np.asarray(x), columns), axis=1)
