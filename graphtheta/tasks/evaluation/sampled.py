"""Evaluation over sampled neighbourhoods, as that of systems whose evaluation reads batches.

Neighbours of a node are drawn uniformly among the edges that an exact evaluation reads. The draws
are keyed by the seed of the job, the epoch that is evaluated and the node, so that they are the
same for any number of workers and any partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import PreparedSampler, Sampler, Timed
from graphtheta.engine.view.expand import all_passes, k_hop_view
from graphtheta.engine.view.hop import Layers, hops
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.samplers.neighbour import NeighbourSampler
from graphtheta.samplers.temporal import TemporalSampler


class SampledViews:
    """Views of evaluation, whose neighbourhoods are sampled while ``epoch`` is set.

    Args:
        partition: The graph.
        layers: The supersteps of the model.
        sampler: Chooses the edges.

    Attributes:
        sampler: As the argument.
        epoch: Epoch of the draws; None for views with all edges.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, layers: Layers, sampler: Sampler):
        self.sampler = sampler
        self.epoch: int | None = None
        self._partition = partition
        self._layers = layers
        self._view: tuple[int, GraphView] | None = None
        if isinstance(sampler, PreparedSampler):
            for relation, reverse in all_passes(partition, hops(layers)).values():
                sampler.prepare(partition, relation, reverse)

    def instead_of(self, view: GraphView) -> GraphView:
        """A view of the whole graph with sampled edges, and the pairs that it has; the view itself
        if nothing is sampled now.

        Collective: all ranks of the partition.
        """
        if self.epoch is None:
            return view
        if self._view is None or self._view[0] != self.epoch:
            nodes = np.ones(self._partition.n_masters, bool)
            self._view = (
                self.epoch,
                k_hop_view(
                    self._partition, nodes, self._layers, sampler=self.sampler, step=self.epoch
                ),
            )
        # rows of a view of all masters are the masters, as those of the whole graph
        return replace(self._view[1], pairs=view.pairs)

    def end(self) -> None:
        """Sample no more, and forget the view that was made last."""
        self.epoch = None
        self._view = None


def evaluation_sampler(
    fanouts: Sequence[int], seed: int, repeats: bool, shared: bool, timed: Timed | None
) -> Sampler:
    """The sampler of an evaluation.

    Args:
        fanouts: Neighbours for each hop, the one furthest from the targets first; -1 for all.
        seed: Seed of the job.
        repeats, shared: ``replace`` and ``shared`` of ``NeighbourSampler``.
        timed: Limits the edges of a node to those up to a time; None for no limit.

    Raises:
        ConfigError: The arguments do not fit together.
    """
    settings: dict[str, Any] = {
        "fanouts": tuple(fanouts),
        "replace": repeats,
        # independent of the draws of training
        "seed": key(seed, Purpose.EVALUATION),
    }
    if timed is None:
        return NeighbourSampler(**settings, shared=shared)
    complete = timed.complete(len(fanouts))
    if not isinstance(complete, TemporalSampler):
        raise ConfigError(
            f"eval_fanout samples the edges up to a time with sampler=temporal, and not with"
            f" sampler={complete.name}; drop --eval-fanout"
        )
    return replace(complete, **settings)
