"""Choices of a sampler that are made again: for a part of the targets that they were made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...ops.kernels.batch import expand
from .candidates import Candidates, Chosen, Frontier, Frontiers, Sample
from .search import PassEdges, SearchResult


class RepeatedSampler:
    """Chooses the edges that one search has found, of whatever nodes receive.

    A search from some of the targets then finds the part of the first one that leads to them,
    whatever the sampler was: some samplers choose for all nodes of a batch together.

    Args:
        found: The result of the search, of one view.
    """

    name: ClassVar[str] = "repeated"

    def __init__(self, found: SearchResult):
        self._edges = found.edges

    @property
    def hops(self) -> int:
        """Number of hops of the search."""
        return len(self._edges)

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``."""
        return Sample(self.choose_all(frontier.alone, hop=hop, steps=(step,)))

    def choose_all(self, frontiers: Frontiers, *, hop: int, steps: Sequence[int]) -> list[Chosen]:
        """Choose edges of one pass for several views; see ``SamplerOfViews.choose_all``."""
        # searches count hops from the targets on
        of_pass = self._edges[self.hops - 1 - hop][frontiers.relation.name, frontiers.reverse]
        return [_of_rows(c, edges) for c, edges in zip(frontiers.candidates, of_pass, strict=True)]


def _of_rows(c: Candidates, found: PassEdges) -> Chosen:
    """The edges of a block that were found into some of its rows."""
    block = c.block
    position = found.stored.items - block.start
    src = block.in_src[position]
    dst = (np.searchsorted(block.in_indptr, position, side="right") - 1).astype(np.int32)
    sender, receiver = (dst, src) if c.reverse else (src, dst)
    order = np.argsort(receiver, kind="stable").astype(np.int32)
    begin, end = (np.searchsorted(receiver[order], c.rows, side=side) for side in ("left", "right"))
    ptr, at, senders = expand(begin, end, order, sender[order])
    chosen = c.of(ptr, position.astype(np.int32)[at], senders)
    return chosen.weighted(None if found.weight is None else found.weight[at])
