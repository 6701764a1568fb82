"""Simulated times against measured ones, and the scaling of the GraphTheta paper by simulation.

    python bench/simulate.py                        2 ranks on slowed links; 256 to 1,024 workers
    python bench/simulate.py --parts check          only the comparison
    python bench/simulate.py --parts scaling        only the scaling
    python bench/simulate.py --parts scaling --cases mini --scale 20
    python bench/simulate.py --parts scaling --cases cluster --inside 0.5 0.75 0.9
    python bench/simulate.py --parts alipay         the scaling in the paper's own setting
    python bench/simulate.py --parts modes caches   independent workers, and caches of features

"check": ranks of a thread each on this machine, whose links ``engine/comm/delayed.py`` slows down;
"off" is the simulated time of an epoch over the measured one, minus 1. Each of --rounds measures
the speed of the machine, simulates, and measures each job. The shortest simulated time counts, and
of the measured ones the shortest of each step (``shortest.py``), in epochs after a first one, which
fills caches. "scaling": GCN of two layers, 128 wide, as in Figure 8 of the paper, on the machines
of ``papers/cluster.yaml``. A step reads 1 % of the clusters of a graph of the size of papers100M,
or the neighbourhood of 1 % of the training nodes of an R-MAT graph of 2**SCALE nodes with as many
edges per node (``excerpts.py``). What is counted there has the rows, edges and bytes of each worker
exactly; they count as many times as papers100M is larger, and messages, sums of gradients and
updates once. "of first" is relative to the fewest workers; further columns have it for other
machines. "alipay" is the same in the setting of the paper's figures: GAT-E with the attributes of
nodes and edges that Alipay's graph has, 8 heads, a worker of one thread (``papers/docker.yaml``),
and graphs in that one's proportions; of the clusters of a batch, one of PARTED is drawn. Searching
views is the only part that is timed here, in seconds of the processor. "modes":
a batch of each worker against one of all of them (``scaled_modes.py``), GCN of three layers, 256
wide, with 10 neighbours, for 1,024 targets of each worker and for 1 % of the training nodes in all;
"against" is the time of the cooperative step relative to this one, "more nodes" what independent
workers compute more, as a factor. "caches": hits of each policy in the warm state, and the step
with them (``scaled_caches.py``); "saved" is relative to the step without a cache. "clusters": the
share of the edges inside of clusters, by Louvain and as the graph was drawn, and what the batches
of 1 % of them have on average; "fewest" and "most" are nodes of a batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from excerpts import (
    ALIPAY,
    PAPERS,
    SHARE,
    Drawn,
    clusters,
    communities,
    neighbourhood,
    whole,
)
from harness import finish, parser, say
from scaled import SETTINGS, job_of, larger, read, step
from scaled_caches import caches
from scaled_modes import ALL, EACH, modes
from shortest import run_job, shortest

import graphtheta as gt
from graphtheta.engine.comm.delayed import read_link
from graphtheta.inspect.planning.machine import machine
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.simulation.cluster import Cluster
from graphtheta.inspect.simulation.simulate import Point, simulated
from graphtheta.partitioners.communities import find_clusters

LEAST_SECONDS = 1.0
SLOWED = ("50us,10Gbit/s", "50us,1Gbit/s", "1ms,1Gbit/s")
ALONE = {"strategy": "mini", "batch_size": 512, "fanout": "10,5", "mode": "independent"}
CHECKED: dict[str, dict[str, Any]] = {
    "global": {},
    "mini": {"batch_size": 512, "fanout": "10,5", "mode": "cooperative"},
    "cluster": {"clusters": 16, "mode": "cooperative"},
    "independent": ALONE,
    "cached": {**ALONE, "feature_cache": "25%", "cache_policy": "lru"},
}
GRAPH = "rmat:scale=14,edge_factor=14,features=128,classes=16"
MACHINES = Path(__file__).parent / "papers" / "cluster.yaml"
# workers of one thread
DOCKER = MACHINES.with_name("docker.yaml")
# of so many clusters of a batch of Alipay's graph, one is drawn
PARTED = 16
SCALING = [
    "case",
    "inside",
    "partitioner",
    "workers",
    "step",
    "of first",
    *SETTINGS,
    "limit",
    "share",
    "MiB sent",
    "messages",
]
COLUMNS = {
    "check": ["case", "link", "ranks", "simulated", "measured", "off", "limit"],
    "scaling": SCALING,
    "alipay": SCALING,
    "modes": [
        "case",
        "mode",
        "workers",
        "step",
        "of first",
        *SETTINGS,
        "against",
        "more nodes",
        "more edges",
        "limit",
        "share",
        "MiB",
    ],
    "caches": [
        "case",
        "workers",
        "policy",
        "rows",
        "hits",
        "MiB",
        "step",
        "saved",
        "of first",
        "limit",
    ],
    "clusters": [
        "graph",
        "method",
        "clusters",
        "inside",
        "isolated",
        "nodes",
        "fewest",
        "most",
        "edges",
        "without edges",
    ],
}


def check(options: Any) -> list[dict[str, Any]]:
    """Compare simulated epochs with measured ones."""
    words = {
        case: {**job_of(GRAPH, keys.get("strategy", case), options.hidden), **keys}
        for case, keys in CHECKED.items()
    }
    jobs = {case: gt.Job(**words[case]) for case in options.checked}
    held = {case: skeleton(job, gt.load(GRAPH)) for case, job in jobs.items()}
    found: dict[tuple[str, str], list[tuple[Point, dict[str, Any]]]] = {}
    for number in range(options.rounds):
        speed = machine(again=True)
        say(
            f"speed of this machine, fitted within {speed.error:.0%}: {speed.message * 1e6:.0f} us"
            " a move"
        )
        for case, link in product(options.checked, SLOWED):
            latency, bandwidth, *_ = read_link(link)
            # a rank has a link of its own, though all share this machine
            cluster = Cluster.of(speed, latency, options.ranks * bandwidth)
            (point,) = simulated(
                skeleton=held[case],
                jobs=[jobs[case]],
                workers=[options.ranks],
                cluster=cluster,
                modes=[jobs[case].mode],
                per_machine=options.ranks,
                views=16,
                warm=True,
            )
            run = run_job(words[case], options.ranks, options.epochs, LEAST_SECONDS, link)
            found.setdefault((case, link), []).append((point, run))
            say(
                f"round {number + 1}: {case} {link}: simulated {point.row.seconds:.3g} s, "
                f"measured {shortest([run], 'seconds').max():.3g} s"
            )
    rows = []
    for (case, link), each in found.items():
        point = min((p for p, _ in each), key=lambda p: p.row.seconds)
        seconds = float(shortest([run for _, run in each], "seconds").max())
        rows.append(
            {
                "case": case,
                "link": link,
                "ranks": options.ranks,
                "simulated": point.row.seconds,
                "measured": seconds,
                "off": point.row.seconds / seconds - 1,
                "limit": point.limit,
                "seconds": seconds,
                "label": f"{case} {link}",
                "rounds": [
                    (p.row.seconds, float(shortest([run], "seconds").max())) for p, run in each
                ],
                **{f"seconds of {name}": s for name, s in point.parts.items()},
            }
        )
    off = np.abs([row["off"] for row in rows])
    say(f"median error {np.median(off):.0%}, worst {off.max():.0%}")
    return rows


def scaling(options: Any) -> list[dict[str, Any]]:
    """Steps of a GCN on hundreds of workers."""
    drawn: dict[str, list[Callable[[], Drawn]]] = {
        "global": [lambda: whole(options.scale - 3)],
        "mini": [lambda: neighbourhood(options.scale)],
        "cluster": [partial(clusters, share) for share in options.inside],
    }
    return steps(options, drawn, options.cluster)


def alipay(options: Any) -> list[dict[str, Any]]:
    """Steps of GAT-E on workers of one thread, on graphs in the proportions of Alipay's."""
    drawn: dict[str, list[Callable[[], Drawn]]] = {
        "mini": [lambda: neighbourhood(options.scale, of=ALIPAY)],
        "cluster": [partial(clusters, share, of=ALIPAY, times=PARTED) for share in options.inside],
    }
    return steps(options, drawn, DOCKER, model="gat_e")


