"""Nothing of the future for targets that are edges or links: in batches, in evaluation, and in
whole jobs.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from timed import JOB, Valued, late, outputs_of_batches

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.graph.splits.links import MESSAGE, link_parts
from graphtheta.models import DotDecoder
from graphtheta.ops.parallel.pool import set_threads, threads

RNG = np.random.default_rng(5)
N = 40
E = 260
LAST = 11
WHEN, PART = RNG.integers(0, LAST + 1, E), RNG.random(E)
# the last two nodes have no edges: negatives that end there see nothing
GRAPH = graphs.random_graph(
    N,
    E,
    y=None,
    train=None,
    val=None,
    test=None,
    edge_train=PART < 0.7,
    edge_val=(PART > 0.7) & (PART < 0.8),
    edge_test=PART > 0.8,
    edge_columns={"time": WHEN, "value": RNG.random(E) + 0.5},
)
FLOATS = GRAPH.replace(edge_columns={**GRAPH.edge_columns, "time": WHEN / 8 - 0.7})
KEYS = {**JOB, "strategy": "mini", "batch_size": 17, "fanout": "4,3", "sampler": "temporal"}
NEGATIVES = 3
TASKS = {
    "edge": {"task": "edge"},
    "link": {"task": "link", "negatives": NEGATIVES, "eval_negatives": 5},
}
# times up to which a target of each task sees: a link asks whether there is an edge at its time, an
# edge is known to be there
SEES = {"edge": 0, "link": -1}


class Deep(gt.Model):
    """Two layers that read the values of edges, and the scores of pairs."""

    def __init__(self, d_in):
        self.first = Valued(d_in, 6)
        self.second = Valued(6, 6)
        self.score = DotDecoder()
        self.dropout = 0.3

    def forward(self, graph):
        return self.score(
            graph, self.second(graph, gt.dropout(gt.relu(self.first(graph, graph.x)), self.dropout))
        )


def trainer(task, graph=GRAPH, comm=None, **keys):
    keys = {**KEYS, **TASKS.get(task, {"task": task}), **keys}
    return gt.Trainer(keys.pop("model", Deep), graph, comm=comm or SerialComm(), **keys)


def times_of(ends, part):
    """The time of the first edge of a part between the ends of each link, in either direction."""
    chosen = np.flatnonzero(part)
    return np.array(
        [
            WHEN[chosen][keys_of(GRAPH.src[chosen], GRAPH.dst[chosen]) == k].min()
            for k in keys_of(*ends.T)
        ]
    )


def keys_of(src, dst):
    """A number for each pair of nodes, in either direction."""
    return np.minimum(src, dst) * N + np.maximum(src, dst)


# the edges that links are predicted from
MESSAGES = link_parts(GRAPH)(0, E) == MESSAGE


def pair_times(task, view):
    """The time of each pair of a view of training, in the order of its outputs."""
    if task == "edge":
        return WHEN[view.pairs.gid]
    pairs = view.pairs.pairs
    positives = np.stack((pairs.src, pairs.dst), axis=1)[:: NEGATIVES + 1]
    return np.repeat(times_of(positives, MESSAGES), NEGATIVES + 1)[view.pairs.order]


def batches(task, graph, **keys):
    """For each batch of an epoch the times of its pairs, their outputs, and the batch's loss."""
    return [
        (pair_times(task, view), out, loss)
        for view, out, loss in outputs_of_batches(trainer(task, graph, **keys))
    ]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "keys",
    [{}, {"fanout": "-1,-1"}, {"sampler": "temporal:strategy=last"}, {"order": "proximity"}],
    ids=["uniform", "all", "last", "mixed"],
)
def test_no_edge_of_the_future_reaches_a_target_of_a_batch(task, keys):
    clean = batches(task, GRAPH, **keys)
    n = 0
    for time in (3, 8):
        poisoned = batches(task, late(GRAPH, time + SEES[task]), **keys)
        changed = False
        for (times, out, loss), (_, other, other_loss) in zip(clean, poisoned, strict=True):
            np.testing.assert_array_equal(out[times <= time], other[times <= time])
            if times.max() <= time:
                assert loss == other_loss
                n += 1
            changed |= not np.array_equal(out, other)
        assert changed
    # batches of random order are of all times
    assert n > 5 or "order" in keys


