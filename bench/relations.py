"""Full-batch epochs of R-GCN against DGL's HeteroGraphConv and PyG's RGCNConv.

    python bench/relations.py                              all graphs, 3 rounds
    python bench/relations.py --graphs rmat --peers        GraphTheta alone

Networks have two layers, 64 wide, with a mean for each relation, relu and dropout 0.5 between them,
Adam, and cross entropy on the training nodes. Graphs: ``rmat`` (2^16 nodes, 2.4M edges, 8
relations, independent matrices), ``movielens`` (12 relations, independent matrices) and
``fb15k`` (474 relations with the inverse ones, 8 bases). Features, 64 wide, and classes are random
where a graph has none. Before the timed epochs all contenders train two epochs without dropout,
whose losses must agree.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from harness import Contender, disagreement, finish, parser, peer, race, ratio, say, script
from own.relations import build

import graphtheta as gt
from graphtheta.ops.autodiff.init import init_scope

WIDTH = 64
CLASSES = 8
RELATIONS = 8
GRAPHS = {
    "rmat": ("rmat:scale=16,edge_factor=22,features=64,classes=8", 0),
    "movielens": ("hetero_movielens100k", 0),
    "fb15k": ("fb15k_237", 8),
    "small": ("rmat:scale=10,edge_factor=8,features=16,classes=8", 2),
}
COLUMNS = [
    "graph",
    "contender",
    "seconds",
    "least",
    "times faster",
    "GiB",
    "times less",
    "runs",
    "note",
]


def graph_file(name: str, folder: Path) -> Path:
    """In-edges by destination with their relations, features, classes and training nodes, made if
    there is no file.
    """
    path = folder / f"relations-{name}.npz"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    graph = gt.load(GRAPHS[name][0])
    codes = graph.edge_columns.get(
        "relation", rng.integers(0, RELATIONS, graph.n_edges).astype(np.int32)
    )
    if name == "fb15k":
        graph = graph.replace(edge_columns={"relation": codes}).with_inverse_relations()
        codes = graph.edge_columns["relation"]
    order = np.lexsort((graph.src, graph.dst))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(graph.dst, minlength=graph.n_nodes))))
    plain = isinstance(graph.x, np.ndarray) and graph.x.shape[1] in (16, WIDTH)
    x = graph.x if plain else rng.normal(size=(graph.n_nodes, WIDTH))
    y = rng.integers(0, CLASSES, graph.n_nodes) if graph.y is None else graph.y
    assert not sp.issparse(x)
    np.savez(
        path,
        indptr=indptr.astype(np.int64),
        indices=graph.src[order].astype(np.int32),
        relation=codes[order].astype(np.int32),
        x=x.astype(np.float32),
        y=y,
        train=rng.random(graph.n_nodes) < 0.5,
    )
    return path


def compete(name: str, options) -> list[Contender]:
    """All contenders on a graph, raced."""
    graph = graph_file(name, options.folder)
    bases = GRAPHS[name][1]
    with np.load(graph) as file, init_scope(0):
        model = build(
            file["x"].shape[1], int(file["y"].max()) + 1, int(file["relation"].max()) + 1, bases
        )
    weights = options.folder / f"relations-{name}-weights.npz"
    np.savez(weights, **model.state())
    words = (graph, weights, options.epochs, options.dropout, bases)
    contenders = [Contender("graphtheta", script("own", "relations", *words))]
    for library in options.peers:
        command = peer(options.envs or options.folder, library, "relations", library, *words)
        contenders += [Contender(library, command)] if command else []
    say(f"R-GCN on {name}")
    race(contenders, options.rounds, options.threads)
    return contenders


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument(
        "--graphs", nargs="+", choices=GRAPHS, default=["rmat", "movielens", "fb15k"]
    )
    options.add_argument("--peers", nargs="*", choices=("dgl", "pyg"), default=["dgl", "pyg"])
    options.add_argument("--epochs", type=int, default=5, help="timed epochs of a round; 5")
    options.add_argument("--dropout", type=float, default=0.5, help="in the timed epochs; 0.5")
    options = options.parse_args()
    rows, faults = [], []
    for name in options.graphs:
        contenders = compete(name, options)
        own = contenders[0]
        faults += [f"{name} {fault}" for fault in disagreement(contenders)]
        for c in contenders:
            times = c.seconds.get("epoch", [])
            seconds = c.median("epoch")
            beside = (
                {}
                if c is own
                else {
                    "times faster": ratio(seconds, own.median("epoch")),
                    "times less": ratio(c.peak, own.peak),
                }
            )
            rows.append(
                {
                    "graph": name,
                    "contender": c.name,
                    "seconds": seconds,
                    "least": min(times, default=None),
                    "GiB": c.peak / 2**30,
                    **beside,
                    "runs": len(times),
                    "note": c.error,
                    "label": f"{name} {c.name}",
                    "version": c.version,
                    "losses": c.checks.get("epoch"),
                    "all": times,
                }
            )
    return finish(options, rows, COLUMNS, faults, bench="relations")


if __name__ == "__main__":
    sys.exit(main())
