"""Learnable rows of nodes: first values, sparse updates, gradients, and the same numbers on any
number of workers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import graphs
import numpy as np
import pytest

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.store.column import Role
from graphtheta.engine.store.store import ColumnStore
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.engine.strategy.strategy import ClusterBatch, GlobalBatch, MiniBatch
from graphtheta.engine.strategy.task import NodeTask
from graphtheta.engine.train.step import Training
from graphtheta.engine.train.update import UpdateRule
from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.models import build_model
from graphtheta.ops import SGD, Adam, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.autodiff.tape import Parameter, Var
from graphtheta.ops.optimisers.row_optimiser import RowAdagrad, RowAdam, RowSGD
from graphtheta.samplers.neighbour import NeighbourSampler

WIDTH, STEPS = 4, 3
ROWS = {
    "sgd": lambda: RowSGD(0.5),
    "adagrad": lambda: RowAdagrad(0.1),
    "adam": lambda: RowAdam(0.1),
}
STRATEGIES = {
    "global": lambda *of: GlobalBatch(*of),
    "mini": lambda *of: MiniBatch(*of, batch_size=3),
    "mini sampled": lambda *of: MiniBatch(*of, batch_size=3, sampler=NeighbourSampler((2, 2))),
    "cluster": lambda *of: ClusterBatch(*of, 2, clusters=of[0].masters % 4, per_batch=2),
}


@cache
def graph():
    return graphs.random_graph(40, 80)


def trained(
    comm,
    strategy="mini",
    rows="adam",
    placement=graphs.PLACEMENTS[0],
    steps=STEPS,
    load=None,
    of=None,
    width=WIDTH,
    **keys,
):
    """A training with a table as x, after some steps."""
    with dtype_scope("float64"), init_scope(5):
        part = build_partition(of or graph(), comm, *placement, dtype=np.dtype("float64"))
        table = EmbeddingTable(
            name="x",
            masters=part.masters,
            width=width,
            optimiser=ROWS[rows](),
            seed=11,
            dtype=np.float64,
        )
        part = replace(
            part, node=part.node.joined(ColumnStore(part.n_masters, {"x": (Role.LEARNED, table)}))
        )
        model = build_model("sage", width, 3, hidden=5, layers=2, dropout=0.3)
    task = NodeTask(part, "classes")
    made = STRATEGIES[strategy](part, probe(model, part).layers, task)
    training = Training(
        model,
        made,
        SGD(model.parameters(), 0.3),
        comm,
        seed=2,
        backend="reference",
        tables=[table],
        **keys,
    )
    if load is not None:
        training.load_state(load[0])
        table.load({name: x[table.masters] for name, x in load[1].items()})
    first = training.step
    training.run(0, first, min(first + steps, made.steps_per_epoch))
    return training, table


def by_node(table, comm=None):
    """The arrays of a table for all nodes in the order of node ids; on rank 0."""
    ids = (comm or SerialComm()).gather_rows(table.masters)
    found = {}
    for name, x in table.arrays().items():
        parts = (comm or SerialComm()).gather_rows(x)
        if parts is not None:
            found[name] = np.concatenate(parts)[np.argsort(np.concatenate(ids))]
    return found


def result(comm, *args, **keys):
    training, table = trained(comm, *args, **keys)
    whole = by_node(table, comm)
    return {**training.model.state(), **{f"table.{name}": x for name, x in whole.items()}}


def close(found, expected, tolerance=1e-9):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rows", ROWS)
def test_workers_and_partitioners_change_no_number(strategy, rows):
    one = result(SerialComm(), strategy, rows)
    for size, placement in zip(
        (2, 3, 2), (graphs.PLACEMENTS[0], graphs.PLACEMENTS[3], graphs.PLACEMENTS[4]), strict=True
    ):
        close(run_simulated(size, result, strategy, rows, placement)[0], one)


def test_first_values_depend_on_seed_name_id_and_column_only():
    def rows(masters, seed=1, name="x", width=3):
        return (
            EmbeddingTable(
                name=name,
                masters=np.asarray(masters),
                width=width,
                optimiser=RowSGD(1.0),
                seed=seed,
                dtype=np.float64,
            )
            .read_begin(None)
            .end()
        )

    whole = rows(range(4000))
    np.testing.assert_array_equal(rows([7, 3999, 0]), whole[[7, 3999, 0]])
    np.testing.assert_allclose(
        rows(range(9), width=5)[:, :3] * np.sqrt(5 / 3), whole[:9], rtol=1e-12
    )
    assert abs((whole**2).sum(1).mean() - 1) < 0.05 and len(np.unique(whole)) == whole.size
    for other in (rows(range(9), seed=2), rows(range(9), name="y")):
        assert not np.isclose(other, whole[:9]).any()


@pytest.mark.parametrize("rows", ROWS)
def test_an_update_changes_the_rows_that_a_batch_reads_and_no_other(rows):
    def whole(steps):
        training, table = trained(SerialComm(), "mini sampled", rows, steps=steps)
        return training, table, by_node(table)

    training, table, after = whole(1)
    _, _, before = whole(0)
    read = table.masters[training.strategy.batch(0, 0).rows]
    others = np.setdiff1d(np.arange(graph().n_nodes), read)
    assert 0 < table.changed == len(read) < graph().n_nodes
    for name, x in after.items():
        np.testing.assert_array_equal(x[others], before[name][others], err_msg=name)
        assert (x[read] != before[name][read]).any(), name


def test_rows_that_a_batch_does_not_read_are_never_sent():
    """More nodes that no batch reads change neither the bytes of a step nor any number; an update
    sends nothing.
    """

    def program(comm, more):
        small = graph()
        many = graphs.random_graph(200, 600, seed=9)
        ends = (
            np.concatenate((small.edge_index, many.edge_index + small.n_nodes), axis=1)
            if more
            else small.edge_index
        )
        n = small.n_nodes + (many.n_nodes if more else 0)
        y, train = (
            np.concatenate((x, np.zeros(n - small.n_nodes, x.dtype)))
            for x in (small.y, small.train)
        )
        grown = Graph(ends, n, y=y, train=train, n_classes=3, node_columns={"other": np.zeros(n)})
        training, table = trained(comm, "mini sampled", steps=0, of=grown)
        before = comm.ledger.snapshot()
        training.run(0, 0, STEPS)
        sent = {
            stage: book["bytes"]
            for stage, book in comm.ledger.since(before).items()
            if stage != "batch"
        }
        before = comm.ledger.snapshot()
        table.add(*table.row_gradients(None, None))
        table.update(1.0)
        assert not any(book["bytes"] for book in comm.ledger.since(before).values())
        return sent, training.model.state()

    for (sent, state), (expected, numbers) in zip(
        run_simulated(2, program, True), run_simulated(2, program, False), strict=True
    ):
        assert sent == expected and sum(sent.values())
        close(state, numbers)


def test_of_the_whole_graph_sparse_adam_is_adam():
    _, table = trained(SerialComm(), "global", "adam", steps=1)
    _, start = trained(SerialComm(), "global", "adam", steps=0)
    p = Parameter(start.read_begin(None).end(), name="x")
    dense = Adam([p], 0.1)
    rng = np.random.default_rng(0)
    for _ in range(4):
        g = rng.standard_normal(p.shape)
        start.add(*start.row_gradients(None, g))
        start.update(1.0)
        dense.step([g])
    np.testing.assert_allclose(start.read_begin(None).end(), p.value, rtol=1e-12, atol=1e-14)
    assert table.changed == 40


@pytest.mark.one_in(5)
@pytest.mark.parametrize("rows", ROWS)
def test_workers_compute_views_alone(rows):
    """Views of a step are dealt to the workers; one worker computes them one after another."""
    one = result(SerialComm(), "mini sampled", rows, views_per_step=3)
    for size, placement in zip((2, 3), (graphs.PLACEMENTS[3], graphs.PLACEMENTS[4]), strict=True):
        close(
            run_simulated(
                size, result, "mini sampled", rows, placement, views_per_step=3, independent=True
            )[0],
            one,
        )


def test_rows_that_no_view_reads_are_not_sent_to_workers_alone():
    """A worker asks for the rows of its view, gets them, and sends back their gradients; nothing
    else depends on the table.
    """

    def program(comm, width):
        training, table = trained(
            comm, "mini sampled", "sgd", steps=0, independent=True, views_per_step=2, width=width
        )
        # masters of each worker in each view; view q is that of worker q
        n = comm.all_gather([make().space.n for make in training.strategy.makers(0, 0, 2)])
        before = comm.ledger.snapshot()
        training.run(0, 0, 2)
        assert table.changed < len(table.masters)
        return (
            comm.ledger.since(before)["fetch"]["bytes"],
            n[comm.rank][1 - comm.rank] + n[1 - comm.rank][comm.rank],
        )

    for (few, n), (many, _) in zip(
        run_simulated(2, program, WIDTH), run_simulated(2, program, 2 * WIDTH), strict=True
    ):
        assert many - few == n * WIDTH * 8


@pytest.mark.parametrize(
    "keys",
    [{}, {"views_per_step": 2}, {"views_per_step": 2, "independent": True}],
    ids=["one", "two", "alone"],
)
def test_clipping_counts_rows(keys):
    """The norm is that of all gradients, of parameters and of rows; a bound that is never reached
    changes nothing.
    """
    plain = result(SerialComm(), "mini sampled", "sgd", **{**keys, "independent": False})
    loose = UpdateRule(clip_norm=1e3)
    tight = UpdateRule(clip_norm=1e-2)
    one = result(SerialComm(), "mini sampled", "sgd", rule=tight, **{**keys, "independent": False})
    for size in (2, 3):
        close(
            run_simulated(
                size, result, "mini sampled", "sgd", graphs.PLACEMENTS[3], rule=loose, **keys
            )[0],
            plain,
        )
        close(
            run_simulated(
                size, result, "mini sampled", "sgd", graphs.PLACEMENTS[3], rule=tight, **keys
            )[0],
            one,
        )
    start = result(SerialComm(), "mini sampled", "sgd", steps=0)
    steps = -(-STEPS // keys.get("views_per_step", 1))
    moved = np.sqrt(
        sum(
            np.sum(((one[name] - start[name]) / (0.5 if name.startswith("table") else 0.3)) ** 2)
            for name in start
        )
    )
    assert 0 < moved <= steps * 1e-2 * (1 + 1e-9)


@pytest.mark.parametrize("strategy", ["global", "mini sampled"])
def test_gradients_are_finite_differences(strategy):
    training, table = trained(SerialComm(), strategy, steps=0)
    view = training.strategy.batch(0, 0)

    def loss(x):
        with training.scope(), training.tape(0, view) as tape:
            return tape, training.strategy.task.loss(view, training.model(view, x=x))

    x = Var(table.values(view.rows), view.space, True)
    tape, value = loss(x)
    g = tape.backward(value).of(x)
    v = np.random.default_rng(1).standard_normal(x.shape)
    eps = 1e-6
    up, down = (type(x)(x.value + s * eps * v, view.space, True) for s in (1, -1))
    slope = (loss(up)[1].value - loss(down)[1].value) / (2 * eps)
    assert abs(slope) > 1e-3
    np.testing.assert_allclose(np.vdot(g, v), slope, rtol=1e-6)


@pytest.mark.parametrize("rows", ROWS)
def test_another_number_of_workers_goes_on(rows):
    def saved(comm, steps):
        training, table = trained(comm, "mini", rows, steps=steps)
        return training.state(), by_node(table, comm)

    half = run_simulated(3, saved, 2)[0]
    whole = result(SerialComm(), "mini", rows, steps=4)
    alone = saved(SerialComm(), 2)
    for name, x in result(SerialComm(), "mini", rows, steps=2, load=alone).items():
        np.testing.assert_array_equal(x, whole[name], err_msg=name)
    close(
        run_simulated(2, result, "mini", rows, graphs.PLACEMENTS[4], steps=2, load=half)[0], whole
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="embedding 'x' cannot be trained with staleness"):
        trained(SerialComm(), steps=0, staleness=1)
    with pytest.raises(ConfigError, match="width of at least 1"):
        EmbeddingTable(
            name="x", masters=np.arange(3), width=0, optimiser=RowSGD(1.0), seed=0, dtype=np.float64
        )
    for wrong in (
        lambda: RowSGD(0.0),
        lambda: RowAdam(1.0, (1.0, 0.9)),
        lambda: RowAdagrad(1.0, -1.0),
    ):
        with pytest.raises(ConfigError, match="of an embedding; expected"):
            wrong()
    _, table = trained(SerialComm(), "global", "adam", steps=0)
    whole = by_node(table)
    with pytest.raises(FormatError, match="optimiser of the run"):
        table.load({"value": whole["value"]})
    with pytest.raises(FormatError, match="width and dtype"):
        table.load({**whole, "mean": whole["mean"][:, :2]})
