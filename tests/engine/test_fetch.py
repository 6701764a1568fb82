"""Features by global id: positional replies, a union of views, dense and sparse columns, and every
directory.
"""

from __future__ import annotations

from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.directory import TableDirectory
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.train.fetch import Features
from graphtheta.errors import PartitionError

RNG = np.random.default_rng(4)
DENSE = graphs.random_graph(60, 200).replace(
    node_columns={"wide": RNG.integers(0, 99, (60, 3)).astype(np.int16)}
)
SPARSE = DENSE.replace(x=sp.csr_array((RNG.random((60, 9)) < 0.3) * RNG.random((60, 9))))


def views(comm: Comm, n: int) -> list[np.ndarray]:
    """Ids of some views of a worker, in any order; one worker has none."""
    rng = np.random.default_rng(comm.rank)
    return (
        [rng.permutation(60)[: rng.integers(1, 40)] for _ in range(n)]
        if comm.rank != 1
        else [np.zeros(0, np.int64)] * n
    )


@pytest.mark.parametrize("graph", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_rows_of_several_views_are_those_of_the_graph(graph: Any, size: int) -> None:
    def program(comm: Comm, directory: Any) -> int:
        partition = build_partition(graph, comm, dtype=np.float64, directory=directory)
        features = Features(partition)
        before = comm.ledger.receivers(comm.size).sum(axis=0)[1]
        for n in (1, 3):
            ids = views(comm, n)
            for own, found in zip(ids, features.fetch(ids), strict=True):
                assert set(found) == {"x", "wide"}
                x = found["x"].toarray() if sp.issparse(found["x"]) else found["x"]
                np.testing.assert_array_equal(
                    x, (graph.x.toarray() if sp.issparse(graph.x) else graph.x)[own]
                )
                np.testing.assert_array_equal(found["wide"], graph.node_columns["wide"][own])
        return int(comm.ledger.receivers(comm.size).sum(axis=0)[1] - before)

    run_simulated(size, program, None)
    run_simulated(size, program, TableDirectory)


def test_a_row_that_two_views_need_is_sent_once() -> None:
    def program(comm: Comm, n: int) -> int:
        features = Features(build_partition(DENSE, comm, dtype=np.float64))
        before = comm.ledger.receivers(comm.size).sum(axis=0)[0]
        features.fetch([np.arange(60)] * n)
        return int(comm.ledger.receivers(comm.size).sum(axis=0)[0] - before)

    assert run_simulated(3, program, 1) == run_simulated(3, program, 4)


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(PartitionError, match="no node 60"):
        run_simulated(
            2, lambda comm: Features(build_partition(DENSE, comm)).fetch([np.array([3, 60])])
        )
