"""Clusters by libraries: numbered without gaps, the same for the same seed, and refused with a
remedy.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from graphtheta.errors import ConfigError, FormatError, PartitionError
from graphtheta.partitioners.communities import find_clusters, neighbours

# six cliques of five nodes, one edge between neighbours
INSIDE = [(5 * c + i, 5 * c + j) for c in range(6) for i in range(5) for j in range(5)]
EDGES = np.array(INSIDE + [(5 * c, 5 * c + 5) for c in range(5)])
SRC, DST = EDGES.T


def groups(found):
    return {frozenset(np.flatnonzero(found == c).tolist()) for c in range(found.max() + 1)}


CLIQUES = {frozenset(range(5 * c, 5 * c + 5)) for c in range(6)}


@pytest.mark.parametrize(
    "method, n, library",
    [
        ("louvain", 0, "networkit"),
        ("louvain", 6, "networkit"),
        ("leiden", 0, "networkit"),
        ("metis", 6, "pymetis"),
    ],
)
def test_cliques_are_found(method, n, library):
    pytest.importorskip(library)
    found = find_clusters(SRC, DST, 30, method, n)
    assert found.dtype == np.int64 and groups(found) == CLIQUES
    np.testing.assert_array_equal(found, find_clusters(DST, SRC, 30, method, n))
    np.testing.assert_array_equal(found, find_clusters(SRC, DST, 30, method, n, seed=0))


def test_neighbours_are_ascending_each_once_without_loops():
    src = np.array([3, 0, 0, 0, 2, 1])
    dst = np.array([0, 3, 1, 1, 2, 3])
    near = neighbours(src, dst, 5)
    assert near.indptr.tolist() == [0, 2, 4, 4, 6, 6] and near.indices.tolist() == [
        1,
        3,
        0,
        3,
        0,
        1,
    ]


def test_metis_stopped_by_a_signal_is_named(monkeypatch):
    pymetis = pytest.importorskip("pymetis")

    def stopped(*_, **__):
        raise RuntimeError("Caught an unknown exception!")

    monkeypatch.setattr(pymetis, "part_graph", stopped)
    with pytest.raises(PartitionError, match="SIGTERM"):
        find_clusters(SRC, DST, 30, "metis", 6)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_communities_are_packed_evenly(n):
    pytest.importorskip("networkit")
    found = find_clusters(SRC, DST, 30, "louvain", n)
    sizes = np.bincount(found)
    assert len(sizes) == n and sizes.max() - sizes.min() <= 5
    assert all(len(set(found[list(c)].tolist())) == 1 for c in CLIQUES)


@pytest.mark.parametrize(
    "method, n, library",
    [
        ("louvain", 0, "networkit"),
        ("leiden", 0, "networkit"),
        ("metis", 1, "pymetis"),
        ("metis", 3, "pymetis"),
    ],
)
def test_graphs_without_edges(method, n, library):
    pytest.importorskip(library)
    none = np.zeros(0, np.int64)
    found = find_clusters(none, none, 4, method, n)
    assert found.shape == (4,) and found.min() == 0 and len(np.unique(found)) == found.max() + 1
    assert find_clusters(np.array([0]), np.array([0]), 1, method, min(n, 1)).tolist() == [0]


def test_settings_of_the_library_are_left_alone():
    networkit = pytest.importorskip("networkit")
    before = networkit.getMaxNumberOfThreads()
    try:
        networkit.setNumberOfThreads(2)
        find_clusters(SRC, DST, 30)
        assert networkit.getMaxNumberOfThreads() == 2
    finally:
        networkit.setNumberOfThreads(before)


def test_from_a_file(tmp_path):
    numbers = np.arange(30) // 10 * 4 + 7
    np.save(tmp_path / "c.npy", numbers)
    np.testing.assert_array_equal(
        find_clusters(SRC, DST, 30, str(tmp_path / "c.npy")), np.arange(30) // 10
    )
    for bad, told in (
        (numbers[:5], "expected one integer for each of the 30 nodes"),
        (numbers * 0.5, "dtype float64, expected integers"),
        (numbers[:, None], "expected 1 axes"),
    ):
        np.save(tmp_path / "c.npy", bad)
        with pytest.raises(FormatError, match=rf"c\.npy.*{told}"):
            find_clusters(SRC, DST, 30, str(tmp_path / "c.npy"))
    np.savez(tmp_path / "archive.npz", numbers)
    for damaged in (b"nothing", b"", (tmp_path / "archive.npz").read_bytes()):
        (tmp_path / "c.npy").write_bytes(damaged)
        with pytest.raises(
            FormatError, match=r"c\.npy: the array of cluster numbers cannot be read"
        ):
            find_clusters(SRC, DST, 30, str(tmp_path / "c.npy"))


def test_errors_name_the_remedy(monkeypatch):
    with pytest.raises(ConfigError, match="neither louvain nor leiden nor metis nor a file"):
        find_clusters(SRC, DST, 30, "walktrap")
    monkeypatch.setitem(sys.modules, "networkit", None)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ConfigError, match=r"need networkit: pip install"):
        find_clusters(SRC, DST, 30)
    with pytest.raises(ConfigError, match=r"need pymetis: pip install"):
        find_clusters(SRC, DST, 30, "metis", 3)


def test_bad_numbers():
    pytest.importorskip("networkit")
    with pytest.raises(ConfigError, match="fewer than the 40 clusters asked for"):
        find_clusters(SRC, DST, 30, "louvain", 40)
    pytest.importorskip("pymetis")
    for n in (0, 31):
        with pytest.raises(ConfigError, match=f"1 to 30: set --clusters .got {n}"):
            find_clusters(SRC, DST, 30, "metis", n)
