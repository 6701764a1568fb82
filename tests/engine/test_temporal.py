"""Sampling by time: never an edge of the future, the latest or a uniform choice of the others, the
same on any ranks.
"""

from __future__ import annotations

from functools import partial

import graphs
import numpy as np
import pytest
from samples import sample

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.errors import ConfigError, DataError
from graphtheta.samplers.temporal import TemporalSampler

RNG = np.random.default_rng(7)
# times tie, are large, and differ by one; a float would round them
START = 1 << 55
TIME, NODE_TIME = START + RNG.integers(0, 40, 150), START + RNG.integers(10, 50, 20)
NODE_TIME[3] = START + 25
MASK = RNG.random(150) < 0.7
# seconds since 1970 with fractions, which float32 rounds to steps of 128 s
SECONDS, NODE_SECONDS = (1.7e9 + (times - START) / 4 for times in (TIME, NODE_TIME))
GRAPH = graphs.random_graph(
    20,
    150,
    edge_columns={"time": TIME, "early": RNG.random(150), "part": MASK, "seconds": SECONDS},
    node_columns={
        "time": NODE_TIME,
        "born": RNG.random(20),
        "seconds": NODE_SECONDS,
        "kind": np.zeros((20, 2)),
    },
)
TARGETS = [1, 3, 7, 18]
last, uniform = (partial(TemporalSampler, strategy=strategy) for strategy in ("last", "uniform"))


def expected_last(k, hops, edges=slice(None), target_time=NODE_TIME):
    """The k latest edges by hop, the last hop first, by the rule of cutoffs as it is documented."""
    allowed = np.zeros(150, bool)
    allowed[edges] = True
    cutoff = {t: target_time[t] for t in TARGETS}
    found = []
    for _ in range(hops):
        chosen = {}
        for node, until in cutoff.items():
            into = np.flatnonzero((GRAPH.dst == node) & allowed & (until >= TIME))
            chosen[node] = into[np.lexsort((into, -TIME[into]))][:k]
        lower = dict(cutoff)
        for node, into in chosen.items():
            for other in GRAPH.src[into]:
                lower[other] = min(lower.get(other, cutoff[node]), cutoff[node])
        cutoff = lower
        found.append({(int(e), False): 1.0 for into in chosen.values() for e in into})
    return found[::-1]


@pytest.mark.parametrize("size", [1, 3])
def test_the_latest_edges_before_the_cutoffs_are_kept(size):
    where = dict(layers=("in",) * 3, targets=TARGETS, graph=GRAPH, placement=("vertex-cut", "hash"))
    assert sample(last((3, 3, 3)), size, **where) == expected_last(3, 3)
    assert sample(last((2, 2, 2), mask="part"), size, **where) == expected_last(2, 3, MASK)
    assert sample(last((-1, -1, -1)), size, **where) == expected_last(150, 3)
    # times with fractions are compared exactly, and choose the same edges
    assert sample(
        last((3, 3, 3), time="seconds", target_time="seconds"), size, **where
    ) == expected_last(3, 3)


@pytest.mark.parametrize(
    "make", [last, uniform, partial(uniform, replace=True)], ids=["last", "uniform", "replace"]
)
def test_samples_do_not_depend_on_ranks(make):
    sampler = make((2, 3, 2), seed=4)
    where = dict(layers=("in", "both", "in"), targets=TARGETS, step=5, graph=GRAPH)
    expected = sample(sampler, **where)
    assert all(expected)
    for size, placement in zip((2, 3, 4, 8, 3, 2), graphs.PLACEMENTS, strict=True):
        assert sample(sampler, size, placement, **where) == expected


