"""Simulated times against measured ones, and the scaling of the GraphTheta paper by simulation.

    python bench/simulate.py                              2 ranks on slowed links; 256 to 1,024 workers
    python bench/simulate.py --parts check                only the comparison
    python bench/simulate.py --parts scaling --scale 16   only the scaling, on a smaller graph

"check": ranks of a thread each on this machine, whose links ``engine/comm/delayed.py`` slows down;
"off" is the simulated time of an epoch over the measured one, minus 1. The speed of the machine is
measured before. "scaling": GCN of two layers, 128 wide, as in Figure 8 of the paper, on an R-MAT
graph with as many edges per node as papers100M, with mini-batches of 1 % of the training nodes and
batches of 1 % of the clusters. 20 batches of clusters are counted, because most clusters of an R-MAT
graph are isolated nodes; and one mini-batch. "of first" is relative to the fewest workers. With
--times, work and bytes of each worker count so many times, as in a graph of so many times as many
nodes; messages, sums of gradients and updates count once. R-MAT graphs of all sizes are alike.
"""
from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from harness import finish, parser, race, say, script
from overlap import on_links

import graphtheta as gt
from graphtheta.engine.comm.delayed import read_link
from graphtheta.planning.machine import Machine, machine
from graphtheta.planning.plan import Row
from graphtheta.planning.skeleton import skeleton
from graphtheta.planning.work import EDGE_COUNT, NODES, UPDATE_PASSES
from graphtheta.simulation.cluster import Cluster
from graphtheta.simulation.simulate import Point, simulated

SLOWED = ("50us,10Gbit/s", "50us,1Gbit/s", "1ms,1Gbit/s")
CHECKED: dict[str, dict[str, Any]] = {
    "global": {}, "mini": {"batch_size": 512, "fanout": "10,5", "mode": "cooperative"}, "cluster": {"clusters": 16, "mode": "cooperative"},
    "independent": {"strategy": "mini", "batch_size": 512, "fanout": "10,5", "mode": "independent"}}
# batches of the scaling that are counted; 1 if not given
COUNTED = {"cluster": 20}
GRAPH = "rmat:scale=14,edge_factor=14,features=128,classes=16"
COLUMNS = {"check": ["case", "link", "ranks", "simulated", "measured", "off", "limit"],
           "scaling": ["case", "mode", "workers", "step", "of first", "limit", "share", "MiB a worker", "GiB sent", "messages"]}


@dataclass(frozen=True)
class Larger(Cluster):
    """A cluster that trains a graph of ``times`` as many nodes and edges as the one that is counted."""

    times: float

    def compute(self, parts: np.ndarray, workers: int) -> np.ndarray:
        """As of a cluster; operations are as many as before."""
        more = parts.copy()
        more[..., : EDGE_COUNT + 1] *= self.times
        return super().compute(more, workers)

    def transfer(self, sent: np.ndarray, messages: np.ndarray, workers: int, counted: bool = False) -> float:
        """As of a cluster."""
        return super().transfer(sent * self.times, messages, workers, counted)

    def corrected(self, row: Row, parameters: int) -> Row:
        """A row without what does not grow with the graph: the bytes of gradients, and updates.

        Args:
            row: A plan for this cluster.
            parameters: Bytes of the parameters.
        """
        more = self.times - 1
        summed = more * row.summed / row.workers * self.congestion / self.bandwidth
        updates = more * row.steps * UPDATE_PASSES * parameters * self.seconds[NODES]
        return replace(row, compute=row.compute - updates, transfer=row.transfer - summed, carried=row.carried - summed)


def job_of(graph: str, case: str, hidden: int, **keys: Any) -> dict[str, Any]:
    """Keys of a job."""
    return {"dataset": graph, "model": "gcn", "hidden": hidden, "strategy": case, "dropout": 0.0, "keep": 0, **keys}


def check(options: Any, speed: Machine) -> list[dict[str, Any]]:
    """Compare simulated epochs with measured ones."""
    rows: list[dict[str, Any]] = []
    for case, keys in CHECKED.items():
        words = job_of(GRAPH, case, options.hidden, **keys) | ({"strategy": keys["strategy"]} if "strategy" in keys else {})
        job = gt.Job(**words)
        held = skeleton(job, gt.load(GRAPH))
        for link in SLOWED:
            latency, bandwidth, *_ = read_link(link)
            # a rank has a link of its own, though all share this machine
            cluster = Cluster.of(speed, latency, options.ranks * bandwidth)
            (point,) = simulated(held, [job], [options.ranks], cluster, [job.mode], options.ranks, views=16)
            one = on_links(case, options.ranks, link, script("own", "flight", json.dumps(words), options.epochs))
            race([one], options.rounds, 1)
            seconds = median(one.seconds["epoch"]) if one.seconds else None
            rows.append({"case": case, "link": link, "ranks": options.ranks, "simulated": point.row.seconds, "measured": seconds,
                         "off": None if seconds is None else point.row.seconds / seconds - 1, "limit": point.limit, "seconds": seconds,
                         "label": f"{case} {link}", "note": one.error, **{f"seconds of {name}": s for name, s in point.parts.items()}})
            say(f"{case} {link}: simulated {point.row.seconds:.3g} s, measured {seconds or 0:.3g} s")
    return rows


