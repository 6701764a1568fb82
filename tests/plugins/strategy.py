"""Batches of random walks, as in GraphSAINT: each is the subgraph of the nodes that they visit."""

import numpy as np

import graphtheta as gt
from graphtheta.base.rng import Purpose, key
from graphtheta.engine.sampling.drawing import Neighbours, WeightedNodes


@gt.STRATEGIES.add
class Walks(gt.OwnStrategy):
    name = "random_walks"
    weighs_loss = True

    def __init__(
        self, partition, layers, task, seed=0, *, roots: int = 8, length: int = 2, counted: int = 40
    ):
        super().__init__(partition, layers, task, seed)
        self.roots = roots
        self.length = length
        self._nodes = WeightedNodes(partition, np.ones(partition.n_masters, np.int64))
        self._neighbours = Neighbours(partition, reverse=False)
        # a node that is in few batches counts for more in each of them
        times = sum(self._visited(number).astype(int) for number in range(counted))
        self._weights = counted / np.maximum(times, 1)

    def n_batches(self, epoch):
        return -(-self.partition.n_nodes // (self.roots * (self.length + 1)))

    def choose(self, epoch, i):
        number = self.views_before(epoch) + i
        return gt.Batch(nodes=self._visited(number), loss_weights=self._weights)

    def _visited(self, number):
        """A mask of this worker's nodes; draws are hashes, so they are the same on any division."""
        draws = [key(self.seed, Purpose.SAMPLE, number, i) for i in range(self.length + 1)]
        row, walker, _ = self._nodes.draw(draws[0], self.roots)
        visited = np.zeros(self.partition.n_masters, bool)
        visited[row] = True
        state = walker[:, None]
        for draw in draws[1:]:
            row, state = self._neighbours.step(draw, row, state)
            visited[row] = True
        return visited
