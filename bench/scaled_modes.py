"""Sampled mini-batches on hundreds of machines: each worker its own, or one of all workers
together.

Both read the same graph, that of ``lazy_rmat.py``: P independent workers a batch of b targets each,
P cooperative ones a batch of P x b. A cooperative batch is simulated as in ``scaled.py``, if it is
too large on a smaller graph, and its nodes and edges are counted on the full one. Independent
workers compute alone, so a step takes as long as the largest of their views, and what makes the
views, which all search by one call:

    bytes       those of a view, structure and features, since each worker sends a P-th of P views
    messages    of a step, in which each worker may have a message for each other one in every move
    views       searching a view and putting it together, and the interpreter's time for a step
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from excerpts import PAPERS, SHARE, Drawn, simple, stored
from harness import say
from lazy_rmat import LazyRmat
from scaled import SETTINGS, Larger, job_of, larger, read, step_of

import graphtheta as gt
from graphtheta.inspect.planning.plan import planned
from graphtheta.inspect.planning.rehearsal import rehearse
from graphtheta.inspect.planning.skeleton import Skeleton, skeleton
from graphtheta.inspect.planning.work import reduced
from graphtheta.partitioners.pairs import pair_of

# the settings of cooperative mini-batching: layers, their width, neighbours and targets of a worker
LAYERS = 3
HIDDEN = 256
FANOUT = 10
TARGETS = 1024
PAIR = "1d-dst", "hash"
EACH, ALL = "1,024 each", "1 % in all"
# workers whose messages are counted
FEW = (2, 3)
WAYS = {"of first": (1.0, 1.0), **SETTINGS}
# workers whose interpreter is timed
TIMED = (2, 32)
# a graph on which every worker has a message for every other one, and one whose views take the
# interpreter's time alone
BUSY = "rmat:scale=12,edge_factor=7,features=128,classes=16"
SMALL = "ring:n=256,features=128"
BUSY_TARGETS = 32


class Rounds(NamedTuple):
    """What workers send to make the views of a step.

    Attributes:
        moves: Moves in which a worker may have a message for each other one.
        collectives: Their number.
        seconds, each: Of the interpreter on a worker, for a step and for each worker.
    """

    moves: int
    collectives: int
    seconds: float
    each: float

    def interpreter(self, workers: int) -> float:
        """Seconds of the interpreter on a worker."""
        return self.seconds + self.each * workers


def batch_job(graph: str, n: int, mode: str, **keys: Any) -> gt.Job:
    """The job that makes batches of n targets."""
    partitioner, masters = PAIR
    more = job_of(
        graph,
        "mini",
        HIDDEN,
        layers=LAYERS,
        batch_size=n,
        mode=mode,
        partitioner=partitioner,
        masters=masters,
    )
    return gt.Job(**more, **keys)


def rounds() -> Rounds:
    """Count the messages of two and of three workers, which determine those of any number, and time
    the interpreter.
    """
    fanout = ",".join([str(FANOUT)] * LAYERS)
    job = batch_job(BUSY, BUSY_TARGETS, "independent", fanout=fanout)
    small = batch_job(SMALL, 1, "independent", fanout=fanout)
    held = skeleton(job, gt.load(BUSY))
    ring = skeleton(small, gt.load(SMALL))

    def solved(workers: tuple[int, int], found: list[float]) -> tuple[float, float]:
        """What each further worker adds, and the rest."""
        each = (found[1] - found[0]) / (workers[1] - workers[0])
        return each, found[0] - each * workers[0]

    moves, rest = solved(
        FEW, [float(rehearse(held, job, pair_of(*PAIR), p, p).messages.max()) for p in FEW]
    )
    each, seconds = solved(
        TIMED, [float(rehearse(ring, small, pair_of(*PAIR), p, p).seconds.max()) for p in TIMED]
    )
    return Rounds(round(moves), round(moves + rest), seconds, each)


def batch_of(rmat: LazyRmat, n: int, number: int) -> tuple[Drawn, list[int]]:
    """A batch of n targets as a graph, and the edges of each hop."""
    targets = rmat.targets(n, number)
    nodes, hops = rmat.neighbourhood(targets, [FANOUT] * LAYERS, number)
    src, dst = (np.searchsorted(nodes, np.concatenate(each)) for each in zip(*hops, strict=True))
    graph = stored(*simple(src, dst, len(nodes)), np.isin(nodes, targets))
    return Drawn(graph, PAPERS.nodes / rmat.n_nodes), [len(src) for src, _ in hops]


@dataclass(frozen=True)
class Alone:
    """A view of one worker of many.

    Attributes:
        nodes, edges: Of the view.
        compute: Seconds of the worker that computes it.
        seconds: Processor seconds of all workers to search it and of one to put it together,
            besides those of the interpreter.
        n_bytes: Bytes that all send to make it if no row lies where it is read.
    """

    nodes: float
    edges: float
    compute: float
    seconds: float
    n_bytes: float


def alone(
    rmat: LazyRmat, n: int, number: int, cluster: Larger, law: Rounds
) -> tuple[Alone, Skeleton]:
    """Count a view of n targets, which stands for one of as many times as many, where a small view
    takes the time of a law.
    """
    drawn, _ = batch_of(rmat, n, number)
    job = batch_job("rmat", int(drawn.graph.train.sum()), "independent")
    held = skeleton(job, drawn.graph)
    times = drawn.times
    own = replace(cluster, times=times)
    (row,) = planned(held, [job], [1], own, views=1)
    compute = own.corrected(row, parameter_bytes(held)).compute
    # of two workers, each has half of the rows that it reads
    made = rehearse(held, job, pair_of(*PAIR), 2, 1)
    return (
        Alone(
            times * drawn.graph.n_nodes,
            times * drawn.graph.n_edges,
            compute,
            times * max(float(made.seconds.sum()) - 2 * law.interpreter(2), 0.0),
            2 * times * float(made.sent.sum()),
        ),
        held,
    )


def parameter_bytes(held: Skeleton) -> int:
    """Bytes of the parameters."""
    return sum(p.value.nbytes for p in held.prepared.model.parameters())


def parts_of(
    views: list[Alone],
    held: Skeleton,
    law: Rounds,
    workers: int,
    cluster: Larger,
    saved: float = 0.0,
) -> dict[str, float]:
    """Seconds of a step of independent workers by cause.

    Args:
        views: Some views of workers.
        held: The job of one of them.
        law: Rounds of a step.
        workers: Their number.
        cluster: The machines.
        saved: Bytes of a view that are not sent, because caches hold them.
    """
    links = replace(cluster, times=1.0)
    summed = [
        np.full(workers, x.max())
        for x in reduced(held.order, list(held.prepared.model.parameters()), workers)
    ]
    steps = np.log2(workers) * law.collectives
    made = (law.moves + steps) * cluster.latency + (
        law.moves * (workers - 1) + steps
    ) * cluster.post
    sent = (workers - 1) / workers * max(view.n_bytes for view in views) - saved
    computing = mean(view.compute for view in views)
    slowest = max(view.compute for view in views)
    both, carried = (links.transfer(summed[0], x, 1) for x in (summed[1], 0 * summed[1]))
    return {
        "computing": computing,
        "imbalance": slowest - computing,
        "views": mean(view.seconds for view in views) + law.interpreter(workers),
        "bytes": sent * cluster.congestion / cluster.bandwidth + carried,
        "messages": made + both - carried,
    }


def together(options: Any, case: str, workers: int, cluster: Larger, law: Rounds) -> dict[str, Any]:
    """Count a batch of all workers, each of which needs the interpreter for it.

    One of too many targets is drawn on a smaller graph, and counts as many times as it has fewer
    edges than on the full one.
    """
    full = LazyRmat(options.full_scale)
    small = LazyRmat(options.mode_scale if case == EACH else options.full_scale)
    share = PAPERS.nodes / full.n_nodes
    drawn, _ = batch_of(small, workers * sizes(case, small.scale, workers), 0)
    nodes, edges = drawn.graph.n_nodes, drawn.graph.n_edges
    if case == EACH:
        nodes, edges = full.counted(
            full.targets(workers * sizes(case, full.scale, workers), 0), [FANOUT] * LAYERS, 0
        )
    times = share * edges / drawn.graph.n_edges
    job = batch_job("rmat", int(drawn.graph.train.sum()), "cooperative")
    (point,) = larger(job, drawn, [workers], replace(cluster, times=times), options.rehearsed)
    return {
        "parts": {**point.parts, "views": point.parts["views"] + law.interpreter(1)},
        "nodes": share * nodes,
        "edges": share * edges,
        "MiB": times * (point.row.moved + point.row.built) / 2**20 / workers,
        "times": times,
    }


def sizes(case: str, scale: int, workers: int) -> int:
    """Targets of a worker on a graph of 2**scale nodes: as many for each, or its share of 1 % of
    all targets.
    """
    share = (1 << scale) / PAPERS.nodes
    return max(round(share * (TARGETS if case == EACH else PAPERS.training * SHARE / workers)), 1)


def views_of(
    case: str, options: Any, workers: int, cluster: Larger, law: Rounds
) -> tuple[list[Alone], Skeleton]:
    """Some views of independent workers; large ones hardly differ."""
    rmat = LazyRmat(options.full_scale)
    n = sizes(case, options.full_scale, workers)
    found = [
        alone(rmat, n, number, cluster, law)
        for number in range(1 if case == EACH else options.views)
    ]
    return [view for view, _ in found], found[0][1]


def rows_of(case: str, options: Any, cluster: Larger, law: Rounds) -> list[dict[str, Any]]:
    """Rows of a size of batches: cooperative and independent."""
    rows = list[dict[str, Any]]()
    first = dict[str, tuple[int, dict[str, float]]]()
    for workers in options.workers:
        if case == ALL or workers == options.workers[0]:
            views, held = views_of(case, options, workers, cluster, law)
        one = together(options, case, workers, cluster, law)
        nodes, edges, n_bytes = (
            mean(getattr(view, name) for view in views) for name in ("nodes", "edges", "n_bytes")
        )
        ways = {
            "cooperative": one["parts"],
            "independent": parts_of(views, held, law, workers, cluster),
        }
        for mode, parts in ways.items():
            few, before = first.setdefault(mode, (workers, parts))
            grown = workers / few if case == EACH else 1.0
            seconds = sum(parts.values())
            limit = max(parts, key=parts.__getitem__)
            rows.append(
                {
                    "case": case,
                    "mode": mode,
                    "workers": workers,
                    "step": seconds,
                    **{
                        name: grown * step_of(before, *way) / step_of(parts, *way)
                        for name, way in WAYS.items()
                    },
                    "against": step_of(one["parts"], 1, 1) / seconds,
                    "limit": limit,
                    "share": parts[limit] / seconds,
                    "MiB": one["MiB"] if mode == "cooperative" else n_bytes / 2**20,
                    "more nodes": workers * nodes / one["nodes"],
                    "more edges": workers * edges / one["edges"],
                    "nodes together": one["nodes"],
                    "nodes of a view": nodes,
                    "times": one["times"],
                    "seconds": seconds,
                    "label": f"{case} {mode} {workers}",
                    **{f"seconds of {x}": s for x, s in parts.items()},
                }
            )
            say(f"{rows[-1]['label']}: {seconds:.3g} s, {rows[-1]['of first']:.2f}, {limit}")
    return rows


def modes(options: Any) -> list[dict[str, Any]]:
    """Steps of both modes, for batches that grow with the workers and for those that do not."""
    cluster = read(options.cluster, 1.0)
    law = rounds()
    say(str(law))
    return [row for case in options.batches for row in rows_of(case, options, cluster, law)]
