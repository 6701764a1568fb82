"""Names of pairs of a node partitioner and an edge placement, as published systems combine them."""

from __future__ import annotations

from typing import NamedTuple

from graphtheta.errors import ConfigError
from graphtheta.partitioners.registry import EDGE_PLACEMENTS

# the node partitioner unless a job gives one, and the name of the pair that is chosen by numbers
DEFAULT_MASTERS, AUTO = "hash", "auto"


class Pair(NamedTuple):
    """A node partitioner and an edge placement.

    Attributes:
        masters, partitioner: As the keys of a job.
        reason: Why they were chosen, in one line; empty if they were given.
    """

    masters: str
    partitioner: str
    reason: str = ""


PAIRS = {
    # Malewicz et al., Pregel, SIGMOD 2010
    "pregel": Pair("hash", "1d-src"),
    # Gonzalez et al., PowerGraph, OSDI 2012
    "powergraph": Pair("hash", "oblivious:owners=no"),
    # Gonzalez et al., GraphX, OSDI 2014: EdgePartition2D
    "graphx": Pair("hash", "vertex-cut"),
    # Chen et al., PowerLyra, EuroSys 2015
    "powerlyra": Pair("hash", "hybrid"),
    # Zhu et al., Gemini, OSDI 2016
    "gemini": Pair("gemini", "1d-dst"),
    # Zheng et al., DistDGL, https://arxiv.org/abs/2010.05337
    "distdgl": Pair("metis", "1d-dst"),
    "metis": Pair("metis", "1d-dst"),
    # Md et al., DistGNN, https://arxiv.org/abs/2104.06700
    "distgnn": Pair("hash", "libra:owners=no"),
    # Liu et al., BGL, NSDI 2023
    "bgl": Pair("bgl", "1d-dst"),
    # Waleffe et al., Armada, https://arxiv.org/abs/2502.17846
    "armada": Pair("grem", "1d-dst"),
}
EDGE_PLACEMENTS.reserve(*PAIRS, AUTO)


def pair_of(partitioner: str, masters: str) -> Pair:
    """The pair that two keys of a job give.

    Args:
        partitioner: An edge placement, or the name of a pair other than "auto".
        masters: A node partitioner.

    Raises:
        ConfigError: Both name a node partitioner.
    """
    check_pair(partitioner, masters)
    return PAIRS.get(partitioner) or Pair(masters, partitioner)


def check_pair(partitioner: str, masters: str) -> None:
    """Refuse a node partitioner beside the name of a pair.

    Raises:
        ConfigError: There is one.
    """
    if masters != DEFAULT_MASTERS and partitioner in (*PAIRS, AUTO):
        pair = PAIRS.get(partitioner)
        means = (
            "chooses the node partitioner"
            if pair is None
            else f"means masters={pair.masters} and partitioner={pair.partitioner}"
        )
        raise ConfigError(
            f"partitioner={partitioner} {means}; drop --masters, or give an edge placement:"
            f" {', '.join(EDGE_PLACEMENTS)}"
        )
