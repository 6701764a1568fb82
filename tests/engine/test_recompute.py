"""Pieces that run again in backward: the same bits as keeping everything where nothing is deferred,
the same numbers where chains are divided, and clear words where that cannot be.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import whole
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.errors import TapeError, UserFunctionError
from graphtheta.models import GCN, BatchNorm
from graphtheta.ops import Tape, Var
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.autodiff.init import dtype_scope, init_scope

GRAPH = graphs.random_graph(240, 1200)
D = 4


class Agreement(Layer):
    """Sum of the neighbours; leaves how well the ends of an edge agree, times the last value."""

    def __init__(self, first=True):
        self.first = first
        self.weight = gt.Parameter.glorot(D, D)

    def gather(self, edge):
        found = gt.tanh((edge.src.h @ self.weight * edge.dst.h).sum(-1))
        return gt.dropout(edge.src.h, 0.2), {
            "agreement": found if self.first else found * edge.agreement
        }


class Weighted(Layer):
    def gather(self, edge):
        return edge.agreement * edge.src.h


class Net(Model):
    """Four layers, two of which leave edge values that others read, inside and outside pieces."""

    def __init__(self, way):
        self.way = way
        self.norm = BatchNorm(D)
        self.weight = gt.Parameter.glorot(D, D)
        self.layers = [Agreement(), Weighted(), Agreement(first=False), Weighted()]
        self.calls = 0

    def forward(self, graph):
        again = getattr(self, self.way)
        return again(graph, gt.dropout(graph.x, 0.3) @ self.weight)

    def begin(self, graph, h):
        self.calls += 1
        h = self.layers[0](graph, gt.dropout(h, 0.2))
        return self.norm(h) + h, h

    def middle(self, graph, h):
        return {"h": gt.relu(self.layers[2](graph, self.layers[1](graph, h))), "same": h}

    def together(self, recompute, graph, h):
        h, first = recompute(self.begin, graph, h)
        made = recompute(self.middle, graph, h)
        return self.layers[3](graph, made["h"] + 0.1 * made["same"] + 0.3 * first)

    def keep(self, graph, h):
        return self.together(lambda piece, *args: piece(*args), graph, h)

    def pieces(self, graph, h):
        return self.together(gt.recompute, graph, h)

    def nested(self, graph, h):
        return gt.recompute(lambda g: gt.recompute(self.pieces, g, h), graph)


def run(make, size=1, dtype="float64", training=True):
    """Loss, gradients, gradient of the features and state after one step, of every rank."""

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.dtype(dtype))
        with dtype_scope(dtype), init_scope(1):
            model = make()
        view = whole(p, probe(model, p).layers)
        x = Var(p.node.read("x"), view.space, needs_grad=True)
        with Tape(training=training, seed=3, all_sum=comm.all_sum) as tape:
            out = model(view, x=x)
            grads = tape.backward(out, np.cos(np.arange(out.value.size)).reshape(out.shape))
        return [
            out.value,
            grads.of(x),
            *GradientSum(comm, model.parameters()).finish(grads),
            *model.state().values(),
        ]

    return run_simulated(size, program)


def same(a, b):
    return all(
        np.array_equal(x, y)
        for mine, theirs in zip(a, b, strict=True)
        for x, y in zip(mine, theirs, strict=True)
    )


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pieces_keep_every_bit(size, dtype):
    """Dropout on nodes and edges, batch norm, edge values in and out, closures, values passed
    through, nesting.
    """
    expected = run(lambda: Net("keep"), size, dtype)
    assert same(expected, run(lambda: Net("pieces"), size, dtype))
    assert same(expected, run(lambda: Net("nested"), size, dtype))


@pytest.mark.second
@pytest.mark.fused
def test_chains_of_large_values_keep_their_numbers(monkeypatch):
    """What a piece leaves open is computed at its end: chains are divided, and rounding differs."""
    monkeypatch.setattr(fusion, "SMALLEST", 0)

    class Chains(Model):
        def __init__(self, recompute):
            self.layer = GCN(D, D)
            self.last = GCN(D, D)
            self.recompute = recompute

        def forward(self, graph):
            h = self.recompute(lambda g, h: gt.relu(self.layer(g, h) * 2.0), graph, graph.x)
            z = gt.dropout(h, 0.4)
            h = self.recompute(self.last, graph, z) + h
            return self.recompute(lambda g, z: gt.relu(z) * z, graph, h * 0.5)

    expected = run(lambda: Chains(lambda piece, *args: piece(*args)), 2, "float32")
    divided = run(lambda: Chains(gt.recompute), 2, "float32")
    for in_one, in_pieces in zip(expected, divided, strict=True):
        for a, b in zip(in_one, in_pieces, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


class Total(Layer):
    def gather(self, edge):
        return edge.src.h


class Ends(Model):
    """Pieces that end with functions of parameters, of a total into which no gradient flows, and of
    one that nothing reads.
    """

    def __init__(self, recompute):
        self.layer = Total()
        self.recompute = recompute
        self.scale = gt.Parameter.ones(D)
        self.bound = gt.Parameter.normal(D)

    def forward(self, graph):
        def function(graph, h):
            return gt.minimum(self.layer(graph, h) * self.scale, self.bound) + h

        x = gt.stop_gradient(graph.x)
        h = self.recompute(function, graph, x)
        self.recompute(function, graph, h)
        return self.recompute(function, graph, h) * graph.x


@pytest.mark.fused
def test_ranks_that_defer_values_run_the_same_pieces_again(monkeypatch):
    """What a piece returns may be deferred on some ranks and not on others, which have fewer
    rows.
    """
    expected = run(lambda: Ends(lambda piece, *args: piece(*args)), 3)
    rows = sorted(len(out) for out, *_ in expected)
    monkeypatch.setattr(fusion, "SMALLEST", D * rows[1])
    assert rows[0] < rows[1]
    for mine, theirs in zip(expected, run(lambda: Ends(gt.recompute), 3), strict=True):
        for x, y in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_a_piece_keeps_its_outputs_only():
    def length(way):
        model = Net(way)
        p = build_partition(GRAPH, run_simulated(1, lambda comm: comm)[0], dtype=np.float32)
        view = whole(p, probe(model, p).layers)
        with Tape() as tape:
            model(view)
        return len(tape.nodes)

    assert length("nested") < length("pieces") < length("keep")


class Decaying(Model):
    """A piece that changes what its next run reads."""

    def __init__(self):
        self.layer = Total()
        self.factor = np.ones(D)

    def piece(self, graph, h):
        self.factor *= 0.5
        return self.layer(graph, h) * self.factor

    def forward(self, graph):
        return gt.recompute(self.piece, graph, graph.x)


def test_a_piece_that_computes_something_else_again_is_refused():
    with pytest.raises(TapeError, match="computed other values when it was run again"):
        run(Decaying)


def test_without_backward_a_piece_runs_once():
    counts = []
    for record in (False, True):

        def program(comm, record=record):
            model = Net("pieces")
            p = build_partition(GRAPH, comm, dtype=np.float32)
            view = whole(p, ["in"] * 4)
            with Tape(record=record) as tape:
                out = model(view)
                if record:
                    tape.backward(out)
            return model.calls

        counts += run_simulated(1, program)
    assert counts == [1, 2]


@pytest.mark.second
def test_a_user_may_check_a_model_with_pieces():
    gt.check(Net("pieces"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "strategy",
    [{}, {"strategy": "mini", "batch_size": 40}, {"strategy": "cluster", "clusters": 3}],
    ids=str,
)
def test_the_flag_runs_every_layer_of_a_users_model_again(strategy):
    def train(comm, on):
        keys = {
            "epochs": 2,
            "dtype": "float32",
            "backend": "reference",
            "task": "node",
            "recompute": on,
            **strategy,
        }
        with init_scope(2):
            trainer = gt.Trainer(lambda d_in, d_out: Flagged(d_in, d_out), GRAPH, comm=comm, **keys)
        losses = [trainer.train_epoch(i) for i in range(2)]
        again = [id(layer) in trainer.setup.settings.recomputed for layer in trainer.model.layers]
        return (
            [np.array(losses), *trainer.model.state().values()],
            trainer.setup.bound.values,
            again,
        )

    class Flagged(Model):
        def __init__(self, d_in, d_out):
            self.layers = [Agreement(), Weighted(), GCN(d_in, d_out)]

        def forward(self, graph):
            h = graph.x
            for layer in self.layers:
                h = layer(graph, gt.dropout(h, 0.1))
            return h

    for size in (1, 3):
        (kept, much, off), (made, less, on) = (
            run_simulated(size, train, flag)[0] for flag in (False, True)
        )
        assert same([kept], [made]) and less <= much and not any(off) and all(on)


class Odd(Model):
    def __init__(self, piece, after=lambda model, h: h):
        self.piece = piece
        self.after = after
        self.weight = gt.Parameter.glorot(D, D)
        self.layer = Weighted()
        self.stash = None
        self.runs = 0

    def forward(self, graph):
        return self.after(self, gt.recompute(lambda *args: self.piece(self, *args), graph, graph.x))


def stashes(model, graph, h):
    model.stash = h @ model.weight
    return model.stash * 2.0


def changes(model, graph, h):
    model.runs += 1
    return h @ model.weight if model.runs == 1 else (h @ model.weight, h @ model.weight)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (
            lambda: Odd(stashes, lambda model, h: h + model.stash),
            TapeError,
            "computed inside gt.recompute is used outside of it; return it",
        ),
        (
            lambda: Odd(changes),
            TapeError,
            "the function computed other values when it was run again",
        ),
        (
            lambda: Odd(lambda model, graph, h: "text"),
            UserFunctionError,
            r"a function given to gt.recompute returned str; expected node",
        ),
    ],
    ids=["stash", "change", "text"],
)
def test_what_goes_wrong_is_said(make, error, message):
    def program(comm):
        p = build_partition(GRAPH, comm, dtype=np.float64)
        with dtype_scope("float64"):
            model = make()
        with Tape() as tape:
            tape.backward(model(whole(p, [])))

    with pytest.raises(error, match=message):
        run_simulated(2, program)


def test_the_graph_comes_second():
    with pytest.raises(
        UserFunctionError, match=r"the graph is of type int; expected the graph that"
    ):
        gt.recompute(lambda g: g, 3)
