"""Features summed once: the same numbers as summing them in every step, and clear refusals where
they would change.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, UserFunctionError

GRAPH = graphs.random_graph(40, 200, edge_y=None, edge_train=None, edge_val=None, edge_test=None)
KEYS = dict(dropout=0.0, epochs=3, dtype="float64", hidden=5, optimiser="sgd", backend="reference")


def losses(comm, graph, **keys):
    """Losses of a few epochs, and the test metrics."""
    trainer = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    found = [trainer.train_epoch(i) for i in range(3)]
    return found, trainer.measure(), trainer.setup.saving, trainer.probe.layers


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "strategy",
    [{"strategy": "global"}, {"strategy": "mini", "batch_size": 7}],
    ids=lambda s: s["strategy"],
)
@pytest.mark.parametrize(
    "model",
    [{"model": "gcn"}, {"model": "sage"}, {"model": "gin"}, {"model": "sage", "aggregator": "sum"}],
    ids=str,
)
def test_numbers_are_the_same(model, strategy):
    keys = {**model, **strategy}
    expected, metrics, _, layers = run_simulated(1, losses, GRAPH, **keys)[0]
    for size in (1, 3):
        found, mine, saving, fewer = run_simulated(size, losses, GRAPH, precompute=True, **keys)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        np.testing.assert_allclose(
            [mine[k] for k in sorted(mine)], [metrics[k] for k in sorted(metrics)], rtol=1e-9
        )
        assert len(fewer) == len(layers) - 1
        assert (
            saving.edges >= GRAPH.n_edges
            and saving.width == 4
            and "once instead of in every step" in str(saving)
        )


def test_a_model_is_free_again_afterwards():
    """The next trainer of the same model decides anew."""
    plain = run_simulated(1, losses, GRAPH, model="gcn")[0]
    model = gt.Trainer(graph=GRAPH, model="gcn", precompute=True, **KEYS).model
    trainer = gt.Trainer(
        model, GRAPH, **{k: v for k, v in KEYS.items() if k not in ("hidden", "dropout")}
    )
    assert trainer.setup.saving is None and len(trainer.probe.layers) == len(plain[3])


SAMPLED = {"strategy": "mini", "batch_size": 7, "views_per_step": 2, "model": "sage"}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("mode", ["cooperative", "independent"])
@pytest.mark.parametrize("fanout", ["all,all", "3,2"])
def test_sampled_layers_follow_a_complete_first_layer(mode, fanout):
    full = fanout == "all,all"
    expected = run_simulated(1, losses, GRAPH, fanout=fanout, precompute=not full, **SAMPLED)[0]
    for size in (1, 3):
        found, metrics, saving, layers = run_simulated(
            size, losses, GRAPH, fanout=fanout, precompute=True, mode=mode, **SAMPLED
        )[0]
        np.testing.assert_allclose(found, expected[0], rtol=1e-9)
        np.testing.assert_allclose(
            [metrics[k] for k in sorted(metrics)],
            [expected[1][k] for k in sorted(expected[1])],
            rtol=1e-9,
        )
        assert len(layers) == 1 and str(saving).endswith(
            "complete neighbourhoods, the other layers sampled ones"
        )


@pytest.mark.parametrize(
    "keys, on",
    [
        ({"fanout": "3,3", "batch_size": 2}, True),
        # every node is a target, so that the first layer reads no further rows
        ({"fanout": "3,1", "batch_size": 40, "model": "gcn"}, False),
        ({"dropout": 0.5, "model": "gcn"}, False),
        ({"strategy": "global", "batch_size": 0, "views_per_step": 0}, True),
    ],
    ids=str,
)
def test_auto_measures(keys, on):
    for size in (1, 2):
        saving = run_simulated(size, losses, GRAPH, precompute="auto", **{**SAMPLED, **keys})[0][2]
        assert (saving is not None) == on


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"model": "gat"}, "messages of GAT depend on weights"),
        ({"model": "gipa"}, "precompute: GIPA does not run on the node features alone"),
        (
            {"model": "sage", "aggregator": "max", "dropout": 0.5},
            "called with other values than graph.x",
        ),
        (
            {"model": "sage", "aggregator": "lstm"},
            "the total of SAGE is not that of one aggregator",
        ),
        (
            {"model": "sage", "aggregator": "attention"},
            "the total of SAGE is not that of one aggregator",
        ),
        ({"strategy": "cluster"}, "precompute=yes has no meaning with strategy=cluster"),
        ({"task": "link"}, "precompute=yes has no meaning with task=link"),
    ],
    ids=str,
)
def test_what_cannot_be_precomputed_is_refused(keys, message):
    with pytest.raises((ConfigError, UserFunctionError), match=message):
        gt.Trainer(graph=GRAPH, precompute=True, **{**KEYS, **keys})


def test_explain_says_what_is_saved():
    told = gt.explain("sage", GRAPH, precompute=True, **KEYS)
    assert (
        "precomputed: SAGE aggregates 200 messages of 4 numbers once" in told
        and "layer 2: SAGE" in told
    )


def test_sparse_features_are_refused():
    import scipy.sparse as sp

    graph = graphs.random_graph(40, 200, x=sp.csr_array(np.eye(40)))
    with pytest.raises(ConfigError, match="the node features are sparse"):
        gt.Trainer(graph=graph, precompute=True, task="node", **KEYS)


class Weighted(gt.Layer):
    """Reads settings in both of the stages that a precomputed total replaces."""

    def __init__(self, d_in, d_out):
        self.w = gt.Parameter.glorot(d_in, d_out)
        self.before = 1.0
        self.inside = [2.0]
        self.after = 1.0

    def transform(self, node):
        return {"z": node.h * self.before}

    def gather(self, edge):
        return edge.src.z * edge.weight * self.inside[0]

    def apply(self, node, total):
        return gt.matmul(total * self.after, self.w)


class WeightedNet(gt.Model):
    def __init__(self, d_in, d_out):
        self.layer = Weighted(d_in, d_out)

    def forward(self, graph):
        return self.layer(graph, graph.x)


@pytest.mark.parametrize("keys", [{}, {"strategy": "mini", "batch_size": 7}], ids=str)
def test_a_total_that_is_out_of_date_is_refused(keys):
    def change(name, value):
        trainer = gt.Trainer(WeightedNet, GRAPH, precompute=True, epochs=2, dtype="float64", **keys)
        trainer.train_epoch(0)
        layer = trainer.model.layer
        setattr(layer, name, value)
        return trainer

    for name, value in (("before", 3.0), ("inside", [5.0])):
        with pytest.raises(
            UserFunctionError,
            match="the messages of Weighted have changed since their total was precomputed",
        ):
            change(name, value).train_epoch(1)
    # what is read after the sum may change
    assert np.isfinite(change("after", 2.0).train_epoch(1))
