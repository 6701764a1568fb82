"""The choice of a node partitioner and an edge placement by the bytes that they are predicted to
send.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.console import amount, figure
from graphtheta.base.costs import COMPARING, COMPARING_AT_LEAST, LINK, PARTITIONING
from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import (
    DEFAULT_PLACEMENT,
    EDGE_PLACEMENTS,
    make_partitioner,
)
from graphtheta.partitioners.pairs import AUTO, DEFAULT_MASTERS, Pair, pair_of
from graphtheta.partitioners.placed import Placed, imbalance
from graphtheta.partitioners.report import OneOf, check_workers, row_bytes

# edges that are looked at
SAMPLED = 1 << 21
# the most nodes and edges of a worker over the mean, unless the default has more
BALANCED = 1.25
# node partitioners with their placements, the default first
CANDIDATES = {
    "hash": ("1d-src", "1d-dst", "vertex-cut", "libra"),
    "block": ("1d-src", "1d-dst"),
    "grem": ("1d-src", "1d-dst", "libra"),
}


@dataclass(frozen=True)
class Sample:
    """Some edges of a graph, and all nodes; see ``Graph``."""

    n_nodes: int
    src: np.ndarray
    dst: np.ndarray
    train: np.ndarray | None

    @property
    def n_edges(self) -> int:
        return len(self.src)


class TrainingWork(NamedTuple):
    """What a choice depends on beside the graph.

    Attributes:
        layers, width: Supersteps, and numbers of a message.
        epochs: Epochs of training.
        seed: Seed of the job.
    """

    layers: int
    width: int
    epochs: int
    seed: int


class _Measured(NamedTuple):
    """Figures of a pair; ``partitioning`` and ``messages`` are predicted seconds."""

    pair: Pair
    bytes: int
    imbalance: float
    partitioning: float
    messages: float


def pair_for(partitioner: str, masters: str, graph: Any, work: TrainingWork, comm: Comm) -> Pair:
    """The pair that two keys of a job give; for "auto" rank 0 chooses.

    Raises:
        ConfigError: Both name a node partitioner.
        PartitionError: Fewer nodes than workers.

    Collective: for "auto", all ranks of comm.
    """
    if partitioner != AUTO:
        return pair_of(partitioner, masters)
    with comm.agreed():
        pair = choose(graph, comm.size, work) if comm.rank == 0 else None
    return Pair(*comm.broadcast(pair))


def choose(graph: Any, n_workers: int, work: TrainingWork) -> Pair:
    """The candidate of the least time for partitioning and for messages, among the balanced ones.

    If all messages of the default take less time than the comparison, it is the default.
    Times are predictions from counts, so the choice repeats. Bytes are those of training on the
    whole graph in every epoch.

    Args:
        graph: The graph.
        n_workers: Number of workers.
        work: What is trained.

    Raises:
        PartitionError: Fewer nodes than workers.
    """
    check_workers(graph, n_workers)
    if n_workers == 1:
        return Pair(
            DEFAULT_MASTERS, DEFAULT_PLACEMENT, f"partitioner={AUTO}: one worker sends nothing"
        )
    began = perf_counter()
    sample = sampled(graph, work.seed)
    candidates = (
        one
        for masters in CANDIDATES
        for one in _measured(graph=graph, sample=sample, masters=masters, size=n_workers, work=work)
    )
    default = next(candidates)
    if default.messages < COMPARING_AT_LEAST + COMPARING * sample.n_edges / 1e6:
        return default.pair._replace(
            reason=(
                f"partitioner={AUTO}: masters={default.pair.masters} and"
                f" partitioner={default.pair.partitioner}, since the messages of {work.epochs}"
                f" epochs take about {default.messages:.2g} s, less than to compare pairs"
            )
        )
    pairs = [default, *candidates]
    allowed = max(BALANCED, default.imbalance)
    best = min(
        (one for one in pairs if one.imbalance <= allowed),
        key=lambda one: one.partitioning + one.messages,
    )
    of = (
        "all"
        if sample.n_edges == graph.n_edges
        else f"{figure(sample.n_edges)} of {figure(graph.n_edges)}"
    )
    against = (
        ""
        if best is default
        else f" ({default.pair.masters} and {default.pair.partitioner}: {amount(default.bytes)})"
    )
    return best.pair._replace(
        reason=(
            f"partitioner={AUTO}: masters={best.pair.masters} and"
            f" partitioner={best.pair.partitioner} send {amount(best.bytes)} per epoch{against}, at"
            f" most {best.imbalance:.2f} times the mean on a worker; {len(pairs)} pairs on {of}"
            f" edges in {perf_counter() - began:.1f} s"
        )
    )


def sampled(graph: Any, seed: int) -> Sample:
    """At most ``SAMPLED`` edges of a graph, one of each of as many ranges of ids."""
    stride = -(-graph.n_edges // SAMPLED) or 1
    ids = np.arange(graph.n_edges // stride)
    ids = ids * stride + (bits(key(seed, Purpose.PLACEMENT), ids) % np.uint64(stride)).astype(
        np.int64
    )
    return Sample(graph.n_nodes, graph.src[ids], graph.dst[ids], graph.train)


def _measured(
    graph: Any, sample: Sample, masters: str, size: int, work: TrainingWork
) -> Iterator[_Measured]:
    """Figures of a node partitioner with its candidate placements."""
    source = EdgeSource(sample)
    comm = OneOf(size)
    owners = np.asarray(
        make_partitioner(masters, work.seed).assign(source, comm).owner(np.arange(sample.n_nodes)),
        np.int32,
    )
    for placement in CANDIDATES[masters]:
        placed = Placed(source, size)
        placed.place(owners, EDGE_PLACEMENTS[placement]().place(source, owners, size))
        n_bytes = row_bytes(work.layers * placed.sent(), work.width)
        partitioning = (
            (PARTITIONING[masters] + PARTITIONING.get(placement, 0)) * graph.n_edges / 1e6
        )
        yield _Measured(
            pair=Pair(masters, placement),
            bytes=n_bytes,
            imbalance=max(imbalance(placed.nodes), imbalance(placed.edges)),
            partitioning=partitioning,
            messages=work.epochs * n_bytes / size / LINK,
        )
