"""``gt.per_relation``: layers by relation against the same layers on graphs of one relation each,
and on several workers.
"""

from __future__ import annotations

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ColumnError, ConfigError
from graphtheta.models import GAT, RGCN, SAGE
from graphtheta.models.build import assemble
from graphtheta.ops import dtype_scope
from graphtheta.ops.autodiff.init import init_scope

D, WIDTH = 4, 6
COUNTS = {"paper": 14, "author": 11, "subject": 5}
# of the last one there are no edges
TRIPLES = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "has", "subject"),
    ("subject", "of", "author"),
)


def make_graph() -> gt.Graph:
    rng = np.random.default_rng(0)
    sizes = (40, 60, 25, 0)
    edges = {
        t: (rng.integers(0, COUNTS[t[0]], n), rng.integers(0, COUNTS[t[2]], n))
        for t, n in zip(TRIPLES, sizes, strict=True)
    }
    x = {kind: rng.normal(size=(n, D)) for kind, n in COUNTS.items()}
    return gt.Graph(
        edges,
        COUNTS,
        x={"paper": x["paper"]},
        y={"paper": rng.integers(0, 3, 14)},
        train={"paper": np.arange(14) < 10},
        val={"paper": np.arange(14) >= 10},
    ).replace(x=np.concatenate(list(x.values())))


GRAPH = make_graph()
LAYERS = {
    "writes": lambda: SAGE(D, WIDTH),
    "cites": lambda: GAT(D, WIDTH // 2, 2),
    "has": lambda: SAGE(D, WIDTH, aggregator="max"),
    "of": lambda: SAGE(D, WIDTH),
}


class Alone(gt.Model):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, graph):
        return self.layer(graph, graph.x)


def combined(combine: str, types: bool) -> Alone:
    with dtype_scope("float64"):
        return Alone(
            gt.per_relation(
                {name: make() for name, make in LAYERS.items()},
                TRIPLES,
                tuple(COUNTS) if types else (),
                combine=combine,
                width=WIDTH,
            )
        )


@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("combine", ["sum", "mean", "max", "attention"])
def test_each_layer_sees_the_edges_of_its_relation(combine: str, types: bool) -> None:
    model = combined(combine, types)
    relation = GRAPH.edge_columns["relation"]
    outs, masks = [], []
    for code, layer in model.layer.layers.items():
        some = relation == code
        alone = gt.Graph((GRAPH.src[some], GRAPH.dst[some]), GRAPH.n_nodes, x=GRAPH.x)
        outs.append(gt.forward(Alone(layer), alone))
        masks.append(
            GRAPH.node_columns["type"] == list(COUNTS).index(TRIPLES[code][2])
            if types
            else np.ones(GRAPH.n_nodes, bool)
        )
    h = np.stack(outs, -1)
    m = np.stack(masks, -1)[:, None, :].astype(float)
    if combine == "max":
        wanted = np.where(m > 0, h, -np.inf).max(-1)
    elif combine == "attention":
        a = model.layer.attention
        scores = np.tanh(np.moveaxis(h, -1, 1) @ a.weight.value + a.bias.value) @ a.query.value
        e = np.exp(scores[..., 0]) * m[:, 0]
        wanted = (h * (e / e.sum(-1, keepdims=True))[:, None, :]).sum(-1)
    else:
        wanted = (h * m).sum(-1) / (m.sum(-1) if combine == "mean" else 1)
    np.testing.assert_allclose(gt.forward(model, GRAPH), wanted, atol=1e-12)


def test_a_node_of_a_type_that_no_relation_leads_to_is_zero() -> None:
    for combine in ("sum", "mean", "max", "attention"):
        with dtype_scope("float64"):
            model = Alone(
                gt.per_relation(
                    {"writes": SAGE(D, WIDTH)}, TRIPLES, tuple(COUNTS), combine=combine, width=WIDTH
                )
            )
        out = gt.forward(model, GRAPH)
        assert np.abs(out[GRAPH.nodes_of("paper")]).min() > 0
        assert not out[14:].any()


