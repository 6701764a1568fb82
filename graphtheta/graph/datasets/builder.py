"""Builds the graphs of named datasets: features, targets and splits from the arrays of a file.

Each function takes the path of its file and its options, and returns a graph.
:mod:`graphtheta.graph.datasets.dataset` finds the file and applies the options common to all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.npy import AGAIN
from graphtheta.base.rng import Purpose, integers, key
from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import standardise
from graphtheta.graph.datasets.generate import random_code, random_features
from graphtheta.graph.datasets.reader_npz import ArrayFile, read_edges, read_meta, read_npz
from graphtheta.graph.splits.nodes import masks_of
from graphtheta.graph.splits.regions import region_split

ATOM = (
    "atomic_number",
    "chirality",
    "degree",
    "charge",
    "hydrogens",
    "radicals",
    "hybridisation",
    "aromatic",
    "ring",
)
BOND = ("type", "stereo", "conjugated")
# an element with fewer atoms in training molecules is "other"
COMMON = 100
CODE_WIDTH = 32
# largest number of values of a category
MOST_VALUES = 256
# hash buckets for majors, dorms or schools
BUCKETS = 16
FIRST_YEAR, LAST_YEAR = 2004, 2009


def plain(path: Path) -> Graph:
    """The graph as stored."""
    return read_npz(path)


def bag_of_words(path: Path) -> Graph:
    """The graph without self loops and with word counts turned to 0/1.

    Source: https://github.com/shchur/gnn-benchmark (protocol of Shchur et al.)
    """
    graph = read_npz(path).without_self_loops()
    if graph.x is None:
        raise FormatError(f"{path}: field 'x' (bag of words of each node) is missing; {AGAIN}")
    if isinstance(graph.x, np.ndarray):
        return graph.replace(x=graph.x != 0)
    binary = graph.x.copy()
    binary.data[:] = 1
    return graph.replace(x=binary)


def topology(path: Path, features: int = 0) -> Graph:
    """The graph as stored, with random features if asked for."""
    graph = read_npz(path)
    return graph.replace(x=random_features(graph.n_nodes, features)) if features else graph


def one_hot(column: np.ndarray, where: str) -> np.ndarray:
    """One column for each value that occurs, [n, k] float32.

    Raises:
        FormatError: There are too many values for a category; ``where`` names the file and what the
            column holds.
    """
    values, which = np.unique(column, return_inverse=True)
    if len(values) > MOST_VALUES:
        raise FormatError(
            f"{where} has {len(values)} different values, expected at most {MOST_VALUES}; {AGAIN}"
        )
    return np.eye(len(values), dtype=np.float32)[which.ravel()]


class Molecules(NamedTuple):
    """The arrays of a file: edges, attributes of atoms and bonds, first atom of each molecule, its
    split, and what else is known.
    """

    ends: tuple[np.ndarray, np.ndarray]
    atom: np.ndarray
    bond: np.ndarray
    bounds: np.ndarray
    split: np.ndarray
    meta: dict[str, Any]


def read_molecules(path: Path) -> Molecules:
    """Read and check a file of molecules.

    Raises:
        FormatError: Its arrays do not describe molecules.
    """
    with ArrayFile(path) as file:
        ends = read_edges(file)
        meta = read_meta(file)
        atom = file.read("node_attr", "iu", 2)
        bond = file.read("edge_attr", "iu", 2)
        # values beyond int64 become negative and are rejected below
        bounds = file.read("graph_ptr", "iu", 1).astype(np.int64)
        split = file.read("graph_split", "iu", 1)
    whole = (
        len(bounds) == len(split) + 1
        and bounds[0] == 0
        and bounds[-1] == len(atom)
        and bool((np.diff(bounds) >= 0).all())
    )
    if not whole or atom.shape[1] != len(ATOM) or bond.shape[1] != len(BOND):
        raise FormatError(
            f"{path}: node_attr {list(atom.shape)}, edge_attr {list(bond.shape)}, graph_ptr"
            f" {list(bounds.shape)} and graph_split {list(split.shape)} do not describe molecules;"
            f" {AGAIN}"
        )
    return Molecules(ends=ends, atom=atom, bond=bond, bounds=bounds, split=split, meta=meta)


def atoms(path: Path, hide: str = "") -> Graph:
    """Molecules as one graph; the class of an atom is its element.

    Elements with fewer than 100 atoms in training molecules share the class "other". Features are
    the other eight attributes of an atom, one-hot; edge attributes are type, stereo and
    conjugation of a bond, one-hot. The split is by molecule and scaffold.

    No attribute determines the element. On the test atoms of mol_tox21, the most frequent element
    is right for 74.2 %, a look-up by the best single attribute (degree, hydrogens included) for
    87.4 %, by all eight for 92.6 %, and by all eight and the bonds of the atom for 96.6 %.

    Args:
        path: The file.
        hide: Names of further attributes to leave out, joined by ``+``: chirality, degree, charge,
            hydrogens, radicals, hybridisation, aromatic, ring.
    """
    hidden = {name for name in hide.split("+") if name}
    if hidden - set(ATOM[1:]):
        unknown = ", ".join(sorted(hidden - set(ATOM[1:])))
        raise ConfigError(
            f"{path.stem}: hide names {unknown}; choose from {', '.join(ATOM[1:])}, joined by '+'"
        )
    ends, atom, bond, bounds, split, meta = read_molecules(path)
    part = np.repeat(split, np.diff(bounds))
    y, elements = element_classes(atom[:, 0], part == 0)
    shown = [
        one_hot(atom[:, i], f"{path}: {name} in node_attr")
        for i, name in enumerate(ATOM)
        if i and name not in hidden
    ]
    x = np.concatenate(shown or [np.ones((len(atom), 1), np.float32)], axis=1)
    attr = np.concatenate(
        [one_hot(bond[:, i], f"{path}: {name} in edge_attr") for i, name in enumerate(BOND)], axis=1
    )
    # the file counts elements from 0 (hydrogen)
    meta |= {
        "class_names": [f"Z={int(z) + 1}" for z in elements] + ["other"],
        "hidden": ["atomic_number", *sorted(hidden)],
    }
    train, val, test = masks_of(part)
    return Graph(
        ends,
        len(atom),
        x=x,
        y=y,
        n_classes=len(elements) + 1,
        edge_attr=attr,
        train=train,
        val=val,
        test=test,
        name=path.stem,
        meta=meta,
        where=str(path),
    )


def element_classes(number: np.ndarray, training: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Classes of atoms, [n], and the common elements; all other elements share the last class."""
    values, count = np.unique(number[training], return_counts=True)
    elements = values[count >= COMMON]
    if not len(elements):
        return np.zeros(len(number), np.int64), elements
    index = np.minimum(np.searchsorted(elements, number), len(elements) - 1)
    return np.where(elements[index] == number, index, len(elements)), elements