def steps(
    options: Any, drawn: dict[str, list[Callable[[], Drawn]]], machines: Path, **keys: Any
) -> list[dict[str, Any]]:
    """Simulated steps on each number of workers.

    Args:
        options: Flags.
        drawn: Draws the graphs of each case.
        machines: The file of the machines.
        **keys: Further keys of the job.
    """
    rows: list[dict[str, Any]] = []
    for case in options.cases:
        for share, draw in zip(
            options.inside if case == "cluster" else [None], drawn[case], strict=True
        ):
            batch = draw()
            n = batch.graph.n_nodes
            cluster = read(machines, batch.times)
            say(
                f"{case}: {n} nodes and {batch.graph.n_edges} edges, for {batch.times:.3g} times as"
                " many"
            )
            for masters, partitioner in product(options.masters, options.partitioners):
                job = gt.Job(
                    **job_of(
                        "rmat",
                        case,
                        128,
                        **one_batch(case, batch.graph, options.folder),
                        **keys,
                        masters=masters,
                        partitioner=partitioner,
                    )
                )
                points = larger(job, batch, options.workers, cluster, options.rehearsed)
                for point in points:
                    rows.append(
                        {
                            **scaled(point, points[0]),
                            "inside": share,
                            "nodes": n,
                            "edges": batch.graph.n_edges,
                            "times": batch.times,
                        }
                    )
                    say(
                        f"{rows[-1]['label']}: {point.step:.3g} s, {rows[-1]['of first']:.2f},"
                        f" {point.limit}"
                    )
    return rows


