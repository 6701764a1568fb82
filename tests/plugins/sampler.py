"""A sampler that keeps the edges of the largest weights."""
import graphtheta as gt


class Weight(gt.Priority):
    """Ranks the edges into a node by falling weight."""

    def rank(self, frontier, edges, key):
        edges = edges.listed()
        return gt.ranked_by(edges, -frontier.partition.edge.read("weight", edges.stored))

    def weight(self, frontier, edges, share):
        # the edges that are left out are not estimated: each kept edge stands for itself
        return None


@gt.SAMPLERS.add
class Heaviest(gt.NeighbourSampler):
    name = "heaviest"

    def __init__(self, fanouts):
        super().__init__(fanouts, priority=Weight())
