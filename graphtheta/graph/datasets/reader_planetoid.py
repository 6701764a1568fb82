"""Reads the original Planetoid files.

These are the pickles ``ind.NAME.x, tx, allx, y, ty, ally, graph``, and ``ind.NAME.test.index``.

Unpickling can run any code; :mod:`graphtheta.graph.datasets.reader_pickle` calls nothing.

Source: https://github.com/kimiyoung/planetoid (layout), https://github.com/tkipf/gcn (order of the
test nodes)
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.npy import AGAIN
from graphtheta.base.sparse import csr
from graphtheta.errors import FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import first_of_each, pair_key
from graphtheta.graph.datasets.reader_pickle import Matrix, Pairs, Refused, read

PICKLED = ("x", "y", "tx", "ty", "allx", "ally", "graph")
N_VAL = 500
REMEDY = (
    "only the original Planetoid pickles are read, since unpickling can run code; save other data"
    " as npz"
)


def read_pickle(path: Path) -> Any:
    """The contents of a pickle: an array, a ``Matrix``, ``Pairs`` or a list.

    Raises:
        FormatError: Missing, damaged, or the pickle names anything else.
    """
    if not path.is_file():
        raise FormatError(
            f"{path}: the file does not exist; a Planetoid data set needs"
            f" ind.NAME.{{{','.join(PICKLED)},test.index}} in one folder"
        )
    try:
        return read(path.read_bytes())
    except Refused as error:
        raise FormatError(f"{path}: refused: it holds {error}; {REMEDY}") from error
    # damaged bytes can raise any error
    except Exception as error:
        raise FormatError(
            f"{path}: cannot be unpickled ({type(error).__name__}: {error}); {AGAIN}"
        ) from error


def kind_of(content: Any) -> str:
    """The type of some content, for messages."""
    if isinstance(content, np.ndarray):
        return f"{content.dtype}{list(content.shape)}"
    return {Pairs: "dictionary", Matrix: "CSR matrix"}.get(type(content), type(content).__name__)


def read_matrix(path: Path) -> Any:
    """A CSR array from a pickle."""
    record = read_pickle(path)
    if not isinstance(record, Matrix):
        raise FormatError(f"{path}: holds a {kind_of(record)}, expected a CSR matrix; {AGAIN}")
    try:
        parts = record.parts()
        values, indices, indptr = (parts[name] for name in ("data", "indices", "indptr"))
        height, width = map(int, parts.get("_shape") or parts["shape"])
        kinds = "".join(part.dtype.kind for part in (values, indices, indptr))
        flat = values.ndim == indices.ndim == indptr.ndim == 1
    # an untrusted state can raise any error
    except Exception as error:
        raise FormatError(
            f"{path}: the CSR matrix lacks data, indices, indptr or shape ({type(error).__name__}:"
            f" {error}); {AGAIN}"
        ) from error
    if not flat or not re.fullmatch("[fiu][iu][iu]", kinds):
        raise FormatError(f"{path}: the CSR matrix has parts of the wrong dtype or shape; {AGAIN}")
    return csr(values=values, indices=indices, indptr=indptr, shape=(height, width), at=str(path))


def read_labels(path: Path, rows: int) -> np.ndarray:
    """One-hot labels, [rows, n_classes]."""
    labels = read_pickle(path)
    if (
        not isinstance(labels, np.ndarray)
        or labels.ndim != 2
        or labels.dtype.kind not in "fiub"
        or len(labels) != rows
    ):
        raise FormatError(
            f"{path}: expected {rows} rows of one-hot labels, got {kind_of(labels)}; {AGAIN}"
        )
    return labels


def read_edges(path: Path, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The adjacency lists as edges, both directions, without duplicates, sorted by source."""
    lists = read_pickle(path)
    if not isinstance(lists, Pairs) or not all(
        isinstance(neighbours, list) for _, neighbours in lists.items
    ):
        raise FormatError(f"{path}: expected a dictionary of lists of neighbours; {AGAIN}")
    items = lists.items
    degree = np.fromiter((len(neighbours) for _, neighbours in items), np.int64, len(items))
    # a hostile file can repeat one list many times; otherwise a neighbour takes at least one byte
    if degree.sum() > path.stat().st_size:
        raise FormatError(
            f"{path}: refused: {int(degree.sum())} neighbours are more than its bytes; {REMEDY}"
        )
    try:
        src = np.repeat(np.fromiter((node for node, _ in items), np.int64, len(items)), degree)
        dst = np.fromiter(
            (v for _, neighbours in items for v in neighbours), np.int64, int(degree.sum())
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(
            f"{path}: nodes and neighbours must be integers ({error}); {AGAIN}"
        ) from error
    src, dst = np.concatenate((src, dst)), np.concatenate((dst, src))
    if len(src) and (src.min() < 0 or src.max() >= n_nodes):
        bad = int(src[(src < 0) | (src >= n_nodes)][0])
        raise FormatError(
            f"{path}: node {bad} is outside 0..{n_nodes - 1}, the nodes that allx and test.index"
            f" name; {AGAIN}"
        )
    keys = pair_key(src, dst, n_nodes)
    first = first_of_each(keys)
    first = first[np.argsort(keys[first])]
    return src[first], dst[first]


def read_test_index(path: Path, n_all: int, n_test: int) -> np.ndarray:
    """Rows of the test nodes, in the order of ``tx`` and ``ty``."""
    try:
        rows = np.array([int(line) for line in path.read_text().split()], np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise FormatError(f"{path}: expected one node number a line ({error}); {AGAIN}") from error
    if (
        len(rows) != n_test
        or not n_test
        or len(np.unique(rows)) != n_test
        or rows.min() < n_all
        or rows.max() > n_all + 100 * n_test
    ):
        raise FormatError(
            f"{path}: expected {n_test} different node numbers from {n_all} on, got {len(rows)};"
            f" {AGAIN}"
        )
    return rows


def find_name(path: Path) -> tuple[Path, str]:
    """Folder and data set name of a folder holding one data set, or of one of its files."""
    if path.is_dir():
        names = sorted(file.name[4:-6] for file in path.glob("ind.*.graph"))
        if len(names) == 1:
            return path, names[0]
        if not names:
            raise FormatError(
                f"{path}: the folder is no store and has no Planetoid files (ind.NAME.graph and"
                " others); give the folder that graphtheta import --to has made, or an npz file"
            )
        raise FormatError(
            f"{path}: several data sets ({', '.join(names)}); give a file of one of them, such as "
            f"{path / f'ind.{names[0]}.graph'}"
        )
    stem = (
        path.name.removesuffix(".test.index")
        if path.name.endswith(".test.index")
        else path.name.rpartition(".")[0]
    )
    return path.parent, stem.removeprefix("ind.")


def read_planetoid(path: str | os.PathLike[str]) -> Graph:
    """A graph from the original Planetoid files, with the public split.

    Test nodes that the files leave out (isolated ones of citeseer) get features 0 and no label, and
    are in no mask.

    Args:
        path: The folder, or any file of the data set.

    Returns:
        An undirected graph, both directions stored; self loops kept; features as stored.

    Raises:
        FormatError: A file is missing, damaged or refused.
        ShapeError, DataError: The arrays do not make a graph.
    """
    import scipy.sparse as sp

    folder, name = find_name(Path(path))
    file = {part: folder / f"ind.{name}.{part}" for part in (*PICKLED, "test.index")}
    seen = read_matrix(file["allx"])
    unseen = read_matrix(file["tx"])
    n_all, n_test = seen.shape[0], unseen.shape[0]
    if seen.shape[1] != unseen.shape[1]:
        raise FormatError(
            f"{file['tx']}: {unseen.shape[1]} features, but allx has {seen.shape[1]}; {AGAIN}"
        )
    labels = [read_labels(file["ally"], n_all), read_labels(file["ty"], n_test)]
    n_train = read_matrix(file["x"]).shape[0]
    read_labels(file["y"], n_train)
    if labels[0].shape[1] != labels[1].shape[1]:
        raise FormatError(
            f"{file['ty']}: {labels[1].shape[1]} classes, but ally has {labels[0].shape[1]};"
            f" {AGAIN}"
        )
    rows = read_test_index(file["test.index"], n_all, n_test)
    n = int(rows.max()) + 1
    src, dst = read_edges(file["graph"], n)
    # the row of x that each stacked row of (allx, tx) goes to
    to = np.concatenate((np.arange(n_all), rows))
    scatter = sp.csr_array(
        (np.ones(len(to), np.float32), (to, np.arange(len(to)))), shape=(n, len(to))
    )
    x = scatter @ sp.vstack((seen, unseen), format="csr").astype(np.float32)
    one_hot = np.concatenate(labels)
    y = np.full(n, -1, np.int64)
    y[to] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    node = np.arange(n)
    test = np.zeros(n, bool)
    test[rows] = True
    return Graph(
        (src, dst),
        n,
        x=x,
        y=y,
        n_classes=one_hot.shape[1],
        train=node < n_train,
        val=(node >= n_train) & (node < min(n_train + N_VAL, n_all)),
        test=test & (y >= 0),
        name=name,
        meta={"kind": "node classification, public Planetoid split"},
        where=str(folder / f"ind.{name}"),
    )