def traffic(
    path: Path, target: str = "flow", coordinates: bool = False, regions: int = 64, seed: int = 0
) -> Graph:
    """A road network; the target of each link is its traffic flow.

    Edge attributes are log(1 + capacity), log(1 + length), log(1 + free-flow time), speed, toll
    and the one-hot link type; the two constant columns are left out. Node features are the
    logarithms of in- and out-degree and whether the node is a zone where trips begin and end. All
    are standardised over training links and their ends.

    The target is the flow, standardised over training links; ``meta`` holds ``target_mean`` and
    ``target_deviation`` to undo it. With ``"log"`` it is log(1 + flow), whose error is dominated
    by the tenth of the links without any flow, which no attribute predicts: gradient-boosted trees
    explain 43 % of its variance, and 70 % of that of the flow.

    Flow is conserved at nodes, so that adjacent links leak the target. The split is therefore by
    region: 64 regions of equally many nodes, 60/20/20 %; a link between regions of different parts
    is in no part.

    Args:
        path: The file.
        target: ``"flow"`` or ``"log"``.
        coordinates: Add node coordinates to the features. They identify regions, which does not
            help in unseen ones.
        regions: Number of regions, a power of two.
        seed: Seed of the split.
    """
    if target not in ("flow", "log"):
        raise ConfigError(f"{path.stem}: target is 'flow' or 'log', not {target!r}")
    with ArrayFile(path) as file:
        src, dst = read_edges(file)
        meta = read_meta(file)
        attr = file.read("edge_attr", "f", 2).astype(np.float64)
        position = file.read("node_xy", "f", 2)
        flow = file.read("edge_target_flow", "f", 1)
    if attr.shape != (len(src), 8) or len(flow) != len(src):
        raise FormatError(
            f"{path}: edge_attr {list(attr.shape)} and edge_target_flow {list(flow.shape)} do not"
            f" fit {len(src)} links of 8 columns; {AGAIN}"
        )
    n = len(position)
    graph = Graph((src, dst), n, name=path.stem, meta=meta, where=str(path))
    train, val, test = region_split(graph, position, n_regions=regions, seed=seed)
    kind = attr[:, 7]
    columns = np.concatenate(
        (np.log1p(attr[:, :3]), attr[:, 5:7], one_hot(kind, f"{path}: link type in edge_attr")),
        axis=1,
    )
    # links of type 3 connect zones and roads; a zone has no others
    zone = np.zeros(n)
    zone[dst[kind == 3]] = 1
    zone[dst[kind != 3]] = 0
    x = np.stack([*(np.log1p(np.bincount(end, minlength=n)) for end in (dst, src)), zone], axis=1)
    x = np.concatenate((x, position), axis=1) if coordinates else x
    at_training = np.zeros(n, bool)
    at_training[src[train]] = at_training[dst[train]] = True
    y = np.log1p(flow) if target == "log" else flow.astype(np.float64)
    mean = float(y[train].mean())
    deviation = float(y[train].std())
    meta |= {"target": target, "target_mean": mean, "target_deviation": deviation}
    return graph.replace(
        x=standardise(x, at_training),
        edge_attr=standardise(columns, train),
        edge_y=(y - mean) / deviation,
        edge_train=train,
        edge_val=val,
        edge_test=test,
        meta=meta,
        where=str(path),
    )


