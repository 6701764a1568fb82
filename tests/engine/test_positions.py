"""Positions of edges: the same in every partition, and no larger than they must be."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from whole_links import links_at

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import MIRROR, build_partition
from graphtheta.engine.sampling.positions import positions_of
from graphtheta.engine.strategy.strategy import MiniBatch
from graphtheta.engine.strategy.task import LinkTask, NodeTask
from graphtheta.samplers.neighbour import NeighbourSampler

GRAPHS = {**graphs.odd_graphs(), "random": graphs.random_graph()}


def positions(graph, size, placement, reverse):
    """The position of each edge, and the degree of each node that receives messages, over all
    ranks.
    """

    def program(comm):
        p = build_partition(graph, comm, *placement)
        relation = p.relations["edge"]
        found = positions_of(p, relation, reverse)
        assert positions_of(p, relation, reverse) is found
        pairs, degrees = [], []
        for b in relation.blocks:
            if not b.n_edges:
                continue
            (listed, position), kind = found.places[b.kinds(False)], b.kinds(reverse)[1]
            ptr, edges, senders = (
                (b.out_indptr, b.out_edge, b.out_dst)
                if reverse
                else (b.in_indptr, np.arange(b.n_edges), b.in_src)
            )
            if len(listed):
                sender_of = dict(zip(edges.tolist(), senders.tolist(), strict=True))
                edges = listed[:, 0]
                assert [sender_of[e] for e in edges.tolist()] == listed[:, 1].tolist()
            rows = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
            position = position if len(position) else np.arange(len(edges)) - ptr[rows]
            pairs += zip(relation.gid[b.start + edges].tolist(), position.tolist(), strict=True)
            gid = p.gid[p.n_masters :] if kind == MIRROR else p.masters
            degree = found.degree[kind] if len(found.degree[kind]) else np.diff(ptr)
            degrees += zip(gid[rows].tolist(), degree[rows].tolist(), strict=True)
        return pairs, degrees

    found = run_simulated(size, program)
    return [sorted({x for per in found for x in per[i]}) for i in (0, 1)]


@pytest.mark.parametrize("name", GRAPHS)
def test_positions_are_ranks_of_global_ids(name):
    graph = GRAPHS[name]
    for reverse, end in ((False, graph.dst), (True, graph.src)):
        expected = [(e, int((end[:e] == end[e]).sum())) for e in range(graph.n_edges)]
        degrees = sorted({(int(v), int((end == v).sum())) for v in end})
        for i, size in enumerate(s for s in (1, 2, 3, 4) if s <= graph.n_nodes):
            for placement in graphs.PLACEMENTS[i % 2 :: 2]:
                assert positions(graph, size, placement, reverse) == [expected, degrees]


def test_arrays_that_say_nothing_are_left_out():
    sources = np.repeat(np.arange(9), 3)
    graph = graphs.fill(sources, (sources + np.tile([1, 4, 6], 9)) % 9, 9)

    def program(comm):
        p = build_partition(graph, comm, "1d-src", "block")
        before = p.nbytes()
        found = [positions_of(p, p.relations["edge"], reverse) for reverse in (False, True)]
        assert p.nbytes() - before == sum(x.nbytes for x in found)
        return found

    for found in run_simulated(1, program)[0]:
        assert not any(
            len(x)
            for x in (*found.degree.values(), *(place.position for place in found.places.values()))
        )
    # all out-edges of a node are on its owner, in two blocks; in-edges are spread
    for into, _ in run_simulated(3, program):
        assert all(len(place.position) for place in into.places.values())


def test_batches_prepare_positions_before_views_are_pipelined():
    graph = graphs.random_graph()

    def program(comm):
        p, q = (build_partition(graph, comm) for _ in range(2))
        MiniBatch(
            p,
            ["in", "both"],
            NodeTask(p, "classes"),
            batch_size=4,
            sampler=NeighbourSampler((2, 2)),
        )
        before = comm.ledger.snapshot()
        positions_of(p, p.relations["edge"], True)
        assert not sum(stage["messages"] for stage in comm.ledger.since(before).values())
        MiniBatch(q, ["in"], NodeTask(q, "classes"), batch_size=4, sampler=NeighbourSampler((-1,)))
        links = links_at(
            q, graph.src, graph.dst, np.unique(graph.src * graph.n_nodes + graph.dst), 1, 0
        )
        MiniBatch(q, ["in"], LinkTask(q, links), batch_size=4, sampler=NeighbourSampler((2,)))
        return set(p.relations["edge"].positions), set(q.relations["edge"].positions)

    # links of a batch are excluded from its messages, so their views draw no positions
    assert run_simulated(2, program) == [({False, True}, set())] * 2
