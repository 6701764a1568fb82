"""The equality matrix: every strategy, placement and model, in float64 with dropout on.

One simulated run makes the views of a strategy once and trains all models on them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from machine import declared
from whole_links import links_at

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import ClusterBatch, GlobalBatch, MiniBatch
from graphtheta.engine.strategy.task import EdgeTask, LinkTask, NodeTask
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.graph.data.graph import Graph
from graphtheta.models import build_model
from graphtheta.ops import SGD, Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.samplers.neighbour import NeighbourSampler

N = 40
E = 160
D = 5
A = 3
CLASSES = 4
RELATIONS = 3
TYPES = 2
STEPS = 2
PLACEMENTS = [(p, m) for p in ("1d-src", "1d-dst", "vertex-cut") for m in ("hash", "block")]

MODELS = {
    "gcn": ("gcn", {}),
    "sage mean": ("sage", {}),
    "sage max": ("sage", {"aggregator": "max"}),
    "sage lstm": ("sage", {"aggregator": "lstm"}),
    "sage gru": ("sage", {"aggregator": "gru", "neighbour_order": "src.type"}),
    "sage concat": ("sage", {"aggregator": "concat", "neighbours": 3}),
    "sage attention": ("sage", {"aggregator": "attention"}),
    "sage gated": ("sage", {"aggregator": "gated"}),
    "gin": ("gin", {"norm": "batch"}),
    "gine": ("gine", {"norm": "batch", "train_eps": True}),
    "gat": ("gat", {"attention_dropout": 0.4, "feature_dropout": 0.2}),
    "gat D6": ("gat", {"separate": True, "attention_dropout": 0.4}),
    "gatv2": ("gatv2", {"attention_dropout": 0.4, "edge_attributes": True}),
    "gat_e": ("gat_e", {"residual": True, "attention_dropout": 0.4}),
    "transformer": (
        "transformer",
        {"attention_dropout": 0.4, "edge_attributes": True, "beta": True},
    ),
    "appnp": ("appnp", {"propagations": 2, "edge_drop": 0.2}),
    "gcnii": ("gcnii", {"shared_weights": False}),
    "pna": ("pna", {"edge_attributes": True, "norm": "batch"}),
    "gipa": ("gipa", {"norm": "batch", "edge_drop": 0.2, "residual": True}),
    "rgcn": ("rgcn", {}),
    "rgcn bases": ("rgcn", {"bases": 2, "norm": "batch"}),
    "rgat": ("rgat", {"attention_dropout": 0.4, "feature_dropout": 0.2}),
    "hgt": ("hgt", {"attention_dropout": 0.4}),
    "simple_hgn": ("simple_hgn", {"residual": True, "attention_dropout": 0.4}),
}
LINK_MODELS = {
    "gcn dot": ("gcn", {"decoder": "dot"}),
    "sage max hadamard": ("sage", {"decoder": "hadamard", "aggregator": "max"}),
}
EDGE_MODELS = {
    "gat_e": ("gat_e", {"decoder": "edge"}),
    "gin": ("gin", {"decoder": "edge", "norm": "batch"}),
}
# of node tasks, whose kernels real workers compile
COMPILED = ("sage max", "gat_e")
STRATEGIES = {
    "global": lambda *of: GlobalBatch(*of),
    "mini": lambda *of: MiniBatch(*of, batch_size=of[2].n_targets // STEPS),
    "mini sampled": lambda *of: MiniBatch(
        *of, batch_size=of[2].n_targets // STEPS, sampler=NeighbourSampler((3, 2))
    ),
    "mini replaced": lambda *of: MiniBatch(
        *of, batch_size=of[2].n_targets // STEPS, sampler=NeighbourSampler((3, 2), replace=True)
    ),
    "cluster": lambda *of: ClusterBatch(*of, 2, clusters=of[0].masters % 4, per_batch=2),
    "cluster boundary": lambda *of: ClusterBatch(
        *of, clusters=of[0].masters % 4, per_batch=2, boundary_hops=1, degrees="view", diagonal=0.5
    ),
}


@cache
def example():
    """A hub, self loops, duplicate edges and isolated nodes."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, N - 3, (2, E))
    ends[1, :24] = 3
    ends[0, 40:46] = ends[1, 40:46]
    ends[:, 50:60] = ends[:, 60:70]
    train = rng.random(N) < 0.4
    return Graph(
        ends,
        N,
        x=rng.standard_normal((N, D)),
        y=rng.integers(0, CLASSES, N),
        train=train,
        edge_attr=rng.standard_normal((E, A)),
        edge_weight=rng.random(E),
        edge_y=rng.standard_normal(E),
        edge_train=rng.random(E) < 0.3,
        edge_columns={"relation": rng.integers(0, RELATIONS, E)},
        node_columns={"type": rng.integers(0, TYPES, N)},
    )


