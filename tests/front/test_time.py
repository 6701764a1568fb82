"""Nothing of the future: splits by time, training and evaluation at the times of targets."""

from __future__ import annotations

from contextlib import nullcontext

import graphs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timed import JOB, Scores, Valued, late

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.datasets.dataset import with_masks
from graphtheta.graph.splits.times import time_split

RNG = np.random.default_rng(11)
N, E = 40, 400
BORN, WHEN = RNG.integers(0, 12, N), RNG.integers(0, 12, E)
GRAPH = graphs.random_graph(N, E, edge_columns={"time": WHEN}, node_columns={"time": BORN})
GRAPH = GRAPH.replace(edge_columns={"time": WHEN, "value": RNG.random(E) + 0.5})
NODES = {**JOB, "strategy": "mini", "batch_size": 7, "fanout": "4,3", "sampler": "temporal"}


class Net(gt.Model):
    """Two layers."""

    def __init__(self, d_in, d_out):
        self.first = Valued(d_in, 6)
        self.second = Valued(6, d_out)
        self.dropout = 0.5

    def forward(self, graph):
        return self.second(graph, gt.dropout(gt.relu(self.first(graph, graph.x)), self.dropout))


def trainer(graph, comm=None, **keys):
    """A trainer of the model that reads the values of edges."""
    keys = {**NODES, **keys}
    model = keys.pop("model", Net)
    return gt.Trainer(model, graph, comm=comm or SerialComm(), **keys)


def trained(graph, comm=None, **keys):
    """Losses and metrics of a run, and its predictions on rank 0."""
    one = trainer(graph, comm, **keys)
    result = one.fit()
    numbers = [row["loss"] for row in result.history] + sorted(result.metrics.values())
    out = one.predict()
    return np.array(numbers), None if out is None else out[1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-5, 30), min_size=1, max_size=60),
    st.floats(0.1, 0.7),
    st.floats(0.05, 0.25),
    st.integers(0, 99),
)
def test_every_training_row_is_earlier_than_the_others(times, train, val, seed):
    use = np.random.default_rng(seed).random(len(times)) < 0.8
    try:
        masks = time_split(times, train, val, use=use)
    except DataError:
        return
    np.testing.assert_array_equal(np.sum(masks, axis=0), use)
    early, middle, last = (np.array(times)[mask] for mask in masks)
    assert early.max() < middle.min() <= middle.max() < last.min()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-5, 9), min_size=4, max_size=60),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from([int, float]),
)
def test_no_time_is_divided_and_full_shares_leave_no_test_rows(times, train, full, kind):
    times = np.array(times, kind)
    val = 1 - train if full else (1 - train) / 2
    try:
        masks = time_split(times, train, val)
    except DataError:
        return
    assert not (full and masks[2].any())
    for time in np.unique(times):
        assert sum(mask[times == time].any() for mask in masks) == 1
    assert [int(mask.sum()) for mask in time_split(np.arange(10), 0.8, 0.2)] == [8, 2, 0]
    assert [int(mask.sum()) for mask in time_split(np.arange(10), 1.0, 0.0)] == [10, 0, 0]


def test_shares_are_those_asked_for_where_times_differ():
    masks = time_split(np.random.default_rng(0).permutation(1000) / 7, 0.7, 0.1)
    assert [mask.sum() for mask in masks] == [700, 100, 200]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            [3, 3, 3, 3, 3],
            "leaves no rows for training and validation: 5 rows have 1 different times",
        ),
        ([1.0, np.nan, 2.0], "one finite number per row"),
        ([], "leaves no rows for training"),
    ],
)
def test_times_that_cannot_be_split(times, message):
    with pytest.raises(DataError, match=message):
        time_split(np.array(times))


# as floats, with fractions, at steps that float32 rounds away
EXACT = 1.7e9 + RNG.permutation(60) / 8


