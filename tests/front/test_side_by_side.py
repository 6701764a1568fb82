"""Layers side by side in whole jobs: what a batch needs, neighbours sampled, totals made
beforehand, all tasks.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.base.rng import Purpose, key, uniform
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.models import GAT, SAGE, DotDecoder, EdgeDecoder

GRAPH = graphs.random_graph(40, 130, seed=3)
KEYS = dict(task="node", dtype="float64", backend="reference", epochs=2, optimiser="sgd", lr=0.01)


class Branches(gt.Model):
    """Layers of any directions side by side, then as many that read their sum, besides one that
    skips these.
    """

    directions = ("in", "out")
    deep = False

    def __init__(self, d_in, d_out):
        width = 5 if self.deep else d_out
        self.first, self.second = (
            [made(a, b) for _ in self.directions] for a, b in ((d_in, width), (width, d_out))
        )
        for direction, *both in zip(self.directions, self.first, self.second, strict=True):
            for layer in both:
                layer.direction = direction
        self.skip = made(d_in, d_out)

    def forward(self, graph):
        h = side_by_side(self.first, graph, graph.x)
        return (
            side_by_side(self.second, graph, gt.relu(h)) + self.skip(graph, graph.x)
            if self.deep
            else h
        )


def made(d_in, d_out):
    return SAGE(d_in, d_out)


def side_by_side(layers, graph, h):
    return sum((layer(graph, h) for layer in layers[1:]), layers[0](graph, h))


class Sides(Branches):
    pass


class Both(Branches):
    directions = ("both",)


class Four(Branches):
    directions = ("in", "out", "both", "in")


class Deep(Branches):
    deep = True


class Linked(Branches):
    deep = True

    def __init__(self, d_in, d_out):
        super().__init__(d_in, 4)
        self.decoder = DotDecoder()

    def forward(self, graph):
        return self.decoder(graph, super().forward(graph))


class Valued(Linked):
    def __init__(self, d_in, d_out, d_edge):
        super().__init__(d_in, d_out)
        self.decoder = EdgeDecoder(4, d_out, d_edge)


def test_a_batch_of_20_needs_no_more_nodes_side_by_side():
    graph = gt.load("rmat:scale=12,edge_factor=4")
    graph = graph.with_masks(uniform(key(0, Purpose.SPLIT), np.arange(graph.n_nodes)) < 0.5)

    def rows(comm, model):
        trainer = gt.Trainer(
            model, graph, comm=comm, strategy="mini", batch_size=20, backend="reference"
        )
        return trainer.strategy.batch(0, 0).space.n

    needed = {model: sum(run_simulated(2, rows, model)) for model in (Both, Sides, Four)}
    assert needed[Both] == needed[Sides] == needed[Four] < graph.n_nodes / 4


def losses(comm, model, **keys):
    trainer = gt.Trainer(model, GRAPH, comm=comm, **{**KEYS, **keys})
    found = [trainer.train_epoch(i) for i in range(2)]
    metrics = trainer.measure()
    return [
        *found,
        *(metrics[k] for k in sorted(metrics)),
        *(x.sum() for x in trainer.model.state().values()),
    ]


NETS = [(Sides, "node"), (Deep, "node"), (Four, "node"), (Linked, "link"), (Valued, "edge")]
WAYS = [
    {"strategy": "global"},
    {"strategy": "mini", "batch_size": 6},
    {"strategy": "mini", "batch_size": 6, "fanout": "2"},
    {"strategy": "cluster", "clusters": 3, "clusters_per_batch": 2},
    {"strategy": "mini", "batch_size": 6, "views_in_flight": 2, "views_per_step": 2},
    {"strategy": "mini", "batch_size": 6, "recompute": True},
    {
        "strategy": "mini",
        "batch_size": 6,
        "fanout": "2",
        "mode": "independent",
        "views_per_step": 2,
    },
]


# every second pair of a network and a way
@pytest.mark.one_in(11, 3)
@pytest.mark.parametrize(
    ("net", "way"),
    [(net, way) for net in range(len(NETS)) for way in range(len(WAYS)) if (net + way) % 2 == 0],
)
def test_same_numbers_on_any_ranks(net, way):
    (model, task), keys = NETS[net], WAYS[way]
    expected = run_simulated(1, losses, model, task=task, **keys)[0]
    # every network and every way meets both
    size, partitioner = ((2, "1d-dst"), (3, "vertex-cut"))[(net + way) // 2 % 2]
    found = run_simulated(size, losses, model, task=task, partitioner=partitioner, **keys)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "model, task", [(Sides, "node"), (Deep, "node"), (Linked, "link"), (Valued, "edge")]
)
def test_a_batch_of_all_targets_is_the_global_batch(model, task):
    expected = run_simulated(1, losses, model, task=task)[0]
    for size in (1, 3):
        np.testing.assert_allclose(
            run_simulated(size, losses, model, task=task, strategy="mini")[0],
            expected,
            rtol=1e-10,
            atol=1e-10,
        )


def test_running_pieces_again_keeps_every_bit():
    plain, again = (
        run_simulated(3, losses, Deep, strategy="mini", batch_size=6, recompute=on)[0]
        for on in (False, True)
    )
    assert plain == again


def test_one_fanout_for_each_hop():
    def trainer(model, fanout):
        return gt.Trainer(model, GRAPH, strategy="mini", batch_size=6, fanout=fanout, **KEYS)

    deep = trainer(Deep, "3,1")
    assert deep.strategy.sampler.fanouts == (1, 3) and len(deep.probe.layers) == 5
    assert trainer(Sides, "3").strategy.sampler.fanouts == (3,)
    for model, fanout, message in (
        (Sides, "3,2", "has 2 numbers and the model has 1 hop"),
        (Deep, "1,2,3,4,5", "the model has 2 hop"),
    ):
        with pytest.raises(
            ConfigError,
            match=(
                rf"{message}\(s\); give one number per hop, or one for all hops; parallel layers"
                r" count"
            ),
        ):
            trainer(model, fanout)
    view = deep.strategy.batch(0, 0)
    for hop, level in zip(deep.probe.layers, view.levels, strict=True):
        for s in level.passes[0].selections:
            assert np.diff(s.ptr).max() <= (3 if hop.from_end == 0 else 1)


def test_a_total_made_beforehand_beside_other_layers():
    expected = run_simulated(1, losses, Deep)[0]
    for keys in ({"strategy": "global"}, {"strategy": "mini"}):
        for size in (1, 3):
            np.testing.assert_allclose(
                run_simulated(size, losses, Deep, precompute=True, **keys)[0],
                expected,
                rtol=1e-9,
                atol=1e-10,
            )
    layers = gt.Trainer(Deep, GRAPH, precompute=True, **KEYS).probe.layers
    assert layers == [("out", 1), ("in", 0), ("out", 0), ("in", 0)]


def test_explain_tells_hops():
    told = gt.explain(Deep, GRAPH, **KEYS)
    for line in (
        "layer 1: SAGE, direction in, hop 2 from the targets",
        "layer 2: SAGE, direction out, hop 2 from the targets",
        "layer 3: SAGE, direction in, hop 1 from the targets",
        "layer 5: SAGE, direction in, hop 1 from the targets",
    ):
        assert line in told
    told = gt.explain(Deep, GRAPH, precompute=True, **KEYS)
    assert (
        "layer 1: SAGE, direction in\n" in told
        and "layer 2: SAGE, direction out, hop 2 from the targets" in told
    )
    assert "decoder: DotDecoder\n" in gt.explain(Linked, GRAPH, **{**KEYS, "task": "link"})


class Attention(gt.Model):
    """Three heads of attention along three ways."""

    def __init__(self, d_in, d_out):
        self.layers = [GAT(d_in, d_out) for _ in range(3)]
        self.layers[1].direction = "out"
        self.layers[2].direction = "both"

    def forward(self, graph):
        return side_by_side(self.layers, graph, gt.dropout(graph.x, 0.3))


@pytest.mark.second
@pytest.mark.fused
def test_compiled_kernels_side_by_side():
    reference, fused = (
        run_simulated(2, losses, Attention, strategy="mini", batch_size=6, backend=b)[0]
        for b in ("reference", "fused")
    )
    np.testing.assert_allclose(reference, fused, rtol=1e-10, atol=1e-10)