def ratings(path: Path, target: str = "rating") -> Graph:
    """Trust ratings between users as edges, split by time (first 60 %, next 20 %, last 20 %).

    The target is the rating divided by 10, or with ``target="sign"`` whether it is positive. The
    rating is not among the features: the edge attribute is the time, in seconds also in the column
    "time"; the node features are the logarithms of in- and out-degree in the training part, and a
    constant.
    """
    if target not in ("rating", "sign"):
        raise ConfigError(f"{path.stem}: target is 'rating' or 'sign', not {target!r}")
    with ArrayFile(path) as file:
        src, dst = read_edges(file)
        meta = read_meta(file)
        attr = file.read("edge_attr", "f", 2)
        ids = file.read("orig_id", "iu", 1)
    if attr.shape != (len(src), 2):
        raise FormatError(
            f"{path}: edge_attr {list(attr.shape)} does not hold rating and time of {len(src)}"
            f" edges; {AGAIN}"
        )
    graph = Graph((src, dst), len(ids), node_ids=ids, name=path.stem, meta=meta, where=str(path))
    rank = np.empty(len(src), np.int64)
    rank[np.argsort(attr[:, 1], kind="stable")] = np.arange(len(src))
    train, val, test = masks_of(
        np.searchsorted([0.6 * len(src), 0.8 * len(src)], rank, side="right")
    )
    degrees = [np.log1p(np.bincount(end[train], minlength=len(ids))) for end in (dst, src)]
    y = attr[:, 0] / 10 if target == "rating" else attr[:, 0] > 0
    x = np.stack([*degrees, np.ones(len(ids))], axis=1)
    times = {"time": attr[:, 1].astype(np.int64)}
    return graph.replace(
        x=x,
        edge_attr=standardise(attr[:, 1:], train),
        edge_y=y,
        edge_columns=times,
        edge_train=train,
        edge_val=val,
        edge_test=test,
        where=str(path),
    )


def knowledge(path: Path, features: int = 32, relations: str = "auto") -> Graph:
    """A knowledge graph, with the published split of its edges.

    Node features are random. The edge attribute encodes the relation: one-hot, or a code of 32
    random signs if there are more than 64 relations; ``relations`` is ``auto``, ``onehot``,
    ``code`` or ``none``.
    """
    if relations not in ("auto", "onehot", "code", "none"):
        raise ConfigError(
            f"{path.stem}: relations is auto, onehot, code or none, not {relations!r}"
        )
    with ArrayFile(path) as file:
        ends = read_edges(file)
        meta = read_meta(file)
        kind = file.read("edge_type", "iu", 1)
        split = file.read("edge_split", "iu", 1)
        ids = file.read("entity_names", "U", 1)
        names = file.read("relation_names", "U", 1)
    if len(kind) and (kind.min() < 0 or kind.max() >= len(names)):
        raise FormatError(
            f"{path}: edge_type runs from {kind.min()} to {kind.max()}, but there are {len(names)}"
            f" relation_names; {AGAIN}"
        )
    how = ("onehot" if len(names) <= 64 else "code") if relations == "auto" else relations
    table = (
        np.eye(len(names), dtype=np.float32)
        if how == "onehot"
        else random_code(len(names), CODE_WIDTH)
        if how == "code"
        else None
    )
    train, val, test = masks_of(split)
    x = random_features(len(ids), features) if features else None
    return Graph(
        ends,
        len(ids),
        x=x,
        edge_attr=None if table is None else table[kind],
        edge_columns={"relation": kind},
        edge_train=train,
        edge_val=val,
        edge_test=test,
        node_ids=ids,
        name=path.stem,
        meta={**meta, "relation_names": names.tolist()},
        where=str(path),
    )


