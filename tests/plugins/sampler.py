"""A sampler that chooses the edges of the largest weights."""

import graphtheta as gt


class Weight(gt.Priority):
    """Ranks the in-edges of a node by falling weight."""

    def rank(self, frontier, edges, key):
        edges = edges.listed()
        return gt.ranked_by(edges, -frontier.partition.edge.read("weight", edges.stored))

    def weight(self, frontier, edges, share):
        # an importance weight of 1: the sample does not estimate the other edges
        return None


@gt.SAMPLERS.add
class Heaviest(gt.NeighbourSampler):
    name = "heaviest"

    def __init__(self, fanouts):
        super().__init__(fanouts, priority=Weight())
