"""Compiles the kernels of a job ahead of time: runs it for one epoch on a few nodes of its graph.

Kernels depend on the widths of values, on what requires gradients and on whether edges are
selected, but not on the number of nodes and edges. A small graph with the same columns therefore
needs the same kernels.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.strategy.registry import AUTO
from graphtheta.graph.data.arrays import EDGE_MASKS, NODE_MASKS
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import take_edges, take_nodes
from graphtheta.models.registry import PUBLISHED
from graphtheta.ops.compile.cache import SUFFIX, cache_folder
from graphtheta.run.job.job import Job
from graphtheta.train.loop.prepare import load_graph
from graphtheta.train.loop.trainer import Trainer

NODES = 48
EDGES = 192
BATCH = 8
# strategies that most jobs have, also if they are chosen
USUAL = ("global", "mini")


def small(graph: Graph) -> Graph:
    """A graph of a few nodes and edges with the same columns, some of them in every split."""
    nodes = _some(graph.n_nodes, NODES, [getattr(graph, m) for m in NODE_MASKS])
    edges = _some(graph.n_edges, EDGES, [getattr(graph, m) for m in EDGE_MASKS])
    # random ends, because most ends of these edges are not among these nodes
    ends = np.random.default_rng(0).integers(0, len(nodes), (2, len(edges)))
    return graph.replace(
        edge_index=ends, meta=graph.meta, **take_nodes(graph, nodes), **take_edges(graph, edges)
    )


def _some(n: int, most: int, masks: list[np.ndarray | None]) -> np.ndarray:
    """Numbers of a few of n rows, equally many from each mask."""
    groups = [np.flatnonzero(m) for m in masks if m is not None] or [np.arange(n)]
    return np.unique(np.concatenate([g[: most // len(groups)] for g in groups]))


def shortened(job: Job) -> Job:
    """The job for one epoch and few nodes."""
    changes: dict[str, Any] = {
        "epochs": 1,
        "steps": 0,
        "seeds": 1,
        "eval_every": 1,
        "patience": 0,
        "trace": False,
        "checkpoint_every": 0,
        "resume": False,
        "split_index": 0,
    }
    if job.drop_last:
        changes["drop_last"] = False
    # a sampler without fanout chooses the nodes of a batch itself
    if job.strategy == "mini" and (job.fanout or job.is_default("sampler")):
        changes |= {"batch_size": BATCH, "vertex_limit": 0}
    if job.strategy == "cluster":
        # a file of clusters fits the whole graph only
        method = "louvain" if job.cluster_method.endswith(".npy") else job.cluster_method
        changes |= {"clusters": 4, "clusters_per_batch": 1, "cluster_method": method}
    return job.change(**changes)


def jobs_of(keys: dict[str, Any]) -> list[Job]:
    """The job of these keys; without keys, full-graph and mini-batch jobs of published models."""
    if keys.get("strategy") == AUTO:
        # on a small graph it would choose otherwise
        return [Job(**{**keys, "strategy": strategy}) for strategy in USUAL]
    if keys:
        return [Job(**keys)]
    return [Job(model=model, strategy=strategy) for model in PUBLISHED for strategy in USUAL]


def warm_up(jobs: list[Job], comm: Comm) -> tuple[int, float]:
    """Compile the kernels of these jobs.

    Returns:
        Number of kernels compiled, and seconds.

    Collective: all ranks of comm.
    """
    began = perf_counter()
    before = kernels()
    for job in jobs:
        trainer = Trainer(
            graph=small(load_graph(job)), job=shortened(job).without_dataset(), comm=comm
        )
        trainer.fit()
        # a run is written with it
        trainer.class_report()
        logger.info(f"{job.model} with {job.strategy} batches: {kernels() - before} kernels so far")
    comm.barrier()
    return kernels() - before, perf_counter() - began


def kernels() -> int:
    """Number of compiled kernels in the cache folder."""
    return sum(1 for _ in cache_folder().glob(f"*{SUFFIX}"))
