"""Supersteps: what user functions are given, what is said when they go wrong, and when gather is
traced anew.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta.ops as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.view import global_view
from graphtheta.errors import ColumnError, DataError, ShapeError, UserFunctionError, ViewError
from graphtheta.ops import Parameter, Tape
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.edge.aggregator import Sum
from graphtheta.samplers.neighbour import NeighbourSampler

GRAPH = graphs.random_graph()


class One(Model):
    """One layer made of given methods."""

    def __init__(
        self, transform=None, gather=None, apply=None, sum="sum", direction="in", columns=None
    ):
        self.layer = Layer()
        self.columns = columns
        self.layer.sum, self.layer.direction = sum, direction
        for name, method in (("transform", transform), ("gather", gather), ("apply", apply)):
            if method is not None:
                setattr(self.layer, name, method)

    def forward(self, graph):
        return self.layer(graph, graph.x, **(self.columns(graph) if self.columns else {}))


def run(model, size=1, training=True, graph=GRAPH, layers=("in",)):
    """Outputs by global id."""

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
        with Tape(training=training, all_sum=comm.all_sum):
            return p.masters, model(global_view(p, list(layers))).value

    parts = run_simulated(size, program)
    return np.concatenate([v for _, v in parts])[np.argsort(np.concatenate([i for i, _ in parts]))]


def test_a_layer_without_methods_sums_its_neighbours():
    adjacency = np.zeros((24, 24))
    np.add.at(adjacency, (GRAPH.dst, GRAPH.src), 1)
    for size in (1, 3):
        np.testing.assert_allclose(run(One(), size), adjacency @ GRAPH.x.astype(float))
        np.testing.assert_allclose(
            run(One(direction="out"), size, layers=("out",)), adjacency.T @ GRAPH.x.astype(float)
        )
        np.testing.assert_allclose(
            run(One(direction="both"), size, layers=("both",)),
            (adjacency + adjacency.T) @ GRAPH.x.astype(float),
        )


def test_apply_sees_given_and_made_columns_and_degrees():
    model = One(
        lambda node: {"z": node.h * 2.0},
        lambda edge: edge.src.z * edge.dst.extra[..., None],
        lambda node, total: (
            total + node.z + node.h + node.extra[..., None] * node.in_degree[..., None]
        ),
        columns=lambda graph: {"extra": graph.node("out_degree")},
    )
    x = GRAPH.x.astype(float)
    extra = np.bincount(GRAPH.src, minlength=24).astype(float)
    total = np.zeros((24, 4))
    np.add.at(total, GRAPH.dst, 2 * x[GRAPH.src])
    expected = (
        total * extra[:, None] + 3 * x + (extra * np.bincount(GRAPH.dst, minlength=24))[:, None]
    )
    for size in (1, 4):
        np.testing.assert_allclose(run(model, size), expected)


def test_several_sums_come_by_name():
    model = One(sum=("mean", "max"), apply=lambda node, total: total.max - total.mean)
    for size in (1, 3):
        assert np.all(run(model, size) >= -1e-12)
    with pytest.raises(
        ColumnError,
        match=r"apply of Layer reads total\.min; .*one total for each: total\.mean, total\.max",
    ):
        run(One(sum=("mean", "max"), apply=lambda node, total: total.min))


@pytest.mark.parametrize(
    "model, error, message",
    [
        (
            One(transform=lambda node: node.h),
            UserFunctionError,
            r"transform of Layer returned Var; expected a dict",
        ),
        (
            One(transform=lambda node: {"z": 3}),
            UserFunctionError,
            r"transform of Layer returned z = int; expected one row for each of the 24",
        ),
        (
            One(transform=lambda node: {"z": Parameter(np.ones(3))}),
            UserFunctionError,
            r"transform of Layer returned z = \[3\]",
        ),
        (
            One(transform=lambda node: {"z": node.speed}),
            ColumnError,
            (
                r"transform of Layer reads node.speed, which does not exist; there are h,"
                r" in_degree, out_degree, x"
            ),
        ),
        (
            One(transform=lambda node: {"z": gt.matmul(node.h, np.ones((7, 2)))}),
            ShapeError,
            r"^transform of Layer: matmul",
        ),
        (
            One(gather=lambda edge: edge.src.q),
            ColumnError,
            r"gather of Layer reads edge.src.q.*transform offers h",
        ),
        (One(apply=lambda node, total: total.sum(0)), ShapeError, r"^apply of Layer: "),
        (One(apply=lambda node, total: 3.0), UserFunctionError, r"apply of Layer returned float"),
        (
            One(apply=lambda node, total: None),
            UserFunctionError,
            r"apply of Layer returned NoneType",
        ),
        (
            One(apply=lambda node, total: gt.matmul(total, np.ones((3, 3)))),
            ShapeError,
            r"^apply of Layer: matmul",
        ),
        (
            One(direction="up"),
            UserFunctionError,
            r"Layer.direction = 'up'; choose from in, out, both",
        ),
        (
            One(columns=lambda graph: {"extra": 3.0}),
            UserFunctionError,
            r"Layer was called with float as extra",
        ),
        (
            One(columns=lambda graph: {"extra": Parameter(np.ones(3))}),
            UserFunctionError,
            r"Layer was called with a parameter as extra",
        ),
    ],
)
def test_errors_name_layer_stage_and_remedy(model, error, message):
    with pytest.raises(error, match=message):
        run(model)


def test_layers_are_called_with_the_graph():
    with pytest.raises(UserFunctionError, match=r"called as layer\(graph, h\)"):
        Layer()(np.ones(3), np.ones(3))
    with pytest.raises(UserFunctionError, match="forward of Model is missing"):
        run(Model())


def test_values_of_another_pass_or_a_later_layer_are_refused():
    class Kept(Model):
        def __init__(self):
            self.layer = Layer()
            self.kept = []

        def forward(self, graph):
            self.kept.append(graph.x)
            return self.layer(graph, self.kept[0])

    model = Kept()
    run(model)
    with pytest.raises(UserFunctionError, match="another forward pass"):
        run(model)

    class Late(Model):
        def __init__(self):
            self.layer = Layer()

        def forward(self, graph):
            first = self.layer(graph, graph.x)
            second = self.layer(graph, first)
            return (
                self.layer(graph, second)
                if len(graph.view.levels) < 3
                else self.layer(graph, gt.prefix(second, 0))
            )

    def program(comm):
        p = build_partition(GRAPH, comm, dtype=np.float64)
        Late()(k_hop_view(p, np.isin(p.masters, [3]), ["in"] * 3))

    with pytest.raises(UserFunctionError, match="of a later layer"):
        run_simulated(1, program)


@pytest.mark.parametrize("stage", ["transform", "gather", "apply"])
@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), DataError("oops")])
def test_a_function_that_raises_on_one_rank_ends_all(stage, error):
    class Fails(Layer):
        def fail(self):
            if self.rank == 1:
                raise error

        def transform(self, node):
            if stage == "transform":
                self.fail()
            return super().transform(node)

        def gather(self, edge):
            if stage == "gather":
                self.fail()
            return super().gather(edge)

        def apply(self, node, total):
            if stage == "apply":
                self.fail()
            return super().apply(node, total)

    ended = []

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        model = One()
        model.layer = Fails()
        model.layer.rank = comm.rank
        try:
            with Tape(all_sum=comm.all_sum) as tape:
                out = model(global_view(p, ["in"]))
                loss = gt.mean_squared_error(out, np.zeros(out.shape))
            tape.backward(loss)
        finally:
            ended.append(comm.rank)

    with pytest.raises(type(error), match="oops") as caught:
        run_simulated(3, program)
    assert sorted(ended) == [0, 1, 2]
    assert any("rank 1" in note for note in caught.value.__notes__)


# ---- tracing


def test_a_variable_of_one_pass_is_not_kept_for_the_next():
    class Scaled(Layer):
        def __init__(self):
            self.w = Parameter(np.full(4, 0.5))

        def transform(self, node):
            self.made = gt.tanh(self.w)
            return {"h": node.h}

        def gather(self, edge):
            return edge.src.h * self.made

    model = One()
    model.layer = layer = Scaled()

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        view = global_view(p, ["in"])
        found = []
        for value in (0.5, -1.0):
            layer.w.value = np.full(4, value)
            with Tape() as tape:
                out = model(view)
            grad = comm.all_sum(tape.backward(out).of(layer.w))
            found.append(
                (
                    grad / (1 - np.tanh(value) ** 2),
                    comm.all_sum(out.value.sum(axis=0)) / np.tanh(value),
                )
            )
        return found

    for size in (1, 3):
        (first_grad, first), (second_grad, second) = run_simulated(size, program)[0]
        np.testing.assert_allclose(first, second)
        np.testing.assert_allclose(first_grad, second_grad)
        np.testing.assert_allclose(first_grad, first)


def test_what_a_layer_is_given_stays_put_off(monkeypatch):
    """Functions before a layer and in its transform may run as one pass."""
    monkeypatch.setattr(fusion, "SMALLEST", 0)
    seen = []

    def transform(node):
        seen.append(fusion.is_open(node.half))
        return {}

    run(One(transform, columns=lambda graph: {"half": graph.x * 0.5}))
    assert seen == [True]


# ---- what may be read


class Doubled(Sum):
    """Changes the messages that it is given."""

    def accumulate(self, state, seg, parts, gid, scale):
        parts[0][...] *= 2
        super().accumulate(state, seg, parts, gid, scale)


def test_an_aggregator_cannot_change_the_messages_of_others():
    with pytest.raises(ValueError, match="read-only"):
        run(One(sum={"mine": Doubled(), "sum": "sum"}, apply=lambda node, total: total.sum))


@pytest.mark.parametrize("stage", ["transform", "gather", "apply"])
def test_a_constant_that_is_changed_in_place_was_what_it_was(stage):
    weight = Parameter(np.eye(4))
    methods = {
        "transform": lambda factor: {"transform": lambda node: {"h": node.h @ weight * factor}},
        "gather": lambda factor: {"gather": lambda edge: edge.src.h @ weight * factor},
        "apply": lambda factor: {"apply": lambda node, total: total @ weight * factor},
    }

    def gradient(change):
        factor = np.full(4, 2.0)
        p = build_partition(GRAPH, SerialComm(), "vertex-cut", dtype=np.float64)
        with Tape() as tape:
            out = One(**methods[stage](factor))(global_view(p, ["in"]))
            factor *= change
            return out.value, tape.backward(out, np.ones(out.shape)).of(weight)

    for x, y in zip(gradient(5.0), gradient(1.0), strict=True):
        np.testing.assert_array_equal(x, y)


def test_sparse_features_are_read_in_transform():
    x = sp.random(24, 50, 0.1, format="csr", random_state=0, dtype=np.float32)
    w = np.random.default_rng(0).standard_normal((50, 3))
    model = One(lambda node: {"z": gt.matmul(node.h, w)}, lambda edge: edge.src.z)
    dense = run(model, graph=graphs.random_graph(x=x.toarray()))
    for size in (1, 3):
        np.testing.assert_allclose(run(model, size, graph=graphs.random_graph(x=x)), dense)


def test_targets_and_masks_are_out_of_reach():
    for gather in (lambda e: e.src.y, lambda e: e.src.train):
        with pytest.raises(ColumnError, match="does not exist"):
            run(One(gather=gather))
    for name in ("y", "train"):
        with pytest.raises(ColumnError, match=f"edge.{name}"):
            run(One(gather=lambda e: getattr(e, name) * e.src.h))  # noqa: B023
        with pytest.raises(ColumnError, match="does not exist"):
            run(One(transform=lambda node: {"z": getattr(node, name)}))  # noqa: B023


class Maker(Layer):
    """Makes the edge value alpha."""

    def gather(self, edge):
        alpha = gt.softmax(edge.src.h.sum(-1))
        return alpha * edge.src.h, {"alpha": alpha}


class Taker(Layer):
    """Reads the edge value alpha."""

    def gather(self, edge):
        return edge.alpha * edge.src.h


class Chain(Model):
    def __init__(self, maker=None):
        self.first = maker or Maker()
        self.second = Taker()

    def forward(self, graph):
        return self.second(graph, self.first(graph, graph.x))


@pytest.mark.parametrize("shared", [True, False])
def test_carried_edge_values_need_a_shared_sample(shared):
    graph = graphs.random_graph(30, 300)

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
        view = k_hop_view(
            p,
            np.isin(p.masters, [3, 9]),
            ["in", "in"],
            sampler=NeighbourSampler((3, 3), shared=shared),
        )
        out = Chain()(view)
        return out.space.gid, out.value

    if not shared:
        with pytest.raises(
            ViewError,
            match=(
                r"edge.alpha was computed by a layer with another sample of edges.*use one sample"
            ),
        ):
            run_simulated(2, program)
        return
    values = [
        dict(zip(gid.tolist(), value.tolist(), strict=True))
        for gid, value in run_simulated(1, program)
    ]
    for size in (2, 4):
        found = {
            k: v
            for gid, value in run_simulated(size, program)
            for k, v in zip(gid.tolist(), value.tolist(), strict=True)
        }
        assert found.keys() == values[0].keys()
        for k, v in found.items():
            np.testing.assert_allclose(v, values[0][k])


def test_an_edge_has_one_new_value():
    maker = Maker()
    maker.direction = "both"
    with pytest.raises(
        ViewError, match="cannot return new edge values, because each edge would get two"
    ):
        run(Chain(maker), layers=("both", "in"))


# ---- probing


def test_a_probe_tells_layers_and_widths_and_changes_nothing():
    class Normed(Model):
        def __init__(self):
            self.stats = gt.RunningStats(4)
            self.gamma = Parameter(np.ones(4))
            self.beta = Parameter(np.zeros(4))
            self.a = Layer()
            self.b = Layer()
            self.b.direction = "both"

        def forward(self, graph):
            return self.b(
                graph, gt.batch_norm(self.a(graph, graph.x), self.gamma, self.beta, self.stats)
            )

    def program(comm):
        p = build_partition(GRAPH, comm, dtype=np.float64)
        model = Normed()
        found = probe(model, p)
        assert (found.layers, found.output, found.per_edge) == (
            [("in", 1), ("both", 0)],
            (4,),
            False,
        )
        np.testing.assert_array_equal(model.stats.mean, 0)
        np.testing.assert_array_equal(model.stats.var, 1)

    run_simulated(2, program)


def test_a_probe_finds_errors_of_user_functions():
    with pytest.raises(ColumnError, match=r"gather of Layer reads edge.src.q"):
        run_simulated(
            1, lambda comm: probe(One(gather=lambda e: e.src.q), build_partition(GRAPH, comm))
        )
