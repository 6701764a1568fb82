"""Writes original files of public data sets as npz files of this package.

Each function of :data:`FORMS` takes the original files, and returns the arrays of the npz file. No
pickle is read but those of Planetoid, for which see
:mod:`graphtheta.graph.datasets.reader_pickle`; nothing of an archive is written to disk under a
name that the archive gives.
"""

from __future__ import annotations

import csv
import gzip
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from graphtheta.base.npy import AGAIN
from graphtheta.base.strict_json import to_json
from graphtheta.errors import FormatError
from graphtheta.graph.datasets.reader_npz import PARTS, ArrayFile, read_features
from graphtheta.graph.datasets.reader_planetoid import read_planetoid

# what damaged compressed files and texts raise
DAMAGED = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError)
# files of an archive of triples, in the order of their codes in edge_split
TRIPLE_PARTS = ("train.txt", "valid.txt", "test.txt")

# arrays by their names in the npz file
Arrays = dict[str, Any]


def sparse_parts(x: Any) -> Arrays:
    """Node features in CSR as four arrays of an npz file."""
    values = (x.data, x.indices, x.indptr, np.array(x.shape))
    return {f"x_{part}": value for part, value in zip(PARTS, values, strict=True)}


def planetoid(files: Sequence[Path]) -> Arrays:
    """The arrays of the eight files of a Planetoid data set, with the public split."""
    graph = read_planetoid(files[0])
    masks = {"train_mask": graph.train, "val_mask": graph.val, "test_mask": graph.test}
    return {
        "edge_index": np.stack((graph.src, graph.dst)),
        **sparse_parts(graph.x),
        "y": graph.y,
        **masks,
        "n_nodes": np.array(graph.n_nodes),
    }


def attributed(files: Sequence[Path]) -> Arrays:
    """The arrays of an npz file of Shchur et al.: CSR parts ``adj_*`` and ``attr_*``, and
    ``labels``; edges as stored.
    """
    (path,) = files
    with ArrayFile(path) as file:
        adjacency = read_features(file, "adj")
        x = read_features(file, "attr")
        missing = [name for name, part in (("adj", adjacency), ("attr", x)) if part is None]
        if missing:
            raise FormatError(
                f"{path}: the CSR parts {missing[0]}_data, ... are missing; the file has"
                f" {file.listed()}"
            )
        y = file.read("labels", "iu", 1)
    n = adjacency.shape[0]
    if adjacency.shape != (n, n) or x.shape[0] != n or len(y) != n:
        raise FormatError(
            f"{path}: adj {list(adjacency.shape)}, attr {list(x.shape)} and labels"
            f" {list(y.shape)} do not describe one graph; {AGAIN}"
        )
    src = np.repeat(np.arange(n), np.diff(adjacency.indptr))
    return {
        "edge_index": np.stack((src, adjacency.indices)),
        **sparse_parts(x),
        "y": y.astype(np.int64),
        "n_nodes": np.array(n),
    }


def triples(files: Sequence[Path]) -> Arrays:
    """The arrays of a tar.gz archive with ``train.txt``, ``valid.txt`` and ``test.txt``, whose
    lines are head, relation and tail; both kinds of names are numbered by first appearance in the
    archive.
    """
    (path,) = files
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    rows: list[tuple[int, int, int, int]] = []
    parts = set[str]()
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                part = Path(member.name).name
                text = archive.extractfile(member)
                if part not in TRIPLE_PARTS or text is None:
                    continue
                parts.add(part)
                for line in lines_of(text):
                    head, relation, tail = line.split("\t")
                    rows.append(
                        (
                            entities.setdefault(head, len(entities)),
                            relations.setdefault(relation, len(relations)),
                            entities.setdefault(tail, len(entities)),
                            TRIPLE_PARTS.index(part),
                        )
                    )
    except DAMAGED as error:
        raise FormatError(
            f"{path}: expected an archive of triples, a head, relation and tail a line ({error});"
            f" {AGAIN}"
        ) from error
    missing = [part for part in TRIPLE_PARTS if part not in parts]
    if missing:
        raise FormatError(f"{path}: the archive has no {' and no '.join(missing)}; {AGAIN}")
    src, kind, dst, split = np.array(rows, np.int64).reshape(-1, 4).T
    return {
        "edge_index": np.stack((src, dst)),
        "edge_type": kind,
        "edge_split": split,
        "entity_names": np.array(list(entities)),
        "relation_names": np.array(list(relations)),
    }


def lines_of(file: IO[bytes]) -> list[str]:
    """Lines of a text in UTF-8 that end as on any system, without empty ones."""
    lines = str(file.read(), "utf-8").split("\n")
    return [line.removesuffix("\r") for line in lines if line.strip()]


def ratings(files: Sequence[Path]) -> Arrays:
    """The arrays of a compressed table of ratings without a header: source, target, rating and
    time; edges are sorted by time, nodes by their original numbers.
    """
    (path,) = files
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = [[float(word) for word in row] for row in csv.reader(file)]
        table = np.array(rows, np.float64).reshape(len(rows), 4)
    except DAMAGED as error:
        raise FormatError(
            f"{path}: expected four numbers a line, source, target, rating and time ({error});"
            f" {AGAIN}"
        ) from error
    table = table[np.argsort(table[:, 3], kind="stable")]
    ids, ends = np.unique(table[:, :2].astype(np.int64), return_inverse=True)
    return {
        "edge_index": ends.reshape(-1, 2).T,
        "edge_attr": table[:, 2:],
        "orig_id": ids,
    }


FORMS: dict[str, Callable[[Sequence[Path]], Arrays]] = {
    "planetoid": planetoid,
    "attributed": attributed,
    "triples": triples,
    "ratings": ratings,
}


def convert(form: str, files: Sequence[Path], to: BinaryIO, meta: dict[str, Any]) -> None:
    """Write original files as an npz file.

    Args:
        form: Their format, one of ``FORMS``.
        files: All files of the data set, in the order of the list of its sources.
        to: The npz file, open to write.
        meta: What the file says about itself.

    Raises:
        FormatError: A file is missing, damaged or of another format.
    """
    arrays = FORMS[form](files)
    np.savez_compressed(to, **arrays, meta=np.array(to_json(meta)))
