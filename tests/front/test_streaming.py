"""Partitioners that workers compute together, each from its share of the edges: equal to one worker alone, without arrays over all nodes."""
from __future__ import annotations

import graphs
import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.division import divide
from graphtheta.engine.partition.edge_source import GraphEdges
from graphtheta.engine.partition.partitioner import EDGE_PLACEMENTS, PARTITIONERS, assign
from graphtheta.errors import FormatError, PartitionError
from graphtheta.partitioners.report import OneOf
from graphtheta.streaming.shared import SharedPartitioner, SharedPlacement

NODES = [name for name, kind in PARTITIONERS.items() if issubclass(kind, SharedPartitioner)]
EDGES = [name for name, kind in EDGE_PLACEMENTS.items() if issubclass(kind, SharedPlacement)]
ODD = {"some": graphs.random_graph(40, 160), **graphs.odd_graphs()}


def alone(graph, size, masters="hash", placement="1d-src"):
    """Owners of all nodes and workers of all edges, computed by one worker."""
    source = GraphEdges(graph)
    owners, workers = assign(source, OneOf(size), placement, masters, 7)
    return owners, np.concatenate([np.zeros(0, np.int32), *(workers(chunk) for chunk in source.chunks())])


def together(graph, size, masters="hash", placement="1d-src", chunk=17):
    """The same by as many workers as there are parts."""
    def program(comm):
        division = divide(GraphEdges(graph, chunk), comm, placement, masters, 7)
        owners = division.owner(np.arange(graph.n_nodes))
        dealt = list(division.dealt)
        ids = np.concatenate([np.zeros(0, np.int64), *(edges.ids for edges, _ in dealt)])
        return owners, ids, np.concatenate([np.zeros(0, np.int32), *(workers for _, workers in dealt)])

    ranks = run_simulated(size, program)
    for owners, _, _ in ranks:
        np.testing.assert_array_equal(owners, ranks[0][0])
    ids, workers = (np.concatenate([rank[k] for rank in ranks]) for k in (1, 2))
    np.testing.assert_array_equal(ids, np.arange(graph.n_edges))
    return ranks[0][0], workers


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_many_workers_find_what_one_does(size, tmp_path):
    pairs = [(masters, "1d-src") for masters in NODES] + [("block", placement) for placement in EDGES]
    assert {"degree-block", "gemini", "file"} <= set(NODES) and "hybrid" in EDGES
    for name, graph in ODD.items():
        np.save(tmp_path / "owners.npy", np.arange(graph.n_nodes) * 7 % size)
        for masters, placement in pairs if size <= graph.n_nodes else []:
            pair = f"file:path={tmp_path}/owners.npy" if masters == "file" else masters, placement + ":threshold=3" * (placement == "hybrid")
            for x, y in zip(together(graph, size, *pair), alone(graph, size, *pair), strict=True):
                np.testing.assert_array_equal(x, y, f"{name} {pair}")


def test_no_worker_reads_more_than_its_share(monkeypatch):
    """Also the owners and degrees that it holds are those of a block of ids."""
    monkeypatch.setattr(GraphEdges, "chunks", lambda self: pytest.fail("reads all edges"))
    for masters in ("degree-block", "gemini"):
        together(ODD["some"], 3, masters, "hybrid:threshold=3")


def test_errors_of_a_file_are_raised_on_all_workers(tmp_path):
    np.save(tmp_path / "owners.npy", np.zeros(39, np.int64))
    with pytest.raises(FormatError, match="expected the owners, one integer for each of the 40 nodes"):
        together(ODD["some"], 3, f"file:path={tmp_path}/owners.npy")
    np.save(tmp_path / "owners.npy", np.arange(40))
    with pytest.raises(PartitionError, match="expected 0 to 2"):
        together(ODD["some"], 3, f"file:path={tmp_path}/owners.npy")
