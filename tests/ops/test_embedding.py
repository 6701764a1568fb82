"""Rows of tables: gradients, what is refused, and integers as compiled loops read them."""

from __future__ import annotations

import numpy as np
import pytest
from traced import trace

import graphtheta.ops as gt
from graphtheta.errors import ShapeError, UserFunctionError
from graphtheta.ops import Parameter, RowSpace, Tape, Var, embedding
from graphtheta.ops.edge.backend import edges, fused
from graphtheta.ops.edge.backend.edges import EdgeLists
from graphtheta.ops.edge.backend.reference import PhaseColumns
from graphtheta.ops.edge.codegen.kernel import residuals_of, unsupported
from graphtheta.ops.edge.codegen.variant import Variant

SPACE = RowSpace(np.arange(4))
NODES = {"z": ((4,), np.float32, True), "kind": ((), np.int32, False)}
EDGES = {
    "type": ((), np.int64, False),
    "pair": ((2,), np.int32, False),
    "size": ((), np.float32, False),
}


def phase_of(gather, sum="sum"):
    (phase,) = trace(gather, NODES, EDGES, sum, "Mine").phases
    return phase


def table(*shape):
    return Parameter(
        np.random.default_rng(0).standard_normal(shape).astype(np.float32), name="codes"
    )


def test_repeated_rows_add_up():
    with Tape() as tape:
        out = embedding(weights := Parameter(np.zeros((3, 2))), Var(np.array([2, 2, 0, 2]), SPACE))
    assert out.space is SPACE
    assert np.array_equal(tape.backward(out).of(weights), [[1, 1], [0, 0], [3, 3]])


@pytest.mark.parametrize("index", [[0, 1, 2, 3], [0, -1, 2, 1]])
def test_an_index_out_of_range_is_refused(index):
    """A code of -1 for what is not known does not count from the end."""
    words = (
        rf"embedding: node.kind holds numbers from {min(index)} to {max(index)}; expected 0 to 2,"
        r" the rows of the table codes"
    )
    with pytest.raises(ShapeError, match=words):
        embedding(table(3, 2), Var(np.array(index), SPACE, name="node.kind"))
    with pytest.raises(ShapeError, match=r"the index holds .*the rows of the table$"):
        embedding(Parameter(np.zeros((3, 2))), Var(np.array(index), SPACE))


def test_floats_are_refused():
    with pytest.raises(
        UserFunctionError,
        match=r"by an integer value, such as a column of gt.Graph\(.*edge_columns",
    ):
        embedding(table(3, 2), Var(np.ones(4), SPACE))


# ---- integers have no gradients


def test_integers_pass_no_gradient_on():
    x = Var(np.array([0.4, 1.6, 2.2, 0.1]), SPACE, needs_grad=True)
    with Tape() as tape:
        level = gt.cast(x, "int64")
        assert not level.needs_grad and not tape.nodes
        grads = tape.backward(x * level)
    assert np.array_equal(grads.of(x), [0, 1, 2, 0])


def test_integer_expressions_require_no_gradient():
    phase = phase_of(
        lambda e: (
            e.src.z * gt.cast(e.src.z[..., 0], "int64"),
            {"level": gt.cast(e.src.z[..., 0], "int64")},
        )
    )
    assert {
        e.dtype.kind: e.requires_grad for e in phase.order if e.rows and e.dtype.kind == "i"
    } == {"i": False}
    assert phase.message[0].requires_grad and phase.dtype == np.float32


# ---- in compiled loops