@pytest.mark.parametrize("task", TASKS)
def test_other_samplers_show_the_future(task):
    """The same comparison can fail."""
    keys = {"sampler": "neighbour", "model": Deep}
    one = trainer(task, GRAPH, **keys)
    other = trainer(task, late(GRAPH, 8), **keys)
    outs = [
        each.setup.evaluator.run(each.model, each.strategy.batch(0, 0)).value
        for each in (one, other)
    ]
    assert not np.array_equal(*outs)
    before = WHEN <= 8 if task == "edge" else times_of(one.predict()[0], GRAPH.edge_test) <= 8
    assert not np.array_equal(one.predict()[1][before], other.predict()[1][before])
    assert one.measure() != other.measure()


@pytest.mark.parametrize("task", TASKS)
def test_no_edge_of_the_future_reaches_a_metric_or_a_prediction(task):
    early = GRAPH.replace(
        edge_val=GRAPH.edge_val & (WHEN <= 6),
        edge_test=GRAPH.edge_test & (WHEN <= 6),
        edge_train=GRAPH.edge_train | (WHEN > 6),
    )
    metrics = [trainer(task, graph).measure() for graph in (early, late(early, 6 + SEES[task]))]
    names = [name for name in metrics[0] if not name.startswith("train")]
    assert "test_loss" in names and [metrics[0][name] for name in names] == [
        metrics[1][name] for name in names
    ]
    ids, expected = trainer(task, early).predict()
    times = WHEN if task == "edge" else times_of(ids, early.edge_test)
    for time in (2, 4):
        poisoned = trainer(task, late(early, time + SEES[task]))
        same = poisoned.predict()[1] == expected
        assert same[times <= time].all() and not same.all()
        assert poisoned.measure()["test_loss"] != metrics[0]["test_loss"]


def test_no_edge_of_the_future_reaches_a_job_with_edges():
    """Losses, metrics and predictions of edges up to the last labelled one."""
    graph = GRAPH.replace(
        edge_train=WHEN <= 4, edge_val=(WHEN > 4) & (WHEN <= 6), edge_test=(WHEN > 6) & (WHEN <= 9)
    )
    (numbers, out), (others, other) = (trained("edge", g) for g in (graph, late(graph, 9)))
    np.testing.assert_array_equal(numbers, others)
    np.testing.assert_array_equal(out[WHEN <= 9], other[WHEN <= 9])
    assert not np.array_equal(out, other)
    assert trainer("edge", graph).train_epoch(0) == trainer("edge", late(graph, 4)).train_epoch(0)
    uniform = {"sampler": "neighbour"}
    assert trainer("edge", graph, **uniform).train_epoch(0) != trainer(
        "edge", late(graph, 4), **uniform
    ).train_epoch(0)


def test_no_edge_of_the_future_reaches_a_job_with_links():
    """Links of one relation are early; edges of another one are later, and carry messages."""
    relation = (WHEN > 5) | (PART > 0.95)
    graph = GRAPH.replace(
        edge_y=None, edge_columns={**GRAPH.edge_columns, "relation": relation.astype(np.int32)}
    )
    keys = {"link_relation": "0"}
    (numbers, out), (others, other) = (trained("link", g, **keys) for g in (graph, late(graph, 5)))
    np.testing.assert_array_equal(numbers, others)
    np.testing.assert_array_equal(out, other)
    (numbers, _), (others, _) = (
        trained("link", g, **keys, sampler="neighbour") for g in (graph, late(graph, 5))
    )
    assert (numbers[: JOB["epochs"]] != others[: JOB["epochs"]]).all()


def trained(task, graph=GRAPH, comm=None, **keys):
    """Losses and metrics of a run, and its predictions on rank 0."""
    one = trainer(task, graph, comm, **keys)
    result = one.fit()
    numbers = [row["loss"] for row in result.history] + sorted(result.metrics.values())
    out = one.predict()
    return np.array(numbers), None if out is None else out[1]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("time", [3, 7])
