"""Products that edges choose: both forms against the reference back end, and what the planner makes
of them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import backends
import graphs
import numpy as np
import pytest
from backends import both, parameter, run
from traced import trace

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer import edge_stage
from graphtheta.engine.view.level import Selection
from graphtheta.errors import ShapeError, UserFunctionError
from graphtheta.ops.edge.backend import edges, grouped, pairs
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.edge.codegen import Variant, generate
from graphtheta.ops.edge.codegen.kernel import MOST_VECTORS
from graphtheta.ops.edge.plan import plan, planner_notes
from graphtheta.ops.kernels import batch

KINDS = 4
FLOAT, CODE = np.dtype("float32"), np.dtype("int32")


def chosen(e, *out):
    return gt.embedding(gt.matmul(e.src.w, parameter(4, KINDS, *out)), e.kind)


# what is summed, the aggregator, and whether the sum may come first
GATHERS = {
    "alone": (lambda e: chosen(e, 3), "sum", True),
    "weighted": (lambda e: chosen(e, 6) * e.weight, "sum", True),
    "learned weight": (lambda e: (2 + e.attr[..., 0]) * chosen(e, 6), "sum", True),
    "quotient": (
        lambda e: chosen(e, 6) / (2 + gt.sigmoid(gt.matmul(e.attr, parameter(3)))),
        "sum",
        True,
    ),
    "dropped edges": (lambda e: chosen(e, 6) * gt.dropout(e.weight, 0.5), "sum", True),
    "dropped numbers": (lambda e: gt.dropout(chosen(e, 6), 0.5), "sum", False),
    "of the receiver": (lambda e: chosen(e, 6) * e.dst.a, "sum", False),
    "attention": (lambda e: gt.softmax(e.dst.a * e.weight) * chosen(e, 6), "sum", False),
    "carried": (lambda e: chosen(e, 6) * e.old[..., 0], "sum", True),
    "heads": (lambda e: chosen(e, 2, 3) * e.dst.s, "sum", False),
    "max": (lambda e: chosen(e, 6) * e.weight, "max", False),
    "mean": (lambda e: chosen(e, 6) * e.weight, "mean", False),
    "two totals": (lambda e: chosen(e, 6) * e.weight, ["sum", "max"], False),
}


@pytest.fixture(autouse=True)
def planned_programs(monkeypatch):
    """Programs run as they are planned, which is where both forms come from."""
    monkeypatch.setattr(backends, "trace", lambda *args: plan(trace(*args)))


@pytest.mark.one_in(21, 2)
@pytest.mark.parametrize(
    ("name", "product_first"),
    [(name, first) for name, (_, _, may) in GATHERS.items() for first in (True, False)[: 1 + may]],
)
def test_both_forms_equal_the_reference(name, product_first, monkeypatch):
    gather, sums, _ = GATHERS[name]
    monkeypatch.setattr(edge_stage, "product_comes_first", lambda *_: product_first)
    monkeypatch.setattr(pairs, "PAIRS_PER_BLOCK", 3)
    both(gather, sums, size=3, scale=True)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("product_first", [True, False])
@pytest.mark.parametrize("direction", ["out", "both"])
def test_against_the_edges(direction, product_first, monkeypatch):
    monkeypatch.setattr(edge_stage, "product_comes_first", lambda *_: product_first)
    both(GATHERS["weighted"][0], direction=direction, size=2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("graph", graphs.odd_graphs().values(), ids=graphs.odd_graphs())
@pytest.mark.parametrize("out", [3, 6])
def test_odd_graphs(graph, out):
    both(lambda e: chosen(e, out) * e.weight, graph=graph, size=min(2, graph.n_nodes))


@pytest.mark.parametrize("product_first", [True, False])
def test_hubs_are_split(product_first, monkeypatch):
    monkeypatch.setattr(edge_stage, "product_comes_first", lambda *_: product_first)
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", 8)
    monkeypatch.setattr(pairs, "PAIRS_PER_BLOCK", 2)
    both(GATHERS["weighted"][0], graph=graphs.random_graph(12, 400))


def planned(gather, sums="sum"):
    parameter.dtype = FLOAT
    nodes = {"w": ((4,), FLOAT, True), "a": ((), FLOAT, True)}
    return plan(
        trace(
            gather, nodes, {"kind": ((), CODE, False), "weight": ((), FLOAT, False)}, sums, "Mine"
        )
    )


def test_a_chosen_product_is_no_column_of_the_nodes():
    program = planned(lambda e: chosen(e, 6) * e.weight)
    (phase,) = program.phases
    assert not program.columns
    assert phase.reads["src"] == ("w",)
    assert phase.grouped is not None
    assert (phase.grouped.width, phase.grouped.count, phase.grouped.shape) == (4, KINDS, (6,))
    assert phase.grouped.sum_first is not None
    assert any("one product for each pair" in note for note in planner_notes(program))


@pytest.mark.parametrize(
    "gather",
    [
        lambda e: chosen(e, 6) * e.src.a,
        lambda e: chosen(e, 6) + chosen(e, 6),
        lambda e: (chosen(e, 6), {"new": chosen(e, 6)}),
        lambda e: gt.exp(gt.softmax(chosen(e, 6))),
    ],
    ids=["reads more of the source", "two products", "new values", "a normaliser"],
)
def test_other_messages_read_a_column_of_all_products(gather):
    program = planned(gather)
    assert program.columns
    assert all(phase.grouped is None for phase in program.phases)


def test_an_aggregator_of_several_passes_reads_a_column_of_all_products():
    assert planned(lambda e: chosen(e, 6), "median").columns


def test_matrices_may_be_computed():
    program = planned(
        lambda e: gt.embedding(gt.matmul(e.src.w, 2 * parameter(4, KINDS, 6)), e.kind)
    )
    assert program.phases[0].grouped.weight == 2
    assert program.phases[0].operands == [2]


def test_a_table_that_is_computed_on_edges_is_refused():
    with pytest.raises(UserFunctionError, match="is computed on the edge"):
        planned(
            lambda e: gt.embedding(gt.matmul(e.src.w * e.weight, parameter(4, KINDS, 6)), e.kind)
        )


def test_a_code_out_of_range_is_named():
    parameter.dtype = np.dtype("float64")
    with (
        backend_scope("fused"),
        pytest.raises(ShapeError, match=r"edge.kind holds numbers from 0 to 3; expected 0 to 1"),
    ):
        run_simulated(
            1,
            run,
            lambda e: gt.embedding(gt.matmul(e.src.w, parameter(4, 2, 6)), e.kind),
            "sum",
            graphs.random_graph(24, 90),
            np.dtype("float64"),
            "in",
            True,
            False,
            {"w": (4,)},
        )


def test_groups_are_split_by_code_in_ascending_order_of_rows(rng):
    counts = rng.integers(0, 5, 30)
    row = rng.permutation(40)[:30].astype(np.int32)
    ptr = np.concatenate(([0], np.cumsum(counts)))
    codes = rng.integers(0, 3, ptr[-1]).astype(np.int32)
    of_edge = np.repeat(row, counts)
    at = rng.permutation(ptr[-1]).astype(np.int32)
    for positions in (np.zeros(0, np.int32), at):
        mine = codes[positions] if len(positions) else codes
        bounds, rows, pairs_of, order = batch.split(
            ptr, row, np.argsort(row).astype(np.int32), codes, positions, 3
        )
        np.testing.assert_array_equal(order, np.lexsort((of_edge, mine)))
        unique, sizes = np.unique(np.stack([mine, of_edge]), axis=1, return_counts=True)
        np.testing.assert_array_equal(rows, unique[1])
        np.testing.assert_array_equal(np.diff(bounds), sizes)
        np.testing.assert_array_equal(pairs_of, np.searchsorted(unique[0], np.arange(4)))


@pytest.mark.parametrize("sending", [True, False])
def test_pairs_are_made_again_for_other_codes(sending):
    ptr = np.array([0, 2, 3])
    row = np.array([0, 1], np.int32)
    other = np.array([0, 1, 0], np.int32)
    edges_of = Selection(
        kinds=(0, 0), row=row, ptr=ptr, other=other, n_senders=2, gid=np.arange(3), start=0
    )
    codes, others = np.array([0, 1, 0]), np.array([1, 1, 1])
    first = edges_of.pairs("kind", codes, lambda: codes, 2, sending)
    assert edges_of.pairs("kind", codes[:], lambda: codes, 2, sending) is first
    assert edges_of.pairs("kind", others, lambda: others, 2, sending).bounds.tolist() == [0, 0, 2]


@pytest.mark.parametrize(("n", "codes"), [(1, 1), (40, 3), (3000, 2), (9000, 4)])
def test_parts_of_rows_share_no_row_and_have_each_pair_once(n, codes):
    rows = [
        np.flatnonzero(np.arange(n) % (code + 1) == 0).astype(np.int32) for code in range(codes)
    ]
    made = pairs.NodeCodePairs(
        np.concatenate(rows), np.append(0, np.cumsum([len(r) for r in rows])), None, lambda: None
    )
    bounds, blocks = made.by_row.arrays
    parts = [blocks[a:b].tolist() for a, b in pairwise(bounds)]
    assert sorted(p for part in parts for _, begin, end in part for p in range(begin, end)) == list(
        range(made.n)
    )
    assert all(
        made.bounds[code] <= begin < end <= made.bounds[code + 1]
        for part in parts
        for code, begin, end in part
    )
    of = [
        set(np.concatenate([made.row[begin:end] for _, begin, end in part]).tolist())
        for part in parts
    ]
    assert sum(map(len, of)) == len(set().union(*of))
    # also a graph of some thousand pairs occupies several threads
    assert (len(parts) > 1) == (n >= 3000)


@pytest.mark.parametrize("size", [1, 2])
def test_sums_of_pairs_are_written_over_whatever_was_there(size, monkeypatch):
    monkeypatch.setattr(edge_stage, "product_comes_first", lambda *_: False)
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", 8)
    found = SimpleNamespace(
        empty=lambda shape, dtype: np.full(shape, np.nan, dtype), full=grouped.buffers.full
    )
    monkeypatch.setattr(grouped, "buffers", found)
    both(GATHERS["weighted"][0], graph=graphs.random_graph(12, 400), size=size)


def test_wide_sums_begin_with_zeros_in_memory():
    """The first stretch of edges clears the row of a fresh sum, and adds to any other one."""
    (phase,) = trace(
        lambda e: e.src.z, {"z": ((MOST_VECTORS * 16 + 3,), FLOAT, False)}, {}, "sum", "Wide"
    ).phases
    plain = Variant(
        mode="forward",
        listed=False,
        training=False,
        weighted=False,
        carried=frozenset(),
        wanted=frozenset(),
        totals=((), ()),
        dtype="float32",
    )
    texts = [generate(phase, v).source for v in (plain, replace(plain, fresh=True))]
    first = [text.split("if begin == ptr[r]:")[1].split("else:")[0] for text in texts]
    assert ["ZERO" in text for text in first] == [False, True]
