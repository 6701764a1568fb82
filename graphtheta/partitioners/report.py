"""A report on partitioners: what a cut costs, counted exactly without any worker."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.edge_source import GraphEdges
from graphtheta.engine.partition.partitioner import assign
from graphtheta.errors import CommError, PartitionError
from graphtheta.ops.partition.copies import count_copies, mark_copies
from graphtheta.partitioners.cuts import no_copies
from graphtheta.partitioners.registry import DEFAULT_PLACEMENT


@dataclass(frozen=True)
class PartitionReport:
    """What a partition costs.

    Attributes:
        masters, partitioner: Node partitioner and edge placement, as given.
        n_workers: Number of workers.
        edge_cut: Share of edges whose ends have different owners.
        replication: Copies of a node, on the mean: 1 for the owner, and 1 for each other worker
            with one of its edges.
        nodes, edges, train: The most nodes, edges and training nodes of a worker, over the mean;
            0 if there are none.
        halo_rows: The most mirrors of a worker.
        seconds: Time to assign nodes and edges.
        peak_bytes: Growth of the peak resident memory of this process meanwhile, without memory
            that it had freed and reuses; None where /proc/self does not give it.
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
    peak_bytes: int | None


class OneOf(SerialComm):
    """A worker of many, without the others: rank 0 of ``size``, which cannot communicate."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        raise CommError("partition_report has no other workers; this partitioner communicates, so use graphtheta info")

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self.poll(bool, "")

    _swap_flat = _gather_flat


def partition_report(graph: Any, n_workers: int, masters: str = "hash", partitioner: str = DEFAULT_PLACEMENT,
                     seed: int = 0) -> PartitionReport:
    """Divide a graph among workers, in this process, and count what it costs.

    Args:
        graph: The graph.
        n_workers: Number of workers.
        masters: Node partitioner, as the key ``masters`` of a job.
        partitioner: Edge placement, as the key ``partitioner`` of a job.
        seed: Seed of the job.

    Raises:
        ConfigError: Unknown name or option.
        PartitionError: Fewer nodes than workers.
        CommError: The partitioner communicates.
    """
    if not 1 <= n_workers <= graph.n_nodes:
        raise PartitionError(f"n_workers is {n_workers} and the graph has {graph.n_nodes} nodes; give a number from 1 to {graph.n_nodes}")
    source, copies, counts = GraphEdges(graph), no_copies(graph.n_nodes, n_workers), np.zeros((2, n_workers), np.int64)
    before = _status("VmRSS", reset=True)
    began = perf_counter()
    owners, workers = assign(source, OneOf(n_workers), partitioner, masters, seed)
    seconds, cut = perf_counter() - began, 0
    mark_copies(np.arange(graph.n_nodes), owners, copies)
    for chunk in source.chunks():
        began = perf_counter()
        worker = workers(chunk)
        seconds += perf_counter() - began
        mark_copies(chunk.src, worker, copies)
        mark_copies(chunk.dst, worker, copies)
        cut += int(np.count_nonzero(owners[chunk.src] != owners[chunk.dst]))
        counts[1] += np.bincount(worker, minlength=n_workers)
    peak, train = _status("VmHWM"), graph.train if graph.train is not None else np.zeros(graph.n_nodes, bool)
    counts[0] = np.bincount(owners, minlength=n_workers)
    held = count_copies(copies, np.zeros(n_workers, np.int64))
    return PartitionReport(masters, partitioner, n_workers, cut / max(graph.n_edges, 1), float(held.sum() / graph.n_nodes),
                           _imbalance(counts[0]), _imbalance(counts[1]), _imbalance(np.bincount(owners[train], minlength=n_workers)),
                           int((held - counts[0]).max()), seconds, None if before is None or peak is None else max(peak - before, 0))


def _imbalance(counts: np.ndarray) -> float:
    """The largest over the mean."""
    return float(counts.max() * len(counts) / max(counts.sum(), 1))


def _status(field: str, reset: bool = False) -> int | None:
    """Bytes of a field of this process's status; ``reset`` first sets the peak to what is resident now."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), None)
