"""A sampler that chooses a random range of node ids for each batch."""

from dataclasses import dataclass

import graphtheta as gt
from graphtheta.base.rng import Purpose, integers, key


@gt.SAMPLERS.add
@dataclass(frozen=True, kw_only=True)
class Range(gt.NodeSetSampler):
    name = "range"
    # checked to be at least 1
    sizes = ("length",)

    length: int = 100

    @property
    def nodes_per_batch(self):
        return self.length

    def open(self, partition):
        def chosen(batch):
            first = integers(key(self.seed, Purpose.SAMPLE, batch), [0], partition.n_nodes)
            return (partition.masters - first) % partition.n_nodes < self.length

        return chosen
