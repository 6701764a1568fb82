"""Nothing of the future for triples: in batches, in ranks, in predictions, and in whole jobs."""

from __future__ import annotations

from typing import Any

import graphs
import numpy as np
import pytest
from ties import tolerance
from timed import JOB, Valued, late, outputs_of_batches

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

pytestmark = pytest.mark.reference

RNG = np.random.default_rng(8)
N = 24
E = 220
R = 3
LAST = 9
NEGATIVES = 3
HEAD, TAIL, RELATION = RNG.integers(0, N - 1, E), RNG.integers(0, N - 1, E), RNG.integers(0, R, E)
WHEN, PART = RNG.integers(0, LAST + 1, E), RNG.random(E)
# many triples occur at other times again, some in another split
for column in (HEAD, TAIL, RELATION):
    column[1::2] = column[::2]
# and a few at the same time
for column in (HEAD, TAIL, RELATION, WHEN, PART):
    column[-12:] = column[:12]
VALUE = RNG.random(E) + 0.5
GRAPH = gt.Graph(
    (HEAD, TAIL),
    N,
    x=RNG.normal(size=(N, 5)),
    edge_columns={"relation": RELATION, "time": WHEN, "value": VALUE},
    edge_train=PART < 0.7,
    edge_val=(PART > 0.7) & (PART < 0.8),
    edge_test=PART > 0.8,
)
FLOATS = GRAPH.replace(edge_columns={**GRAPH.edge_columns, "time": WHEN / 8 - 0.7})
KEYS: dict[str, Any] = {
    **JOB,
    "task": "triple",
    "strategy": "mini",
    "batch_size": 17,
    "fanout": "4,3",
    "sampler": "temporal",
    "negatives": NEGATIVES,
    "eval_negatives": 2,
}
# the first edge of each triple of a time, in the last of its sets
ORDER = np.argsort(-(2 * GRAPH.edge_test.astype(int) + GRAPH.edge_val), kind="stable")
EVENTS = np.sort(
    ORDER[np.unique(np.stack((HEAD, RELATION, TAIL, WHEN))[:, ORDER], axis=1, return_index=True)[1]]
)
TRAIN, VAL, TEST = (
    EVENTS[mask[EVENTS]] for mask in (GRAPH.edge_train, GRAPH.edge_val, GRAPH.edge_test)
)


class Deep(gt.Model):
    """Two layers that read the values of edges, and the scores of triples."""

    def __init__(self, d_in: int, relations: int):
        self.first = Valued(d_in, 6)
        self.second = Valued(6, 6)
        self.score = gt.DistMult(6, relations)
        self.dropout = 0.3

    def forward(self, graph: Any) -> Any:
        return self.score(
            graph, self.second(graph, gt.dropout(gt.relu(self.first(graph, graph.x)), self.dropout))
        )


def trainer(graph: gt.Graph = GRAPH, comm: Any = None, **keys: Any) -> gt.Trainer:
    return gt.Trainer(Deep, graph, comm=comm or SerialComm(), **{**KEYS, **keys})


def batches(graph: gt.Graph, **keys: Any) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """For each batch of an epoch the times of its pairs, their outputs, and the batch's loss."""
    when = WHEN[TRAIN]
    return [
        (when[view.pairs.gid // (NEGATIVES + 1) % len(when)], out, loss)
        for view, out, loss in outputs_of_batches(trainer(graph, **keys))
    ]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"fanout": "-1,-1"},
        {"sampler": "temporal:strategy=last"},
        {"reciprocal": True},
        {"order": "proximity", "negative_groups": 2},
        {"negatives_from": "batch"},
    ],
    ids=["uniform", "all", "last", "reciprocal", "mixed", "in batch"],
)
def test_no_triple_of_the_future_reaches_a_target_of_a_batch(keys: dict[str, Any]) -> None:
    clean = batches(GRAPH, **keys)
    n = 0
    assert sum(len(times) for times, *_ in clean) == len(TRAIN) * (NEGATIVES + 1) * (
        2 if "reciprocal" in keys else 1
    )
    for time in (3, 7):
        poisoned = batches(late(GRAPH, time - 1), **keys)
        changed = False
        for (times, out, loss), (_, other, other_loss) in zip(clean, poisoned, strict=True):
            np.testing.assert_array_equal(out[times <= time], other[times <= time])
            if times.max() <= time:
                assert loss == other_loss
                n += 1
            changed |= not np.array_equal(out, other)
        assert changed
    # batches of another order are of all times
    assert n > 3 or "order" in keys