def scaling(options: Any, speed: Machine) -> list[dict[str, Any]]:
    """Steps on hundreds of workers."""
    graph = f"rmat:scale={options.scale},edge_factor=14,features=128,classes=64"
    held_graph, (latency, bandwidth, *_) = gt.load(graph), read_link(options.link)
    cluster = Larger(**asdict(Cluster.of(speed, latency, bandwidth, cores=options.cores)), times=options.times)
    targets = max(int(held_graph.train.sum()) // 100, 1)
    cases = {"global": {}, "mini": {"batch_size": targets}, "cluster": {"clusters": options.clusters,
                                                                        "clusters_per_batch": max(options.clusters // 100, 1)}}
    rows: list[dict[str, Any]] = []
    for case in options.cases:
        job = gt.Job(**job_of(graph, case, 128, **cases[case]))
        modes = ["cooperative"] if case == "cluster" else ["cooperative", "independent"]
        held = skeleton(job, held_graph)
        parameters = sum(p.value.nbytes for p in held.prepared.model.parameters())
        counted = COUNTED.get(case, 1)
        points = simulated(held, [job], [1, *options.workers], cluster, modes, views=counted, rehearsed=options.rehearsed)
        one, *rest = (cluster.corrected(p.row, parameters) for p in points)
        # the search of a view, which one worker makes without messages, is shared; what messages take is not larger
        points = [Point(replace(row, build=row.build + (options.times - 1) * one.build / row.workers), one.compute) for row in rest]
        for mode in {p.row.mode: 0 for p in points}:
            found = [p for p in points if p.row.mode == mode]
            rows += [_scaled(p, found[0], options.times) for p in found]
            say("\n".join(f"{case} {mode} {row['workers']}: {row['step']:.3g} s, {row['limit']}" for row in rows[-len(found):]))
    return rows


def _scaled(point: Point, first: Point, times: float) -> dict[str, Any]:
    row = point.row
    # independent workers compute a batch each in a step
    speed = (first.row.seconds / row.seconds) if row.mode == "independent" else first.step / point.step
    return {"case": row.strategy, "mode": row.mode, "workers": row.workers, "step": point.step, "of first": speed, "limit": point.limit,
            "share": point.parts[point.limit] / row.seconds, "MiB a worker": row.memory / 2**20, "GiB sent": row.sent / 2**30,
            "messages": row.messages, "times": times, "seconds": point.step, "label": f"{row.strategy} {row.mode} {row.workers}",
            **{f"seconds of {name}": s for name, s in point.parts.items()}}


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--parts", nargs="+", choices=tuple(COLUMNS), default=list(COLUMNS))
    options.add_argument("--ranks", type=int, default=2, help="of the comparison; 2")
    options.add_argument("--hidden", type=int, default=64, help="width of its layers; 64")
    options.add_argument("--epochs", type=int, default=4, help="timed epochs of a round; 4")
    options.add_argument("--scale", type=int, default=19, help="of the R-MAT graph of the scaling; 19")
    options.add_argument("--times", type=float, default=1.0, help="how many times larger the graph of the scaling is; 1")
    options.add_argument("--workers", type=int, nargs="+", default=[256, 512, 1024])
    options.add_argument("--cases", nargs="+", choices=("global", "mini", "cluster"), default=["global", "mini", "cluster"])
    options.add_argument("--clusters", type=int, default=1000, help="clusters of the graph; 1000")
    options.add_argument("--cores", type=int, default=2, help="cores of a simulated machine; 2")
    options.add_argument("--rehearsed", type=int, default=16, help="most workers that make views; 16")
    options.add_argument("--link", default="10us,25Gbit/s", help="of the scaling; 10us,25Gbit/s")
    options = options.parse_args()
    speed = machine(again="check" in options.parts)
    say(f"speed of this machine, fitted within {speed.error:.0%}: {speed.message * 1e6:.0f} us a move")
    status = 0
    for part, rows in (("check", check), ("scaling", scaling)):
        if part in options.parts:
            status |= finish(options, rows(options, speed), COLUMNS[part], [], bench="simulate", part=part)
    return status


if __name__ == "__main__":
    sys.exit(main())
