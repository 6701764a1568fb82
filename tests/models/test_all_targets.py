"""A batch of all targets: the numbers of the global batch, but for batch norm, which sees the rows
that a batch computes.
"""

from __future__ import annotations

import equality
import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import GlobalBatch, MiniBatch
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.graph.data.graph import Graph
from graphtheta.ops import Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope

OPTIONS = {
    **equality.MODELS,
    "gcn deep": ("gcn", {"layers": 3, "residual": True, "jumping": "concat"}),
    "sage layer norm": ("sage", {"norm": "layer"}),
    "gcn out": ("gcn", {"direction": "out"}),
    "gat both": ("gat", {"direction": "both"}),
    "gcn batch norm": ("gcn", {"norm": "batch"}),
}
WITH, WITHOUT = (
    [name for name, (_, options) in OPTIONS.items() if (options.get("norm") == "batch") == on]
    for on in (True, False)
)
# each target has two neighbours that are none: one hop from the targets is everywhere
RING = Graph(
    np.stack((np.arange(24), (np.arange(24) + 1) % 24)),
    24,
    x=np.random.default_rng(0).standard_normal((24, equality.D)),
    y=np.arange(24) % equality.CLASSES,
    train=np.arange(24) % 2 == 0,
    edge_attr=np.random.default_rng(1).standard_normal((24, equality.A)),
).symmetrised()


def batches(name, graph, size=1, task="node", placement=equality.PLACEMENTS[0], options=None):
    """Loss and gradients of the global batch and of a batch of all targets, and the rows that the
    two compute.
    """
    kind, chosen = options or OPTIONS[name]

    def program(comm):
        p = build_partition(graph, comm, *placement, dtype=np.float64)
        made, d_out, _ = equality.TASKS[task](p, graph)
        usual = equality.declared(kind, hidden=4, heads=2, dropout=0.3)
        with dtype_scope("float64"), init_scope(5):
            model = equality.build_model(
                kind,
                equality.D,
                d_out,
                equality.A,
                relations=equality.RELATIONS,
                types=equality.TYPES,
                **{**usual, **chosen},
            )
        layers = probe(model, p).layers
        found = []
        for strategy in (
            GlobalBatch(p, layers, made),
            MiniBatch(p, layers, made, batch_size=made.n_targets),
        ):
            view = strategy.batch(0, 0)
            with Tape(seed=1, all_sum=comm.all_sum) as tape:
                loss = made.loss(view, model(view))
            grads = GradientSum(comm, model.parameters()).finish(tape.backward(loss))
            rows = [int(comm.all_sum(np.array(n))) for n in (view.space.n, view.n_targets)]
            found.append(
                ([float(comm.all_sum(loss.value)), *(x for g in grads for x in g.ravel())], rows)
            )
        return found

    return run_simulated(size, program)[0]


def differ(a, b):
    """The largest difference of two lists of numbers, over the largest of them."""
    return np.abs(np.subtract(a, b)).max() / np.abs(a).max()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", WITHOUT)
def test_without_batch_norm_it_is_the_global_batch(name):
    for size, placement in ((1, equality.PLACEMENTS[0]), (3, equality.PLACEMENTS[5])):
        (whole, everywhere), (batch, rows) = batches(
            name, equality.example(), size, placement=placement
        )
        assert rows[1] < everywhere[1] == equality.N, "there is something to leave out"
        assert differ(whole, batch) < 1e-12


@pytest.mark.parametrize(
    "task, models",
    [("link", equality.LINK_MODELS), ("edge", {"gat_e": equality.EDGE_MODELS["gat_e"]})],
)
def test_so_it_is_for_links_and_edges(task, models):
    for options in models.values():
        for size, placement in ((1, equality.PLACEMENTS[0]), (3, equality.PLACEMENTS[5])):
            (whole, _), (batch, _) = batches(
                name="",
                graph=equality.example(),
                size=size,
                task=task,
                placement=placement,
                options=options,
            )
            assert differ(whole, batch) < 1e-12


@pytest.mark.parametrize("name", WITH)
def test_with_batch_norm_it_is_if_every_node_is_a_target(name):
    graph = equality.example().with_masks(np.ones(equality.N, bool))
    for size, placement in ((1, equality.PLACEMENTS[0]), (3, equality.PLACEMENTS[5])):
        (whole, _), (batch, rows) = batches(name, graph, size, placement=placement)
        assert rows == [equality.N] * 2
        assert differ(whole, batch) < 1e-12


@pytest.mark.parametrize("name", WITH)
def test_with_batch_norm_it_is_not_otherwise(name):
    """Mean and variance are those of the rows that the batch computes, and the global batch
    computes others besides.
    """
    (whole, _), (batch, _) = batches(name, equality.example())
    assert differ(whole, batch) > 1e-4
    for size, placement in ((2, equality.PLACEMENTS[2]), (3, equality.PLACEMENTS[5])):
        assert (
            differ(batches(name, equality.example(), size, placement=placement)[1][0], batch) < 1e-9
        )


def test_with_batch_norm_it_is_if_every_row_of_the_normalised_value_is_needed():
    """A value between two layers is needed at the targets and their neighbours, which may be all
    nodes.
    """
    (whole, everywhere), (batch, rows) = batches("gcn batch norm", RING)
    assert rows == [24, 12] and everywhere == [24, 24]
    assert differ(whole, batch) < 1e-12
    (whole, _), (batch, rows) = batches("gcn batch norm", RING.with_masks(np.arange(24) % 12 == 0))
    assert rows == [10, 2] and differ(whole, batch) > 1e-4
