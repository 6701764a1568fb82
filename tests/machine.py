"""What the tests of models share: running a model on simulated ranks and putting the pieces
together.
"""

from __future__ import annotations

import numpy as np

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.view import global_view
from graphtheta.models import build_model
from graphtheta.models.registry import find_model, readers
from graphtheta.ops import Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope

PLACEMENTS = [(p, m) for p in ("1d-src", "1d-dst", "vertex-cut") for m in ("hash", "block")]

MODELS = {
    "gcn": ("gcn", {}),
    "gcn row": ("gcn", {"normalisation": "row", "layers": 3, "hidden": 7, "residual": True}),
    "gcn both": ("gcn", {"normalisation": "both"}),
    "gcn none": ("gcn", {"normalisation": "none"}),
    "sage mean": ("sage", {}),
    "sage max": ("sage", {"aggregator": "max"}),
    "sage sum": ("sage", {"aggregator": "sum", "norm": "layer", "layers": 3, "residual": True}),
    "sage lstm": ("sage", {"aggregator": "lstm"}),
    "gin": ("gin", {"norm": "batch", "train_eps": True}),
    "gine": ("gine", {"norm": "batch", "train_eps": True}),
    "gat": ("gat", {"attention_dropout": 0.3, "feature_dropout": 0.2, "out_heads": 3}),
    "gat D6": ("gat", {"separate": True}),
    "gatv2": ("gatv2", {"attention_dropout": 0.3, "feature_dropout": 0.2, "out_heads": 3}),
    "gatv2 edges": ("gatv2", {"share": True, "edge_attributes": True, "residual": True}),
    "gat_e": ("gat_e", {"residual": True, "attention_dropout": 0.3, "jumping": "concat"}),
    "transformer": ("transformer", {"attention_dropout": 0.3, "beta": True}),
    "transformer edges": ("transformer", {"edge_attributes": True, "skip": False}),
    "appnp": ("appnp", {"propagations": 3, "edge_drop": 0.2}),
    "appnp deep": ("appnp", {"propagations": 2, "jumping": "concat", "norm": "batch"}),
    "gcnii": ("gcnii", {"layers": 3}),
    "gcnii star": ("gcnii", {"shared_weights": False, "theta": 2.0, "norm": "layer"}),
    "pna": ("pna", {}),
    "pna edges": ("pna", {"edge_attributes": True, "towers": 2, "norm": "batch", "hidden": 8}),
    "gipa": (
        "gipa",
        {
            "norm": "batch",
            "residual": True,
            "edge_drop": 0.3,
            "attention_dropout": 0.1,
            "layers": 3,
        },
    ),
    "gipa mean": ("gipa", {"reduce": "mean", "jumping": "max"}),
    "gipa max": ("gipa", {"reduce": "max"}),
    "mlp": ("mlp", {"norm": "layer"}),
}
# models that read the edges of a node in their order
IN_ORDER = ("sage lstm",)


class Alone(Model):
    """Layers one after another on the features."""

    def __init__(self, *layers):
        self.layers = list(layers)

    def forward(self, graph):
        h = graph.x
        for layer in self.layers:
            h = layer(graph, h)
        return h


def declared(kind, **options):
    """Those of the options that a model has; all of them are options of some model."""
    assert all(readers(name) for name in options)
    return {
        name: value
        for name, value in options.items()
        if name in find_model(kind).options.model_fields
    }


def make(name, d_in, d_out, d_edge, **more):
    """A model of the list above, in float64."""
    kind, options = MODELS[name]
    options = {
        **declared(kind, hidden=4, heads=2, dropout=0.2),
        **options,
        **declared(kind, **more),
    }
    with dtype_scope("float64"), init_scope(5):
        return build_model(kind, d_in, d_out, d_edge, **options)


def outputs(build, graph, size=1, placement=PLACEMENTS[0], *, training=False, view=None):
    """Output of every node by global id, and the gradients of the parameters for ones as output
    gradients.

    Args:
        build: Makes the model.
        view: (partition, layers) to the view; the global one by default.
    """

    def run(comm):
        with dtype_scope("float64"):
            part = build_partition(graph, comm, *placement, dtype=np.float64)
            model = build()
            layers = probe(model, part).layers
            seen = (view or global_view)(part, layers)
            with Tape(training=training, seed=3, all_sum=comm.all_sum) as tape:
                out = model(seen)
                grads = tape.backward(out)
            rows = part.masters if seen.rows is None else part.masters[seen.rows[: out.shape[0]]]
            return rows, out.value, GradientSum(comm, model.parameters()).finish(grads)

    parts = run_simulated(size, run)
    out = np.full((graph.n_nodes, *parts[0][1].shape[1:]), np.nan)
    for rows, values, _ in parts:
        out[rows] = values
    return out, parts[0][2]


def assert_close(mine, theirs, tolerance=1e-10):
    """Outputs and gradients agree, relative to the largest of each."""
    for a, b in zip([mine[0], *mine[1]], [theirs[0], *theirs[1]], strict=True):
        assert a.shape == b.shape
        assert np.isfinite(a).all()
        assert np.abs(a - b).max(initial=0) <= tolerance * max(1, np.abs(b).max(initial=0))
