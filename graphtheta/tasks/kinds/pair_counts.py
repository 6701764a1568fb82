"""How many pairs of nodes a kind of task scores, for the memory bound and plans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PairCounts:
    """How many pairs of nodes the workers of a job score together, at most.

    Attributes:
        batch: Targets of a batch, with their negatives.
        evaluated: Targets of evaluation, with their negatives.
        ranked: Pairs of queries and nodes that a worker ranks at a time.
    """

    batch: int = 0
    evaluated: int = 0
    ranked: int = 0


NO_PAIRS = PairCounts()
