"""The view of an empty graph, over which a model runs to show what it reads and computes."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.partition.partition import Partition, empty_partition
from graphtheta.engine.strategy.strategy import whole
from graphtheta.engine.strategy.task import Seeds
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.scored_pairs import no_pairs
from graphtheta.engine.view.view import GraphView


def empty_view(partition: Partition, layers: Layers) -> GraphView:
    """A view without nodes, edges and pairs, on one rank.

    Args:
        partition: Has the columns that the model reads.
        layers: The supersteps of the model.
    """
    empty = empty_partition(partition)
    return whole(empty, layers, Seeds(np.zeros(0, bool), no_pairs(empty)))
