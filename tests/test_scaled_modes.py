"""Simulated modes and caches of bench/: a graph that is not stored, messages and bytes of few
workers, hits of the warm state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.inspect.planning.rehearsal import rehearse
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import EDGES, OPERATIONS, PARTS, Load
from graphtheta.partitioners.pairs import pair_of

BENCH = Path(__file__).resolve().parent.parent / "bench"
SCALE = 11


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    import scaled_modes

    return scaled_modes


def rmat(modes: Any) -> Any:
    return modes.LazyRmat(SCALE)


def test_edges_that_are_drawn_when_asked_for_are_those_of_rmat(modes: Any) -> None:
    graph = rmat(modes)
    nodes = np.arange(1 << SCALE)
    degrees = graph.degrees(nodes)
    assert degrees.sum() == pytest.approx(14 << SCALE, rel=0.05)
    assert (degrees > 0).mean() == pytest.approx(graph.connected, abs=0.03)
    dst = np.repeat(nodes, degrees)
    src = graph.neighbours(
        dst, np.arange(len(dst)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    )
    found = [
        np.mean([(src >> bit & 1 == a) & (dst >> bit & 1 == b) for bit in range(SCALE)])
        for a in (0, 1)
        for b in (0, 1)
    ]
    assert found == pytest.approx([0.57, 0.19, 0.19, 0.05], abs=0.01)
    # out- and in-degrees have one expectation
    assert set(graph.most_connected(12)) == {0, *(1 << bit for bit in range(SCALE))}
    assert np.corrcoef(np.bincount(src, minlength=len(nodes)), degrees)[0, 1] > 0.99


def test_batches_sample_the_edges_of_one_graph(modes: Any) -> None:
    graph = rmat(modes)
    nodes = np.arange(1 << SCALE)
    degrees = graph.degrees(nodes)
    (src, dst), (again, _), (other, _) = (graph.sampled(nodes, 5, batch) for batch in (0, 0, 1))
    assert np.array_equal(src, again) and not np.array_equal(src, other)
    assert np.array_equal(np.bincount(dst, minlength=len(nodes)), np.minimum(degrees, 5))
    # nodes of few edges have the same in every batch
    few = degrees[dst] <= 5
    assert np.array_equal(*(np.sort(x[few] * len(nodes) + dst[few]) for x in (src, other)))
    all_of, _ = graph.sampled(np.arange(1 << SCALE), 1 << SCALE, 2)
    edges = set((all_of * len(nodes) + np.repeat(nodes, degrees)).tolist())
    assert edges.issuperset((src * len(nodes) + dst).tolist())


def test_a_sampled_batch_is_read_completely(modes: Any) -> None:
    drawn, hops = modes.batch_of(rmat(modes), 6, 0)
    graph = drawn.graph
    n = int(graph.train.sum())
    lazy = rmat(modes)
    # self loops and duplicates are left out of the graph
    assert lazy.counted(lazy.targets(6, 0), [modes.FANOUT] * modes.LAYERS, 0) == (
        graph.n_nodes,
        sum(hops),
    )
    assert n == 6 and len(hops) == modes.LAYERS and sum(hops) >= graph.n_edges
    job = modes.batch_job("rmat", n, "cooperative", backend="reference")
    view = skeleton(job, graph).strategy(job).batch(0, 0)
    assert view.space.n == graph.n_nodes
    assert view.levels[0].n_edges == graph.n_edges + view.levels[0].n_out


@pytest.mark.second
def test_messages_follow_from_those_of_two_and_three_workers(modes: Any) -> None:
    """As the ledgers of four workers that train count them."""
    law = modes.rounds()
    workers = 4
    job = modes.batch_job(
        modes.BUSY, modes.BUSY_TARGETS, "independent", split="fraction", fanout="10,10,10"
    )
    graph = gt.load(modes.BUSY)

    def sent(comm: Comm) -> float:
        one = gt.Trainer(graph=graph, comm=comm, job=job.without_dataset())
        before = comm.ledger.snapshot()
        one.training.run(0, 0, workers)
        since = comm.ledger.since(before)
        return float(sum(since[stage]["messages"] for stage in ("batch", "fetch")))

    assert set(run_simulated(workers, sent)) == {law.moves * (workers - 1) + law.collectives}
    assert law.interpreter(2) > 0


@pytest.mark.second
def test_bytes_and_work_of_a_view_are_those_of_more_workers(modes: Any) -> None:
    from scaled import read

    cluster = read(BENCH / "papers" / "cluster.yaml", 1.0)
    law = modes.Rounds(8, 6, 0.0, 0.0)
    graph = rmat(modes)
    view, held = modes.alone(graph, 6, 0, cluster, law)
    drawn, _ = modes.batch_of(graph, 6, 0)
    made = rehearse(held, held.job, pair_of(*modes.PAIR), 4, 1)
    # ids of neighbours, which each worker asks for once, grow a little with their number
    assert drawn.times * made.sent.sum() / view.n_bytes == pytest.approx(3 / 4, rel=0.05)
    assert view.nodes == drawn.times * drawn.graph.n_nodes and view.compute > 0


@pytest.mark.second
def test_parts_of_a_step_grow_with_what_causes_them(modes: Any) -> None:
    from scaled import read

    cluster = read(BENCH / "papers" / "cluster.yaml", 1.0)
    law = modes.Rounds(8, 6, 0.005, 0.0001)
    _, held = modes.alone(rmat(modes), 2, 0, cluster, law)
    small, large = (modes.Alone(n, n, 1e-7 * n, 0.5, 1e3 * n) for n in (1e6, 2e6))

    def parts(workers: int, saved: float = 0.0) -> dict[str, float]:
        found: dict[str, float] = modes.parts_of([small, large], held, law, workers, cluster, saved)
        return found

    some = parts(256)
    more = parts(512)
    # all wait for the largest view
    assert some["computing"] + some["imbalance"] == pytest.approx(large.compute)
    assert some["views"] == pytest.approx(0.5 + 0.005 + 256 * 0.0001)
    # messages grow with the workers, if all have something to say
    assert 1.5 < more["messages"] / some["messages"] < 2.5
    assert some["bytes"] - parts(256, 1e8)["bytes"] == pytest.approx(
        1e8 * cluster.congestion / cluster.bandwidth
    )


@pytest.mark.second
def test_hits_of_the_warm_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from caches import Replay, hits
    from scaled_caches import stream, warm

    same = Replay([np.arange(4)] * 4, np.arange(4), 4)
    assert (
        hits(same, "lru", 4) == 12 and hits(same, "lru", 4, 2) == 8 and warm(same, "lru", 4) == 1.0
    )
    from lazy_rmat import LazyRmat

    found = stream(LazyRmat(SCALE), 1, 5_000)
    assert sum(map(len, found.batches[:-1])) < 5_000 <= sum(map(len, found.batches))
    rates = [warm(found, policy, 300) for policy in ("fifo", "lru", "belady")]
    assert 0 < rates[0] < rates[1] < rates[2] < 1


def test_work_on_a_larger_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from scaled import grown

    load = Load(np.ones((2, 3, len(PARTS))), np.ones((2, 3)), np.array([1, 2, 3]))
    more = grown(load, 5.0)
    assert (more.parts[..., EDGES] == 5).all() and (more.parts[..., OPERATIONS] == 1).all()
    assert (more.blocks == 5).all()
    np.testing.assert_array_equal(load.total, np.full(len(PARTS), 6))
