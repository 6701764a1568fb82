"""Stored rows that edges read where they are: the numbers of a copy to the bit, and no copy."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as api
import graphtheta.ops as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.store.cached import CachedColumn, RowCache
from graphtheta.engine.store.column import listed_rows
from graphtheta.engine.store.mapped import MappedColumn
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.quantised import QuantisedColumn
from graphtheta.engine.store.selected import SelectedColumn
from graphtheta.engine.store.store import PrefixReader
from graphtheta.engine.view.expand import induced, k_hop_view
from graphtheta.graph.store.from_graph import write_store
from graphtheta.models.gcn import GCN
from graphtheta.models.gin import GIN
from graphtheta.models.mlp import MLP
from graphtheta.models.sage import SAGE
from graphtheta.ops import Parameter, Tape, Var
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.autodiff.stored import StoredRows
from graphtheta.ops.edge.aggregator import SUM
from graphtheta.ops.edge.backend import fused
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.edge.hoist import WIDE
from graphtheta.ops.edge.plan import plan, planner_notes
from graphtheta.ops.edge.program import split
from graphtheta.ops.edge.symbolic import record
from graphtheta.ops.rows.row_list import RowList, located
from graphtheta.samplers.neighbour import NeighbourSampler

D = 40
HIDDEN = 24
N = 90
RNG = np.random.default_rng(5)
GRAPH = graphs.random_graph(N, 900, x=RNG.standard_normal((N, D)))


class Both(Layer):
    """Reads wide stored columns at both ends, with parameters on the edges."""

    def __init__(self, d_in, d_out):
        self.scale = Parameter.ones(d_in)
        self.weight = Parameter.glorot(d_in, d_out)

    def gather(self, edge):
        gate = gt.sigmoid(edge.src.x * self.scale - edge.dst.h)
        return gate * edge.src.h

    def apply(self, node, total):
        return gt.matmul(total, self.weight)


LAYERS = {
    "gcn": GCN,
    "gcn row": lambda a, b: GCN(a, b, norm="row"),
    "sage": SAGE,
    "sage max": lambda a, b: SAGE(a, b, aggregator="max"),
    "gin": lambda a, b: GIN(MLP(a, (b,), b)),
    "both": Both,
}
VIEWS = {
    "sampled": lambda part, layers: k_hop_view(
        part, part.masters < 9, layers, sampler=NeighbourSampler((4,), seed=2)
    ),
    "whole": lambda part, layers: k_hop_view(part, part.masters < 9, layers),
    "cluster": lambda part, layers: induced(part, part.masters < 50, layers),
}


class One(Model):
    """One layer over the features."""

    def __init__(self, make):
        self.layer = make(D, HIDDEN)

    def forward(self, graph):
        return self.layer(graph, graph.x)


def passed(comm, name, view="sampled", placement=graphs.PLACEMENTS[0], backend="fused"):
    """Outputs, gradients of the parameters, and the program, of a batch on this rank."""
    part = build_partition(GRAPH, comm, *placement)
    with init_scope(3):
        model = One(LAYERS[name])
    made = VIEWS[view](part, probe(model, part).layers)
    # the sum comes first wherever the layer has a choice
    for level in made.levels:
        level.counts = level.counts._replace(rows_in=10**6, rows_out=level.counts.rows_out + 1)
    active = ActiveGraph(made)
    with backend_scope(backend), Tape(all_sum=comm.all_sum) as tape:
        out = model.run(active)
        found = tape.backward(
            out,
            np.cos(made.space.gid[: made.n_targets, None] * 3 + np.arange(HIDDEN)).astype(
                np.float32
            ),
        )
    return out.value, [found.of(p) for p in model.parameters()], active.supersteps[0]


def copied(monkeypatch):
    monkeypatch.setattr(PrefixReader, "listed", lambda rows, name, n: None)


def variants(monkeypatch):
    """Columns that kernels read in place, by mode."""
    seen = set()
    make = fused._variant

    def watched(**given):
        made = make(**given)
        seen.update((made.mode, *column) for column in made.in_place)
        return made

    monkeypatch.setattr(fused, "_variant", watched)
    return seen


# ---- the same numbers


@pytest.mark.one_in(5)
@pytest.mark.fused
@pytest.mark.parametrize("name", LAYERS)
def test_rows_in_place_give_the_numbers_of_a_copy(name, monkeypatch):
    cases = [
        (1, "sampled", 0),
        (1, "whole", 0),
        (1, "cluster", 0),
        (2, "sampled", 4),
        (3, "whole", 3),
        (2, "whole", 1),
    ]
    seen = variants(monkeypatch)
    found = [
        run_simulated(size, passed, name, view, graphs.PLACEMENTS[p]) for size, view, p in cases
    ]
    wanted = {"both": {("forward", "src", "x"), ("forward", "src", "h"), ("forward", "dst", "h")}}
    assert seen >= wanted.get(name, {("forward", "src", "z")})
    if name == "both":
        # the gradient of the scale reads the rows again
        assert {("receiver", "src", "x"), ("receiver", "dst", "h")} <= seen
    slow = run_simulated(2, passed, name, "whole", graphs.PLACEMENTS[1], backend="reference")
    copied(monkeypatch)
    seen.clear()
    for case, parts in zip(cases, found, strict=True):
        size, view, p = case
        for mine, theirs in zip(
            parts, run_simulated(size, passed, name, view, graphs.PLACEMENTS[p]), strict=True
        ):
            np.testing.assert_array_equal(mine[0], theirs[0])
            for a, b in zip(mine[1], theirs[1], strict=True):
                np.testing.assert_array_equal(a, b)
    assert not seen
    for mine, theirs in zip(slow, found[-1], strict=True):
        np.testing.assert_allclose(
            mine[0], theirs[0], rtol=0, atol=1e-4 * np.abs(theirs[0]).max(initial=0)
        )
    for mine, theirs in zip(
        slow,
        run_simulated(2, passed, name, "whole", graphs.PLACEMENTS[1], backend="reference"),
        strict=True,
    ):
        np.testing.assert_array_equal(mine[0], theirs[0])


def test_no_row_is_copied_that_only_edges_read(monkeypatch):
    """SAGE copies only the receiving rows, for its product with them; GCN and a maximum none."""
    read = []
    copy = StoredRows._copy

    def watched(rows):
        read.append(rows.shape[0]) if rows.name == "node.x" else None
        return copy(rows)

    monkeypatch.setattr(StoredRows, "_copy", watched)
    for name, rows in (("sage", [9]), ("gcn", []), ("gcn row", [])):
        read.clear()
        run_simulated(1, passed, name)
        # a dry run reads columns without rows
        assert [n for n in read if n] == rows, name


def test_a_value_that_was_copied_is_not_read_in_place(monkeypatch):
    class Twice(Both):
        def transform(self, node):
            return {"h": node.h, "product": gt.matmul(node.h, self.weight)}

        def gather(self, edge):
            return edge.src.h + edge.src.product.sum(-1)

    seen = variants(monkeypatch)
    monkeypatch.setitem(LAYERS, "twice", Twice)
    run_simulated(1, passed, "twice")
    assert not seen


# ---- the planner


def planned(gather, stored=("x", "f", "narrow"), **shapes):
    nodes = {
        name: (shape, np.dtype(np.float32), False)
        for name, shape in {"x": (D,), "f": (), "narrow": (4,), **shapes}.items()
    }
    return plan(
        split(
            record(
                gather,
                nodes,
                {"weight": ((), np.dtype(np.float32), False)},
                {"": SUM},
                "layer",
                (),
                stored,
            )
        )
    )


@pytest.mark.parametrize(
    ("gather", "columns"),
    [
        (lambda e: e.src.x * e.src.f * e.weight, []),
        (lambda e: gt.relu(e.src.x - 1.0) * e.weight, []),
        (lambda e: e.src.narrow * e.src.f * e.weight, ["mul"]),
        (lambda e: (e.src.x * e.src.x).sum(-1) * e.weight, ["sum"]),
        (lambda e: gt.sigmoid(e.src.x) * e.weight, ["sigmoid"]),
        (lambda e: e.src.x * gt.exp(e.src.f * 2.0) * e.weight, ["expand_last"]),
        (lambda e: gt.matmul(e.src.x, np.ones((D, 3), np.float32)) * e.weight, ["matmul"]),
    ],
    ids=["factor", "chain", "narrow", "sum", "costly", "costly factor", "product"],
)
def test_a_cheap_function_of_a_wide_stored_column_stays_on_the_edges(gather, columns):
    assert D >= WIDE > 4
    program = planned(gather)
    assert [e.prim.name for e in program.columns.values()] == columns
    left = [note for note in planner_notes(program) if note.startswith("left on the edges")]
    assert len(left) == (not columns or columns == ["expand_last"])
    assert len(planned(gather, stored=()).columns) == 1


@pytest.mark.fused
def test_what_stays_on_the_edges_has_the_numbers_of_a_column(monkeypatch):
    """Kernels may rearrange sums of products, so the expression is rounded first."""

    class Scaled(Both):
        def transform(self, node):
            return {"h": node.h, "f": gt.cast(node.in_degree, "float32") * 0.3 + 0.7}

        def gather(self, edge):
            return edge.src.h * edge.src.f

        def apply(self, node, total):
            return total[..., :HIDDEN]

    class Given(Scaled):
        """The same, in which transform makes the column."""

        def transform(self, node):
            made = super().transform(node)
            return {"h": Var((made["h"] * made["f"]).value, node.h.space)}

        def gather(self, edge):
            return edge.src.h

    monkeypatch.setitem(LAYERS, "scaled", Scaled)
    monkeypatch.setitem(LAYERS, "given", Given)
    (scaled,), (given,) = (run_simulated(1, passed, name) for name in ("scaled", "given"))
    assert not scaled[2].program.columns
    np.testing.assert_array_equal(scaled[0], given[0])


# ---- columns and lists


X = RNG.standard_normal((9, 20)).astype(np.float32)
ROWS = np.array([5, 5, 0, 8])


def test_columns_in_memory_list_their_rows_and_others_do_not(tmp_path):
    turned = np.arange(9)[::-1]
    np.save(tmp_path / "x.npy", X)
    cached, unused = (CachedColumn("x", MemoryColumn(X)) for _ in range(2))
    cached.cache = RowCache(0, None, {"x": cached})
    there = {
        "memory": MemoryColumn(X),
        "ordered": MemoryColumn(X[::-1].copy(), turned),
        "no cache": unused,
        "selected": SelectedColumn(MemoryColumn(X[::-1].copy()), turned, np.float32),
    }
    for name, column in there.items():
        found = listed_rows(column, ROWS)
        assert found is not None and found.shape == (4, 20) and found.dtype == X.dtype, name
        np.testing.assert_array_equal(found[:], X[ROWS])
        np.testing.assert_array_equal(found.first(2)[:], X[ROWS[:2]])
        np.testing.assert_array_equal(found[np.array([3, 1], np.int32)], X[ROWS[[3, 1]]])
        assert found[:0].shape == (0, 20)
    assert np.shares_memory(there["memory"].listed(ROWS).array, X)
    codes = MemoryColumn(np.zeros((9, 20), np.int8))
    elsewhere = {
        "sparse": MemoryColumn(sp.csr_array(X)),
        "mapped": MappedColumn(tmp_path / "x.npy"),
        "cached": cached,
        "other order": MemoryColumn(np.asfortranarray(X)),
        "other bytes": MemoryColumn(X.astype(">f4")),
        "other type": SelectedColumn(MemoryColumn(X), turned, np.float64),
        "quantised": QuantisedColumn(codes, np.ones(20, np.float32), np.zeros(20, np.float32)),
    }
    assert {name: listed_rows(column, ROWS) for name, column in elsewhere.items()} == dict.fromkeys(
        elsewhere
    )


def test_a_list_of_another_shape_than_the_column_is_not_used():
    class Wrong(MemoryColumn):
        def listed(self, rows):
            return RowList(X[:, :3].copy(), rows)

    assert listed_rows(SelectedColumn(Wrong(X), np.arange(9), np.float32), ROWS) is None


def test_located():
    array, rows = located(RowList(X, ROWS), np.array([3, 0]))
    assert array is X and rows.tolist() == [8, 5]
    assert located(X, ROWS) == (X, ROWS)


# ---- explain


def test_explain_says_where_rows_are_read(tmp_path):
    keys = {
        "model": "gcn",
        "hidden": 64,
        "strategy": "mini",
        "batch_size": 9,
        "fanout": "4,3",
        "dropout": 0.0,
    }
    assert "rows     of src.z = node.x: read where they are stored" in api.explain(
        graph=GRAPH, **keys
    )
    write_store(GRAPH, tmp_path / "store", SerialComm())
    assert "rows     of src.z = node.x: copied for each batch, since" in api.explain(
        graph=api.load(str(tmp_path / "store")), **keys
    )
    assert "rows     of" not in api.explain(graph=GRAPH, model="gcn", hidden=64, strategy="global")
