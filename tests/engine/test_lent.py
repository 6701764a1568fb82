"""Features of the whole graph in the first pass, and wide ones of a batch: products read them where
they are, and give the bits of a copy.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.models import GAT, GCN, SAGE
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.autodiff.primitive import PRIMITIVES
from graphtheta.ops.autodiff.stored import WIDE, StoredRows
from graphtheta.ops.parallel.pool import set_threads, threads
from graphtheta.ops.rows.products import long_product, product
from graphtheta.ops.rows.row_list import RowList

# products of rows are not of the back end
pytestmark = pytest.mark.reference

N, D = 3000, 48
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, D)).astype(np.float32)
GRAPH = graphs.random_graph(N, 9000, x=X)


class Twice(gt.Model):
    """Products of the features in two layers, and where asked their sum along the edges."""

    def __init__(self, d_in, d_out, d_edge, first="sage", wider=False):
        width = 2 * D if wider else 16
        self.first = {"sage": SAGE, "gcn": GCN, "gat": GAT}[first](d_in, width)
        self.skip = gt.Linear(d_in, width)
        self.last = GCN(width, d_out)

    def forward(self, graph):
        return self.last(graph, gt.relu(self.first(graph, graph.x) + self.skip(graph.x)))


def trained(epochs=3, **how):
    """Losses, weights and the column of the features after some epochs."""

    def make(d_in, d_out, d_edge):
        return Twice(d_in, d_out, d_edge, **how)

    trainer = gt.Trainer(make, GRAPH, strategy="global", seed=2)
    losses = [trainer.train_epoch(epoch) for epoch in range(epochs)]
    return losses, trainer.model.state(), trainer.setup.partition.node.column("x")


def products(monkeypatch):
    """How often a product of a row list ran."""
    seen = []
    forward = PRIMITIVES["matmul"].forward

    def watched(x, w):
        seen.append(isinstance(x, RowList))
        return forward(x, w)

    monkeypatch.setattr(PRIMITIVES["matmul"], "forward", watched)
    return seen


@pytest.mark.parametrize("n", [1, 5, 1023, 1024, 3000, 40000])
def test_products_of_a_row_list_have_the_bits_of_a_copy(n, rng):
    x, w, g = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((n, 40), (40, 24), (n, 24))
    )
    rows = RowList(x, rng.permutation(n))
    before = threads()
    try:
        for count in (1, before):
            set_threads(count)
            np.testing.assert_array_equal(product(rows, w), product(x[rows.rows], w))
            np.testing.assert_array_equal(long_product(rows, g), long_product(x[rows.rows], g))
    finally:
        set_threads(before)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "how", [{"first": "sage"}, {"first": "gcn"}, {"first": "gat"}, {"first": "sage", "wider": True}]
)
def test_training_has_the_bits_of_a_copy(how, monkeypatch):
    seen = products(monkeypatch)
    losses, weights, column = trained(**how)
    assert any(seen) != how.get("wider", False), (
        "edges read the copy of features that are summed before the product"
    )
    # later passes read the copy
    assert column.lent() is None and column.listed(np.arange(2)).rows.tolist() == [0, 1]
    monkeypatch.setattr(MemoryColumn, "lent", lambda column: None)
    seen.clear()
    others, copied, _ = trained(**how)
    assert not any(seen)
    assert losses == others
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, copied[name])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_batches_of_wide_features_have_the_bits_of_a_copy(model, dropout, monkeypatch):
    # with dropout, the loop of it is what reads them
    monkeypatch.setattr(fusion, "SMALLEST", 0)
    wide = RNG.standard_normal((N, WIDE // 4)).astype(np.float32)
    graph = graphs.random_graph(N, 9000, x=wide)
    read = []
    copy = StoredRows._copy

    def watched(rows):
        read.append(rows.shape[0]) if rows.name == "node.x" else None
        return copy(rows)

    monkeypatch.setattr(StoredRows, "_copy", watched)

    def losses():
        trainer = gt.Trainer(
            model, graph, strategy="mini", batch_size=100, fanout="4,4", dropout=dropout, seed=2
        )
        read.clear()
        return [trainer.train_epoch(epoch) for epoch in range(2)]

    found = losses()
    assert not any(read)
    monkeypatch.setattr(MemoryColumn, "listed", lambda column, rows: None)
    assert losses() == found
    assert any(read)


def test_one_pass_copies_no_features(monkeypatch):
    monkeypatch.setattr(
        MemoryColumn, "whole", lambda column: pytest.fail("the features were copied")
    )
    losses, _, column = trained(epochs=1)
    assert np.isfinite(losses).all()
    order = column.listed(np.arange(N)).rows
    np.testing.assert_array_equal(np.sort(order), np.arange(N))
    assert not np.array_equal(order, np.arange(N))


def test_a_column_is_lent_once():
    order = RNG.permutation(N)
    column = MemoryColumn(X, order)
    np.testing.assert_array_equal(column.lent()[:], X[order])
    assert column.lent() is None
    begun = column.read_begin(None)
    np.testing.assert_array_equal(begun.end(), X[order])
    assert column.read_begin(None).end() is begun.end()
    assert MemoryColumn(X).lent() is None