def test_a_prediction_reads_all_of_the_past_and_nothing_later(task, time):
    """It is that of the whole graph in which later edges have the value 0."""
    one = trainer(task)
    past = gt.Trainer(Deep, late(GRAPH, time + SEES[task], 0.0), **{**JOB, **TASKS[task]})
    past.model.load_state(one.model.state())
    ids, out = one.predict()
    of = (WHEN if task == "edge" else times_of(ids, GRAPH.edge_test)) == time
    assert of.any()
    np.testing.assert_allclose(out[of], past.predict()[1][of], rtol=1e-12)


def test_another_graph_without_edges_has_no_predictions_of_edges():
    other = trainer("edge").on(GRAPH.keep_edges(np.zeros(0, np.int64)))
    ids, out = other.predict()
    assert len(ids) == len(out) == 0 and other.measure() == {}


# each task meets both numbers of workers
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("task", "size", "graph", "keys"),
    [
        ("edge", 2, GRAPH, {}),
        ("edge", 3, GRAPH, {"sampler": "temporal:grain=3"}),
        ("link", 3, GRAPH, {"mode": "independent", "views_per_step": 3}),
        ("link", 2, FLOATS, {"sampler": "temporal:strategy=last"}),
    ],
    ids=["together", "grain", "independent", "floats"],
)
def test_numbers_do_not_depend_on_ranks(task, size, graph, keys):
    # a few batches of an epoch say what many do
    keys = {**keys, "epochs": 1, "batch_size": 60}
    if task == "link":
        keys["rank_all"] = True
    each = {**keys, "mode": "cooperative"} if "mode" in keys else keys
    expected, out = trained(task, graph, **each)
    # one of the two placements for each task
    partitioner, masters = graphs.PLACEMENTS[size - 2 :: 3][list(TASKS).index(task)]
    found = run_simulated(
        size,
        lambda comm: trained(task, graph, comm, partitioner=partitioner, masters=masters, **keys),
    )
    for numbers, _ in found:
        np.testing.assert_allclose(numbers, expected, rtol=1e-9)
    np.testing.assert_allclose(found[0][1], out, rtol=1e-9)


@pytest.mark.second
def test_numbers_do_not_depend_on_threads():
    before = threads()
    found = []
    for n in (1, before):
        set_threads(n)
        found.append(trained("link", backend="fused", epochs=1))
    set_threads(before)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def expected_edges(pairs, times, sees, stored, hops):
    """The edges that a batch reads by hop, the last one first, by the rule of cutoffs as it is
    documented.
    """
    cutoff = {}
    found = []
    for pair, time in zip(pairs, times, strict=True):
        for end in pair:
            cutoff[end] = min(cutoff.get(end, time + sees), time + sees)
    for _ in range(hops):
        into = {
            node: stored[(GRAPH.dst[stored] == node) & (WHEN[stored] <= until)]
            for node, until in cutoff.items()
        }
        lower = dict(cutoff)
        for node, chosen in into.items():
            for other in GRAPH.src[chosen]:
                lower[other] = min(lower.get(other, cutoff[node]), cutoff[node])
        cutoff = lower
        found.append({int(e) for chosen in into.values() for e in chosen})
    return found[::-1]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("task", TASKS)
def test_of_targets_that_share_a_node_the_earliest_counts(task, size):
    """The edges of each batch are those of the rule. Links have negatives that end where there is
    no edge.
    """
    message = np.arange(E) if task == "edge" else np.flatnonzero(MESSAGES)

    def program(comm):
        one = trainer(task, comm=comm, fanout="-1,-1", partitioner="vertex-cut")
        found = []
        gid = message[one.partition.edge_gid]
        for i in range(one.strategy.steps_per_epoch):
            view = one.strategy.batch(0, i)
            pairs = view.pairs.pairs
            edges = [
                [
                    int(gid[e])
                    for one_pass in level.passes
                    for s in one_pass.selections
                    for e in s.stored
                ]
                for level in view.levels
            ]
            times = pair_times(task, view)[np.argsort(view.pairs.order)]
            found.append(
                (
                    np.stack((pairs.src, pairs.dst), axis=1),
                    times,
                    pairs.gid % (NEGATIVES + 1) == 0,
                    edges,
                )
            )
        return found

    alone = shared = 0
    for same in zip(*run_simulated(size, program), strict=True):
        ends, times, positive = (np.concatenate([part[k] for part in same]) for k in range(3))
        edges = [{e for part in same for e in part[3][hop]} for hop in range(2)]
        targets = keys_of(*ends[positive].T) if task == "link" else []
        stored = message[~np.isin(keys_of(GRAPH.src[message], GRAPH.dst[message]), targets)]
        assert edges == expected_edges(ends.tolist(), times, SEES[task], stored, 2)
        alone += np.count_nonzero(ends >= N - 2)
        shared += ends.size - len(np.unique(ends))
    assert bool(alone) == (task == "link") and shared


