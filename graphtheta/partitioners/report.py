"""A report on partitioners: what a cut costs, counted exactly without any worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.memory import peak_bytes, resident_bytes
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import assign
from graphtheta.errors import CommError, PartitionError, ShapeError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.validation import Origin, as_array
from graphtheta.partitioners.pairs import pair_of
from graphtheta.partitioners.placed import Placed, imbalance
from graphtheta.partitioners.registry import DEFAULT_PLACEMENT


@dataclass(frozen=True)
class PartitionReport:
    """What a partition costs.

    Attributes:
        masters, partitioner: Node partitioner and edge placement.
        n_workers: Number of workers.
        edge_cut: Share of edges whose ends have different owners.
        replication: Copies of a node, on the mean: 1 for the owner, and 1 for each other worker
            with one of its edges.
        nodes, edges, train: The most nodes, edges and training nodes of a worker, over the mean;
            0 if there are none.
        halo_rows: The most mirrors of a worker.
        seconds, processor: Time to assign nodes and edges; and processor time of all threads
            meanwhile.
        peak_bytes: Growth of the peak resident memory of this process meanwhile, without memory
            that it had freed and reuses; None where the system cannot measure it.
        bytes: Predicted bytes that all workers send in an epoch, by strategy, if each superstep
            sums messages of ``width`` float32 numbers, forwards and backwards. Batches of "mini"
            have full neighbourhoods, and some of them are counted for all; "mini" needs training
            nodes, and "cluster", whose batches are single clusters, needs clusters.
    """

    masters: str
    partitioner: str
    n_workers: int
    edge_cut: float
    replication: float
    nodes: float
    edges: float
    train: float
    halo_rows: int
    seconds: float
    processor: float
    peak_bytes: int | None
    bytes: dict[str, int] = field(default_factory=dict)


class OneOf(SerialComm):
    """A worker of many, without the others: rank 0 of ``size``, which cannot communicate."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        raise CommError(
            "partition_report has no other workers; this partitioner communicates, so use"
            " graphtheta info"
        )

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self.poll(bool, "")

    _swap_flat = _gather_flat


@checked
def partition_report(
    graph: Graph,
    n_workers: int,
    masters: str = "hash",
    partitioner: str = DEFAULT_PLACEMENT,
    seed: int = 0,
    *,
    layers: int = 2,
    width: int = 16,
    batch_size: int = 1024,
    clusters: np.ndarray | None = None,
) -> PartitionReport:
    """Divide a graph among workers, in this process, and count what it costs.

    Args:
        graph: The graph.
        n_workers: Number of workers.
        masters: Node partitioner, as the key ``masters`` of a job.
        partitioner: Edge placement or the name of a pair, as the key ``partitioner`` of a job.
        seed: Seed of the job.
        layers, width: Supersteps, and numbers of a message, for the predicted bytes.
        batch_size: Targets of a mini-batch.
        clusters: Cluster of each node, [n_nodes] integers.

    Raises:
        ConfigError: Unknown name or option.
        PartitionError: Fewer nodes than workers.
        CommError: The partitioner communicates.
    """
    check_workers(graph, n_workers)
    of = None if clusters is None else as_array(clusters, Origin("", "clusters"))
    if of is not None and (of.shape != (graph.n_nodes,) or of.dtype.kind not in "iu"):
        raise ShapeError(
            f"clusters: expected {graph.n_nodes} integers, got {of.dtype}{list(of.shape)}; give the"
            " cluster of each node"
        )
    pair = pair_of(partitioner, masters)
    source = EdgeSource(graph)
    train = graph.train if graph.train is not None else np.zeros(graph.n_nodes, bool)
    placed = Placed(source, n_workers)
    before = _peak_anew()
    began = perf_counter()
    used = process_time()
    placed.place(*assign(source, OneOf(n_workers), pair.partitioner, pair.masters, seed))
    seconds = perf_counter() - began
    processor = process_time() - used
    peak = peak_bytes()
    nodes = placed.nodes
    mirrors = placed.mirrors
    rows = {"global": layers * placed.sent()}
    if np.any(train):
        rows["mini"] = placed.sent_by_batches(train, batch_size, layers, seed)
    if of is not None:
        rows["cluster"] = layers * placed.sent(lambda src, dst: of[src] == of[dst])
    return PartitionReport(
        masters=pair.masters,
        partitioner=pair.partitioner,
        n_workers=n_workers,
        edge_cut=placed.cut() / max(graph.n_edges, 1),
        replication=float((nodes + mirrors).sum() / graph.n_nodes),
        nodes=imbalance(nodes),
        edges=imbalance(placed.edges),
        train=imbalance(np.bincount(placed.owners[train], minlength=n_workers)),
        halo_rows=int(mirrors.max()),
        seconds=seconds,
        processor=processor,
        peak_bytes=None if before is None else max(peak - before, 0),
        bytes={name: row_bytes(n, width) for name, n in rows.items()},
    )


def check_workers(graph: Any, n_workers: int) -> None:
    """Refuse more workers than nodes.

    Raises:
        PartitionError: There are.
    """
    if not 1 <= n_workers <= graph.n_nodes:
        raise PartitionError(
            f"the graph has {graph.n_nodes} nodes and the number of workers is {n_workers}; choose"
            f" 1 to {graph.n_nodes} (mpiexec -n, or n_workers)"
        )


def row_bytes(rows: int, width: int) -> int:
    """Bytes of rows of float32 numbers that are sent forwards and backwards."""
    return 2 * 4 * width * rows


def _peak_anew() -> int | None:
    """Resident memory of this process, which is its peak from now on; None where the system cannot
    set it.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return resident_bytes()
