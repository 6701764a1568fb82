"""Samplers by name."""

from __future__ import annotations

from inspect import isclass
from typing import Any

from graphtheta.base.registry import Registry
from graphtheta.engine.sampling.node_set import NodeSetSampler, is_node_set
from graphtheta.engine.sampling.sampler import Sampler
from graphtheta.samplers.labor import LaborSampler
from graphtheta.samplers.ladies import LadiesSampler
from graphtheta.samplers.neighbour import NeighbourSampler
from graphtheta.samplers.per_relation import PerRelationSampler
from graphtheta.samplers.pladies import PladiesSampler
from graphtheta.samplers.saint import SaintEdge, SaintFrontier, SaintNode, SaintWalk
from graphtheta.samplers.temporal import TemporalSampler
from graphtheta.samplers.weighted import WeightedSampler


def is_sampler(x: Any) -> bool:
    """Whether x is a class of samplers of edges or of node sets."""
    return (
        isclass(x)
        and isinstance(getattr(x, "name", None), str)
        and (callable(getattr(x, "choose", None)) or is_node_set(x))
    )


# The constructor of a sampler receives those of these arguments that it names: ``fanouts`` (one
# number per hop, the hop furthest from the targets first; -1 for all), ``replace``, ``seed``,
# ``shared`` and ``relation_names``; that of a node-set sampler receives ``seed``
SAMPLERS: Registry[type[Sampler] | type[NodeSetSampler]] = Registry(
    "sampler",
    is_sampler,
    (),
    (
        NeighbourSampler,
        WeightedSampler,
        TemporalSampler,
        PerRelationSampler,
        LaborSampler,
        LadiesSampler,
        PladiesSampler,
        SaintNode,
        SaintEdge,
        SaintWalk,
        SaintFrontier,
    ),
)