def entered(kind, folder):
    """A graph of the times ``EXACT`` of its edges and nodes, by each way in."""
    ends = [np.arange(60), (np.arange(60) * 7 + 1) % 60]
    nodes = np.arange(60)
    given = {"node_columns": {"time": EXACT}, "edge_columns": {"time": EXACT[::-1]}}
    graph = gt.Graph(ends, 60, x=np.eye(60), y=nodes % 3, **given)
    if kind == "npz":
        np.savez(
            folder / "g.npz",
            edge_index=ends,
            n_nodes=60,
            x=np.eye(60),
            y=nodes % 3,
            **{f"{group}.time": columns["time"] for group, columns in given.items()},
        )
        return gt.load(folder / "g.npz", split="none")
    if kind == "types":
        return gt.Graph(
            {("a", "r", "a"): ends},
            {"a": 60},
            x={"a": np.eye(60)},
            y={"a": nodes % 3},
            node_columns={"time": {"a": EXACT}},
            edge_columns={"time": {("a", "r", "a"): EXACT[::-1]}},
        )
    columns = {
        "edge_columns": ["time"],
        "node_columns": ["time"],
        "label": ["y"],
        "features": ["f"],
    }
    if kind == "arrays":
        tables = (
            {"src": ends[0], "dst": ends[1], "time": EXACT[::-1]},
            {"id": nodes, "f": nodes / 2, "y": nodes % 3, "time": EXACT},
        )
    elif kind == "csv":
        tables = folder / "edges.csv", folder / "nodes.csv"
        tables[0].write_text(
            "src,dst,time\n"
            + "".join(
                f"{s},{d},{t!r}\n" for s, d, t in zip(*ends, EXACT[::-1].tolist(), strict=True)
            )
        )
        tables[1].write_text(
            "id,f,y,time\n"
            + "".join(f"{i},{i / 2},{i % 3},{t!r}\n" for i, t in enumerate(EXACT.tolist()))
        )
    else:
        return graph
    gt.import_graph(*tables, to=folder / "store", **columns)
    if kind == "csv":
        gt.transform_store(folder / "store", to=folder / "again", self_loops="drop")
        return gt.load(folder / "again", split="none")
    return gt.load(folder / "store", split="none")


@pytest.mark.parametrize("kind", ["graph", "npz", "types", "arrays", "csv"])
def test_times_with_fractions_are_exact_from_the_way_in_to_the_split(kind, tmp_path):
    graph = entered(kind, tmp_path)
    np.testing.assert_array_equal(graph.node_columns["time"], EXACT)
    np.testing.assert_array_equal(graph.edge_columns["time"], EXACT[::-1])
    split = with_masks(graph, "time", 0, 0, {})
    assert [int(mask.sum()) for mask in (split.train, split.val, split.test)] == [36, 12, 12]
    assert (
        EXACT[split.train].max() < EXACT[split.val].min()
        and EXACT[split.val].max() < EXACT[split.test].min()
    )


def test_a_graph_is_split_by_its_times():
    nodes = with_masks(GRAPH, "time", 0, 0, {})
    assert (
        BORN[nodes.train].max() < BORN[nodes.val].min()
        and BORN[nodes.val].max() < BORN[nodes.test].min()
    )
    links = with_masks(GRAPH.replace(y=None, train=None, val=None, test=None), "time", 0, 0, {})
    assert (
        WHEN[links.edge_train].max() < WHEN[links.edge_val].min()
        and WHEN[links.edge_val].max() < WHEN[links.edge_test].min()
    )
    with pytest.raises(ConfigError, match="split=time needs the node column 'time'"):
        with_masks(graphs.random_graph(20, 60), "time", 0, 0, {})


def test_no_edge_of_the_future_reaches_a_loss_a_metric_or_a_prediction():
    """Edges later than a target have another value; what changes is later than they are."""
    latest = int(BORN.max()) - 1
    early = GRAPH.replace(
        train=BORN <= 4, val=(BORN > 4) & (BORN <= 7), test=(BORN > 7) & (latest >= BORN)
    )
    clean, poisoned = (trained(graph) for graph in (early, late(early, latest)))
    np.testing.assert_array_equal(clean[0], poisoned[0])
    np.testing.assert_array_equal(clean[1][latest >= BORN], poisoned[1][latest >= BORN])
    everything = {"sampler": "neighbour", "fanout": "-1,-1"}
    assert trained(late(early, latest), **everything)[0][0] != trained(early, **everything)[0][0]
    # no training target is later than 4
    assert trainer(early).train_epoch(0) == trainer(late(early, 4)).train_epoch(0)
    expected = trainer(early).predict()[1]
    for time in (2, 5, 9):
        out = trainer(late(early, time)).predict()[1]
        same = (out == expected).all(axis=1)
        assert same[time >= BORN].all() and not same.all()


