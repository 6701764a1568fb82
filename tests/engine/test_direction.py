"""Directions and the order of layers are those of the dry run: anything else is refused and does
not run along other edges.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from flows import Mix, Net, mixes, stack

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import induced, k_hop_view
from graphtheta.engine.view.view import global_view
from graphtheta.errors import UserFunctionError, ViewError
from graphtheta.ops import Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.samplers.neighbour import NeighbourSampler

GRAPH = graphs.random_graph(
    40, 130, seed=3, edge_y=None, edge_train=None, edge_val=None, edge_test=None
)
VIEWS = {
    "global": global_view,
    "mini": lambda p, layers: k_hop_view(p, np.isin(p.masters, [3, 8]), layers),
    "sampled": lambda p, layers: k_hop_view(
        p, np.isin(p.masters, [3, 8]), layers, sampler=NeighbourSampler((2,) * 9)
    ),
    "cluster": lambda p, layers: induced(p, p.masters % 3 > 0, layers),
}
REMEDY = (
    "set direction in the constructor and call the same layers in the same order in every forward"
    " pass, or make a new trainer"
)


def forward(model, layers, view, size=1):
    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        with Tape(all_sum=comm.all_sum):
            out = model(VIEWS[view](p, layers))
        return dict(zip(out.space.gid.tolist(), out.value.tolist(), strict=True))

    return {node: row for part in run_simulated(size, program) for node, row in part.items()}


def net(function, *directions):
    with dtype_scope("float64"):
        return Net(function, *mixes(*directions))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "has, planned", [("in", "out"), ("out", "in"), ("both", "in"), ("in", "both")]
)
def test_another_direction_is_refused(view, has, planned):
    for size in (1, 3):
        with pytest.raises(
            ViewError,
            match=(
                rf"Mix, called as layer 2, has direction '{has}', but the edges of layer 2 were"
                r" chosen for "
                rf"direction '{planned}'; .*{REMEDY}"
            ),
        ):
            forward(net(stack, "in", has), ["in", planned], view, size)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"strategy": "mini", "batch_size": 5},
        {"strategy": "mini", "batch_size": 5, "fanout": "2"},
        {"strategy": "cluster", "clusters": 2},
        {"recompute": True},
        {"precompute": True, "dropout": 0.0},
    ],
    ids=str,
)
def test_a_direction_that_is_changed_after_the_trainer_was_made(keys):
    def program(comm):
        trainer = gt.Trainer("gcn", GRAPH, comm=comm, epochs=1, backend="reference", **keys)
        before = trainer.train_epoch(0)
        trainer.model.layers[0].direction = "out"
        for use in (lambda: trainer.train_epoch(1), trainer.evaluate, trainer.predict):
            with pytest.raises(
                ViewError,
                match=r"GCN, called as layer 1, has direction 'out', .* chosen for direction 'in'",
            ):
                use()
        trainer.model.layers[0].direction = "in"
        assert np.isfinite(trainer.train_epoch(1)) and np.isfinite(before)

    for size in (1, 2):
        run_simulated(size, program)


def test_a_new_trainer_takes_the_new_direction():
    def run(direction, late):
        def program(comm):
            keys = dict(
                comm=comm,
                backend="reference",
                dtype="float64",
                dropout=0.0,
                strategy="mini",
                batch_size=5,
            )
            trainer = gt.Trainer("sage", GRAPH, direction="in" if late else direction, **keys)
            if late:
                for layer in trainer.model.layers:
                    layer.direction = direction
                trainer = gt.Trainer(
                    trainer.model, GRAPH, **{k: v for k, v in keys.items() if k != "dropout"}
                )
            return [trainer.train_epoch(i) for i in range(2)]

        return run_simulated(2, program)[0]

    assert run("out", True) == run("out", False) != run("in", False)


class Turns(Model):
    """Calls its layers in another order once it has been told to."""

    def __init__(self, *layers):
        self.layers = list(layers)
        self.order = list(range(len(layers)))

    def forward(self, graph):
        return stack(graph, *(self.layers[k] for k in self.order))


@pytest.mark.parametrize("view", VIEWS)
def test_another_order_of_directions_is_refused(view):
    def program(comm):
        p = build_partition(GRAPH, comm, dtype=np.float64)
        with dtype_scope("float64"):
            model = Turns(*mixes("in", "out"))
        found = VIEWS[view](p, probe(model, p).layers)
        model.order = [1, 0]
        model(found)

    with pytest.raises(
        ViewError,
        match=r"Mix, called as layer 1, has direction 'out', .* chosen for direction 'in'",
    ):
        run_simulated(2, program)


def test_another_order_of_equal_directions_is_refused_where_rows_are_missing():
    class Skips(Model):
        def __init__(self):
            self.layers = mixes("in", "in", "in")
            self.skip_first = False

        def forward(self, graph):
            a, b, c = self.layers
            skip = a(graph, graph.x) if self.skip_first else 0.0
            h = c(graph, b(graph, graph.x))
            return h + (skip if self.skip_first else a(graph, graph.x))

    def program(comm, view, skip_first=True):
        p = build_partition(GRAPH, comm, dtype=np.float64)
        with dtype_scope("float64"), init_scope(0):
            model = Skips()
        found = VIEWS[view](p, probe(model, p).layers)
        model.skip_first = skip_first
        return model(found).value

    # the edges are the same ones, and all rows are there
    np.testing.assert_allclose(
        *(run_simulated(1, program, "global", first)[0] for first in (True, False))
    )
    with pytest.raises(
        UserFunctionError,
        match=r"Mix was called with h of a later layer.*in the same order in every forward pass",
    ):
        run_simulated(2, program, "mini")


def test_a_pass_of_fewer_layers_gives_the_targets_only():
    """What the view was built for beyond that is cut off, not trained on."""
    alone = forward(net(stack, "in"), ["in"], "mini")
    assert alone.keys() == {3, 8}
    for size in (1, 3):
        with dtype_scope("float64"):
            model = Net(lambda graph, a, b: a(graph, graph.x), Mix(), Mix())
        found = forward(model, ["in", "in"], "mini", size)
        assert found.keys() == {3, 8}