SELECTIONS = {
    "a column": lambda e: embedding(table(4, 4), e.type),
    "of a node": lambda e: embedding(table(4, 4), e.src.kind),
    "of a pair": lambda e: embedding(table(4, 4), e.pair[..., 0]),
    "both of a pair": lambda e: gt.flatten(embedding(table(4, 2), e.pair[..., ::-1])),
    "in another shape": lambda e: gt.flatten(
        embedding(table(4, 4), gt.reshape(e.pair, 2, 1)[..., :1, :])
    ),
    "as a number": lambda e: e.size * e.type * e.pair[..., 1] * e.src.kind,
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_columns_and_their_parts_are_fused(name):
    assert not unsupported(phase_of(lambda e: e.src.z * SELECTIONS[name](e)))
    assert not unsupported(
        phase_of(lambda e: (e.src.z * SELECTIONS[name](e), {"t": e.type, "p": e.pair[..., 1]}))
    )


@pytest.mark.parametrize(
    "index",
    [
        lambda e: e.type * 2,
        lambda e: e.type + e.src.kind,
        lambda e: gt.cast(e.size, "int64"),
        lambda e: gt.where(e.size > 1, e.type, e.src.kind - 1),
        lambda e: (e.pair * e.type)[..., 0],
    ],
)
def test_integers_that_are_computed_are_fused(index):
    assert not unsupported(
        phase_of(lambda e: (e.src.z * embedding(table(4, 4), index(e)), {"new": index(e)}))
    )


@pytest.mark.parametrize(
    "index",
    [
        lambda e: e.pair.sum(-1),
        lambda e: gt.cast(e.size, "int16"),
        lambda e: gt.concat([e.pair, e.pair])[..., 3],
    ],
)
def test_other_integers_are_not(index):
    assert "computes" in unsupported(phase_of(lambda e: e.src.z * embedding(table(4, 4), index(e))))
    assert "computes" in unsupported(phase_of(lambda e: (e.src.z, {"new": index(e)})))


def test_no_integer_is_kept_among_floats():
    """From the pass by receivers to that by senders; it would be rounded."""
    phase = phase_of(
        lambda e: (
            e.src.z * embedding(table(4, 4), e.pair[..., 0]) * gt.sigmoid(e.src.z.sum(-1) * e.size)
        )
    )
    sender = Variant(
        mode="sender",
        listed=False,
        training=True,
        weighted=False,
        carried=frozenset(),
        wanted=frozenset({("src", "z")}),
        totals=(("",), ()),
        dtype="float32",
    )
    saved = residuals_of(phase, sender)
    assert saved and all(phase.order[n].dtype.kind == "f" for _, n in saved)


def passed(phase, index, weights, z):
    """Totals of a phase and the gradient of its table, over edges from each row to itself."""
    n = len(index)
    rows = np.arange(n, dtype=np.int32)
    columns = PhaseColumns({"z": z}, {}, {"type": index}, frozenset(), {0: weights})
    lists = EdgeLists(
        ptr=np.arange(n + 1),
        row=rows,
        other=rows,
        at=rows,
        positions=None,
        start=0,
        offset=0,
        tie_shift=0,
        weight=None,
    )
    states = {"": {"sum": np.zeros_like(z)}}
    fused.forward(phase, columns, lists, np.arange(n), states, {})
    grads = PhaseColumns({}, {}, {}, frozenset(), {0: np.zeros_like(weights.value)})
    fused.backward(
        phase, columns, lists, None, np.arange(n), {"": {"g": np.ones_like(z)}}, {}, grads
    )
    return states[""]["sum"], grads.operands[0]


@pytest.mark.one_in(5)
@pytest.mark.fused
@pytest.mark.parametrize("most", [1, 3 * 40 * 4 * 8, 1 << 30])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_large_tables_share_the_memory_of_their_gradients(most, dtype, monkeypatch):
    """As many partial sums as fit, the numbers the same."""
    rng = np.random.default_rng(0)
    made = []
    weights, z, index = (
        table(40, 4),
        rng.standard_normal((300, 4)).astype(np.float32),
        rng.integers(0, 40, 300).astype(dtype),
    )
    phase = phase_of(lambda e: e.src.z * embedding(weights, e.type))
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", 16)
    monkeypatch.setattr(fused, "MOST_PARTIAL", most)
    plain = fused._partial_sums
    monkeypatch.setattr(fused, "_partial_sums", lambda *a: made.append(plain(*a)) or made[-1])
    total, grad = passed(phase, index, weights, z)
    assert [len(x) for sums in made for x in sums.values()] == [{1: 1, 1 << 30: 18}.get(most, 3)]
    np.testing.assert_array_equal(total, z * weights.value[index])
    expected = np.zeros((40, 4))
    np.add.at(expected, index, z)
    np.testing.assert_allclose(grad, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.fused
def test_compiled_loops_name_what_they_cannot_look_up():
    weights, z = table(3, 4), np.ones((5, 4), np.float32)
    phase = phase_of(lambda e: e.src.z * embedding(weights, e.type))
    with pytest.raises(
        ShapeError,
        match=r"edge.type holds numbers from 0 to 3; expected 0 to 2, the rows of the table codes",
    ):
        passed(phase, np.array([0, 1, 2, 3, 0]), weights, z)
    phase = phase_of(lambda e: e.src.z * embedding(weights, e.type + e.type))
    with pytest.raises(
        ShapeError,
        match=(
            r"add\(edge.type, edge.type\) holds numbers outside of 0 to 2, the rows of the table"
            r" codes"
        ),
    ):
        passed(phase, np.array([0, 1, 2, 3, 0]), weights, z)


# ---- tables that rows have

TABLES = {"z": ((3, 4), np.float32, True)}


def own(e):
    """One row of each table, and all rows: gradients of both are added up."""
    return embedding(e.src.z, e.type) * e.dst.z.sum(-2) + e.src.z.sum(-2) * embedding(
        e.dst.z, e.type
    )


def test_each_row_has_a_table_of_its_own():
    z = Var(np.arange(24.0).reshape(4, 3, 2), SPACE, True)
    index = np.array([2, 0, 0, 1])
    with Tape() as tape:
        out = embedding(z, Var(index, SPACE))
    np.testing.assert_array_equal(out.value, z.value[np.arange(4), index])
    expected = np.zeros((4, 3, 2))
    expected[np.arange(4), index] = 1
    np.testing.assert_array_equal(tape.backward(out).of(z), expected)


def test_a_table_that_rows_have_is_a_column_with_one_number_for_each_row():
    z = Var(np.zeros((4, 3, 2)), SPACE)
    pair = Var(np.zeros((4, 2), int), SPACE)
    with pytest.raises(
        ShapeError, match=r"a table with rows is \[rows, k, ...\] and its index \[rows\]"
    ):
        embedding(z, pair)
    with pytest.raises(ShapeError, match="holds numbers from 0 to 3; expected 0 to 2"):
        embedding(z, Var(np.arange(4), SPACE))
    with pytest.raises(
        UserFunctionError, match=r"the table .* is computed on the edge; return it from transform"
    ):
        trace(lambda e: embedding(e.src.z * 2, e.type), TABLES, EDGES, "sum", "Mine")


@pytest.mark.fused
def test_compiled_loops_read_one_row_of_a_table(monkeypatch):
    """Also where the edges of a hub are summed in parts."""
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", 16)
    rng = np.random.default_rng(0)
    (phase,) = trace(own, TABLES, EDGES, "sum", "Mine").phases
    assert not unsupported(phase)
    n, m = 12, 300
    dst = np.sort(np.where(rng.random(m) < 0.5, 5, rng.integers(0, n, m)))
    src = rng.integers(0, n, m).astype(np.int32)
    code = rng.integers(0, 3, m).astype(np.int32)
    order = np.argsort(src, kind="stable").astype(np.int32)
    z = rng.standard_normal((n, 3, 4)).astype(np.float32)
    columns = PhaseColumns({"z": z}, {"z": z}, {"type": code}, frozenset(), {})
    rows = np.arange(n, dtype=np.int32)
    none = np.zeros(0, np.int32)
    into = EdgeLists(
        ptr=np.searchsorted(dst, np.arange(n + 1)),
        row=rows,
        other=src,
        at=none,
        positions=None,
        start=0,
        offset=0,
        tie_shift=0,
        weight=None,
    )
    out_of = EdgeLists(
        ptr=np.searchsorted(src[order], np.arange(n + 1)),
        row=rows,
        other=dst[order].astype(np.int32),
        at=order,
        positions=None,
        start=0,
        offset=0,
        tie_shift=0,
        weight=None,
    )
    states = {"": {"sum": np.zeros((n, 4), np.float32)}}
    g = rng.standard_normal((n, 4)).astype(np.float32)
    fused.forward(phase, columns, into, np.arange(m), states, {})
    one = z[src, code]
    whole = z.sum(1)[src]
    one_dst = z[dst, code]
    whole_dst = z.sum(1)[dst]
    expected = np.zeros((n, 4))
    np.add.at(expected, dst, one * whole_dst + whole * one_dst)
    np.testing.assert_allclose(states[""]["sum"], expected, rtol=1e-4, atol=1e-4)
    grads = PhaseColumns({"z": np.zeros_like(z)}, {"z": np.zeros_like(z)}, {}, frozenset(), {})
    fused.backward(phase, columns, into, out_of, np.arange(m), {"": {"g": g}}, {}, grads)
    for end, chosen, all_rows, got in (
        (src, whole_dst, one_dst, grads.src["z"]),
        (dst, whole, one, grads.dst["z"]),
    ):
        expected = np.zeros((n, 3, 4))
        np.add.at(expected, (end, code), g[dst] * chosen)
        np.add.at(expected, end, (g[dst] * all_rows)[:, None])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.fused
def test_compiled_loops_name_a_row_that_a_table_lacks():
    (phase,) = trace(lambda e: embedding(e.src.z, e.type), TABLES, EDGES, "sum", "Mine").phases
    rows = np.arange(4, dtype=np.int32)
    columns = PhaseColumns(
        {"z": np.ones((4, 3, 4), np.float32)}, {}, {"type": rows}, frozenset(), {}
    )
    lists = EdgeLists(
        ptr=np.arange(5),
        row=rows,
        other=rows,
        at=rows,
        positions=None,
        start=0,
        offset=0,
        tie_shift=0,
        weight=None,
    )
    with pytest.raises(
        ShapeError,
        match=r"edge.type holds numbers from 0 to 3; expected 0 to 2, the rows of the table",
    ):
        fused.forward(phase, columns, lists, rows, {"": {"sum": np.zeros((4, 4), np.float32)}}, {})
