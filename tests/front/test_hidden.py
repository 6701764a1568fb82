"""What looks at edges beside a sampler sees none that the sampler hides, or is refused: every
mechanism with every sampler that hides.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from timed import POISON, Scores, Valued

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.errors import ConfigError
from graphtheta.samplers.hidden import MECHANISMS, REFUSED, hidden_by, table

pytestmark = pytest.mark.reference
RNG = np.random.default_rng(3)
# the last node has features that no other has; only hidden edges lead from it
N = 40
E = 400
NOW = 20
X = np.append(RNG.normal(size=(N - 1, 4)), np.full((1, 4), POISON), axis=0)
ENDS = RNG.integers(0, N - 1, (2, E))
WHEN = RNG.integers(0, 30, E)
KNOWN = RNG.random(E) < 0.6
SAMPLERS = [
    "temporal",
    "temporal:strategy=last",
    "temporal:grain=3",
    "temporal:mask=known",
    "neighbour:mask=known",
    "labor:mask=known",
    "weighted:mask=known,weight=w",
    "per_relation:mask=known",
]


def graphs_for(task, hidden):
    """A graph, and one whose hidden edges join other nodes and have other values."""
    value = RNG.random(E)
    made = []
    for poisoned in (False, True):
        wrong = hidden & poisoned
        # links of a task are its targets, hidden or not
        ends = np.where(
            wrong & (task == "node"), [np.full(E, N - 1), (ENDS[1] * 3 + 1) % (N - 1)], ENDS
        )
        values = np.where(wrong, POISON, value)
        fields = {
            "edge_attr": values[:, None],
            "edge_columns": {
                "time": WHEN,
                "known": KNOWN,
                "w": values,
                "value": values,
                "relation": np.zeros(E, int),
            },
        }
        if task == "node":
            part = np.arange(N) % 4
            fields |= {
                "y": np.append(np.arange(N - 1) % 3, -1),
                "train": (part < 2) & (np.arange(N) < N - 1),
                "val": part == 2,
                "test": (part == 3) & (np.arange(N) < N - 1),
                "node_columns": {"time": np.arange(N) % NOW},
            }
        else:
            fields |= {
                "edge_train": WHEN < 15,
                "edge_val": (WHEN >= 15) & (WHEN < NOW),
                "edge_test": WHEN >= NOW,
            }
        made.append(gt.Graph(ends, N, x=X, **fields))
    return made


class Degrees(gt.Layer):
    """Sums neighbours, divided by the edges that they send."""

    def __init__(self, d_in, d_out):
        self.weight = gt.Parameter.glorot(d_in, d_out)

    def gather(self, edge):
        return edge.src.h / (1 + edge.src.out_degree)

    def apply(self, node, total):
        return total @ self.weight


class OfDegrees(gt.Model):
    def __init__(self, d_in, d_out):
        self.layer = Degrees(d_in, d_out)

    def forward(self, graph):
        return self.layer(graph, graph.x)


class OfValues(gt.Model):
    """With self loops: reads values and attributes of edges, also of added loops."""

    def __init__(self, d_in, d_out):
        self.layer = Valued(d_in, d_out)
        self.layer.self_loops = True

    def forward(self, graph):
        return self.layer(graph, graph.x)


CASES = {
    "precompute": {"model": "sage", "precompute": "yes"},
    "precompute auto": {"model": "sage", "precompute": "auto"},
    "structural_features": {"model": "sage", "structural_features": "degree"},
    "degrees": {"model": "gcn"},
    "degrees of senders": {"model": OfDegrees},
    "history": {"model": "sage", "history": "fresh", "layers": 2},
    "history hec": {"model": "sage", "history": "hec", "partitioner": "1d-dst", "layers": 2},
    "keep_layers": {"model": "sage"},
    "self_loops": {"model": OfValues, "self_loops": "yes"},
    "self_loops gat": {"model": "gat_e", "self_loops": "yes", "hidden": 4, "heads": 1},
    "caches": {"model": "sage", "feature_cache": "20", "cache_policy": "lru"},
    "negatives": {"model": Scores, "task": "link", "negatives": 2},
    "ranking": {"model": Scores, "task": "link", "rank_all": True},
}


def numbers(graph, keys, mask, folder):
    """Losses of training and, where the sampler hides edges from evaluation too, its metrics and
    predictions.
    """
    usual = {
        "strategy": "mini",
        "batch_size": 7,
        "epochs": 2,
        "dtype": "float64",
        "dropout": 0.0,
        "keep": 0,
        "layers": 1,
        "hidden": 8,
        # probabilities near 0 and 1 hide differences
        "scores": "logits",
    }
    keys = {**usual, **keys}
    if keys["model"] in (OfDegrees, OfValues, Scores):
        del keys["layers"], keys["hidden"], keys["dropout"]
    one = gt.Trainer(keys.pop("model"), graph, comm=SerialComm(), **keys)
    if folder:
        one.fit()
        one.on(graph).keep_layers(folder)
        return []
    if mask:
        return [one.train_epoch(0), one.train_epoch(1)]
    result = one.fit()
    outputs = [] if keys.get("task") == "link" else one.predict()[1][:-1].ravel().tolist()
    return [row["loss"] for row in result.history] + sorted(result.metrics.values()) + outputs


@pytest.mark.one_in(21, 3)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("case", CASES)
def test_hidden_edges_change_no_number_or_the_mechanism_is_refused(case, sampler, tmp_path):
    name = case.partition(" ")[0]
    keys = CASES[case]
    timed = sampler.startswith("temporal")
    mask = "mask" in sampler
    hidden = ~KNOWN if mask else np.zeros(E, bool)
    if timed and not mask:
        hidden = WHEN >= NOW
    task = keys.get("task", "node")
    fanout = [-1] * keys.get("layers", 1)
    clean, poisoned = graphs_for(task, hidden)
    keys = {**keys, "sampler": sampler, "fanout": fanout}
    folder = tmp_path if name == "keep_layers" else None
    applies = [MECHANISMS[name].times] * timed + [MECHANISMS[name].mask] * mask
    if REFUSED in applies and case != "precompute auto":
        with pytest.raises(ConfigError, match=r"sampler=|drop|choose") as caught:
            numbers(clean, keys, mask, folder)
        assert sampler.partition(":")[0] in str(caught.value)
        return
    expected, found = (numbers(graph, keys, mask, folder) for graph in (clean, poisoned))
    assert np.isfinite(expected).all()
    # sums of the same numbers in another order
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_every_mechanism_is_tried_and_documented():
    assert {case.partition(" ")[0] for case in CASES} == set(MECHANISMS)
    assert "\n".join(table()) in Path(__file__).parents[2].joinpath("docs/time.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "global"},
        {"strategy": "mini"},
        {"sampler": "labor", "fanout": [2, 2], "strategy": "mini"},
    ],
)
def test_other_jobs_hide_nothing(keys):
    assert hidden_by(gt.Job(**keys)) is None


SHIFTS = {
    "as they are": (0, np.int64),
    "later": (10**9, np.int64),
    "before zero": (-1000, np.int64),
    "floats": (0, np.float64),
    "later floats": (1.7e9, np.float64),
    "small": (0, np.int32),
}


@pytest.mark.second
@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("model", ["gat", "gat_e", "sage"])
def test_predictions_depend_on_differences_of_times_only(model, strategy):
    """Self loops that the job adds for gat are seen whatever the numbers of the times.

    Every model meets all shifts: one half with each strategy.
    """
    graph, _ = graphs_for("node", np.zeros(E, bool))
    keep = graph.src != graph.dst
    graph = gt.Graph(
        ENDS[:, keep],
        N,
        x=X / POISON,
        y=graph.y,
        train=graph.train,
        val=graph.val,
        edge_attr=graph.edge_attr[keep],
    )
    expected = None
    as_they_are, *others = SHIFTS.values()
    for shift, dtype in (as_they_are, *others[strategy == "last" :: 2]):
        times = {
            "node_columns": {"time": (np.arange(N) % NOW + shift).astype(dtype)},
            "edge_columns": {"time": (WHEN[keep] + shift).astype(dtype)},
        }
        one = gt.Trainer(
            model,
            graph.replace(**times),
            strategy="mini",
            batch_size=9,
            fanout=[3],
            layers=1,
            hidden=4,
            epochs=1,
            keep=0,
            dtype="float64",
            sampler=f"temporal:strategy={strategy}",
            comm=SerialComm(),
        )
        found = [row["loss"] for row in one.fit().history] + one.predict()[1].ravel().tolist()
        expected = found if expected is None else expected
        np.testing.assert_array_equal(found, expected)