def inside(options: Any) -> list[dict[str, Any]]:
    """How much of a graph its clusters hold, and batches of 1 % of them."""
    rmat = whole(options.cluster_scale).graph
    n = round(rmat.n_nodes / PAPERS.cluster)
    other, own = communities(n, options.inside[0])
    rows = []
    # Louvain finds a community for each isolated node of the R-MAT graph, which are packed
    for name, graph, method, cluster in (
        ("rmat", rmat, "louvain", find_clusters(rmat.src, rmat.dst, rmat.n_nodes, "louvain", n)),
        ("communities", other, "louvain", find_clusters(other.src, other.dst, other.n_nodes)),
        ("communities", other, "as drawn", own),
    ):
        count = int(cluster.max()) + 1
        # each batch has as many clusters, in random order
        batch = (np.random.default_rng(0).permutation(count) // max(round(count * SHARE), 1))[
            cluster
        ]
        same = cluster[graph.src] == cluster[graph.dst]
        together = batch[graph.src] == batch[graph.dst]
        nodes = np.bincount(batch)
        edges = np.bincount(batch[graph.src][together], minlength=int(batch.max()) + 1)
        rows.append(
            {
                "graph": name,
                "method": method,
                "clusters": count,
                "inside": float(same.mean()),
                "isolated": float((np.bincount(graph.dst, minlength=graph.n_nodes) == 0).mean()),
                "nodes": float(nodes.mean()),
                "fewest": int(nodes.min()),
                "most": int(nodes.max()),
                "edges": float(edges.mean()),
                "fewest edges": int(edges.min()),
                "without edges": float((edges == 0).mean()),
                "edges of all": graph.n_edges,
                "times": PAPERS.nodes / graph.n_nodes,
                "label": f"{name} {method}",
            }
        )
    return rows


def one_batch(case: str, graph: gt.Graph, folder: Path) -> dict[str, Any]:
    """Keys of a job whose only batch is the whole graph that was drawn."""
    if case != "cluster":
        return {"batch_size": int(graph.train.sum())} if case == "mini" else {}
    folder.mkdir(exist_ok=True)
    path = folder / "one_cluster.npy"
    np.save(path, np.zeros(graph.n_nodes, np.int64))
    return {"cluster_method": str(path)}