def of_design(direction: str, made_for: str = "in") -> gt.Model:
    """A network whose layers are layers by relation, which are made for a direction."""

    def layer(d_in, d_out, d_edge, last, o, *, relations):
        made = gt.per_relation(lambda code: SAGE(d_in, d_out), relations)
        for part in made.layers.values():
            part.direction = made_for
        return made, d_out

    design = gt.Design(layer, relational=True)
    with dtype_scope("float64"), init_scope(1):
        return assemble(
            name="mine",
            design=design,
            d_in=D,
            d_out=3,
            d_edge=0,
            decoder="none",
            o=design.options(hidden=5, dropout=0.0, direction=direction),
            relations=len(TRIPLES),
        )


def test_a_design_of_layers_by_relation_has_directions() -> None:
    """Along out-edges is along in-edges of the reversed graph; both is along a graph with both."""
    graph = gt.Graph(
        GRAPH.edge_index,
        GRAPH.n_nodes,
        x=GRAPH.x,
        edge_columns={"relation": GRAPH.edge_columns["relation"]},
    )
    turned = graph.replace(edge_index=graph.edge_index[::-1])
    both = gt.Graph(
        np.concatenate((graph.edge_index, turned.edge_index), axis=1),
        graph.n_nodes,
        x=graph.x,
        edge_columns={"relation": np.tile(graph.edge_columns["relation"], 2)},
    )
    inward = gt.forward(of_design("in"), graph)
    np.testing.assert_allclose(gt.forward(of_design("out"), turned), inward, atol=1e-12)
    np.testing.assert_allclose(
        gt.forward(of_design("both"), graph), gt.forward(of_design("in"), both), atol=1e-12
    )
    # layers that were made for one direction keep it
    np.testing.assert_allclose(
        gt.forward(of_design("in", made_for="out"), turned), inward, atol=1e-12
    )
    with pytest.raises(
        ConfigError, match="direction='both': SAGE, a layer of mine, was made for direction 'out'"
    ):
        of_design("both", made_for="out")


def test_the_types_that_a_relation_leads_to_follow_the_direction_of_its_layer() -> None:
    model = combined("sum", True)
    found = [model.layer.applies]
    for direction in ("out", "both"):
        for layer in model.layer.layers.values():
            layer.direction = direction
        found.append(model.layer.applies)
    ends = [[[name in t[i] for name in COUNTS] for t in TRIPLES] for i in (2, 0)]
    np.testing.assert_array_equal(found, [*ends, np.logical_or(*ends)])


def test_means_of_relations_are_those_of_rgcn() -> None:
    with dtype_scope("float64"):
        whole = RGCN(D, WIDTH, 4, root=False, bias=False)
        split = gt.per_relation(lambda name: RGCN(D, WIDTH, 4, root=False, bias=False), TRIPLES)
    for layer in split.layers.values():
        layer.weight.value = whole.weight.value
    np.testing.assert_allclose(
        gt.forward(Alone(split), GRAPH), gt.forward(Alone(whole), GRAPH), atol=1e-12
    )


@pytest.mark.parametrize("combine", ["mean", "max", "attention"])
def test_gradients(combine: str) -> None:
    model = combined(combine, True)
    weights = np.random.default_rng(1).normal(size=WIDTH)

    def loss(h):
        return h * h * weights

    _, grads = gt.gradients(loss, model, GRAPH)
    rng = np.random.default_rng(2)
    eps = 1e-6
    for p in model.parameters():
        step = rng.normal(size=p.shape)
        kept = p.value
        values = []
        for sign in (1, -1):
            p.value = kept + sign * eps * step
            values.append((gt.forward(model, GRAPH) ** 2 * weights).mean())
        p.value = kept
        assert np.isclose(
            (values[0] - values[1]) / (2 * eps), (grads[p.name] * step).sum(), rtol=1e-5, atol=1e-9
        ), p.name


