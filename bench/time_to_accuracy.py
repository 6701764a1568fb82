"""Test accuracy over seconds of training: each strategy, ``--strategy auto``, and other libraries.

    python bench/time_to_accuracy.py --out time.jsonl --plot time.svg   3 graphs, about 12 minutes
    python bench/time_to_accuracy.py --graphs computers --seconds 20 --models gcn

Networks have two layers, 64 wide, with relu and dropout 0.5 between them, and learn by Adam with a
rate of 0.01 and a weight decay of 0.0005, from equal initial weights, one for each seed. Each
contender trains for some seconds from arrays in memory, the start included; measuring accuracy
takes none of them. A run reaches an accuracy when it first measures it; the results keep the
points of a curve at which it rises above all before. The accuracy to reach is
a share of the highest that any strategy here reached on the graph, by the median over the seeds,
and the seconds to it are medians, too: none if half of the seeds do not reach it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from contender import CLOCK_VARIABLE, CLOCKS, Input
from harness import Contender, finish, parser, peer, race, ratio, say, script
from inputs import graph_file
from own.minibatch import build

from graphtheta.ops.autodiff.init import init_scope

# of each graph its name for gt.load and its split: many labels, many, and 20 of each class
GRAPHS = {
    "facebook": ("facebook100:colleges=1,target=year", "fraction"),
    "computers": ("computers", "fraction"),
    "coauthor": ("coauthor_cs", "random"),
}
# strategies by hand, and the one that chooses
WAYS: dict[str, dict[str, Any]] = {
    "global": {"strategy": "global"},
    "mini 1024": {"strategy": "mini", "batch_size": 1024, "fanout": "10,10"},
    "mini 256": {"strategy": "mini", "batch_size": 256, "fanout": "10,10"},
    "mini 512, all": {"strategy": "mini", "batch_size": 512},
    "cluster": {"strategy": "cluster", "clusters_per_batch": 3},
    "auto": {"strategy": "auto"},
}
AUTO = "auto"
# the environment of a peer, and its further words
PEERS = {"graphbolt": ("dgl", (1024, "10,10")), "dgl": ("dgl", ()), "pyg": ("pyg", ())}
HIDDEN, RATE, DROPOUT, DECAY = 64, 0.01, 0.5, 5e-4
COLUMNS = ["graph", "model", "contender", "seconds", "of the best", "highest", "start", "note"]


class Reached(NamedTuple):
    """What a contender reached, by the median over its seeds."""

    highest: float
    start: float
    seconds: float | None


def first_weights(model: str, graph: Path, seeds: int, folder: Path) -> str:
    """Files of the weights that all contenders begin with, one for each seed."""
    z = Input.read(graph)
    paths = [folder / f"{graph.stem}-{model}-{HIDDEN}-{seed}-weights.npz" for seed in range(seeds)]
    for seed, path in enumerate(paths):
        with init_scope(seed):
            np.savez(path, **build(model, z.x.shape[1], HIDDEN, z.classes, 2).state())
    return ",".join(map(str, paths))


def contenders_of(model: str, graph: Path, options) -> list[Contender]:
    """All contenders on a graph."""
    weights = first_weights(model, graph, options.seeds, options.folder)
    words = (model, graph, options.seconds, RATE, DROPOUT, DECAY, weights)
    clock = {CLOCK_VARIABLE: options.clock}
    made = []
    for name in options.ways:
        keys = [f"{key}={value}" for key, value in WAYS[name].items()]
        made.append(Contender(name, script("own", "time_to_accuracy", *words, *keys), clock))
    for name in options.peers:
        library, more = PEERS[name]
        command = peer(
            options.envs or options.folder, library, "time_to_accuracy", name, *words, *more
        )
        made += [Contender(name, command, clock)] if command else []
    return made


def curves_of(c: Contender) -> list[np.ndarray]:
    """Seconds and accuracies of each seed in each round, [n, 2]."""
    return [np.array(curve) for one in c.more for curve in one["curves"]]


def reached(c: Contender, target: float) -> Reached:
    """What a contender reached.

    Args:
        c: The contender, which has run.
        target: The accuracy to reach.
    """
    curves = curves_of(c)
    times = [next((t for t, share in x if share >= target), float("inf")) for x in curves]
    seconds = median(times)
    return Reached(
        highest=median(float(x[:, 1].max()) for x in curves),
        start=median(float(x[0, 0]) for x in curves),
        seconds=seconds if np.isfinite(seconds) else None,
    )


def risen(curve: np.ndarray) -> list[list[float]]:
    """The points of a curve, [n, 2], whose accuracy is above that of all points before."""
    before = np.maximum.accumulate(np.append(-np.inf, curve[:-1, 1]))
    return [[round(t, 3), round(share, 4)] for t, share in curve[curve[:, 1] > before].tolist()]


def rows_of(name: str, model: str, contenders: list[Contender], share: float) -> list[dict]:
    """The rows of a graph; the accuracy to reach is a share of the highest of a strategy here."""
    ran = [c for c in contenders if not c.error]
    own = [c for c in ran if c.name in WAYS]
    target = share * max((reached(c, 0.0).highest for c in own), default=0.0)
    times = [reached(c, target).seconds for c in own if c.name != AUTO]
    best = min((t for t in times if t is not None), default=None)
    rows = []
    for c in contenders:
        about = {"graph": name, "model": model, "contender": c.name, "label": f"{name} {c.name}"}
        if c.error:
            rows.append({**about, "note": c.error})
            continue
        found = reached(c, target)
        rows.append(
            {
                **about,
                **found._asdict(),
                "of the best": ratio(found.seconds, best),
                "note": c.figures.get("chosen", "") if c.name == AUTO else "",
                "target": target,
                "curves": [risen(x) for x in curves_of(c)],
                "version": c.version,
            }
        )
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Test accuracy over seconds, one panel a graph, one line a seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((row["graph"], row["model"]) for row in rows))
    names = list(dict.fromkeys(row["contender"] for row in rows))
    figure, axes = plt.subplots(
        ncols=len(panels), figsize=(5 * len(panels), 4), layout="constrained", squeeze=False
    )
    for panel, ax in zip(panels, axes[0], strict=True):
        for row in rows:
            if (row["graph"], row["model"]) != panel:
                continue
            colour = f"C{names.index(row['contender'])}"
            for i, curve in enumerate(row.get("curves", [])):
                label = row["contender"] if i == 0 else None
                ax.plot(*np.transpose(curve), color=colour, label=label, linewidth=1)
            if "target" in row:
                ax.axhline(row["target"], color="grey", linewidth=0.5)
        ax.set(xlabel="seconds", ylabel="test accuracy", title=" ".join(panel), xscale="log")
    axes[0][0].legend(loc="lower right", fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--models", nargs="+", choices=("sage", "gcn"), default=["gcn"])
    options.add_argument(
        "--graphs",
        nargs="+",
        default=list(GRAPHS),
        help=f"{', '.join(GRAPHS)}, or any name that gt.load knows",
    )
    options.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    options.add_argument("--seconds", type=float, default=5.0, help="of each training; 5")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--share", type=float, default=0.98, help="of the highest accuracy; 0.98")
    options.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    options = options.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.graphs:
        dataset, split = GRAPHS.get(name, (name, "fraction"))
        graph = graph_file(dataset, options.folder, split)
        for model in options.models:
            say(f"{model} on {name}")
            contenders = contenders_of(model, graph, options)
            race(contenders, options.rounds, options.threads)
            rows += rows_of(name, model, contenders, options.share)
    findings = [
        {
            "finding": f"{row['graph']}, {row['model']}: auto, of the best by hand",
            "value": row["of the best"],
        }
        for row in rows
        if row["contender"] == AUTO and row.get("of the best")
    ]
    if options.plot:
        draw(rows, options.plot)
        # the harness draws bars
        options.plot = None
    return finish(
        options, rows, COLUMNS, [], findings, bench="time_to_accuracy", clock=options.clock
    )


if __name__ == "__main__":
    sys.exit(main())
