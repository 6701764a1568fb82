"""Clusters in early epochs, one after another, and the whole graph in later ones."""

import numpy as np

import graphtheta as gt
from graphtheta.base.rng import Permutation, Purpose, key


@gt.STRATEGIES.add
class Curriculum(gt.OwnStrategy):
    name = "curriculum"

    def __init__(
        self, partition, layers, task, seed=0, *, clusters: int = 4, until: int = 2, hops: int = 0
    ):
        super().__init__(partition, layers, task, seed)
        self.clusters = clusters
        self.until = until
        self.hops = hops
        # ranges of ids
        self._cluster = partition.masters * clusters // partition.n_nodes

    def n_batches(self, epoch):
        return self.clusters if epoch < self.until else 1

    def choose(self, epoch, i):
        if epoch >= self.until:
            return gt.Batch(nodes=np.ones(self.partition.n_masters, bool))
        order = Permutation(key(self.seed, Purpose.BATCH, epoch), self.clusters)
        return gt.Batch(nodes=self._cluster == order.item(np.array([i]))[0], hops=self.hops)