def test_other_samplers_show_the_future() -> None:
    """The same comparisons can fail."""
    one, other = (trainer(graph, sampler="neighbour") for graph in (GRAPH, late(GRAPH, 7)))
    outs = [
        each.setup.evaluator.run(each.model, each.strategy.batch(0, 0)).value
        for each in (one, other)
    ]
    assert not np.array_equal(*outs)
    assert not np.array_equal(one.predict()[1], other.predict()[1])
    assert one.measure()["test_mrr"] != other.measure()["test_mrr"]


def test_no_triple_of_the_future_reaches_a_metric_or_a_prediction() -> None:
    early = GRAPH.replace(
        edge_val=GRAPH.edge_val & (WHEN <= 5),
        edge_test=GRAPH.edge_test & (WHEN <= 5),
        edge_train=GRAPH.edge_train | (WHEN > 5),
    )
    metrics = [trainer(graph).measure() for graph in (early, late(early, 4))]
    names = [name for name in metrics[0] if not name.startswith("train")]
    assert {"test_loss", "test_mrr", "val_hits3"} <= set(names)
    assert [metrics[0][name] for name in names] == [metrics[1][name] for name in names]
    expected = trainer(early).predict()[1]
    times = WHEN[TEST][WHEN[TEST] <= 5]
    assert len(times) == len(expected)
    for time in (1, 3):
        poisoned = trainer(late(early, time - 1))
        same = poisoned.predict()[1] == expected
        assert same[times <= time].all() and not same.all()
        assert poisoned.measure()["test_mrr"] != metrics[0]["test_mrr"]


def test_no_triple_of_the_future_reaches_a_job() -> None:
    """Training triples of the latest time carry messages, which reach validation and testing, but
    no loss of training.
    """
    graph = GRAPH.replace(edge_train=WHEN <= 4, edge_val=(WHEN == 5), edge_test=(WHEN > 5))
    epochs = KEYS["epochs"]
    numbers, others = (list(trained(of)[0].values()) for of in (graph, late(graph, 3)))
    np.testing.assert_array_equal(numbers[:epochs], others[:epochs])
    assert not np.array_equal(numbers[epochs:], others[epochs:])
    for keys, poisoned in (({}, late(graph, 2)), ({"sampler": "neighbour"}, late(graph, 3))):
        numbers, others = (list(trained(of, **keys)[0].values()) for of in (graph, poisoned))
        assert np.not_equal(numbers[:epochs], others[:epochs]).all()


def values(model: gt.Model, time: int) -> np.ndarray:
    """Values of the nodes at a time by the formula, from training triples of earlier times and
    their inverse.
    """
    used = TRAIN[WHEN[TRAIN] < time]
    a = np.zeros((N, N))
    value = GRAPH.edge_columns["value"].astype(np.float64)[used]
    np.add.at(a, (TAIL[used], HEAD[used]), value)
    np.add.at(a, (HEAD[used], TAIL[used]), value)
    h = GRAPH.x.astype(np.float64)
    for layer, activation in (
        (model.first, lambda x: np.maximum(x, 0)),
        (model.second, lambda x: x),
    ):
        h = activation(a @ (h @ layer.weight.value) + h @ layer.own.value)
    return h


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("size", "reciprocal"), [(1, False), (2, False), (3, False), (1, True), (2, True)]
)
def test_ranks_and_predictions_are_those_of_the_past(size: int, reciprocal: bool) -> None:
    """Ranks are among all nodes at the time of the triple, without other answers of that time."""

    def program(comm: Any) -> Any:
        one = trainer(comm=comm, reciprocal=reciprocal, partitioner="vertex-cut")
        return one.measure(), one.predict(), gt.relation_report(one), one

    metrics, (ids, out), report, one = run_simulated(size, program)[0]
    r = one.model.score.relation.value
    ranks = dict[tuple[int, str], list[float]]()
    scores = []
    events = set(zip(HEAD.tolist(), RELATION.tolist(), TAIL.tolist(), WHEN.tolist(), strict=True))
    for e in TEST:
        h, k, t, time = (int(x[e]) for x in (HEAD, RELATION, TAIL, WHEN))
        x = values(one.model, time)
        backward = k + R if reciprocal else k
        tails, heads = (x[h] * r[k]) @ x.T, (x[t] * r[backward]) @ x.T
        scores.append((tails[t] + heads[h]) / 2)
        for side, all_scores, true in (("tail", tails, t), ("head", heads, h)):
            others = [
                c
                for c in range(N)
                if ((h, k, c, time) if side == "tail" else (c, k, t, time)) not in events
            ]
            over = all_scores[others] - all_scores[true]
            ranks.setdefault((k, side), []).append(
                1 + np.sum(over > 1e-9) + np.sum(np.abs(over) <= 1e-9) / 2
            )
    np.testing.assert_array_equal(ids, np.stack((HEAD, RELATION, TAIL), axis=1)[TEST])
    np.testing.assert_allclose(out, scores, rtol=1e-9)
    every = np.concatenate(list(ranks.values()))
    assert metrics["test_mrr"] == pytest.approx(np.mean(1 / every), rel=1e-12)
    assert metrics["test_hits3"] == pytest.approx(np.mean(every <= 3), rel=1e-12)
    assert {key: row["mrr"] for key, row in report.items()} == pytest.approx(
        {key: np.mean(1 / np.array(x)) for key, x in ranks.items()}
    )
    # some triples of the test set occurred before, or occur again
    known = {event[:3] for event in events if event[3] != time}
    assert any((h, k, t) in known for h, k, t in ids.tolist())
    # the best answers are those at the time of the latest held-out triple
    x = values(one.model, int(max(WHEN[np.concatenate((VAL, TEST))])))
    asked = {"relation": 1, "keep_known": True}
    top = run_simulated(
        size,
        lambda comm: trainer(comm=comm, partitioner="vertex-cut", reciprocal=reciprocal).top(
            [2], 4, **asked
        ),
    )
    np.testing.assert_array_equal(top[0][0][0], np.argsort(-(x[2] * r[1]) @ x.T)[:4])


