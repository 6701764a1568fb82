"""No published network has a parameter whose gradient is zero but for rounding: Adam would turn
rounding errors into steps.
"""

from __future__ import annotations

from functools import cache

import graphs
import numpy as np
import pytest
from covering import covering
from machine import declared

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import MiniBatch, whole
from graphtheta.engine.strategy.task import EdgeTask, NodeTask
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.models import MODELS, build_model
from graphtheta.ops import Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.samplers.neighbour import NeighbourSampler

DRAWS = 20
OWN = {
    "gcn": {"normalisation": ("sym", "row", "both", "none")},
    "sage": {"aggregator": ("mean", "max", "sum", "lstm", "gru", "attention", "gated")},
    "gin": {"train_eps": (False, True)},
    "gine": {"train_eps": (False, True)},
    "gat": {
        "separate": (False, True),
        "attention_dropout": (0.0, 0.3),
        "feature_dropout": (0.0, 0.2),
    },
    "gatv2": {
        "share": (False, True),
        "attention_dropout": (0.0, 0.3),
        "edge_attributes": (False, True),
    },
    "gat_e": {"attention_dropout": (0.0, 0.3), "out_heads": (1, 2)},
    "transformer": {"beta": (False, True), "edge_attributes": (False, True)},
    "appnp": {"propagations": (1, 3), "edge_drop": (0.0, 0.2)},
    "gcnii": {"shared_weights": (False, True)},
    "pna": {"towers": (1, 2), "edge_attributes": (False, True)},
    "gipa": {"reduce": ("sum", "mean", "max"), "edge_drop": (0.0, 0.2)},
    "mlp": {},
    "rgcn": {"bases": (0, 2), "relation_sum": (True,)},
    "rgat": {"bases": (0, 2)},
    "simple_hgn": {"out_heads": (1, 2)},
    "hgt": {"attention_dropout": (0.0, 0.3)},
}
RELATIONS, TYPES = 3, 2
OF_SCORES = ("weight_dst", "weight_edge", "embed", "att", "bias_dst", "query", "key", "query_bias")


@cache
def connected(types):
    """A graph in which every node has an in-edge, as a partition of one rank."""
    rng = np.random.default_rng(3)
    n = 24
    nodes = np.arange(24)
    src = np.concatenate((rng.integers(0, n, 110), rng.permutation(n)))
    dst = np.concatenate((rng.integers(0, n, 110), nodes))
    dst[:20] = 3
    graph = graphs.fill(
        src,
        dst,
        n,
        edge_columns={"relation": rng.integers(0, RELATIONS, len(src))},
        node_columns={"type": rng.integers(0, types, n)},
    )
    return build_partition(graph, SerialComm(), dtype=np.float64)


def gradients(name, draw, types, options):
    """The largest number in the gradient of each parameter, in general position, of a random linear
    function of the outputs.
    """
    rng = np.random.default_rng(draw)
    part = connected(types)
    with dtype_scope("float64"):
        model = build_model(
            name,
            4,
            3,
            3,
            relations=RELATIONS,
            types=types,
            layers=3,
            **declared(name, hidden=6, heads=2),
            **options,
        )
    for p in model.parameters():
        p.value = (0.4 if p.value.ndim > 1 else 0.3) * rng.standard_normal(
            p.shape
        ) + p.name.endswith("gamma")
    seeds = (
        None
        if options["decoder"] == "none"
        else EdgeTask(part, part.edge.read("train")).masked(part.edge.read("train"))
    )
    view = whole(part, probe(model, part).layers, seeds)
    with Tape(seed=draw) as tape:
        out = model(view)
        found = tape.backward(out, rng.standard_normal(out.shape))
    return {
        p.name: np.abs(found.of(p)).max(initial=0) for p in model.parameters() if p.requires_grad
    }


@pytest.mark.one_in(11, 2)
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize(("name", "types"), [*((name, TYPES) for name in MODELS), ("hgt", 1)])
def test_every_parameter_has_a_gradient(name, types, norm):
    """A parameter may have no gradient for some weights, such as one behind a ReLU; then other
    weights are tried.
    """
    given = {
        **OWN[name],
        "residual": (False, True),
        "jumping": ("none", "concat", "max"),
        "decoder": ("none", "edge"),
        "dropout": (0.0, 0.3),
        "direction": ("in", "both") if name != "mlp" else ("in",),
    }
    for values in covering(*given.values()):
        options = {**dict(zip(given, values, strict=True)), "norm": norm}
        flat = None
        for draw in range(DRAWS):
            sizes = gradients(name, draw, types, options)
            none = {
                p for p, size in sizes.items() if size < 1e-12 * np.median(list(sizes.values()))
            }
            flat = none if flat is None else flat & none
            if not flat:
                break
        assert not flat, f"{sorted(flat)} with {options}"


def attention(comm, name, options):
    """The gradients of what is read by scores only, where one in-edge of every node is sampled."""
    part = build_partition(graphs.random_graph(), comm, dtype=np.float64)
    with dtype_scope("float64"), init_scope(3):
        model = build_model(
            name,
            4,
            3,
            3,
            relations=RELATIONS,
            types=TYPES,
            **declared(name, hidden=6, heads=2),
            **options,
        )
    layers = probe(model, part).layers
    task = NodeTask(part, "classes")
    view = MiniBatch(
        part, layers, task, batch_size=task.n_targets, sampler=NeighbourSampler((1,) * len(layers))
    ).batch(0, 0)
    with Tape(seed=1, all_sum=comm.all_sum) as tape:
        sums = GradientSum(comm, model.parameters()).finish(
            tape.backward(task.loss(view, model(view)))
        )
    found = {p.name: g for p, g in zip(model.parameters(), sums, strict=True)}
    assert any(g.any() for g in found.values())
    return {n: g for n, g in found.items() if n.endswith(OF_SCORES) or ".att_" in n}


@pytest.mark.one_in(12, 3)
@pytest.mark.fused
@pytest.mark.parametrize("back_end", ["reference", "fused"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gat", {}),
        ("gat", {"separate": True, "attention_dropout": 0.3}),
        ("gat_e", {}),
        ("gipa", {}),
        ("gatv2", {"edge_attributes": True}),
        ("transformer", {}),
    ],
)
def test_scores_of_single_edges_have_no_gradient_at_all(name, options, back_end):
    """The softmax over one edge is 1 whatever its score: exactly 0, also where kernels compute the
    score once more.
    """
    with backend_scope(back_end):
        for size in (1, 3):
            found = run_simulated(size, attention, name, options)[0]
            assert len(found) >= 4 and not [n for n, g in found.items() if g.any()]
