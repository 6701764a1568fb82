"""Builds heterogeneous graphs from files with an array for each type and relation.

Field names are ``edge_index__SRC__NAME__DST``, ``edge_attr__SRC__NAME__DST`` and ``x__TYPE``, or
the parts of a CSR matrix as ``x__TYPE__data`` and so on. ``meta`` has the number of nodes of each
type, ``node_types``, and perhaps the type with labels, ``target``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.npy import AGAIN
from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import standardise
from graphtheta.graph.datasets.reader_npz import ArrayFile, read_features, read_meta

SPLITS = ("train", "val", "test")


def heterogeneous(path: Path, labels: int = 0, inverse: bool = True) -> Graph:
    """The graph, with the inverse of every relation. A type without features gets one-hot ids.

    Args:
        path: The file.
        labels: Training labels of each class, for files with several splits; 0 for the largest.
        inverse: Whether to add inverse relations.
    """
    import scipy.sparse as sp

    with ArrayFile(path) as file:
        meta = read_meta(file)
        counts = {kind: int(n) for kind, n in meta.get("node_types", {}).items()}
        triples = {
            name: tuple(name.split("__")[1:])
            for name in file.fields
            if name.startswith("edge_index__")
        }
        if not counts or any(
            len(t) != 3 or not {t[0], t[2]} <= counts.keys() for t in triples.values()
        ):
            raise FormatError(
                f"{path}: meta has no node_types for the fields {', '.join(triples)}; {AGAIN}"
            )
        edges = {t: file.read(name, "iu", 2) for name, t in triples.items()}
        x = {
            kind: read_features(file, f"x__{kind}" if f"x__{kind}" in file else f"x__{kind}_")
            for kind in counts
        }
        attr = {
            t: standardise(file.read(name, "f", 2).astype(np.float64), None)
            for t in triples.values()
            if (name := "edge_attr__" + "__".join(t)) in file
        }
        labelling = _labels(
            file=file, target=meta.get("target"), counts=counts, labels=labels, path=path
        )
    graph = Graph(
        edges,
        counts,
        x={
            kind: sp.eye_array(n, format="csr") if x[kind] is None else x[kind]
            for kind, n in counts.items()
        },
        edge_attr=attr or None,
        name=path.stem,
        meta=meta,
        where=str(path),
        **labelling,
    )
    return graph.with_inverse_relations() if inverse else graph


def _labels(
    file: ArrayFile, target: Any, counts: dict[str, int], labels: int, path: Path
) -> dict[str, Any]:
    """Labels and masks of the type that has them."""
    if target is None:
        return {}
    sizes = sorted(
        int(name.rsplit("_", 1)[1]) for name in file.fields if name.startswith("train_idx_")
    )
    if target not in counts or not sizes:
        raise FormatError(
            f"{path}: meta names the target {target!r}, but there are no labels with a split;"
            f" {AGAIN}"
        )
    if labels and labels not in sizes:
        raise ConfigError(
            f"{path.stem}: labels={labels} is not among its splits, {', '.join(map(str, sizes))}"
        )
    masks = {}
    for split in SPLITS:
        rows = file.read(f"{split}_idx_{labels or sizes[-1]}", "iu", 1)
        mask = np.zeros(counts[target], bool)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(mask):
            raise FormatError(f"{path}: a {split} index lies outside 0..{len(mask) - 1}; {AGAIN}")
        mask[rows] = True
        masks[split] = {target: mask}
    return {"y": {target: file.read("y", "iu", 1)}, **masks}