def scaled(point: Point, first: Point) -> dict[str, Any]:
    """A row of a number of workers, relative to the fewest."""
    row = point.row
    return {
        "case": row.strategy,
        "mode": row.mode,
        "masters": row.masters,
        "partitioner": row.partitioner,
        "workers": row.workers,
        "step": point.step,
        "of first": first.step / point.step,
        **{
            name: step(first, *setting) / step(point, *setting)
            for name, setting in SETTINGS.items()
        },
        "limit": point.limit,
        "share": point.parts[point.limit] / row.seconds,
        "MiB a worker": row.memory / 2**20,
        "MiB sent": row.moved / row.steps / 2**20,
        "MiB of gradients": row.summed / row.steps / 2**20,
        "messages": row.messages,
        "seconds": point.step,
        "label": f"{row.strategy} {row.masters} {row.partitioner} {row.workers}",
        **{f"seconds of {name}": s for name, s in point.parts.items()},
        **{f"{name} of a worker": x for name, x in row.loads.items()},
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--parts", nargs="+", choices=tuple(COLUMNS), default=list(COLUMNS))
    options.add_argument("--ranks", type=int, default=2, help="of the comparison; 2")
    options.add_argument(
        "--checked",
        nargs="+",
        choices=tuple(CHECKED),
        default=list(CHECKED),
        help="jobs of the comparison; all",
    )
    options.add_argument("--hidden", type=int, default=64, help="width of its layers; 64")
    options.add_argument("--epochs", type=int, default=4, help="timed epochs of a round; 4")
    options.add_argument(
        "--scale", type=int, default=22, help="of the R-MAT graph of the scaling; 22"
    )
    options.add_argument(
        "--cluster-scale", type=int, default=17, help="of the R-MAT graph of clusters; 17"
    )
    options.add_argument(
        "--inside",
        type=float,
        nargs="+",
        default=[0.75],
        help=(
            "share of the edges of a node inside its cluster; 0.75. The scaling has all of them,"
            " clusters the first"
        ),
    )
    options.add_argument("--workers", type=int, nargs="+", default=[256, 512, 1024])
    options.add_argument(
        "--cases",
        nargs="+",
        choices=("global", "mini", "cluster"),
        default=["mini", "cluster"],
        help="of the scaling; mini cluster, all that alipay has",
    )
    options.add_argument(
        "--masters",
        nargs="+",
        default=["hash"],
        help="node partitioners; hash, which the paper has",
    )
    options.add_argument(
        "--partitioners",
        nargs="+",
        default=["1d-src"],
        help="edge placements; 1d-src, which the paper has",
    )
    options.add_argument(
        "--cluster", type=Path, default=MACHINES, help="the simulated machines; papers/cluster.yaml"
    )
    options.add_argument(
        "--batches",
        nargs="+",
        choices=(EACH, ALL),
        default=[EACH, ALL],
        help="targets of modes and caches; both",
    )
    options.add_argument(
        "--mode-scale",
        type=int,
        default=20,
        help="of the graph of cooperative batches of 1,024 targets for each; 20",
    )
    options.add_argument(
        "--full-scale", type=int, default=27, help="of the graph of other batches and of caches; 27"
    )
    options.add_argument(
        "--views", type=int, default=4, help="views of independent workers that are counted; 4"
    )
    options.add_argument(
        "--reads",
        type=int,
        default=12_000_000,
        help="rows that a worker reads, of which half fill the caches; 12000000",
    )
    options.add_argument("--rehearsed", type=int, default=4, help="most workers that make views; 4")
    options = options.parse_args()
    status = 0
    for part, rows in (
        ("check", check),
        ("scaling", scaling),
        ("alipay", alipay),
        ("modes", modes),
        ("caches", caches),
        ("clusters", inside),
    ):
        if part in options.parts:
            status |= finish(options, rows(options), COLUMNS[part], [], bench="simulate", part=part)
    return status


if __name__ == "__main__":
    sys.exit(main())
