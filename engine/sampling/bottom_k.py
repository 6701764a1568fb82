"""Bottom-k sampling: the edges with the k lowest ranks of each row, over all workers.

Lists of the k lowest ranks are merged like the states of an aggregator, so the edges of a node may
be on several workers: each sends its lowest ranks to the master, and the master sends back the
cut, the highest rank that is chosen. If importance weights depend on the threshold, the lowest rank
that is not chosen, the lists have one rank more. With replacement a row makes k choices. Every
choice has ranks of its own and takes the edge with the lowest one.

Source: bottom-k sketches, https://arxiv.org/abs/0802.3448
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...ops.kernels.sampling import sample
from ..partition.message import Columns
from ..partition.partition import MASTER, MIRROR
from .candidates import Candidates, Chosen, Frontier, Sample
from .priority import Priority, Ranked
from .row_blocks import by_rows

# a thread takes rows with about so many edges at a time
EDGES_PER_BLOCK = 1 << 16
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_NO_ROWS = np.zeros(0, bool)


@dataclass(frozen=True)
class BottomK:
    """One choice of ``k`` edges for each receiving row.

    Attributes:
        priority: Ranks the edges.
        key: Key of the draws.
        replace: Choose with replacement.
    """

    frontier: Frontier
    priority: Priority
    key: int
    k: int
    replace: bool

    def choose(self) -> Sample:
        """The chosen edges with their importance weights.

        Collective: all ranks of the frontier's partition.
        """
        candidates = self.frontier.candidates
        receivers = self.frontier.receivers
        shortlists = [self._shortlist(c) for c in candidates]
        # without receiving mirrors and with one block, all edges of a row are here: the shortlist
        # is the sample
        if not receivers.plan.anywhere and len(candidates) < 2 and not self._beyond:
            return Sample(
                [
                    self._weighted(*x, self.priority.total(self.frontier, c))
                    for c, x in zip(candidates, shortlists, strict=True)
                ]
            )
        total = {MASTER: np.zeros(receivers.plan.n_rows), MIRROR: np.zeros(receivers.plan.n_halo)}
        for c in candidates:
            total[c.kinds[1]] += self.priority.total(self.frontier, c)
        return self._agreed([chosen for chosen, _ in shortlists], total)

    @property
    def _beyond(self) -> int:
        """Ranks found beyond those of the chosen edges: that of the threshold, or none."""
        return int(self.priority.threshold and not self.replace)

    def _ranked(self, edges: Candidates) -> Ranked:
        return self.priority.rank(self.frontier, edges, self.key)

    def _shortlist(self, c: Candidates) -> tuple[Chosen, np.ndarray]:
        """``sample.shortlist`` by all threads, each on some of the rows."""
        ranked = self._ranked(c)
        edges = ranked.edges
        ranks = ranked.arrays(self.frontier.relation)

        def of(rows: slice) -> tuple[np.ndarray, ...]:
            return sample.shortlist(
                begin=edges.begin[rows],
                end=edges.end[rows],
                others=edges.senders,
                ranks=ranks,
                fanout=self.k + self._beyond,
                each=self.replace,
            )

        *lists, often = by_rows(edges.end - edges.begin, of, EDGES_PER_BLOCK)
        return c.of(*lists), often

    def _agreed(self, shorter: list[Chosen], total: dict[int, np.ndarray]) -> Sample:
        """The edges of shortlists that are still among the chosen once the ranks of all workers are
        merged.
        """
        receivers = self.frontier.receivers
        ranks = [self._ranked(c).arrays(self.frontier.relation) for c in shorter]
        low = {kind: np.full((len(n), self.k + self._beyond), _LAST) for kind, n in total.items()}
        for c, r in zip(shorter, ranks, strict=True):
            (sample.lowest_each if self.replace else sample.lowest)(c.ptr, r, low[c.kinds[1]])
        received = []

        def merge(rows: np.ndarray, other: Columns) -> None:
            received.append((rows, other["low"], other["total"]))
            low[MASTER][rows] = self._merged(low[MASTER][rows], other["low"])
            total[MASTER][rows] += other["total"]

        mirror_total = total[MIRROR]
        receivers.to_masters_begin({"low": low[MIRROR], "total": mirror_total}).end(merge)
        # with replacement the lowest rank of each choice, otherwise the k-th rank and the threshold
        cut = {kind: x if self.replace else x[:, self.k - 1 :] for kind, x in low.items()}
        back = receivers.to_mirrors(
            {"cut": np.ascontiguousarray(cut[MASTER]), "total": total[MASTER]}
        )
        cut[MIRROR], total[MIRROR] = back["cut"], back["total"]
        last = {
            kind: np.ascontiguousarray(x if self.replace else x[:, 0]) for kind, x in cut.items()
        }
        chosen = []
        for c, r in zip(shorter, ranks, strict=True):
            kind = c.kinds[1]
            times = (sample.times_each if self.replace else sample.times_low)(c.ptr, r, last[kind])
            chosen.append(
                self._weighted(
                    *c.selected(times), total[kind], cut[kind][:, 1] if self._beyond else None
                )
            )
        # the ranks that were sent show on both sides whether an edge of the worker is among the
        # chosen
        sent = [_among(theirs, n, last[MASTER][rows]) for rows, theirs, n in received]
        return Sample(
            chosen,
            (
                np.flatnonzero(np.concatenate([_NO_ROWS, *sent])),
                np.flatnonzero(_among(low[MIRROR], mirror_total, last[MIRROR])),
            ),
        )

    def _weighted(
        self,
        chosen: Chosen,
        often: np.ndarray,
        total: np.ndarray,
        threshold: np.ndarray | None = None,
    ) -> Chosen:
        """Edges with their importance weights, given how often each is chosen, and totals and
        thresholds of rows.
        """
        # the weights of a row that keeps all its edges are 1
        share = (total if self.replace else np.maximum(total, self.k)) / self.k
        weight = self.priority.weight(self.frontier, replace(chosen, threshold=threshold), share)
        if weight is not None:
            return chosen.weighted(often * weight)
        return chosen.weighted(often.astype(np.float64)) if self.replace else chosen

    def _merged(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        if self.replace:
            return np.minimum(mine, theirs)
        return np.sort(np.concatenate((mine, theirs), axis=1), axis=1)[:, : mine.shape[1]]


def _among(low: np.ndarray, total: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Which rows have an edge among the chosen, [n] bool, given their lowest ranks and the highest
    chosen rank (of each choice).
    """
    return (low.T <= last.T).any(axis=0) & (total > 0)
