"""Runs a graph algorithm: partitions the graph, computes, and gathers the values of all nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphtheta.analytics.algorithm import Algorithm
from graphtheta.base.arguments import checked
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.runtime.start import start
from graphtheta.graph.data.graph import Graph
from graphtheta.partitioners.auto import TrainingWork, pair_for
from graphtheta.partitioners.pairs import DEFAULT_MASTERS
from graphtheta.partitioners.registry import DEFAULT_PLACEMENT


class NodeValues(NamedTuple):
    """Values of the nodes of one worker.

    Attributes:
        nodes: Numbers of the nodes, ascending, [n] int64.
        values: Their values, [n, ...].
    """

    nodes: np.ndarray
    values: np.ndarray


def on_worker(
    graph: Graph,
    algorithm: Algorithm,
    comm: Comm,
    masters: str = DEFAULT_MASTERS,
    partitioner: str = DEFAULT_PLACEMENT,
    seed: int = 0,
) -> NodeValues:
    """Run an algorithm; each worker gets the values of its own nodes.

    Args:
        graph: The graph; only its edges are read, and their weights if the algorithm reads them.
        algorithm: The algorithm.
        comm: The workers.
        masters, partitioner: Node partitioner and edge placement, as the keys of a job.
        seed: Seed of the partitioner.

    Raises:
        GraphThetaError: Graph and algorithm do not fit together; on all ranks together.

    Collective: all ranks of comm.
    """
    weight = graph.edge_weight if algorithm.weighted else None
    bare = graph.derived(
        x=None,
        y=None,
        edge_attr=None,
        edge_weight=weight,
        edge_y=None,
        node_columns={},
        edge_columns={},
    )
    # messages of one number, in about as many rounds as PageRank has
    pair = pair_for(
        partitioner=partitioner,
        masters=masters,
        graph=bare,
        work=TrainingWork(1, 1, 50, seed),
        comm=comm,
    )
    partition = build_partition(
        graph=bare,
        comm=comm,
        edge_placement=pair.partitioner,
        node_partitioner=pair.masters,
        seed=seed,
        dtype=np.float64,
    )
    values = algorithm.run(partition, graph)
    order = np.argsort(partition.masters)
    return NodeValues(partition.masters[order], values[order])


@checked
def analyse(
    graph: Graph,
    algorithm: Algorithm,
    *,
    comm: Comm | None = None,
    masters: str = DEFAULT_MASTERS,
    partitioner: str = DEFAULT_PLACEMENT,
    seed: int = 0,
) -> np.ndarray:
    """Run an algorithm; every worker gets the values of all nodes.

    Args:
        graph: The graph; only its edges are read, and their weights if the algorithm reads them.
        algorithm: The algorithm, such as ``gt.PageRank(damping=0.9)``.
        comm: The workers; by default those the process was started with.
        masters, partitioner: Node partitioner and edge placement, as the keys of a job.
        seed: Seed of the partitioner.

    Returns:
        Values in the order of the nodes, [n_nodes, ...].

    Raises:
        ConfigError: An option has no meaning for this graph.
        DataError: The graph is of a kind that the algorithm does not take.

    Collective: all ranks of comm.
    """
    comm = start() if comm is None else comm
    here = on_worker(
        graph=graph,
        algorithm=algorithm,
        comm=comm,
        masters=masters,
        partitioner=partitioner,
        seed=seed,
    )
    nodes, values = (comm.gather_rows(x) for x in here)
    whole = None
    if nodes is not None and values is not None:
        whole = np.empty((graph.n_nodes, *here.values.shape[1:]), here.values.dtype)
        whole[np.concatenate(nodes)] = np.concatenate(values)
    return np.asarray(comm.broadcast(whole))


def as_ids(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Original ids of nodes, in the shape of ``nodes``; no node (-1) is -1 among integers, and the
    empty text among texts.
    """
    if graph.node_ids is None:
        return nodes
    ids = np.asarray(graph.node_ids[np.maximum(nodes, 0).reshape(-1)]).reshape(nodes.shape)
    return np.where(nodes < 0, np.asarray("" if ids.dtype.kind == "U" else -1, ids.dtype), ids)
