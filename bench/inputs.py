"""Graphs that all contenders read: npz files of in-edges by destination, written at first use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

import graphtheta as gt

# every node has a self loop, so that no model needs to add any
GRAPHS = {
    "small": "rmat:scale=14,edge_factor=22,features=64,classes=41",
    "medium": "rmat:scale=16,edge_factor=22,features=602,classes=41",
    "reddit": "rmat:scale=18,edge_factor=22,features=602,classes=41",
    "computers": "amazon_computers",
    "facebook": "facebook100",
}
HELP = f"{', '.join(GRAPHS)}, any name that gt.load knows, or an npz file as written here"


def graph_file(name: str, folder: Path, split: str = "auto") -> Path:
    """The file of a graph, made if there is none.

    Args:
        name: Key of ``GRAPHS``, a name for ``gt.load``, or an npz file.
        folder: Where files are kept.
        split: As in ``gt.load``.
    """
    if name.endswith(".npz"):
        return Path(name)
    words = name if split == "auto" else f"{name}-{split}"
    path = folder / f"{words.replace(':', '-').replace('=', '').replace(',', '-')}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(gt.load(GRAPHS.get(name, name), self_loops=True, split=split), path)
    return path


def write(graph: gt.Graph, path: Path) -> None:
    """In-edges by destination, dense float32 features, classes, training and test nodes."""
    order = np.lexsort((graph.src, graph.dst))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(graph.dst, minlength=graph.n_nodes))))
    x = graph.x.toarray() if sp.issparse(graph.x) else graph.x
    aside = path.with_suffix(".part")
    with aside.open("wb") as f:
        np.savez(
            f,
            indptr=indptr.astype(np.int64),
            indices=graph.src[order].astype(np.int32),
            x=x.astype(np.float32),
            y=graph.y,
            train=graph.train,
            test=np.zeros(graph.n_nodes, bool) if graph.test is None else graph.test,
        )
    aside.rename(path)
