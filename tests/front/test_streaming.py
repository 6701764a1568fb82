"""Partitioners that workers compute together, each from its share of the edges: equal to one worker
alone.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.division import divide
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import EDGE_PLACEMENTS, PARTITIONERS, assign
from graphtheta.errors import FormatError, PartitionError
from graphtheta.partitioners.report import OneOf
from graphtheta.partitioners.streaming import dealing, nodes
from graphtheta.partitioners.streaming.shared import SharedPartitioner, SharedPlacement

pytestmark = pytest.mark.reference

NODES = [name for name, kind in PARTITIONERS.items() if issubclass(kind, SharedPartitioner)]
EDGES = [name for name, kind in EDGE_PLACEMENTS.items() if issubclass(kind, SharedPlacement)]
ODD = {"some": graphs.random_graph(40, 160), **graphs.odd_graphs()}


def alone(graph, size, masters="hash", placement="1d-src"):
    """Owners of all nodes and workers of all edges, computed by one worker."""
    source = EdgeSource(graph)
    owners, workers = assign(source, OneOf(size), placement, masters, 7)
    return owners, np.concatenate(
        [np.zeros(0, np.int32), *(workers(chunk) for chunk in source.chunks())]
    )


def together(graph, size, masters="hash", placement="1d-src", chunk=17):
    """The same by as many workers as there are parts."""

    def program(comm):
        division = divide(EdgeSource(graph, chunk), comm, placement, masters, 7)
        owners = division.owner(np.arange(graph.n_nodes))
        dealt = list(division.dealt)
        ids = np.concatenate([np.zeros(0, np.int64), *(edges.ids for edges, _ in dealt)])
        return (
            owners,
            ids,
            np.concatenate([np.zeros(0, np.int32), *(workers for _, workers in dealt)]),
        )

    ranks = run_simulated(size, program)
    for owners, _, _ in ranks:
        np.testing.assert_array_equal(owners, ranks[0][0])
    ids, workers = (np.concatenate([rank[k] for rank in ranks]) for k in (1, 2))
    np.testing.assert_array_equal(ids, np.arange(graph.n_edges))
    return ranks[0][0], workers


@pytest.mark.parametrize("rounds", [256, 5])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("masters", ["ldg", "fennel"])
def test_node_streams_equal_their_twins(masters, passes, rounds, monkeypatch):
    monkeypatch.setattr(dealing, "MOST", rounds)
    graph = ODD["some"]
    k = 3
    n = graph.n_nodes
    room = 14
    step = 1 if rounds > 14 else 3
    alpha = np.sqrt(k) * graph.n_edges / n**1.5
    owner = np.full(n, -1)
    for load in np.zeros((passes, k), int):
        for begin in range(0, 14, step):
            free = room - load
            known = load.copy()
            seen = owner.copy()
            left = []
            for own_part, (first, last) in enumerate([(0, 14), (14, 27), (27, 40)]):
                number = (own_part + np.arange(k)) % k
                sees = seen.copy()
                own = known.copy()
                share = free * (number + 1) // k - free * number // k
                for v in range(first + begin, min(first + begin + step, last)):
                    ends = (graph.dst[graph.src == v], graph.src[graph.dst == v])
                    near = sees[[u for end in ends for u in end if u != v]]
                    found = np.bincount(near[near >= 0], minlength=k)
                    score = (
                        found * (1 - own / room)
                        if masters == "ldg"
                        else found - alpha * 1.5 * np.sqrt(own)
                    )
                    able = [p for p in range(k) if share[p] > 0]
                    if not able:
                        left.append(v)
                        continue
                    p = owner[v] = sees[v] = min(
                        able, key=lambda p: (-score[p], own[p], (p - own_part) % k)
                    )
                    own[p], share[p], load[p] = own[p] + 1, share[p] - 1, load[p] + 1
            order = np.argsort(load, kind="stable")
            owner[left] = np.repeat(order, (room - load)[order])[: len(left)]
            load += np.bincount(owner[left], minlength=k)
    np.testing.assert_array_equal(
        alone(graph, k, f"{masters}:slack=0.05,passes={passes}")[0], owner
    )


@pytest.mark.parametrize("start", ["yes", "no"])
@pytest.mark.parametrize("name", ["hdrf", "oblivious", "libra"])
@pytest.mark.parametrize("size, most, slack", [(3, 256, 0.2), (3, 5, 0.0), (70, 256, 0.2)])
def test_edge_streams_equal_their_twins(name, start, size, most, slack, monkeypatch):
    """With one edge of a stream in a round, and with several; with more workers than a word has
    bits.
    """
    monkeypatch.setattr(dealing, "MOST", most)
    graph = ODD["some"] if size < 40 else graphs.random_graph(80, 200)
    owners, found = alone(graph, size, "block", f"{name}:owners={start},slack={slack}")
    copies = [{owners[v]} if start == "yes" else set() for v in range(graph.n_nodes)]
    seen = np.zeros(graph.n_nodes, int)
    load = np.zeros(size, int)
    whole = degree_of(graph)
    room = max(-(-graph.n_edges // size), int((1 + slack) * graph.n_edges / size))
    draws = bits(key(7, Purpose.PLACEMENT), np.arange(graph.n_edges))
    rounds = min(most, graph.n_edges // size)
    for number in range(rounds):
        placed = []
        left = []
        free = room - load
        copied = [set(c) for c in copies]
        degree = seen.copy()
        for own_part in range(size):
            turn = (own_part + np.arange(size)) % size
            own = load.copy()
            on = [set(c) for c in copied]
            so_far = degree.copy()
            share = free * (turn + 1) // size - free * turn // size
            part = own_part * rounds + number
            for e in range(*(graph.n_edges * p // (size * rounds) for p in (part, part + 1))):
                u, v = graph.src[e], graph.dst[e]
                so_far[u], seen[u] = so_far[u] + 1, seen[u] + 1
                so_far[v], seen[v] = so_far[v] + 1, seen[v] + 1
                able = [p for p in range(size) if share[p] > 0]
                if not able:
                    left.append(e)
                    continue
                if name == "libra":
                    low, high = (u, v) if whole[u] <= whole[v] else (v, u)
                    allowed = [
                        p for p in able if p in (on[u] & on[v] or on[low] or on[high])
                    ] or able
                    best = [p for p in allowed if own[p] == own[allowed].min()]
                else:
                    of_u = so_far[u] / (so_far[u] + so_far[v])
                    of_u, of_v = (2 - of_u, 1 + of_u) if name == "hdrf" else (1, 1)
                    score = {
                        p: (
                            (1.1 if name == "hdrf" else 1)
                            * (own.max() - own[p])
                            / (1 + own.max() - own.min())
                            + (of_u * (p in on[u]) + of_v * (p in on[v]))
                        )
                        for p in able
                    }
                    best = [p for p in able if score[p] == max(score.values())]
                p = best[int(draws[e] % np.uint64(len(best)))]
                assert found[e] == p, e
                own[p], share[p] = own[p] + 1, share[p] - 1
                on[u].add(p)
                on[v].add(p)
                placed.append((e, p))
        load += np.bincount([p for _, p in placed], minlength=size)
        order = np.argsort(load, kind="stable")
        dealt = list(zip(left, np.repeat(order, (room - load)[order]), strict=False))
        load += np.bincount(np.array([p for _, p in dealt], int), minlength=size)
        for e, p in placed + dealt:
            assert found[e] == p, e
            copies[graph.src[e]].add(p)
            copies[graph.dst[e]].add(p)


def degree_of(graph):
    return np.bincount(graph.src, minlength=graph.n_nodes) + np.bincount(
        graph.dst, minlength=graph.n_nodes
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_many_workers_find_what_one_does(size, tmp_path):
    pairs = [(masters, "1d-src") for masters in NODES] + [
        ("block", placement) for placement in EDGES
    ]
    assert {"degree-block", "gemini", "file", "ldg", "fennel", "bgl", "grem"} <= set(NODES)
    assert {"hybrid", "hdrf", "oblivious", "libra"} <= set(EDGES)
    # a third of the pairs for each graph, another one for each number of workers
    for number, (name, graph) in enumerate(ODD.items()):
        np.save(tmp_path / "owners.npy", np.arange(graph.n_nodes) * 7 % size)
        drawn = pairs[(number + size) % 3 :: 3]
        for masters, placement in drawn if size <= graph.n_nodes else []:
            options = {
                "file": f":path={tmp_path}/owners.npy",
                "ldg": ":passes=2,slack=0",
                "bgl": ":blocks=5,hops=1,slack=0.3",
                "hybrid": ":threshold=3",
                "hdrf": ":slack=0",
                "libra": ":owners=no",
            }
            pair = masters + options.get(masters, ""), placement + options.get(placement, "")
            for x, y in zip(together(graph, size, *pair), alone(graph, size, *pair), strict=True):
                np.testing.assert_array_equal(x, y, f"{name} {pair}")


def test_no_worker_reads_more_than_its_share(monkeypatch):
    """Also the owners and degrees that it holds are those of a block of ids."""
    monkeypatch.setattr(EdgeSource, "chunks", lambda self: pytest.fail("reads all edges"))
    pairs = [
        ("degree-block", "hdrf"),
        ("gemini", "hybrid"),
        ("ldg", "oblivious"),
        ("fennel", "libra"),
        ("bgl", "random"),
        ("grem", "1d-dst"),
    ]
    for masters, placement in pairs:
        together(ODD["some"], 3, masters, placement)


def test_rounds_in_memory_do_not_matter(monkeypatch):
    """Neighbours of a few rounds are read at a time, on one worker and on many."""
    for masters in ("ldg:passes=2", "fennel"):
        whole = alone(ODD["some"], 3, masters)[0]
        with monkeypatch.context() as few:
            few.setattr(nodes.NodeStreams.__init__, "__defaults__", (1,))
            assert (
                len(list(nodes.NodeStreams(EdgeSource(ODD["some"]), SerialComm(), 3)._groups())) > 2
            )
            for found in (alone(ODD["some"], 3, masters)[0], together(ODD["some"], 3, masters)[0]):
                np.testing.assert_array_equal(found, whole)


def test_streams_cut_what_one_stream_does():
    """Communities of consecutive ids and shuffled ones; hubs. The factor is that over hash."""
    for graph, factor in (
        (gt.load("sbm:n_nodes=2000,n_edges=16000,classes=8,inside=0.9"), 0.3),
        (gt.load("rmat:scale=12"), 1),
    ):
        cut = {
            masters: gt.partition_report(graph, 4, masters).edge_cut
            for masters in ("hash", "ldg:passes=5", "fennel:passes=5")
        }
        assert max(cut["ldg:passes=5"], cut["fennel:passes=5"]) < factor * cut["hash"]


def test_errors_of_a_file_are_raised_on_all_workers(tmp_path):
    np.save(tmp_path / "owners.npy", np.zeros(39, np.int64))
    with pytest.raises(
        FormatError, match="expected the owners, one integer for each of the 40 nodes"
    ):
        together(ODD["some"], 3, f"file:path={tmp_path}/owners.npy")
    np.save(tmp_path / "owners.npy", np.arange(40))
    with pytest.raises(PartitionError, match="expected 0 to 2"):
        together(ODD["some"], 3, f"file:path={tmp_path}/owners.npy")
