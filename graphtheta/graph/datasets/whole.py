"""Builds graphs whose targets are whole graphs: molecules and proteins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.npy import AGAIN
from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets import builder
from graphtheta.graph.datasets.reader_npz import ArrayFile, read_edges, read_meta
from graphtheta.graph.graph_level.whole_graphs import whole_graphs
from graphtheta.graph.splits.nodes import masks_of

ATOMS, GRAPHS = "atoms", "graphs"


def molecules(path: Path, level: str = ATOMS, hide: str = "") -> Graph:
    """Molecules with labels of atoms, see :func:`builder.atoms`, or of whole molecules.

    Features of whole molecules are all nine attributes of an atom, one-hot, as a sparse matrix;
    edge attributes are those of a bond, one-hot. The split is by scaffold.

    Args:
        path: The file.
        level: "atoms" or "graphs".
        hide: As for ``builder.atoms``.
    """
    if level not in (ATOMS, GRAPHS):
        raise ConfigError(f"{path.stem}: level is {level!r}; choose from {ATOMS}, {GRAPHS}")
    if level == ATOMS:
        return builder.atoms(path, hide)
    if hide:
        raise ConfigError(
            f"{path.stem}: hide={hide} is for level={ATOMS}, whose targets are attributes of atoms;"
            " leave it out"
        )
    file = builder.read_molecules(path)
    with ArrayFile(path) as arrays:
        y = arrays.read("graph_y", "f")
    x = one_hot_rows(file.atom)
    attr = np.concatenate(
        [
            builder.one_hot(file.bond[:, i], f"{path}: {name} in edge_attr")
            for i, name in enumerate(builder.BOND)
        ],
        axis=1,
    )
    base = Graph(file.ends, len(file.atom), x=x, edge_attr=attr, name=path.stem, meta=file.meta)
    classes = y.ndim == 1
    train, val, test = masks_of(file.split)
    return whole_graphs(
        base,
        y.astype(np.int64) if classes else y,
        graph_of=np.repeat(np.arange(len(file.split)), np.diff(file.bounds)),
        train=train,
        val=val,
        test=test,
        multilabel=None if classes else True,
    )


def chemical(path: Path, fold: int = 0) -> Graph:
    """Graphs of the TU collection; features are labels of nodes, one-hot.

    Graphs of the fold are for tests, those of the next one for validation, all others for training.

    Args:
        path: The file.
        fold: Number of the fold, from 0.
    """
    with ArrayFile(path) as file:
        ends = read_edges(file)
        meta = read_meta(file)
        y = file.read("graph_y", "iu", 1)
        bounds = file.read("graph_ptr", "iu", 1).astype(np.int64)
        label = file.read("node_label", "iu", 1)
        folds = file.read("fold_is_test", "iu", 2).astype(bool)
    if (
        len(folds) != len(y)
        or len(bounds) != len(y) + 1
        or bounds[-1] != len(label)
        or np.any(np.diff(bounds) < 0)
    ):
        raise FormatError(
            f"{path}: graph_y {list(y.shape)}, graph_ptr {list(bounds.shape)}, node_label"
            f" {list(label.shape)} and fold_is_test {list(folds.shape)} do not describe graphs;"
            f" {AGAIN}"
        )
    if not 0 <= fold < folds.shape[1]:
        raise ConfigError(f"{path.stem}: fold is {fold}, expected 0 to {folds.shape[1] - 1}")
    test = folds[:, fold]
    val = folds[:, (fold + 1) % folds.shape[1]] & ~folds[:, fold]
    x = builder.one_hot(label, f"{path}: node_label")
    return whole_graphs(
        Graph(ends, len(label), x=x, name=path.stem, meta=meta),
        np.unique(y, return_inverse=True)[1],
        graph_of=np.repeat(np.arange(len(y)), np.diff(bounds)),
        train=~test & ~val,
        val=val,
        test=test,
    )


def one_hot_rows(values: np.ndarray) -> Any:
    """A sparse matrix with a column for each value of each column, [n, k] float32."""
    import scipy.sparse as sp

    n, width = values.shape
    codes = np.empty((n, width), np.int32)
    first = 0
    for i in range(width):
        different, codes[:, i] = np.unique(values[:, i], return_inverse=True)
        codes[:, i] += first
        first += len(different)
    return sp.csr_array(
        (np.ones(codes.size, np.float32), codes.ravel(), np.arange(n + 1) * width), shape=(n, first)
    )
