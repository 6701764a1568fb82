"""Building views: the k-hop neighbourhood of targets, or the subgraph induced by a set of nodes.

A breadth-first search expands the frontier hop by hop, from the end of the model to its beginning.
At each hop, for every direction of its layers, the masters of receiving rows activate their
mirrors, every worker numbers the new senders of its in-edges, and mirrors among these activate
their masters. The lists that are exchanged are the restricted move plans of the view: one number
per active (master, mirror) pair. Time and memory are proportional to the rows and edges of the
view, except for masks of a byte per node; the array that numbers the masters is reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...ops.autodiff.space import RowSpace
from ...ops.kernels.batch import NONE, WORD, mark, number, numbers
from ...ops.kernels.sampling.allowed import lower
from ...ops.parallel.buffers import by_blocks
from ..partition.exchange import NOTHING, Exchange
from ..partition.message import Columns
from ..partition.partition import MASTER, MIRROR, Partition
from ..partition.relation import Served, StoredRelation
from ..sampling.candidates import Candidates, Chosen, Frontier
from ..sampling.sampler import Sampler
from ..sampling.search import first_cutoffs, no_cutoffs
from .hop import Hop, Layers, depth, hops
from .level import Counts, Ends, Level, Pass, Selection, halo_map, passes_of, receiving, tie_shift
from .view import GraphView

# the name of a relation, and whether messages run against its edges
Key = tuple[str, bool]
# looking up a row costs as much as so many sums
WORK = 4


class Frame:
    """The masters of a view, in the order in which the search finds them; a context manager.

    Attributes:
        row_of: Frame row of each master, below 0 for none, [n_masters] int32; borrowed from the
            partition.
        rows: Masters in frame order, [n] int64.
    """

    def __init__(self, partition: Partition, rows: np.ndarray):
        self._partition = partition
        self.rows = rows

    def __enter__(self) -> Frame:
        self.row_of, self._words = self._borrowed()
        self.row_of[self.rows] = np.arange(len(self.rows), dtype=np.int32)
        return self

    def _borrowed(self) -> tuple[np.ndarray, np.ndarray]:
        spare = self._partition.spare
        n = self._partition.n_masters
        return (
            spare.pop()
            if spare
            else (np.full(n, NONE, np.int32), np.zeros(-(-n // WORD), np.uint64))
        )

    def __exit__(self, *_: object) -> None:
        self.row_of[self.rows] = NONE
        self._partition.spare.append((self.row_of, self._words))

    def append(self, masters: list[np.ndarray]) -> None:
        """Append those of these masters that have no row yet, ascending."""
        for rows in masters:
            mark(rows, self._words)
        n = len(self.rows)
        earlier = self.rows
        most = min(len(self.row_of), n + sum(map(len, masters)))
        self.rows = np.empty(most + 1, np.int64)
        self.rows[:n] = earlier
        self.rows = self.rows[: number(self.row_of, self._words, self.rows, n)]


class _Sweep:
    """The edges of one pass, the restricted plans of both ends, and the mirrors these serve.

    Args:
        chosen: The edges, by block.
        receivers: The plan of the receiving end, and its mirrors.
        cutoff: ``Frontier.cutoff``.
    """

    def __init__(
        self,
        partition: Partition,
        relation: StoredRelation,
        reverse: bool,
        chosen: list[Chosen],
        receivers: Served,
        cutoff: dict[int, np.ndarray] | None,
    ):
        self.partition = partition
        self.relation = relation
        self.reverse = reverse
        self.chosen = chosen
        self.cutoff = cutoff
        self.receive, self.receivers = receivers
        self.send, self.senders = _restricted(
            partition,
            relation.served(reverse)[0],
            [c.senders for c in chosen if c.kinds[0] == MIRROR],
        )

    def masters_read(self) -> list[np.ndarray]:
        """The masters whose columns the pass reads at the sending end."""
        return [c.senders for c in self.chosen if c.kinds[0] == MASTER] + [
            self.send.rows.astype(np.int32)
        ]

    def lower(self, row_of: np.ndarray, cutoff: np.ndarray) -> None:
        """Lower the cutoffs of senders to those of the rows that chose their edges.

        Args:
            row_of: Frame row of each master.
            cutoff: Cutoffs of the frame rows; changed.

        Collective: all ranks of the partition.
        """
        assert self.cutoff is not None
        halo = no_cutoffs(self.send.n_halo, cutoff.dtype)
        lookup = halo_map(self.partition, self.senders)
        for c in self.chosen:
            to_master = c.kinds[0] == MASTER
            if to_master:
                rows = row_of[c.senders]
            else:
                rows = c.senders if lookup is None else lookup[c.senders]
            lower(c.ptr, self.cutoff[c.kinds[1]], rows, cutoff if to_master else halo)

        def merge(rows: np.ndarray, other: Columns) -> None:
            at = row_of[rows]
            cutoff[at] = np.minimum(cutoff[at], other["cutoff"])

        Exchange(self.partition.halo_comm, self.send).to_masters_begin({"cutoff": halo}).end(merge)

    def finish(self, row_of: np.ndarray, n_in: int) -> Pass:
        """The pass over a frame in which master r has row row_of[r]."""
        p = self.partition
        send: Ends = {MASTER: (row_of, n_in), MIRROR: (halo_map(p, self.senders), self.send.n_halo)}
        receive: Ends = {
            MASTER: (row_of, n_in),
            MIRROR: (halo_map(p, self.receivers), self.receive.n_halo),
        }
        selections = []
        for c in self.chosen:
            if len(c.edges):
                row, ptr = receiving(c.rows, c.ptr, *receive[c.kinds[1]])
                lookup, n_senders = send[c.kinds[0]]
                other = c.senders if lookup is None else _numbers(lookup, c.senders)
                selections.append(
                    Selection(
                        kinds=c.kinds,
                        row=row,
                        ptr=ptr,
                        other=other,
                        n_senders=n_senders,
                        gid=self.relation.gid,
                        start=c.block.start,
                        edges=c.edges,
                        weight=c.weight,
                        tie_shift=tie_shift(self.relation, self.reverse),
                    )
                )
        senders, receivers = (
            Exchange(p.halo_comm, plan.renumbered(row_of, n_in))
            for plan in (self.send, self.receive)
        )
        return Pass(
            relation=self.relation,
            reverse=self.reverse,
            selections=selections,
            senders=senders,
            receivers=receivers,
        )


def k_hop_view(
    partition: Partition,
    targets: np.ndarray,
    layers: Layers,
    *,
    sampler: Sampler | None = None,
    excluded: np.ndarray | None = None,
    step: int = 0,
    first: np.ndarray | None = None,
    cutoff: np.ndarray | None = None,
) -> GraphView:
    """The view of target nodes and their k-hop neighbourhood, of as many hops as the model has.

    Args:
        targets: Mask of the masters, [n_masters] bool.
        layers: The supersteps of the model.
        sampler: Keeps a sample of the in-edges; None keeps all.
        excluded: Mask of local edges in storage order that no message may use, or None.
        step: Number of the training step, for the sampler's draws.
        first: Mask of the masters that come before others found in the same hop, [n_masters] bool,
            or None.
        cutoff: Cutoffs of the targets for a ``Timed`` sampler, ascending by master; None for those
            of the sampler.

    Collective: all ranks of the partition.
    """
    with Frame(partition, np.flatnonzero(targets)) as frame:
        supersteps = hops(layers)
        sizes = [len(frame.rows)]
        cutoff = first_cutoffs(sampler, partition, frame.rows, cutoff)
        sweeps_of_hops: list[dict[Key, _Sweep]] = []
        for hop in range(depth(layers) - 1, -1, -1):
            along = all_passes(
                partition, (x for x in supersteps if x.from_end == len(sweeps_of_hops))
            )
            if (
                sampler is None
                and sweeps_of_hops
                and along.keys() == sweeps_of_hops[-1].keys()
                and not _grew(partition, sizes)
            ):
                # these are all nodes that can be reached, such as whole small graphs: all hops
                # before choose the same edges
                sweeps_of_hops.append(dict(sweeps_of_hops[-1]))
                sizes.append(sizes[-1])
                continue
            sweeps = {
                key: _choose(partition, frame, *x, sampler, excluded, hop, step, cutoff=cutoff)
                for key, x in along.items()
            }
            read = [rows for sweep in sweeps.values() for rows in sweep.masters_read()]
            if first is not None:
                frame.append([rows[first[rows]] for rows in read])
            frame.append(read)
            if cutoff is not None:
                cutoff = np.append(cutoff, no_cutoffs(len(frame.rows) - len(cutoff), cutoff.dtype))
                for sweep in sweeps.values():
                    sweep.lower(frame.row_of, cutoff)
            sizes.append(len(frame.rows))
            sweeps_of_hops.append(sweeps)
        return _assemble(
            partition=partition,
            frame=frame,
            supersteps=supersteps,
            sizes=sizes,
            sweeps_of_hops=sweeps_of_hops,
        )


def _grew(partition: Partition, sizes: list[int]) -> bool:
    """Whether the last hop found new rows on any worker.

    Collective: all ranks of the partition.
    """
    return bool(partition.halo_comm.all_max(np.array(sizes[-1] - sizes[-2])))


def induced(
    partition: Partition,
    nodes: np.ndarray,
    layers: Layers,
    *,
    excluded: np.ndarray | None = None,
    weights: Mapping[bool, np.ndarray] | None = None,
) -> GraphView:
    """The view of a set of nodes and all edges between them; every superstep runs over all of it.

    Args:
        nodes: Mask of the masters, [n_masters] bool.
        layers: The supersteps of the model.
        excluded: Mask of local edges in storage order that no message may use, or None.
        weights: Importance weights of all local edges in storage order, [n_local_edges], by whether
            messages run against the edges; None if all are 1.

    Collective: all ranks of the partition.
    """
    supersteps = hops(layers)
    n_hops = depth(layers)
    with Frame(partition, np.flatnonzero(nodes)) as frame:
        along = all_passes(partition, supersteps)
        sweeps = {
            key: _choose(partition, frame, *x, None, excluded, 0, 0, inside=True)
            for key, x in along.items()
        }
        if weights is not None:
            for sweep in sweeps.values():
                sweep.chosen = [c.weighted(weights[sweep.reverse][c.stored]) for c in sweep.chosen]
        return _assemble(
            partition=partition,
            frame=frame,
            supersteps=supersteps,
            sizes=[len(frame.rows)] * (n_hops + 1),
            sweeps_of_hops=[sweeps] * n_hops,
        )


def k_hop_nodes(
    partition: Partition, nodes: np.ndarray, hops: int, direction: str = "both"
) -> np.ndarray:
    """Mask of some nodes and those that send to them over at most ``hops`` edges, [n_masters] bool;
    by default, in both directions.

    Collective: all ranks of the partition.
    """
    with Frame(partition, np.flatnonzero(nodes)) as frame:
        for _ in range(hops):
            sweeps = [
                _choose(partition, frame, *x, None, None, 0, 0)
                for x in passes_of(partition, direction)
            ]
            frame.append([rows for sweep in sweeps for rows in sweep.masters_read()])
        return frame.row_of >= 0


def all_passes(
    partition: Partition, supersteps: Iterable[Hop]
) -> dict[Key, tuple[StoredRelation, bool]]:
    """The passes of some supersteps, each once, in the same order on every worker."""
    passes = {
        (relation.name, reverse): (relation, reverse)
        for direction in {hop.direction for hop in supersteps}
        for relation, reverse in passes_of(partition, direction)
    }
    return dict(sorted(passes.items(), key=lambda item: item[0]))


def _choose(
    partition: Partition,
    frame: Frame,
    relation: StoredRelation,
    reverse: bool,
    sampler: Sampler | None,
    excluded: np.ndarray | None,
    hop: int,
    step: int,
    inside: bool = False,
    cutoff: np.ndarray | None = None,
) -> _Sweep:
    """The edges of one pass into the receiving masters; with ``inside``, only those that come from
    one of these.
    """
    plan, mirrors = receivers = _narrowed(partition, relation.served(reverse)[1], frame.rows)
    rows = {MASTER: frame.rows, MIRROR: mirrors}
    blocks = [b for b in relation.blocks if b.n_edges]
    candidates: Sequence[Candidates] = [
        Candidates.into(b, reverse, rows[b.kinds(reverse)[1]]) for b in blocks
    ]
    if inside:
        sending = {MASTER: frame.row_of >= 0, MIRROR: np.zeros(partition.n_mirrors, bool)}
        sending[MIRROR][_narrowed(partition, relation.served(reverse)[0], frame.rows).mirrors] = (
            True
        )
        candidates = [
            c.selected(sending[c.kinds[0]][c.senders].astype(np.int32))[0]
            for c in _listed(candidates)
        ]
    if excluded is not None:
        candidates = [
            c.selected((~excluded[c.stored]).astype(np.int32))[0] for c in _listed(candidates)
        ]
    complete = excluded is None and not inside
    limits = None
    if sampler is not None:
        exchange = Exchange(partition.halo_comm, plan.renumbered(frame.row_of, len(frame.rows)))
        limits = (
            None
            if cutoff is None
            else {MASTER: cutoff, MIRROR: exchange.to_mirrors({"cutoff": cutoff})["cutoff"]}
        )
        chosen, still_used = sampler.choose(
            Frontier(
                partition=partition,
                relation=relation,
                reverse=reverse,
                candidates=candidates,
                receivers=exchange,
                rows=rows,
                complete=complete,
                cutoff=limits,
            ),
            hop=hop,
            step=step,
        )
        if still_used is not None:
            narrower = (
                Served(plan.subset(*still_used), mirrors[still_used[1]])
                if plan.anywhere
                else receivers
            )
            return _Sweep(
                partition=partition,
                relation=relation,
                reverse=reverse,
                chosen=chosen,
                receivers=narrower,
                cutoff=limits,
            )
        candidates = chosen
    # every mirror of the plan has edges, unless edges were removed
    if not complete or sampler is not None:
        receivers = _restricted(
            partition,
            receivers,
            [c.rows[c.end > c.begin] for c in candidates if c.kinds[1] == MIRROR],
        )
    return _Sweep(
        partition=partition,
        relation=relation,
        reverse=reverse,
        chosen=_listed(candidates),
        receivers=receivers,
        cutoff=limits,
    )


def _numbers(lookup: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """lookup[rows], on all threads."""
    out = np.empty(len(rows), np.int32)
    by_blocks(lambda b, begin, end: numbers(lookup, rows, out, begin, end), len(rows), WORK)
    return out


def _listed(candidates: Sequence[Candidates]) -> list[Chosen]:
    return [c.listed() for c in candidates]


def _narrowed(partition: Partition, served: Served, masters: np.ndarray) -> Served:
    """The plan of one end of a relation for some masters only, and the mirrors that these have."""
    plan, mirrors = served
    if not plan.anywhere:
        return Served(plan, NOTHING)
    on = np.zeros(partition.n_masters, bool)
    on[masters] = True
    narrow, halo = plan.narrow(partition.halo_comm, on)
    return Served(narrow, mirrors[halo])


def _restricted(partition: Partition, served: Served, used: list[np.ndarray]) -> Served:
    """A plan for those of its mirrors only that are used, and these mirrors."""
    plan, mirrors = served
    if not plan.anywhere:
        return Served(plan, NOTHING)
    mark = np.zeros(partition.n_mirrors, bool)
    for rows in used:
        mark[rows] = True
    wanted = np.flatnonzero(mark[mirrors])
    return Served(plan.restrict(partition.halo_comm, wanted), mirrors[wanted])


def _assemble(
    partition: Partition,
    frame: Frame,
    supersteps: list[Hop],
    sizes: list[int],
    sweeps_of_hops: list[dict[Key, _Sweep]],
) -> GraphView:
    """The view of a frame; equal supersteps share their level.

    Args:
        sizes: Number of rows at the end of the model, one hop before it, and so on.
        sweeps_of_hops: Sweeps of the last hop, of the hop before it, and so on.

    Collective: all ranks of the partition.
    """
    levels: list[Level] = []
    level_of: dict[tuple[int, str], Level] = {}
    finished: dict[tuple[int, str], Pass] = {}
    for direction, from_end in supersteps:
        sweeps = sweeps_of_hops[from_end]
        n_out, n_in = sizes[from_end : from_end + 2]
        key = id(sweeps), direction
        if key not in level_of:
            passes = []
            for relation, reverse in passes_of(partition, direction):
                sweep = sweeps[relation.name, reverse]
                # each level numbers the edges of its passes, so only levels of one direction can
                # share a pass
                if (id(sweep), direction) not in finished:
                    finished[id(sweep), direction] = sweep.finish(frame.row_of, n_in)
                passes.append(finished[id(sweep), direction])
            level_of[key] = Level(n_in, n_out, passes, direction)
        levels.append(level_of[key])
    sums = partition.halo_comm.all_sum(
        np.array([x.local_counts for x in level_of.values()], np.int64)
    )
    for level, counts in zip(level_of.values(), sums.reshape(-1, 4).tolist(), strict=True):
        level.counts = Counts(*counts)
    return GraphView(partition, levels, frame.rows, RowSpace(partition.masters[frame.rows]))