def trained(
    graph: gt.Graph = GRAPH, comm: Any = None, **keys: Any
) -> tuple[dict[str, float], np.ndarray | None]:
    """Losses and metrics of a run, and its predictions on rank 0."""
    one = trainer(graph, comm, **keys)
    result = one.fit()
    numbers = {f"loss {row['epoch']}": row["loss"] for row in result.history} | result.metrics
    out = one.predict()
    return numbers, None if out is None else out[1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("size", "placement", "graph", "keys"),
    [
        (2, graphs.PLACEMENTS[0], GRAPH, {}),
        (3, graphs.PLACEMENTS[1], GRAPH, {"sampler": "temporal:grain=3"}),
        (3, graphs.PLACEMENTS[2], GRAPH, {"mode": "independent", "views_per_step": 3}),
        (
            2,
            graphs.PLACEMENTS[3],
            FLOATS,
            {"sampler": "temporal:strategy=last", "reciprocal": True},
        ),
        (3, graphs.PLACEMENTS[4], GRAPH, {"reciprocal": True, "negatives_from": "batch"}),
    ],
    ids=["together", "grain", "independent", "floats", "reciprocal"],
)
def test_numbers_do_not_depend_on_ranks(
    size: int, placement: tuple[str, str], graph: gt.Graph, keys: dict[str, Any]
) -> None:
    # a few batches of an epoch say what many do
    keys = {**keys, "epochs": 1, "batch_size": 60}
    expected, out = trained(graph, **({**keys, "mode": "cooperative"} if "mode" in keys else keys))
    partitioner, masters = placement
    found = run_simulated(
        size,
        lambda comm: trained(graph, comm, partitioner=partitioner, masters=masters, **keys),
    )
    for numbers, _ in found:
        assert numbers.keys() == expected.keys()
        for name, x in expected.items():
            np.testing.assert_allclose(
                numbers[name], x, rtol=1e-9, atol=tolerance(name, 0), err_msg=name
            )
    np.testing.assert_allclose(found[0][1], out, rtol=1e-9)


def test_triples_of_one_grain_are_one() -> None:
    """The first is kept, and those of other grains stay."""
    graph = gt.Graph(
        ([0, 0, 0, 1], [1, 1, 1, 2]),
        4,
        x=np.ones((4, 5)),
        edge_train=[True] * 4,
        edge_columns={"relation": [0, 0, 0, 0], "time": [4, 5, 6, 1], "value": [1.0] * 4},
    )
    for sampler, expected in (("temporal", [3, 4, 5, 0]), ("temporal:grain=2", [3, 5, -1])):
        assert trainer(graph, sampler=sampler).strategy.task.cutoffs.tolist() == expected
    assert trainer(graph, sampler="neighbour").strategy.task.n_targets == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"sampler": "temporal:target_time=born"},
            "target_time=born names a column of nodes, but the targets of this task are",
        ),
        (
            {"sampler": "temporal:time=when"},
            "time=when: there is no edge column 'when'; choose from",
        ),
        ({"sampler": "temporal:grain=0.5"}, "the times are integers; give a whole number"),
        (
            {"history": "hec", "partitioner": "1d-dst"},
            "history=hec stores values of nodes in batches of nodes",
        ),
    ],
)
def test_what_has_no_times_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trainer(**keys)


def test_a_column_of_several_numbers_is_no_time() -> None:
    graph = GRAPH.replace(
        edge_columns={**GRAPH.edge_columns, "time": np.stack((WHEN, WHEN), axis=1)}
    )
    with pytest.raises(ConfigError, match="the edge column 'time' has 2 numbers per edge"):
        trainer(graph)