@pytest.mark.parametrize("time", [3, 6])
def test_a_prediction_reads_all_of_the_past_and_nothing_later(time):
    """The prediction of a node is that of the whole graph in which later edges have the value 0."""
    one = trainer(GRAPH)
    past = gt.Trainer(Net, late(GRAPH, time, 0.0), **JOB)
    past.model.load_state(one.model.state())
    np.testing.assert_allclose(
        one.predict()[1][time == BORN], past.predict()[1][time == BORN], rtol=1e-12
    )


@pytest.mark.parametrize("size", [2, 3])
def test_evaluation_does_not_depend_on_ranks(size):
    keys = {"sampler": "temporal:grain=3", "model": "sage"}
    expected, out = trained(GRAPH, **keys)
    for placement, masters in graphs.PLACEMENTS[size - 2 :: 3]:
        found = run_simulated(
            size,
            lambda comm, p=placement, m=masters: trained(
                GRAPH, comm, partitioner=p, masters=m, **keys
            ),
        )
        for numbers, _ in found:
            np.testing.assert_allclose(numbers, expected, rtol=1e-9)
        np.testing.assert_allclose(found[0][1], out, rtol=1e-9)


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "global"},
        {"strategy": "mini", "batch_size": 30},
        {"strategy": "cluster", "clusters": 4},
    ],
    ids=lambda keys: keys["strategy"],
)
def test_no_later_link_reaches_the_training_of_links(keys):
    graph = with_masks(GRAPH.replace(y=None, train=None, val=None, test=None), "time", 0, 0, {})

    def numbers(comm, graph):
        result = gt.Trainer(Scores, graph, comm=comm, **{**JOB, "task": "link", **keys}).fit()
        return [*(row["loss"] for row in result.history), *result.metrics.values()], list(
            result.metrics
        )

    clean, names = numbers(SerialComm(), graph)
    assert "test_mrr" in names
    for size in (1, 2):
        for found, _ in run_simulated(size, numbers, late(graph, WHEN[graph.edge_train].max())):
            np.testing.assert_allclose(found, clean, rtol=1e-9)
    assert numbers(SerialComm(), late(graph, 3))[0][0] != clean[0]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("grain=-1", "grain=-1.0: expected a positive number"),
        ("grain=0.5", "the times are integers; give a whole number"),
    ],
)
def test_bad_grain(option, message):
    with pytest.raises(ConfigError, match=message):
        trainer(GRAPH, sampler=f"temporal:{option}")


class Aged(gt.Layer):
    """Sums neighbours times the times of the edges."""

    def __init__(self, d_in, d_out):
        self.weight = gt.Parameter.glorot(d_in, d_out)

    def gather(self, edge):
        return edge.src.h * gt.cast(edge.time - 3, edge.src.h.dtype)

    def apply(self, node, total):
        return total @ self.weight


class Ages(gt.Model):
    def __init__(self, d_in, d_out):
        self.layer = Aged(d_in, d_out)

    def forward(self, graph):
        return self.layer(graph, graph.x)


def in_unit(unit, node_unit=None):
    """The graph with times of a unit, which an import has noted."""
    units = (
        {"edge_units": {"time": unit}, "node_units": {"time": node_unit or unit}} if unit else {}
    )
    return GRAPH.replace(meta={**GRAPH.meta, **units})


WHOLE = {"model": Ages, "strategy": "global", "sampler": "neighbour", "fanout": (), "batch_size": 0}


@pytest.mark.parametrize("keys", [WHOLE, {}], ids=["layer", "sampler"])
def test_times_in_another_unit_than_those_of_the_training_are_refused(keys):
    one = trainer(in_unit("s"), **keys)
    one.on(in_unit("s"))
    # nothing says the unit of a graph made of arrays
    one.on(in_unit(""))
    with pytest.raises(
        DataError,
        match=(
            r"times in ns in the edge column 'time'; expected s: import its table with --types"
            r" time:time_s"
        ),
    ):
        one.on(in_unit("ns"))
    with pytest.raises(DataError, match="compares times of edges in s with times of nodes in ns"):
        trainer(in_unit("s", "ns"))