@pytest.mark.parametrize("graph", [GRAPH, FLOATS], ids=["integers", "floats"])
@pytest.mark.parametrize("task", TASKS)
def test_batches_are_runs_of_the_order_by_time_in_another_order_each_epoch(task, graph):
    strategy = trainer(task, graph).strategy
    firsts = []
    ids, cutoffs = strategy.task.ids, strategy.task.cutoffs
    runs = np.array_split(np.lexsort((ids, cutoffs)), np.arange(17, len(ids), 17))
    for epoch in range(3):
        found = [
            np.sort(strategy._order.own(epoch, i)).tolist() for i in range(strategy.steps_per_epoch)
        ]
        assert sorted(found) == sorted(np.sort(run).tolist() for run in runs)
        firsts.append(found)
    assert firsts[0] != firsts[1] != firsts[2] != [np.sort(run).tolist() for run in runs]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_link_is_as_old_as_the_first_edge_between_its_ends(size):
    graph = graphs.fill(
        [0, 1, 2, 2, 3, 0],
        [1, 0, 3, 3, 2, 4],
        5,
        y=None,
        edge_y=None,
        edge_train=None,
        edge_val=None,
        edge_test=None,
        edge_columns={"time": [9, 3, 7, 5, 6, 4], "value": np.ones(6)},
    ).replace(edge_val=np.arange(6) == 5)

    def program(comm):
        task = trainer("link", graph, comm, batch_size=2).strategy.task
        return dict(zip(task._links.src.tolist(), task.cutoffs.tolist(), strict=True))

    found = run_simulated(size, program)
    assert {source: cutoff for part in found for source, cutoff in part.items()} == {0: 2, 2: 4}


def test_ranking_among_all_nodes_at_times_is_that_of_the_whole_graph_if_all_edges_are_earlier():
    when = np.where(GRAPH.edge_test, 20, np.where(GRAPH.edge_val, 15, WHEN))
    graph = GRAPH.replace(edge_columns={**GRAPH.edge_columns, "time": when})
    one, other = (
        trainer("link", graph, rank_all=True, sampler=sampler).measure()
        for sampler in ("temporal", "neighbour")
    )
    assert "test_ndcg10" in one
    assert one == pytest.approx(other, rel=1e-12)


def test_many_times_are_warned_of(caplog):
    graph = GRAPH.replace(edge_columns={**GRAPH.edge_columns, "time": np.arange(E)})
    trainer("edge", graph)
    assert "targets have 260 different times" in caplog.text
    caplog.clear()
    trainer("edge", graph, sampler="temporal:grain=10")
    assert "different times" not in caplog.text


@pytest.mark.parametrize(
    ("task", "graph", "keys", "message"),
    [
        (
            "edge",
            GRAPH,
            {"sampler": "temporal:target_time=born"},
            "target_time=born names a column of nodes, but the targets of this task are",
        ),
        (
            "link",
            GRAPH,
            {"sampler": "temporal:time=when"},
            "time=when: there is no edge column 'when'; choose from",
        ),
        (
            "edge",
            GRAPH,
            {"sampler": "temporal:grain=0.5"},
            "the times are integers; give a whole number",
        ),
        (
            "edge",
            GRAPH,
            {"history": "hec", "partitioner": "1d-dst"},
            "history=hec stores values of nodes in batches of nodes",
        ),
        (
            "link",
            GRAPH,
            {"history": "fresh"},
            "history=fresh stores values of nodes in batches of nodes",
        ),
        (
            "link",
            GRAPH,
            {"history": "gas"},
            "history=gas stores values in batches of strategy=cluster",
        ),
    ],
)
def test_what_has_no_times_is_refused(task, graph, keys, message):
    with pytest.raises(ConfigError, match=message):
        trainer(task, graph, **{"model": "sage", **keys})
