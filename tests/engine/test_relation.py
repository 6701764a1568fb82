"""Relations: a layer sums over edges made for the batch, alone and beside the stored ones."""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.view import scored_pairs
from graphtheta.engine.view.level import Level, full_pass
from graphtheta.engine.view.scored_pairs import PairPlan, ScoredPairs
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ColumnError, ViewError
from graphtheta.ops import Parameter, Tape
from graphtheta.ops.autodiff.space import RowSpace

GRAPH = graphs.random_graph()
N = GRAPH.n_nodes
# membership of each node in the group that node 5 * (v // 5) stands for
HEAD = np.arange(N) // 5 * 5


class Readout(Model):
    """One layer that sums what arrives."""

    def __init__(self, weighted=False):
        self.layer = Layer()
        self.w = Parameter(np.linspace(-1, 1, 4 * 3).reshape(4, 3))
        if weighted:
            self.layer.gather = lambda edge: edge.src.h * edge.weight[..., None]

    def forward(self, graph):
        return self.layer(graph, gt.matmul(graph.x, self.w))


def view_of(p, beside_edges):
    """The view whose only level is the membership relation, after the stored edges or alone."""
    # not where either end is at home
    nodes = np.arange(p.halo_comm.rank, N, p.halo_comm.size)
    made = PairPlan(p, ScoredPairs(nodes, HEAD[nodes], nodes, None, np.zeros(len(nodes)))).level(
        None, p.n_masters
    )
    stored = [full_pass(p, p.relations[EDGE], False)] if beside_edges else []
    level = Level(p.n_masters, p.n_masters, [*stored, *made.passes], "in")
    return GraphView(p, [level], None, RowSpace(p.masters))


@pytest.mark.parametrize("beside_edges", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_a_layer_sums_over_a_relation_made_for_the_batch(size, beside_edges):
    matrix = np.zeros((N, N))
    np.add.at(matrix, (HEAD, np.arange(N)), 1)
    if beside_edges:
        np.add.at(matrix, (GRAPH.dst, GRAPH.src), 1)
    x, seed = GRAPH.x.astype(float), np.random.default_rng(0).standard_normal((N, 3))

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        model = Readout()
        with Tape(all_sum=comm.all_sum) as tape:
            out = model(view_of(p, beside_edges))
        grads = tape.backward(out, seed[p.masters])
        np.testing.assert_allclose(out.value, (matrix @ x @ model.w.value)[p.masters])
        np.testing.assert_allclose(comm.all_sum(grads.of(model.w)), x.T @ matrix.T @ seed)

    run_simulated(size, program)


def test_more_pairs_than_their_sort_can_number_are_refused(monkeypatch):
    most = scored_pairs.MOST_PAIRS
    # three kinds of ends, and rows of 31 bits
    assert (3 << 31 | (1 << 31) - 1) << most.bit_length() < 1 << 63
    monkeypatch.setattr(scored_pairs, "MOST_PAIRS", N - 1)
    with pytest.raises(ViewError, match=f"{N} pairs of nodes on one worker are more than {N - 1};"):
        run_simulated(1, lambda comm: view_of(build_partition(GRAPH, comm), False))


def test_edges_made_for_the_batch_have_no_stored_values():
    p = run_simulated(1, lambda comm: build_partition(GRAPH, comm, dtype=np.float64))[0]
    view = view_of(p, beside_edges=True)
    assert not view.levels[0].columns and [
        sweep.relation.name for sweep in view.levels[0].passes
    ] == ["edge", "pair"]
    np.testing.assert_array_equal(
        view.levels[0].gid,
        np.concatenate((p.edge_gid, np.lexsort((np.arange(N), p.directory.locate(HEAD)[1])))),
    )
    with Tape(), pytest.raises(ColumnError, match=r"gather of Layer reads edge\.weight"):
        Readout(weighted=True)(view)