def colleges(path: Path, target: str = "year", colleges: int = 89) -> Graph:
    """Friendships at American colleges; the class of a person is graduation year or gender.

    Features are one-hot: status, gender (if not the target), year (if not the target), and majors,
    dorm and high school hashed with the college into 16 columns each; a missing entry has no
    column. Nodes without the target are unlabelled.

    Args:
        path: The packed file.
        target: ``"year"`` (2004 to 2009, six classes) or ``"gender"`` (two).
        colleges: Number of colleges, of 89 in the order of the file.
    """
    if target not in ("year", "gender"):
        raise ConfigError(f"{path.stem}: target is 'year' or 'gender', not {target!r}")
    with ArrayFile(path) as file:
        degree = file.read("upper_degree", "iu", 1).astype(np.int64)
        delta = file.read("delta", "iu", 1)
        info = file.read("info", "iu", 2)
        bounds = file.read("school_ptr", "iu", 1).astype(np.int64)
    if not 1 <= colleges < len(bounds):
        raise ConfigError(f"{path.stem}: colleges must lie in 1..{len(bounds) - 1}, got {colleges}")
    whole = bounds[0] == 0 and bounds[-1] == len(degree) and bool((np.diff(bounds) >= 0).all())
    whole &= degree.min(initial=0) >= 0 and degree.max(initial=0) <= len(delta)
    if not whole or info.shape != (len(degree), 7) or degree.sum() != len(delta):
        raise FormatError(
            f"{path}: upper_degree, delta, info and school_ptr do not fit together; {AGAIN}"
        )
    n = int(bounds[colleges])
    src, dst = unpack(degree[:n], delta[: degree[:n].sum()], str(path))
    info = info[:n].astype(np.int64)
    college = np.searchsorted(bounds, np.arange(n), side="right") - 1
    n_years = LAST_YEAR - FIRST_YEAR + 1
    year = np.where(
        (info[:, 5] >= FIRST_YEAR) & (info[:, 5] <= LAST_YEAR), info[:, 5] - FIRST_YEAR + 1, 0
    )
    label, other = (year, info[:, 1]) if target == "year" else (info[:, 1], year)
    columns = [np.minimum(info[:, 0], 6) + 1, other]
    for i in (2, 3, 4, 6):
        # codes are local to a college
        code = college << 32 | info[:, i] & 0xFFFFFFFF
        columns.append(
            np.where(info[:, i] != 0, 1 + integers(key(0, Purpose.DATA, i), code, BUCKETS), 0)
        )
    widths = [7, 2 if target == "year" else n_years] + [BUCKETS] * 4
    if info[:, :2].min(initial=0) < 0 or info[:, 1].max(initial=0) > 2:
        raise FormatError(
            f"{path}: field 'info' has a status below 0 or a gender outside 0..2; {AGAIN}"
        )
    return Graph(
        (src, dst),
        n,
        x=indicator(columns, widths),
        y=label - 1,
        n_classes=n_years if target == "year" else 2,
        name="facebook100",
        meta={"kind": f"node classification of {target}", "colleges": colleges},
        where=str(path),
    )


def unpack(degree: np.ndarray, delta: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Decode delta-coded adjacency lists into both directions of the edges, sorted by source.

    Args:
        degree: Number of neighbours with a higher number, [n].
        delta: Differences between successive such neighbours, the first of a node to the node
            itself, [n_pairs].
        where: The file, for errors.

    Returns:
        Sources and destinations, [2 * n_pairs] int64 each.
    """
    import scipy.sparse as sp

    n = len(degree)
    bounds = np.concatenate(([0], np.cumsum(degree)))
    total = np.concatenate(([0], np.cumsum(delta, dtype=np.int64)))
    low = np.repeat(np.arange(n), degree)
    high = total[1:] - total[bounds[low]] + low
    if len(high) and (high.min() < 0 or high.max() >= n):
        bad = int(high.min() if high.min() < 0 else high.max())
        raise FormatError(f"{where}: field 'delta' leads to node {bad} of {n}; {AGAIN}")
    upper = sp.csr_array((np.ones(len(high), np.int8), high, bounds), shape=(n, n))
    # adding the transpose takes linear time; sorting the edges would not
    both = upper + sp.csr_array(upper.T)
    return np.repeat(np.arange(n), np.diff(both.indptr)), both.indices.astype(np.int64)


def indicator(columns: list[np.ndarray], widths: list[int]) -> Any:
    """One-hot columns side by side as CSR; 0 in a column means no entry."""
    import scipy.sparse as sp

    offset = np.cumsum([0, *widths])
    index = np.stack(
        [np.where(c > 0, c - 1 + o, -1) for c, o in zip(columns, offset, strict=False)], axis=1
    )
    filled = index >= 0
    bounds = np.concatenate(([0], np.cumsum(filled.sum(axis=1))))
    return sp.csr_array(
        (np.ones(int(bounds[-1]), np.float32), index[filled], bounds),
        shape=(len(index), int(offset[-1])),
    )
