"""The neighbourhoods of the targets of several views, found by one search.

All workers search all views of a step at the same time: a search runs over pairs of a view and a
node, level by level, so its messages and its calls of kernels are those of one view, with rows of
all views. What each worker finds are the nodes that it owns and the edges that it stores. Numbers
in frames and moves are not made, because such views are dealt to workers that compute them alone.

A level of V views takes two messages for each pair of workers at most, and a few collectives, as
long as the sampler sends none. Samplers that choose for one view at a time run in turn, with
merged messages where the communicator merges them (``Comm.together``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...ops.kernels.batch import expand
from ...ops.kernels.sampling.allowed import lower
from ...ops.kernels.sampling.by_view import number_by_view
from ..partition.exchange import NOTHING, Exchange, MovePlan
from ..partition.partition import MASTER, MIRROR, Partition
from ..partition.relation import StoredRelation
from .candidates import Candidates, Chosen, Frontier, Frontiers, Sample
from .sampler import Sampler, SamplerOfViews, Timed
from .view_route import ViewRoute

# the relation and the direction of each pass of a hop, by key
Along = Mapping[Any, tuple[StoredRelation, bool]]


class ByView(NamedTuple):
    """Items of several views, those of one view after those of another.

    Attributes:
        items: The items, [n] int64.
        ptr: Bounds of the views, [views + 1].
    """

    items: np.ndarray
    ptr: np.ndarray

    @classmethod
    def joined(cls, lists: Sequence[np.ndarray]) -> ByView:
        """The items of each view in a list of its own."""
        return cls(np.concatenate([NOTHING, *lists]), np.cumsum([0, *map(len, lists)]))

    @classmethod
    def none(cls, ptr: np.ndarray) -> ByView:
        """No items of the views that have these bounds elsewhere."""
        return cls(NOTHING, np.zeros_like(ptr))

    def number(self, parts: Sequence[ByView]) -> tuple[ByView, np.ndarray, np.ndarray]:
        """The items of each view followed by others.

        Args:
            parts: Items, possibly repeated.

        Returns:
            All items, none twice in a view; the items of ``parts`` one after another by their
            numbers in their views, [m] int32; and bounds of the views in each part, [parts, views +
            1].
        """
        bounds = np.zeros((len(parts), len(self.ptr)), np.int64)
        for i, start in enumerate(np.cumsum([0, *(len(part.items) for part in parts)])[:-1]):
            bounds[i] = parts[i].ptr + start
        items = np.concatenate([NOTHING, *(part.items for part in parts)])
        *all_items, numbers = number_by_view(self.items, self.ptr, items, bounds)
        return ByView(*all_items), numbers, bounds

    def places(self, numbers: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
        """Where the items of each part are in these, by what ``number`` returned with these."""
        return [
            numbers[ptr[0] : ptr[-1]] + np.repeat(self.ptr[:-1], np.diff(ptr)) for ptr in bounds
        ]

    def lacks(self, wanted: ByView) -> np.ndarray:
        """Whether each of some items is not in its view, [n] bool."""
        _, number, _ = self.number([wanted])
        return number >= np.diff(self.ptr)[wanted.views]

    @property
    def views(self) -> np.ndarray:
        """The view of each item, [n]."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))


class PassEdges(NamedTuple):
    """Edges of a pass.

    Attributes:
        stored: Storage positions by view.
        weight: Importance weight of each, [n]; None if all are 1.
    """

    stored: ByView
    weight: np.ndarray | None


