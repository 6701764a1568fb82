"""Sampling by time: only edges that are not later than the cutoff of their receiving node.

The cutoff of a target that is a node is a column of the nodes; the ends of a target that is an
edge, a link or a triple have the cutoff that follows from its own time. It travels down the hops: a
node inherits the cutoffs of the nodes that chose one of its edges in the hop before, and its own if
it has one; the lowest of them counts. A node is computed once for all nodes that read it, so a
higher cutoff would show the future to one of them. On every path from an edge to a target, cutoffs
only rise, so no edge is later than the time of any target that it reaches.

In PyG (``time_attr``, ``temporal_strategy``) and in GraphBolt (``TemporalNeighborSampler``) a
neighbour also inherits the time of its seed, and a node that several seeds reach is computed once
for each: exact for each seed, but nothing is shared. PyG allows edges of the time of the seed, as
here; GraphBolt only earlier ones.

Source: PyG, https://pytorch-geometric.readthedocs.io, ``torch_geometric.loader.NeighborLoader``;
GraphBolt, https://www.dgl.ai/dgl_docs, ``dgl.graphbolt.TemporalNeighborSampler``
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.candidates import IN_ORDER, Candidates, Chosen, Frontier, Sample
from graphtheta.engine.sampling.columns import (
    ALWAYS,
    check_column,
    check_mask,
    in_block,
    masked,
    up_to,
)
from graphtheta.engine.sampling.priority import Priority, Ranked, ranked_by, tie_bits
from graphtheta.errors import ConfigError, DataError
from graphtheta.samplers.neighbour import Fanouts, NeighbourSampler

STRATEGIES = ("uniform", "last")


@dataclass(frozen=True)
class RecentPriority(Priority):
    """The latest edges; of equally late ones those of the lowest ids.

    Attributes:
        column: Edge column of times.
    """

    column: str

    def rank(self, frontier: Frontier, edges: Candidates, key: int) -> Ranked:
        listed = edges.listed()
        times = in_block(frontier.partition.edge.exact(self.column), listed.block)[listed.edges]
        if times.dtype.kind == "f":
            return ranked_by(listed, -times)
        assert frontier.cutoff is not None
        # of whole numbers, ages fit into the bits above those of ids, which ``check`` makes sure of
        age = np.repeat(frontier.cutoff[listed.kinds[1]], np.diff(listed.ptr)) - times
        ties = np.uint64(tie_bits(frontier.relation))
        # an edge that is known at any time is the oldest
        oldest = np.uint64(np.iinfo(np.uint64).max) >> ties
        return Ranked(listed, np.minimum(age.astype(np.uint64), oldest) << ties, IN_ORDER, None)

    def weight(self, frontier: Frontier, edges: Chosen, share: np.ndarray) -> np.ndarray | None:
        # the latest edges are no random sample of the others
        return None


@dataclass(frozen=True)
class TemporalSampler(Fanouts):
    """Keeps ``fanout`` in-edges of every receiving node, of those not later than its cutoff.

    Attributes:
        fanouts, replace, seed: As for ``NeighbourSampler``.
        time: The edge column of times.
        target_time: The node column that is the cutoff of a target, if targets are nodes.
        strategy: "uniform" draws uniformly from the allowed edges, with importance weights;
            "last" keeps the latest ones, each with weight 1.
        grain: Cutoffs are rounded down to multiples of it, so that more targets have the same one:
            an evaluation takes a view for each. 0 leaves them as they are.
        mask: An edge column of True and False; only edges with True take part. Empty for all.
        name: Name in a job.

    Raises:
        ConfigError: As for ``NeighbourSampler``, or an unknown strategy, or ``replace`` with
            "last".
    """

    name: ClassVar[str] = "temporal"

    replace: bool = False
    seed: int = 0
    time: str = "time"
    target_time: str = "time"
    strategy: str = "uniform"
    grain: float = 0.0
    mask: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.grain < float("inf"):
            raise ConfigError(
                f"grain={self.grain}: expected a positive number in the unit of the times, or 0"
            )
        if self.strategy not in STRATEGIES:
            raise ConfigError(f"strategy={self.strategy}: expected {' or '.join(STRATEGIES)}")
        if self.replace and self.strategy == "last":
            raise ConfigError(
                "replace: strategy=last keeps each of the latest edges once; drop replace, or"
                " choose strategy=uniform"
            )
        self._neighbours()

    def _neighbours(self) -> NeighbourSampler:
        if self.strategy == "last":
            return NeighbourSampler(
                self.fanouts, seed=self.seed, priority=RecentPriority(self.time)
            )
        return NeighbourSampler(self.fanouts, self.replace, self.seed)

    def check(self, partition: Partition) -> None:
        """Check the columns.

        Raises:
            ConfigError: There is no such column, or one has whole numbers and the other does not.
            DataError: Times differ by more than ranks can hold, or a mask has other values than
                True and False.

        Collective: all ranks of the partition.
        """
        check_column(partition, "edge", "time", self.time)
        times = partition.edge.exact(self.time)
        cutoffs = self._target_times(partition)
        if (times.dtype.kind == "f") != (cutoffs.dtype.kind == "f"):
            raise ConfigError(
                f"time={self.time} is {times.dtype} and target_time={self.target_time} is"
                f" {cutoffs.dtype}, which round differently; give both columns as integers"
            )
        self._check_grain(times)
        if times.dtype.kind != "f" and self.strategy == "last":
            self._check_ages(partition, times, cutoffs)
        check_mask(partition, self.mask)

    def _check_grain(self, times: np.ndarray) -> None:
        if times.dtype.kind != "f" and self.grain % 1:
            raise ConfigError(f"grain={self.grain}: the times are integers; give a whole number")

    def _check_ages(self, partition: Partition, times: np.ndarray, cutoffs: np.ndarray) -> None:
        """Check that the age of every edge fits into a rank beside an edge id."""
        lowest = ALWAYS["i"]
        times = times.astype(np.int64)
        cutoffs = cutoffs.astype(np.int64)
        # -1 - x reverses the order of all 64-bit numbers, the lowest included
        before = -1 - times[times != lowest]
        ends = np.array([cutoffs.max(initial=lowest), before.max(initial=lowest)], np.int64)
        newest, before = (int(x) for x in partition.halo_comm.all_max(ends))
        span = newest + 1 + before
        bits = min(63, 64 - max(partition.n_edges - 1, 0).bit_length())
        if partition.n_edges and span >= 1 << bits:
            raise DataError(
                f"time={self.time}: times span {span}, but strategy=last tells apart spans below"
                f" 2**{bits} in a graph of {partition.n_edges} edges; give times in a coarser unit"
            )

    def _target_times(self, partition: Partition) -> np.ndarray:
        """The times that targets of this worker may have, [n]."""
        check_column(partition, "node", "target_time", self.target_time)
        return np.asarray(partition.node.exact(self.target_time))

    def cutoffs(self, partition: Partition, masters: np.ndarray) -> np.ndarray:
        """The times of targets that are nodes; see ``Timed.cutoffs``."""
        return self._until(partition.node.exact(self.target_time, masters))

    def _until(self, times: np.ndarray) -> np.ndarray:
        """The cutoffs of targets at some times, [n]."""
        values: np.ndarray = times.astype(np.float64 if times.dtype.kind == "f" else np.int64)
        if not self.grain:
            return values
        grain = values.dtype.type(self.grain)
        # below the lowest number, the product of integers would be the highest
        return np.minimum(values // grain * grain, values)

    def edge_cutoffs(self, read: Callable[[str], np.ndarray], earlier: bool) -> np.ndarray:
        """The cutoffs of targets that are edges or links; see ``Timed.edge_cutoffs``."""
        times = read(self.time)
        self._check_grain(times)
        values = self._until(times)
        if not earlier:
            return values
        if values.dtype.kind == "f":
            return np.nextafter(values, -np.inf)
        # nothing is below the lowest number, which must not become the highest
        return np.maximum(values, np.iinfo(np.int64).min + 1) - 1

    def of_pairs(self) -> TemporalSampler:
        """The sampler for targets that are edges, links or triples; their times are those of the
        edge column ``time``.

        Raises:
            ConfigError: ``target_time`` names another column.
        """
        if self.target_time != TemporalSampler.target_time:
            raise ConfigError(
                f"target_time={self.target_time} names a column of nodes, but the targets of this"
                " task are edges, links or triples, whose times are in the edge column of the"
                f" option time={self.time}; drop target_time"
            )
        return _OfPairs(**vars(self))

    def complete(self, hops: int) -> TemporalSampler:
        """The sampler that keeps all allowed edges; masks are for training."""
        return replace(self, fanouts=(-1,) * hops, replace=False, strategy="uniform", mask="")

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``.

        Collective: all ranks of the frontier's partition.
        """
        assert frontier.cutoff is not None
        past = up_to(masked(frontier, self.mask), self.time, frontier.cutoff)
        return self._neighbours().choose(past, hop=hop, step=step)


class _OfPairs(TemporalSampler):
    """The sampler for targets that are edges or links."""

    def of_pairs(self) -> TemporalSampler:
        return self

    def _target_times(self, partition: Partition) -> np.ndarray:
        return np.asarray(partition.edge.exact(self.time))