TYPED = {
    ("a", "r", "a"): RNG.integers(0, 20, (2, 50)),
    ("b", "s", "a"): RNG.integers(0, 20, (2, 50)),
}


@pytest.mark.parametrize("stored", [False, True])
def test_types_and_relations_without_times_are_refused(stored, tmp_path):
    """They hold 0, which would be a time before all others."""
    times = RNG.integers(5, 30, 50)

    def graph(node_times, edge_times, **fields):
        made = gt.Graph(
            TYPED,
            {"a": 20, "b": 20},
            x={"a": np.eye(20), "b": np.eye(20)},
            **fields,
            node_columns={"time": dict.fromkeys(node_times, times[:20])},
            edge_columns={"time": dict.fromkeys(edge_times, times)},
        )
        if stored:
            folder = tmp_path / f"store{len(list(tmp_path.iterdir()))}"
            gt.import_graph(made, to=folder)
            return gt.load(folder, split="stored")
        return made

    first, second = TYPED
    labels = {
        "y": {"a": np.arange(20) % 3},
        "train": {"a": np.arange(20) < 15},
        "val": {"a": np.arange(20) >= 15},
    }
    keys = {"strategy": "mini", "batch_size": 5, "fanout": (2,), "layers": 1, "sampler": "temporal"}
    with pytest.raises(
        DataError, match=r"\('b', 's', 'a'\) has no values in the edge column 'time'"
    ):
        gt.Trainer("sage", graph("a", [first], **labels), **keys)
    with pytest.raises(DataError, match="'a' has no values in the node column 'time'"):
        gt.Trainer("sage", graph("b", TYPED, **labels), **keys)
    # nodes that are no targets need no times
    gt.Trainer("sage", graph("a", TYPED, **labels), **keys)
    with pytest.raises(
        DataError, match=r"split=time: \('a', 'r', 'a'\) has no values in the edge column"
    ):
        with_masks(graph("ab", [second]), "time", 0, 0, {})
    with pytest.raises(DataError, match="split=time: 'a' has no values in the node column"):
        with_masks(graph("b", TYPED, y=labels["y"]), "time", 0, 0, {})


DEPEND = "values depend on the time of the target"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"history": "hec", "partitioner": "1d-dst"}, f"history=hec: {DEPEND}"),
        ({"history": "fresh"}, f"history=fresh: {DEPEND}"),
    ],
)
def test_what_would_see_the_future_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        trainer(GRAPH, model="sage", **keys).fit()


@pytest.mark.parametrize(
    ("model", "keys", "refused"),
    [
        (
            "gcn",
            {},
            (
                r"the model reads node.in_degree: degrees count all edges, also over those that are"
                r" later"
            ),
        ),
        ("sage", {}, None),
        ("gat", {}, None),
        ("gin", {}, None),
        ("gcn", {"sampler": "neighbour"}, None),
    ],
    ids=str,
)
def test_degrees_of_all_times_are_refused(model, keys, refused):
    rng = np.random.default_rng(2)
    graph = gt.Graph(
        rng.integers(0, 40, (2, 200)),
        40,
        x=rng.normal(size=(40, 3)),
        y=rng.integers(0, 3, 40),
        train=np.arange(40) < 20,
        val=np.arange(40) >= 20,
        node_columns={"time": rng.integers(0, 9, 40)},
        edge_columns={"time": rng.integers(0, 9, 200)},
    )
    keys = {
        "sampler": "temporal",
        "strategy": "mini",
        "batch_size": 10,
        "fanout": (3, 3),
        "hidden": 4,
        "epochs": 1,
        "backend": "reference",
        **keys,
    }
    with nullcontext() if refused is None else pytest.raises(ConfigError, match=refused):
        run_simulated(3, lambda comm: gt.Trainer(model, graph, comm=comm, **keys).fit())
