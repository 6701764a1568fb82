"""Batches of the subgraph that a set of nodes induces, with GraphSAINT's normalisation.

Source: GraphSAINT, https://arxiv.org/abs/1907.04931
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.errors import ConfigError, DataError

from ..partition.located import values_of
from ..partition.partition import Partition
from ..sampling.node_set import MASKS, NodeSets, NodeSetSampler, several
from ..view.expand import induced
from ..view.hop import Layers, hops
from ..view.level import passes_of
from ..view.view import GraphView
from .strategy import Strategy
from .task import IMPORTANCE, NodeTask, Task

# published bounds: largest importance weight; weight of an edge into a node that was never drawn;
# count of such a node
LARGEST = 1e4
UNKNOWN = 0.1
NEVER = 0.1
# a sampler that gives so many empty sets in a row is taken for one that gives no others
MOST_EMPTY = 100


@dataclass(frozen=True)
class Normalisation:
    """Weights that make the sums and the loss of a batch estimates of those of the whole graph.

    With C_v and C_uv, how many of N node sets contain node v, and both ends of edge uv:

    - an edge into v weighs C_v / C_uv, at most 10^4;
    - the loss of a target v weighs N / C_v, divided by the number of known labels of all targets.

    Attributes:
        edges: Importance weight of each local edge in storage order, [n_local_edges] float64, by
            whether messages run against the edges.
        rows: Weight of the loss of each master, [n_masters] float64.
        sets: N.
    """

    edges: dict[bool, np.ndarray]
    rows: np.ndarray
    sets: int


def normalisation(
    partition: Partition,
    sets: NodeSets,
    layers: Layers,
    *,
    nodes_per_set: int,
    coverage: float,
    n_labels: int,
) -> Normalisation:
    """Count nodes and edges in the first node sets of a run.

    Sets are drawn until they hold more than ``coverage`` nodes for each node of the graph. Each set
    takes the time to read the in-edges of its nodes, so that all together read every edge about
    ``coverage`` times. Training on these sets gives, on average, exactly the sums over all edges
    and targets that they contain.

    Args:
        sets: The node sets of the run.
        layers: The supersteps of the model; their directions decide which weights are needed.
        nodes_per_set: Largest number of nodes of a set.
        coverage: As above.
        n_labels: Known labels of all targets of all workers.

    Raises:
        DataError: The sampler gives empty sets only.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    began = perf_counter()
    nodes = np.zeros(partition.n_masters, np.int64)
    edges = np.zeros(partition.n_local_edges, np.int64)
    n = drawn = said = empty = 0
    goal = coverage * partition.n_nodes
    most = max(MASKS // partition.n_nodes, 1)
    while drawn <= goal:
        # so many sets at least are still needed
        some = min(int((goal - drawn) // nodes_per_set) + 1, most)
        masks = several(sets, range(n, n + some))
        for chosen in masks:
            for sweep in induced(partition, chosen, ["in"]).levels[0].passes:
                for selection in sweep.selections:
                    edges[selection.stored] += 1
        nodes += masks.sum(axis=0)
        sizes = comm.all_sum(np.count_nonzero(masks, axis=1))
        n += some
        drawn += int(sizes.sum())
        filled = np.flatnonzero(sizes)
        empty = some - 1 - int(filled[-1]) if len(filled) else empty + some
        if empty >= MOST_EMPTY:
            raise DataError(
                f"the sampler gives no nodes for {MOST_EMPTY} batches in a row, so it would never"
                f" reach coverage={coverage:g}; change the sampler, or give normalise=no"
            )
        if comm.rank == 0 and 10 * drawn > (said + 1) * goal:
            said = int(10 * drawn / goal)
            share = min(drawn / goal, 1)
            seconds = perf_counter() - began
            logger.info(
                f"normalisation: {n} node sets counted, {share:.0%} of the nodes needed,"
                f" {seconds:.1f} s"
            )
    counts = values_of(partition, partition.gid, nodes)
    src, dst = partition.edge_rows()
    weights = {}
    for reverse in {
        reverse for hop in hops(layers) for _, reverse in passes_of(partition, hop.direction)
    }:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = counts[src if reverse else dst] / edges
        weights[reverse] = np.where(np.isnan(ratio), UNKNOWN, np.clip(ratio, 0, LARGEST))
    return Normalisation(weights, n / np.where(nodes > 0, nodes, NEVER) / max(n_labels, 1), n)


class NodeSetBatch(Strategy):
    """Batches of the nodes that a sampler chooses, with all edges between them.

    Targets of a batch are the training nodes among them. With normalisation, the first batch is
    preceded by counts, which stay the same for the whole run.

    Args:
        sampler: Chooses the nodes.

    Raises:
        ConfigError: The targets are not nodes.
        DataError: The sampler cannot draw a node.
    """

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        seed: int = 0,
        *,
        sampler: NodeSetSampler,
    ):
        super().__init__(partition, layers, task, seed)
        if not isinstance(task, NodeTask):
            raise ConfigError(
                f"sampler={sampler.name} chooses nodes, and the targets of this task are edges or"
                " links; choose a sampler of neighbours, or strategy=cluster"
            )
        self.sampler = sampler
        self._labels = task.n_labels
        self._sets: NodeSets | None = None
        self._normalised: Normalisation | None = None

    @property
    def steps_per_epoch(self) -> int:
        return self.sampler.batches or -(-self.partition.n_nodes // self.sampler.nodes_per_batch)

    def prepare(self) -> None:
        """Open the sampler and count, unless that is done.

        Collective: all ranks of the partition.
        """
        if self._sets is None:
            p = self.partition
            sampler = self.sampler
            self._sets = sampler.open(p)
            if sampler.normalise:
                self._normalised = normalisation(
                    p,
                    self._sets,
                    self.layers,
                    nodes_per_set=sampler.nodes_per_batch,
                    coverage=sampler.coverage,
                    n_labels=self._labels(),
                )
                self.partition = p.overlay({IMPORTANCE: self._normalised.rows}, {})

    def makers(self, epoch: int, first: int, last: int) -> list[Callable[[], GraphView]]:
        # pipelined work items run in another order on each rank, so none of them may count
        self.prepare()
        return super().makers(epoch, first, last)

    def batch(self, epoch: int, i: int) -> GraphView:
        self.prepare()
        assert self._sets is not None
        weights = None if self._normalised is None else self._normalised.edges
        return induced(
            self.partition, self._sets(self._step(epoch, i)), self.layers, weights=weights
        )