class Deep(gt.Model):
    """Two layers by relation, the second in a segment that is recomputed."""

    def __init__(self, d_in, d_out, relation_names, type_names):
        self.first = gt.per_relation(
            lambda name: GAT(d_in, 3, 2) if name[1] == "cites" else SAGE(d_in, 6),
            relation_names,
            type_names,
            combine="attention",
            width=6,
        )
        self.last = gt.per_relation(
            {name: SAGE(6, d_out) for name in relation_names},
            relation_names,
            type_names,
            combine="mean",
        )

    def forward(self, graph):
        h = gt.dropout(gt.relu(self.first(graph, graph.x)), 0.3)
        return gt.recompute(lambda graph, h: self.last(graph, h), graph, h)


def losses(comm, **keys):
    trainer = gt.Trainer(
        Deep, GRAPH, comm=comm, dtype="float64", lr=0.05, seed=2, backend="reference", **keys
    )
    return [trainer.train_epoch(epoch) for epoch in range(3)] + [*trainer.evaluate().values()]


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "global"},
        {"strategy": "mini", "batch_size": 4},
        {"strategy": "mini", "batch_size": 4, "fanout": "2,2"},
        {"strategy": "mini", "batch_size": 4, "fanout": "2,2", "sampler": "labor"},
        {"strategy": "cluster", "clusters": 5},
        {"strategy": "global", "recompute": True},
    ],
    ids=str,
)
def test_training_is_the_same_on_any_number_of_workers(keys) -> None:
    (one,) = run_simulated(1, losses, **keys)
    assert one[2] != one[0]
    placements = ("1d-src", "hash"), ("1d-dst", "block"), ("vertex-cut", "hash")
    for partitioner, masters in placements if keys == {"strategy": "global"} else placements[2:]:
        for found in run_simulated(3, losses, **keys, partitioner=partitioner, masters=masters):
            np.testing.assert_allclose(found, one, rtol=1e-9)


@pytest.mark.second
def test_independent_batches() -> None:
    for found in run_simulated(2, losses, strategy="mini", batch_size=3, mode="independent"):
        np.testing.assert_allclose(
            found,
            run_simulated(1, losses, strategy="mini", batch_size=3, views_per_step=2)[0],
            rtol=1e-9,
        )


def layers(names=("writes",)):
    return {name: SAGE(D, 3) for name in names}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: gt.per_relation(layers(["wrote"]), TRIPLES), "relation 'wrote' is not known"),
        (
            lambda: gt.per_relation(layers(), TRIPLES, combine="cat"),
            "choose from sum, mean, max, attention",
        ),
        (lambda: gt.per_relation(layers(), TRIPLES, combine="attention"), "needs width"),
        (lambda: gt.per_relation({}, TRIPLES), "a layer of its own"),
        (
            lambda: gt.per_relation(dict.fromkeys(("writes", "cites"), SAGE(D, 3)), TRIPLES),
            "a layer of its own",
        ),
        (
            lambda: gt.per_relation({"writes": gt.Linear(D, 3)}, TRIPLES),
            r"layers\['writes'\] is a value of type Linear; expected an object of type Layer",
        ),
        (lambda: gt.per_relation(layers(), TRIPLES, ("paper",)), "does not name two of the types"),
        (
            lambda: gt.per_relation({0: SAGE(D, 3), "writes": SAGE(D, 3)}, TRIPLES),
            "a layer of its own",
        ),
    ],
)
def test_errors(make, text) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_a_graph_without_relations_is_refused() -> None:
    with pytest.raises(ColumnError, match="the graph has no relations"):
        gt.forward(
            Alone(gt.per_relation(lambda name: SAGE(D, 3), 2)),
            gt.Graph(([0, 1], [1, 2]), 3, x=np.eye(3, D)),
        )


def test_totals_of_one_relation_are_not_precomputed() -> None:
    with pytest.raises(ConfigError, match="runs along one relation"):
        losses(None, precompute="yes", strategy="global")