@dataclass
class SearchResult:
    """This worker's part of some views.

    Attributes:
        nodes: Master rows by view.
        hop: Hops between each node and the targets, [n] int16.
        sizes: Number of nodes within each number of hops, over the views, [hops + 1].
        edges: Edges of each hop, from the targets on, by key of the pass.
    """

    nodes: ByView
    hop: np.ndarray
    sizes: list[int]
    edges: list[dict[Any, list[PassEdges]]]

    def outside(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Those of some master rows that are not in the views, of each view, [k] int64."""
        wanted = ByView.joined(rows)
        absent = self.nodes.lacks(wanted)
        return [
            x[absent[a:b]] for x, a, b in zip(rows, wanted.ptr[:-1], wanted.ptr[1:], strict=True)
        ]


class _Receiving:
    """The receiving rows of a pass: nodes of the views, and their mirrors that receive on other
    workers.

    Attributes:
        rows: Rows by kind and view.
    """

    def __init__(
        self, partition: Partition, relation: StoredRelation, reverse: bool, nodes: ByView
    ):
        self._plan, mirrors = relation.served(reverse)[1]
        self._comm = partition.halo_comm
        self._route = None
        self.rows = {MASTER: nodes, MIRROR: ByView.none(nodes.ptr)}
        self._told = ByView.none(nodes.ptr)
        self._reader = self._partner = NOTHING
        if self._plan.anywhere:
            ptr, order, readers = _readers(relation, reverse, self._plan, partition.n_masters)
            each, at, reader = expand(ptr[nodes.items], ptr[nodes.items + 1], order, readers)
            self._told = ByView(
                np.repeat(np.arange(len(nodes.items)), np.diff(each)), each[nodes.ptr]
            )
            self._reader = reader
            self._route = ViewRoute(
                partition,
                self._told.ptr,
                reader,
                (at - self._plan.send_ptr[reader]).astype(np.int32),
            )
            self._partner = self._route.partner
            self.rows[MIRROR] = ByView(
                mirrors[self._plan.recv_ptr[self._partner] + self._route.row], self._route.ptr
            )

    def limits(self, cutoff: np.ndarray) -> dict[int, np.ndarray]:
        """The cutoffs of rows by kind; collective."""
        return {
            MASTER: cutoff,
            MIRROR: (
                cutoff[:0] if self._route is None else self._route.carry(cutoff[self._told.items])
            ),
        }

    def exchange(self, v: int) -> Exchange:
        """The moves between the rows of a view."""
        n = np.diff(self.rows[MASTER].ptr)[v]
        sent, halo = (slice(*ptr[v : v + 2]) for ptr in (self._told.ptr, self.rows[MIRROR].ptr))
        reader = self._reader[sent]
        order = np.argsort(reader, kind="stable")
        rows = self._told.items[sent][order] - self.rows[MASTER].ptr[v]
        bounds, arriving = (
            np.searchsorted(partners, np.arange(self._comm.size + 1))
            for partners in (reader[order], self._partner[halo])
        )
        return Exchange(
            self._comm,
            MovePlan(
                n_rows=n,
                rows=rows,
                send_ptr=bounds,
                recv_ptr=arriving,
                anywhere=self._plan.anywhere,
            ),
        )


class Search:
    """Searches the neighbourhoods of several views.

    Args:
        partition: This worker's part of the graph.
        targets: Master rows of the targets of each view, none twice in a view.
        sampler: Keeps a sample of the in-edges; None keeps all.
        steps: Number of the training step of each view, for the sampler's draws.
        excluded: Storage positions of edges that no message of a view may use; None for none in any
            view of any worker.
        cutoff: An argument of ``first_cutoffs``.
    """

    def __init__(
        self,
        partition: Partition,
        targets: ByView,
        sampler: Sampler | None,
        steps: Sequence[int],
        excluded: ByView | None,
        cutoff: np.ndarray | None = None,
    ):
        self._partition = partition
        self._nodes = targets
        self._sampler = sampler
        self._steps = steps
        self._excluded = excluded
        self._hop = np.zeros(len(targets.items), np.int16)
        self._cutoff = first_cutoffs(sampler, partition, targets.items, cutoff)

    def run(self, hops: Sequence[Along]) -> SearchResult:
        """Search.

        Args:
            hops: The passes of each hop, from the targets on.

        Collective: all ranks of the partition.
        """
        sizes = [len(self._hop)]
        edges_of_hops = []
        for i, along in enumerate(hops):
            passes = {key: self._pass(*x, hop=len(hops) - 1 - i) for key, x in along.items()}
            self._extend([part for one in passes.values() for part in one.senders], i + 1)
            if self._cutoff is not None:
                self._lower(list(passes.values()))
            sizes.append(len(self._hop))
            edges_of_hops.append(
                {
                    key: [
                        PassEdges(ByView(c.stored, views), c.weight)
                        for c, views in zip(x.chosen, x.views, strict=True)
                    ]
                    for key, x in passes.items()
                }
            )
        return SearchResult(self._nodes, self._hop, sizes, edges_of_hops)

    def _pass(self, relation: StoredRelation, reverse: bool, hop: int) -> _Pass:
        """The edges of a pass into the nodes found so far, and their senders."""
        receiving = _Receiving(self._partition, relation, reverse, self._nodes)
        rows = receiving.rows
        blocks = [b for b in relation.blocks if b.n_edges]
        candidates: Sequence[Candidates] = [
            Candidates.into(b, reverse, rows[b.kinds(reverse)[1]].items) for b in blocks
        ]
        if self._excluded is not None:
            candidates = [self._allowed(c.listed(), rows[c.kinds[1]].ptr) for c in candidates]
        frontiers = Frontiers(
            partition=self._partition,
            relation=relation,
            reverse=reverse,
            candidates=candidates,
            bounds={kind: x.ptr for kind, x in rows.items()},
            complete=self._excluded is None,
        )
        limits = None if self._cutoff is None else receiving.limits(self._cutoff)
        return _Pass(frontiers, self._chosen(frontiers, receiving, limits, hop), limits)

    def _allowed(self, c: Chosen, ptr: np.ndarray) -> Chosen:
        """The edges that are not excluded from their views."""
        assert self._excluded is not None
        return c.selected(self._excluded.lacks(ByView(c.stored, c.ptr[ptr])).astype(np.int32))[0]

    def _chosen(
        self,
        frontiers: Frontiers,
        receiving: _Receiving,
        limits: dict[int, np.ndarray] | None,
        hop: int,
    ) -> list[Chosen]:
        """The edges that the sampler chooses, by block."""
        sampler = self._sampler
        if sampler is None:
            return [c.listed() for c in frontiers.candidates]
        if limits is None and isinstance(sampler, SamplerOfViews):
            chosen = sampler.choose_all(frontiers, hop=hop, steps=self._steps)
            if chosen is not None:
                return chosen

        def of_view(v: int) -> Sample:
            at = {kind: slice(*ptr[v : v + 2]) for kind, ptr in frontiers.bounds.items()}
            groups = [_groups(c, at[c.kinds[1]]) for c in frontiers.candidates]
            rows = {kind: x.items[at[kind]] for kind, x in receiving.rows.items()}
            cutoff = None if limits is None else {kind: x[at[kind]] for kind, x in limits.items()}
            frontier = Frontier(
                partition=self._partition,
                relation=frontiers.relation,
                reverse=frontiers.reverse,
                candidates=groups,
                receivers=receiving.exchange(v),
                rows=rows,
                complete=frontiers.complete,
                cutoff=cutoff,
            )
            return sampler.choose(frontier, hop=hop, step=self._steps[v])

        samples = self._partition.halo_comm.together(
            [partial(of_view, v) for v in range(len(self._steps))]
        )
        return [
            _joined(c, [sample.chosen[b] for sample in samples])
            for b, c in enumerate(frontiers.candidates)
        ]

    def _extend(self, senders: list[ByView], hop: int) -> None:
        """Append nodes that have not been found before."""
        before = self._nodes
        self._nodes, self._number, self._bounds = before.number(senders)
        at = np.arange(len(before.items)) + np.repeat(
            self._nodes.ptr[:-1] - before.ptr[:-1], np.diff(before.ptr)
        )
        earlier_hops = self._hop
        self._hop = np.full(len(self._nodes.items), hop, np.int16)
        self._hop[at] = earlier_hops
        if self._cutoff is not None:
            cutoff = self._cutoff
            self._cutoff = no_cutoffs(len(self._nodes.items), self._cutoff.dtype)
            self._cutoff[at] = cutoff

    def _lower(self, passes: list[_Pass]) -> None:
        """Lower the cutoffs of senders to those of the rows that chose their edges.

        Collective: all ranks of the partition.
        """
        assert self._cutoff is not None
        # of the senders of all passes, in their order
        places = iter(self._nodes.places(self._number, self._bounds))
        for one in passes:
            halo = no_cutoffs(len(one.mirrors.items), self._cutoff.dtype)
            assert one.limits is not None
            for c, mirror in zip(one.chosen, one.mirror, strict=True):
                if mirror is None:
                    lower(c.ptr, one.limits[c.kinds[1]], next(places), self._cutoff)
                else:
                    lower(c.ptr, one.limits[c.kinds[1]], mirror, halo)
            if one.route is not None:
                np.minimum.at(self._cutoff, next(places), one.route.carry(halo))


class _Pass:
    """The chosen edges of a pass, and the nodes that send along them.

    Attributes:
        chosen: The edges by block.
        views: Bounds of the views in these.
        senders: Masters that send, possibly repeated: of each block whose senders are masters, and
            those that other workers read.
        mirror: For each block whose senders are mirrors the number of the sender of each edge in
            ``mirrors``, otherwise None.
        mirrors: Mirrors that send.
        route: Tells their owners; None if no worker has such mirrors.
        limits: Cutoffs of the receiving rows.

    Collective: all ranks of the partition.
    """

    def __init__(self, f: Frontiers, chosen: list[Chosen], limits: dict[int, np.ndarray] | None):
        self.chosen = chosen
        self.limits = limits
        self.route = None
        self.views = [c.ptr[f.bounds[c.kinds[1]]] for c in chosen]
        rows = [
            ByView(c.senders.astype(np.int64), views)
            for c, views in zip(chosen, self.views, strict=True)
        ]
        self.senders = [x for x, c in zip(rows, chosen, strict=True) if c.kinds[0] == MASTER]
        far = [x for x, c in zip(rows, chosen, strict=True) if c.kinds[0] == MIRROR]
        self.mirrors, *numbered = ByView.none(f.bounds[MASTER]).number(far)
        places = iter(self.mirrors.places(*numbered))
        self.mirror = [None if c.kinds[0] == MASTER else next(places) for c in chosen]
        plan, mirrors = f.relation.served(f.reverse)[0]
        if plan.anywhere:
            halo = np.searchsorted(mirrors, self.mirrors.items)
            owner = np.searchsorted(plan.recv_ptr, halo, side="right").astype(np.int32) - np.int32(
                1
            )
            self.route = ViewRoute(
                f.partition, self.mirrors.ptr, owner, (halo - plan.recv_ptr[owner]).astype(np.int32)
            )
            self.senders.append(
                ByView(
                    plan.rows[plan.send_ptr[self.route.partner] + self.route.row].astype(np.int64),
                    self.route.ptr,
                )
            )


def first_cutoffs(
    sampler: Sampler | None, partition: Partition, rows: np.ndarray, given: np.ndarray | None
) -> np.ndarray | None:
    """The cutoffs of targets at some rows, [n]: those given, or else those of the sampler; None for
    one that is not ``Timed``.
    """
    if not isinstance(sampler, Timed):
        return None
    return sampler.cutoffs(partition, rows) if given is None else given


def no_cutoffs(n: int, dtype: np.dtype) -> np.ndarray:
    """Cutoffs that allow every edge, [n]."""
    return np.full(n, np.inf if dtype.kind == "f" else np.iinfo(dtype).max, dtype)


def _readers(
    relation: StoredRelation, reverse: bool, plan: MovePlan, n_masters: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds of the positions of each master in a plan, the positions, and the reader of each; made
    once.
    """
    if reverse not in relation.readers:
        order = np.argsort(plan.rows, kind="stable").astype(np.int32)
        reader = np.repeat(
            np.arange(len(plan.send_ptr) - 1, dtype=np.int32), np.diff(plan.send_ptr)
        )[order]
        relation.readers[reverse] = (
            np.searchsorted(plan.rows[order], np.arange(n_masters + 1)),
            order,
            reader,
        )
    return relation.readers[reverse]


def _groups(c: Candidates, rows: slice) -> Candidates:
    """The edges of some groups."""
    return Candidates(
        block=c.block,
        reverse=c.reverse,
        rows=c.rows[rows],
        begin=c.begin[rows],
        end=c.end[rows],
        edges=c.edges,
        senders=c.senders,
    )


def _joined(c: Candidates, lists: list[Chosen]) -> Chosen:
    """Edges that were chosen for one view after those for another, as one list."""
    counts, edges, senders = (
        np.concatenate(x)
        for x in zip(*((np.diff(x.ptr), x.edges, x.senders) for x in lists), strict=True)
    )
    joined = c.of(np.append(0, np.cumsum(counts)), edges, senders)
    if all(x.weight is None for x in lists):
        return joined
    return joined.weighted(
        np.concatenate([np.ones(len(x.edges)) if x.weight is None else x.weight for x in lists])
    )
