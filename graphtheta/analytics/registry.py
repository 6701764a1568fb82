"""Graph algorithms by name."""

from __future__ import annotations

from graphtheta.analytics.algorithm import Algorithm
from graphtheta.analytics.betweenness import Betweenness
from graphtheta.analytics.components import Components
from graphtheta.analytics.page_rank import PageRank
from graphtheta.analytics.paths import Bfs, Sssp
from graphtheta.analytics.random_walks import RandomWalks
from graphtheta.analytics.structure import CoreNumber, Degree, LabelPropagation, Triangles
from graphtheta.base.registry import Registry, named_class

ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "graph algorithm",
    named_class(Algorithm),
    (),
    (
        PageRank,
        Components,
        Degree,
        CoreNumber,
        Triangles,
        LabelPropagation,
        Bfs,
        Sssp,
        Betweenness,
        RandomWalks,
    ),
)


def make_algorithm(text: str, key: str = "ALGORITHM") -> Algorithm:
    """The algorithm that ``NAME:option=value,...`` describes, with a name in ``ALGORITHMS`` or
    FILE.py:NAME.

    Args:
        text: The description.
        key: What the description is the value of, for messages.

    Raises:
        ConfigError: Unknown name, unknown option, or a value of another type.
    """
    algorithm: Algorithm = ALGORITHMS.make(text, key)
    return algorithm