KINDS = {
    "whole": ("time", "time", TIME, NODE_TIME),
    "seconds": ("seconds", "seconds", SECONDS, NODE_SECONDS),
    "float": ("early", "born", GRAPH.edge_columns["early"], GRAPH.node_columns["born"]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["last", "uniform"])
def test_no_path_shows_a_target_an_edge_after_its_time(strategy, kind):
    column, of_targets, time, until = KINDS[kind]
    columns = {"time": column, "target_time": of_targets}
    n = 0
    for step in range(5):
        for fanout in (3, -1):
            sampler = TemporalSampler((fanout,) * 3, seed=1, strategy=strategy, **columns)
            views = sample(
                sampler, layers=("in", "both", "in"), targets=TARGETS, step=step, graph=GRAPH
            )
            for target in TARGETS:
                reached = {target}
                for level in reversed(views):
                    ends = [
                        (
                            (e, GRAPH.src[e], GRAPH.dst[e])
                            if reverse
                            else (e, GRAPH.dst[e], GRAPH.src[e])
                        )
                        for e, reverse in level
                    ]
                    into = [(e, sender) for e, receiver, sender in ends if receiver in reached]
                    assert all(time[e] <= until[target] for e, _ in into)
                    reached |= {sender for _, sender in into}
                    n += len(into)
    assert n > 500


def test_a_target_that_an_earlier_one_reaches_is_computed_at_the_earlier_time():
    # 2 -> 1 -> 0: target 1 may see the edge at time 8, target 0 may not
    graph = graphs.fill(
        [1, 2, 2], [0, 1, 1], 3, node_columns={"time": [5, 9, 9]}, edge_columns={"time": [4, 8, 5]}
    )
    first, end = sample(last((5, 5)), 2, layers=("in", "in"), targets=[0, 1], graph=graph)
    assert end == {(0, False): 1.0, (1, False): 1.0, (2, False): 1.0}
    assert first == {(0, False): 1.0, (2, False): 1.0}


def test_allowed_edges_are_equally_likely_and_sums_over_them_unbiased():
    steps, fanout = 400, 6
    into = np.flatnonzero((GRAPH.dst == 3) & (NODE_TIME[3] >= TIME))
    assert fanout < len(into) < (GRAPH.dst == 3).sum()
    weights, value = np.zeros((steps, 150)), np.random.default_rng(0).standard_normal(150)

    def program(comm):
        p = build_partition(GRAPH, comm)
        for step in range(steps):
            (level,) = k_hop_view(
                p, p.masters == 3, ["in"], sampler=uniform((fanout,)), step=step
            ).levels
            weights[step, level.gid] = np.concatenate(
                [s.weight for s in level.passes[0].selections]
            )

    run_simulated(1, program)
    times = (weights > 0).sum(axis=0)
    mean = steps * fanout / len(into)
    assert times.sum() == times[into].sum() == steps * fanout
    assert ((times[into] - mean) ** 2 / mean).sum() < len(into) + 4 * np.sqrt(2 * len(into))
    sums = weights @ value
    assert abs(sums.mean() - value[into].sum()) < 4 * sums.std() / np.sqrt(steps)


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    graph = graph.replace(
        edge_columns={"time": np.arange(graph.n_edges) % 3},
        node_columns={"time": np.arange(graph.n_nodes) % 4 - 1},
    )
    for make in (last, uniform):
        first = sample(
            make((2, -1)), layers=("in", "both"), targets=range(graph.n_nodes), graph=graph
        )
        for size in range(2, min(4, graph.n_nodes + 1)):
            assert (
                sample(
                    make((2, -1)),
                    size,
                    graphs.PLACEMENTS[2 * size - 1],
                    ("in", "both"),
                    range(graph.n_nodes),
                    graph=graph,
                )
                == first
            )


def refused(**columns):
    sampler = last((2,), **columns)
    with pytest.raises((ConfigError, DataError)) as e:
        run_simulated(3, lambda comm: sampler.check(build_partition(GRAPH, comm, "vertex-cut")))
    return str(e.value)


def test_columns_that_do_not_fit_are_refused():
    assert "time=when: there is no edge column 'when'; choose from weight" in refused(time="when")
    assert "target_time=when: there is no node column 'when'" in refused(target_time="when")
    assert "target_time=kind: the node column 'kind' has 2 numbers per node" in refused(
        target_time="kind"
    )
    assert "time=early is float64 and target_time=time is int64" in refused(time="early")
    assert "mask=time: edge" in refused(mask="time")


def test_times_that_ranks_cannot_hold_are_refused():
    # ids of 150 edges take 8 bits of a rank
    for spread in (1 << 56, (1 << 63) - START):
        graph = GRAPH.replace(
            edge_columns={"time": np.where(np.arange(150) == 90, START - spread, TIME)}
        )
        with pytest.raises(
            DataError,
            match=(
                r"tells apart spans below 2\*\*56 in a graph of 150 edges; give times in a coarser"
                r" unit"
            ),
        ):
            run_simulated(
                2, lambda comm, graph=graph: last((2,)).check(build_partition(graph, comm))
            )
    TemporalSampler((2,)).check(build_partition(graph, SerialComm()))


def test_bad_options():
    with pytest.raises(ConfigError, match="strategy=first: expected uniform or last"):
        TemporalSampler((2,), strategy="first")
    with pytest.raises(
        ConfigError, match="replace: strategy=last keeps each of the latest edges once"
    ):
        last((2,), replace=True)
    with pytest.raises(ConfigError, match="expected a positive number for each hop"):
        last((0,))


JOB = {
    "model": "sage",
    "strategy": "mini",
    "batch_size": 8,
    "fanout": "3",
    "epochs": 1,
    "backend": "reference",
    "layers": 2,
}


def losses(comm, **keys):
    return [
        row["loss"] for row in gt.Trainer(graph=GRAPH, comm=comm, **{**JOB, **keys}).fit().history
    ]


def test_a_job_names_it():
    found = [
        losses(SerialComm(), sampler=sampler)
        for sampler in ("temporal:strategy=last", "temporal", "neighbour")
    ]
    assert found[0] != found[1] != found[2]
    with pytest.raises(ConfigError, match="share_sample=true has no meaning with sampler=temporal"):
        losses(SerialComm(), share_sample=True, sampler="temporal")
