"""An order of targets: those of many neighbours first, in every epoch."""

import graphtheta as gt
from graphtheta.engine.sampling.ranking import ranks_among_all


@gt.ORDERS.add
class HubsFirst:
    """Orders targets by the in-degrees of their nodes, from high to low; ``turn=yes`` reverses
    every other epoch.
    """

    name = "hubs_first"

    def __init__(self, turn: bool = False):
        self.turn = turn

    def positions(self, partition, task, seed):
        degree = task.at_nodes(partition.node.read("in_degree").astype(int)).max(axis=1)
        # ties by id, so that the order is the same on any number of workers
        rank = ranks_among_all(partition, -degree, task.ids)
        last = task.n_targets - 1
        return lambda epoch: last - rank if self.turn and epoch % 2 else rank
