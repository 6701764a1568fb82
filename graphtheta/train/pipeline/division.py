"""The division of cores among stages that takes the least time, if every core belonged to stages.

A stage of t seconds on c cores takes t / c for each view, and a pipeline as long as its longest
stage. BGL binds each stage to cores of its own. With fewer cores than stages, neighbouring stages
share the cores of one group here.

Source: the minimax of BGL, https://arxiv.org/abs/2112.08541 (section 3.4)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple


class Division(NamedTuple):
    """A division of cores among stages.

    Attributes:
        groups: (first stage, end, cores) of each group of stages, in order.
        seconds: The time of a view: that of the slowest group.
    """

    groups: list[tuple[int, int, int]]
    seconds: float

    def slowest(self, seconds: Sequence[float]) -> int:
        """Which group limits, given the seconds of each stage."""
        return max(
            range(len(self.groups)),
            key=lambda i: sum(seconds[slice(*self.groups[i][:2])]) / self.groups[i][2],
        )


def divide(seconds: Sequence[float], cores: int) -> Division:
    """The division with the least longest stage, and of these the one with the fewest groups.

    Args:
        seconds: Processor time of a view in each stage.
        cores: At least 1.
    """
    return min(
        (_spread(seconds, ends, cores) for ends in _groups(len(seconds), cores)),
        key=lambda d: (d.seconds, len(d.groups)),
    )


def _groups(n: int, most: int) -> Iterator[list[int]]:
    """Bounds of all divisions of n stages into at most so many groups of neighbours."""
    for cuts in range(min(n, most)):
        for inner in combinations(range(1, n), cuts):
            yield [0, *inner, n]


def _spread(seconds: Sequence[float], bounds: list[int], cores: int) -> Division:
    """Give each core in turn to the group that takes longest, which is optimal for the longest."""
    work = [sum(seconds[a:b]) for a, b in pairwise(bounds)]
    given = [1] * len(work)
    for _ in range(cores - len(work)):
        longest = max(range(len(work)), key=lambda i: work[i] / given[i])
        given[longest] += 1
    return Division(
        list(zip(bounds[:-1], bounds[1:], given, strict=True)),
        max(w / c for w, c in zip(work, given, strict=True)),
    )