def node_task(part, graph):
    return NodeTask(part, "classes"), CLASSES, MODELS


def link_task(part, graph):
    pairs = np.unique(np.sort(graph.edge_index[:, graph.src != graph.dst], axis=0), axis=1)
    known = np.unique(np.concatenate((pairs[0] * N + pairs[1], pairs[1] * N + pairs[0])))
    return LinkTask(part, links_at(part, pairs[0], pairs[1], known, 2, 7)), 1, LINK_MODELS


def edge_task(part, graph):
    return EdgeTask(part, graph.edge_train[part.edge_gid]), 1, EDGE_MODELS


TASKS = {"node": node_task, "link": link_task, "edge": edge_task}


def pairs(models, share=None):
    """Pairs of a strategy and a model: all, or the share of a number, which has every strategy and
    every model.

    As many numbers in a row as there are shares have all pairs; with two models these are halves,
    with many they are sixths.
    """
    shares = min(len(models), len(STRATEGIES))
    return [
        (strategy, model)
        for i, strategy in enumerate(STRATEGIES)
        for j, model in enumerate(models)
        if share is None or (i + j - share) % shares == 0
    ]


def run(comm, placement, task_name, share=None, only=None):
    """Losses and last gradients by (strategy, model), of all pairs or a share, and the edges of
    every view by strategy; of all models of the task or only those named.
    """
    graph = example()
    part = build_partition(graph, comm, *placement, dtype=np.float64)
    task, d_out, models = TASKS[task_name](part, graph)
    models = {name: models[name] for name in only or models}
    numbers = {}
    edges = {}
    chosen_pairs = pairs(models, share)
    with dtype_scope("float64"):
        built = {
            name: build(kind, d_out, options, part) for name, (kind, options) in models.items()
        }
        for strategy_name, make in STRATEGIES.items():
            strategy = make(part, ["in", "in"], task)
            views = [
                strategy.batch(i // strategy.steps_per_epoch, i % strategy.steps_per_epoch)
                for i in range(STEPS)
            ]
            edges[strategy_name] = [chosen(comm, level) for view in views for level in view.levels]
            for name in (model for of, model in chosen_pairs if of == strategy_name):
                model, start = built[name]
                model.load_state(start)
                numbers[strategy_name, name] = train(comm, model, task, views)
    return numbers, edges


def build(kind, d_out, options, part):
    """A model of two layers and the state it starts from."""
    with init_scope(5):
        usual = declared(kind, hidden=4, heads=2, dropout=0.3)
        model = build_model(kind, D, d_out, A, relations=RELATIONS, types=TYPES, **usual, **options)
    assert probe(model, part).layers == [("in", 1), ("in", 0)]
    return model, {name: x.copy() for name, x in model.state().items()}


def train(comm, model, task, views):
    parameters = model.parameters()
    losses = []
    optimiser = SGD(parameters, 0.1)
    for step, view in enumerate(views):
        with Tape(seed=1, step=step, all_sum=comm.all_sum) as tape:
            loss = task.loss(view, model(view))
            total = GradientSum(comm, parameters)
            grads = total.finish(tape.backward(loss, final=total.add))
        optimiser.step(grads)
        losses.append(float(comm.all_sum(loss.value)))
    return np.array(losses), np.concatenate([g.ravel() for g in grads])


def chosen(comm, level):
    """Global ids of the edges of a level over all workers, and how many edges each stands for."""
    scale = [
        np.ones(s.n_edges) if s.weight is None else s.weight
        for p in level.passes
        for s in p.selections
    ]
    parts = comm.all_gather([level.gid, np.concatenate([np.zeros(0), *scale])])
    gid, scale = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
    order = np.argsort(gid)
    return np.stack((gid[order], scale[order]))


@cache
def alone(task, share=None, only=None):
    """The numbers of one rank."""
    return run_simulated(1, run, PLACEMENTS[0], task, share, only)[0]
