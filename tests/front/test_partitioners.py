"""Partitioners by published rules: equal to plain twins, balanced, independent of chunks, better
than random, without effect on losses.
"""

from __future__ import annotations

from functools import cache
from itertools import cycle

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.base.rng import Purpose, key, shuffle
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.partitioner import assign, make_partitioner
from graphtheta.errors import CommError, ConfigError, FormatError, PartitionError
from graphtheta.partitioners import auto, stream
from graphtheta.partitioners.clusters import pack
from graphtheta.partitioners.multi_source import SMALL
from graphtheta.partitioners.pairs import PAIRS, pair_of
from graphtheta.partitioners.ranges import ranges
from graphtheta.partitioners.report import OneOf
from graphtheta.partitioners.streaming.along import HomeEdges
from graphtheta.partitioners.streaming.coarse import searched, sized

GRAPH = graphs.random_graph(40, 160)
BALANCED = (
    "ldg",
    "ldg:passes=3,slack=0",
    "fennel",
    "fennel:gamma=2,slack=0.3,passes=2",
    "bgl",
    "bgl:blocks=4,hops=1,train=no",
    "bgl:slack=0,second=0.5,passes=2",
    "louvain",
    "leiden",
    "grem",
    "grem:slack=0",
    "grem:passes=1,cycles=2",
    "grem:degrees=no",
)
NODES = (*BALANCED, "degree-block", "gemini", "metis")
GREEDY = ("hdrf", "hdrf:owners=no,slack=0", "oblivious", "libra", "libra:owners=no")
EDGES = (*GREEDY, "random", "hybrid:threshold=3")
LIBRARY = {"louvain": "networkit", "leiden": "networkit", "metis": "pymetis"}


def with_library(masters):
    if masters in LIBRARY:
        pytest.importorskip(LIBRARY[masters])


def assigned(graph, size, masters="hash", placement="1d-src", chunk=1 << 20):
    """Owners of all nodes and workers of all edges."""
    source = EdgeSource(graph, chunk)
    owners, worker = assign(source, OneOf(size), placement, masters, 7)
    return owners, np.concatenate([np.zeros(0, np.int32), *(worker(c) for c in source.chunks())])


def neighbours(graph, v):
    """The other ends of the edges of a node, without loops."""
    at_src = (graph.src == v) & (graph.dst != v)
    at_dst = (graph.dst == v) & (graph.src != v)
    return np.concatenate((graph.dst[at_src], graph.src[at_dst]))


# ---- rules against plain twins


def test_ranges_have_equal_weight():
    weight = np.random.default_rng(0).integers(0, 50, 300)
    for size in (1, 2, 7, 60):
        owner = ranges(weight, SerialComm(), 300, size)(np.arange(300))
        assert np.all(np.diff(owner) >= 0) and owner.max() < size
        assert np.bincount(owner, weight).max() <= weight.sum() / size + weight.max()


def test_packing_splits_what_does_not_fit():
    cluster = np.repeat([0, 1, 2, 3], [7, 3, 1, 1])
    owner = pack(cluster, 2, 6)
    assert (
        np.bincount(owner).max() == 6
        and len(set(owner[7:10])) == 1
        and sorted(np.bincount(owner[:7], minlength=2)) == [1, 6]
    )


def assigned_blocks(graph, block, size, masters):
    """The rule of BGL by its formula, from the nodes themselves: the owner of each node.

    Args:
        graph: Has training nodes.
        block: Coarse block of each node, numbered by falling size.
        size: Number of workers.
        masters: The options.
    """
    n = graph.n_nodes
    beside = np.zeros((n, n), int)
    beside[graph.src, graph.dst] = 1
    beside[graph.dst, graph.src] = 1

    def hops(inside):
        one = beside @ inside > 0
        return one, (beside @ one > 0) & ~one

    room = stream.capacity(n, size, masters.slack)
    share = max(graph.train.sum() / size, 1)
    owner = np.full(n, -1)
    passes = []
    for _ in range(masters.passes):
        reached = np.zeros(n, bool)
        for b in range(block.max() + 1):
            inside = block == b
            one, two = hops(inside)
            scores = []
            for i in range(size):
                others = (owner == i) & ~inside
                held = (owner == i) & reached
                score = (
                    (np.sum(others & one) + masters.second * np.sum(others & two))
                    * max(1 - np.sum(held & graph.train) / share, 0)
                    * (1 - np.sum(held) / room)
                )
                fits = np.sum(held) + np.sum(inside) <= room
                scores.append((score if fits else -1, -np.sum(held), -i))
            owner[inside] = -max(scores)[2]
            reached |= inside
        near_own = 0
        for b in range(block.max() + 1):
            inside = block == b
            one, two = hops(inside)
            others = (owner == owner[inside][0]) & ~inside
            near_own += np.sum(others & one) + masters.second * np.sum(others & two)
        passes.append((near_own, owner.copy()))
    # the first of the best
    return max(passes, key=lambda one: one[0])[1]


@pytest.mark.parametrize("options", ["", "passes=1", "passes=1,second=1", "passes=3,second=0.5"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_blocks_go_where_the_formula_says(options, size):
    masters = make_partitioner(f"bgl:blocks=20,slack=0.2,{options}".rstrip(","), seed=7)
    for graph in (graphs.random_graph(60, 150), gt.load("sbm:n_nodes=90,n_edges=300")):
        graph = graph.replace(train=np.arange(graph.n_nodes) % 3 == 0, val=None, test=None)
        edges = HomeEdges(EdgeSource(graph, 16), SerialComm())
        named = searched(edges, 20, masters.hops, key(masters.seed, Purpose.PLACEMENT))
        sizes = int(SMALL * graph.n_nodes / 20), int(min(0.2 / size, 1) * graph.n_nodes)
        block, _ = sized(edges.blocks, *named, *sizes)
        owner = masters.owners(EdgeSource(graph, 16), SerialComm(), size)
        np.testing.assert_array_equal(
            owner(np.arange(graph.n_nodes)), assigned_blocks(graph, block, size, masters)
        )


# ---- balance, ranks and chunks


@pytest.mark.one_in(5)
@pytest.mark.parametrize("masters", NODES)
def test_every_node_has_an_owner_within_the_slack(masters):
    with_library(masters)
    for name, graph in graphs.odd_graphs().items():
        for size in {1, min(3, graph.n_nodes), min(graph.n_nodes, 8)}:
            owners, _ = assigned(graph, size, masters)
            assert owners.min() >= 0 and owners.max() < size, name
            slack = float(masters.partition("slack=")[2].partition(",")[0] or 0.1)
            if masters in BALANCED:
                assert np.bincount(owners).max() <= stream.capacity(graph.n_nodes, size, slack), (
                    name
                )


@pytest.mark.parametrize("placement", EDGES)
def test_every_edge_has_a_worker_within_the_slack(placement):
    for name, graph in graphs.odd_graphs().items():
        for size in {1, min(3, graph.n_nodes), min(graph.n_nodes, 8)}:
            _, workers = assigned(graph, size, "hash", placement)
            assert len(workers) == graph.n_edges and np.all((workers >= 0) & (workers < size)), name
            if placement in GREEDY:
                slack = 0 if "slack=0" in placement else 0.1
                assert np.bincount(workers, minlength=1).max() <= stream.capacity(
                    graph.n_edges, size, slack
                ), name


def test_chunks_do_not_matter():
    for masters, placement in zip(NODES, cycle(EDGES), strict=False):
        with_library(masters)
        whole = assigned(GRAPH, 3, masters, placement)
        for a, b in zip(whole, assigned(GRAPH, 3, masters, placement, chunk=7), strict=True):
            np.testing.assert_array_equal(a, b, f"{masters} {placement}")


def test_the_order_of_edges_does_not_matter_to_node_partitioners():
    order = np.random.default_rng(0).permutation(GRAPH.n_edges)
    other = gt.Graph((GRAPH.src[order], GRAPH.dst[order]), GRAPH.n_nodes, train=GRAPH.train)
    for masters in ("ldg:passes=2", "fennel", "bgl", "grem:cycles=2", "degree-block", "gemini"):
        np.testing.assert_array_equal(
            assigned(GRAPH, 3, masters)[0], assigned(other, 3, masters)[0]
        )


# ---- quality


@cache
def report(graph, masters="hash", placement="1d-src", size=4):
    return gt.partition_report(gt.load(graph), size, masters, placement)


SBM = "sbm:n_nodes=2000,n_edges=16000,classes=8,inside=0.9"
RMAT = "rmat:scale=12,edge_factor=16"


@pytest.mark.parametrize(
    "masters, factor",
    [
        ("ldg", 0.7),
        ("ldg:passes=5", 0.3),
        ("fennel", 0.7),
        ("bgl", 0.3),
        ("louvain", 0.2),
        ("leiden", 0.2),
        ("metis", 0.2),
        ("grem", 0.2),
    ],
)
def test_cuts_are_below_those_of_hash(masters, factor):
    with_library(masters)
    found = report(SBM, masters)
    assert found.edge_cut < factor * report(SBM).edge_cut and found.nodes <= 1.1 + 1e-9


def test_revised_cuts_are_about_those_of_metis():
    pytest.importorskip("pymetis")
    for size in (2, 4, 8):
        revised, reference = (
            report(SBM, masters, size=size) for masters in ("grem:slack=0.03", "metis")
        )
        assert revised.edge_cut <= 1.15 * reference.edge_cut and revised.nodes <= 1.03 + 1e-9


def test_vertex_cuts_by_replication():
    greedy = [
        report(RMAT, "hash", placement, 8).replication
        for placement in ("hdrf", "oblivious", "libra")
    ]
    grid, random = (
        report(RMAT, "hash", placement, 8).replication for placement in ("vertex-cut", "random")
    )
    assert max(greedy) < 0.9 * grid and grid < 0.9 * random
    assert (
        report(RMAT, "hash", "hybrid", 8).replication
        < report(RMAT, "hash", "1d-dst", 8).replication
    )


def test_training_nodes_are_balanced():
    graph = gt.load(SBM)
    graph = graph.replace(train=np.arange(graph.n_nodes) < 600, val=None, test=None)
    even, free = (gt.partition_report(graph, 4, f"bgl:train={train}") for train in ("yes", "no"))
    assert even.train < 1.15 and even.nodes <= 1.1 + 1e-9 and free.nodes <= 1.1 + 1e-9


# ---- the report


def test_report_counts_what_workers_hold():
    for masters, placement in (("hash", "random"), ("ldg", "1d-src"), ("gemini", "libra")):
        found = gt.partition_report(GRAPH, 3, masters, placement)
        parts = run_simulated(
            3, lambda comm, *of: build_partition(GRAPH, comm, *of), placement, masters
        )
        counted = run_simulated(
            3, lambda comm, *of: build_partition(GRAPH, comm, *of).report(), placement, masters
        )[0]
        np.testing.assert_allclose(
            [found.replication, found.nodes, found.edges],
            [counted[name] for name in ("replication", "node_imbalance", "edge_imbalance")],
        )
        assert found.halo_rows == max(p.n_mirrors for p in parts) and found.seconds > 0
    assert (
        gt.partition_report(GRAPH, 1).edge_cut == 0
        and gt.partition_report(GRAPH, 1).replication == 1
    )
    owners, _ = assigned(GRAPH, 3)
    assert gt.partition_report(GRAPH, 3, seed=7).edge_cut == np.mean(
        owners[GRAPH.src] != owners[GRAPH.dst]
    )


def test_predicted_rows_are_those_of_the_plans():
    for masters, placement in (("hash", "1d-src"), ("ldg", "1d-dst"), ("hash", "random")):

        def rows(comm, *of):
            senders, receivers = build_partition(GRAPH, comm, *of).relations["edge"].served(False)
            return senders.plan.n_halo + receivers.plan.n_halo

        sent = sum(run_simulated(3, rows, placement, masters))
        found = gt.partition_report(
            GRAPH, 3, masters, placement, layers=3, width=5, clusters=np.zeros(40, int)
        )
        assert found.bytes["global"] == 2 * 3 * sent * 5 * 4 == found.bytes["cluster"]
    single = gt.partition_report(GRAPH, 3, clusters=np.arange(40)).bytes
    assert single["cluster"] == 0 and ("mini" in single) == (GRAPH.train is not None)


def test_rows_of_batches():
    graph = GRAPH.replace(train=np.arange(40) < 10, val=None, test=None)
    owners, workers = assigned(graph, 3)
    pairs = 0
    for batch in np.array_split(shuffle(key(7, Purpose.BATCH), np.arange(10)), [4, 8]):
        needed = np.isin(np.arange(40), batch)
        for _ in range(2):
            used = needed[graph.dst]
            needed[graph.src[used]] = True
            for end in (graph.src, graph.dst):
                pairs += len(
                    {
                        (v, p)
                        for v, p in zip(end[used], workers[used], strict=True)
                        if owners[v] != p
                    }
                )
    assert gt.partition_report(graph, 3, seed=7, batch_size=4, width=1).bytes["mini"] == 8 * pairs


def test_comparison_names_the_pair_of_fewest_bytes(tmp_path):
    found = gt.compare_partitions(
        gt.load(SBM), 4, ["pregel", "graphx", "armada", ("block", "hdrf")]
    )
    assert (found.best.masters, found.best.partitioner) == ("grem", "1d-dst")
    lines = str(found).splitlines()
    assert (
        len(lines) == 7
        and lines[-1].endswith("masters=grem and partitioner=1d-dst")
        and "mini/epoch" in lines[0]
    )
    pytest.importorskip("matplotlib")
    found.save(tmp_path / "pairs.svg")
    assert "grem / 1d-dst" in (tmp_path / "pairs.svg").read_text()
    found.save(tmp_path / "pairs.svg")
    (tmp_path / "mine.svg").write_text("about graphtheta")
    with pytest.raises(FormatError, match=r"mine\.svg: the picture cannot be written: there "):
        found.save(tmp_path / "mine.svg")
    assert (tmp_path / "mine.svg").read_text() == "about graphtheta"
    with pytest.raises(ConfigError, match=r"pairs\.xyz: Format 'xyz' is not supported"):
        found.save(tmp_path / "pairs.xyz")
    with pytest.raises(ConfigError, match="pairs is empty"):
        gt.compare_partitions(GRAPH, 2, [])


# ---- pairs and the choice of one


def test_pairs_are_their_parts():
    for name, pair in PAIRS.items():
        if pair.masters not in LIBRARY:
            assert pair_of(name, "hash") == pair
            assert (
                gt.partition_report(GRAPH, 3, partitioner=name).edges
                == gt.partition_report(GRAPH, 3, *pair[:2]).edges
            )
            assert gt.Job(partitioner=name).partitioner == name
    with pytest.raises(
        ConfigError,
        match="partitioner=armada means masters=grem and partitioner=1d-dst; drop --masters",
    ):
        gt.Job(partitioner="armada", masters="ldg")
    with pytest.raises(
        ConfigError, match="partitioner=auto chooses the node partitioner; drop --masters"
    ):
        gt.Job(partitioner="auto", masters="block")
    with pytest.raises(ConfigError, match="the edge placement 'auto' is built in"):
        gt.EDGE_PLACEMENTS.add(type("Own", (gt.EDGE_PLACEMENTS["1d-src"],), {"name": "auto"}))


def test_the_choice_saves_bytes_and_time(monkeypatch):
    graph = gt.load(SBM)
    long, short = (
        auto.choose(graph, 4, auto.TrainingWork(2, 64, epochs, 0)) for epochs in (10000, 3)
    )
    assert (
        long.masters == "grem"
        and short[:2] == ("hash", "1d-src")
        and "messages of 3 epochs take about" in short.reason
    )
    assert "9 pairs on all edges" in long.reason and "per epoch (hash and 1d-src: " in long.reason
    one = auto.choose(graph, 1, auto.TrainingWork(2, 64, 1, 0))
    assert one == ("hash", "1d-src", "partitioner=auto: one worker sends nothing")
    # hubs: a small cut would give one worker most edges
    star = graphs.fill(np.arange(1, 400), np.zeros(399, int), 400)
    assert (
        gt.partition_report(
            star, 4, *auto.choose(star, 4, auto.TrainingWork(2, 64, 10**9, 0))[:2]
        ).edges
        <= auto.BALANCED
    )
    monkeypatch.setattr(auto, "SAMPLED", 1000)
    sample = auto.sampled(graph, 0)
    assert (
        900 <= sample.n_edges <= 1000
        and "on 1,000 of 16,000 edges"
        in auto.choose(graph, 4, auto.TrainingWork(2, 64, 10000, 0)).reason
    )


def test_the_choice_is_the_same_on_every_rank(monkeypatch):
    monkeypatch.setattr(auto, "LINK", 1.0)

    def choice(comm):
        trainer = gt.Trainer("gcn", comm=comm, partitioner="auto", **KEYS)
        return trainer.setup.pair, [row["loss"] for row in trainer.fit().history]

    found = run_simulated(3, choice)
    assert len({pair for pair, _ in found}) == 1 and "9 pairs" in found[0][0].reason
    np.testing.assert_allclose(found[0][1], run_simulated(1, choice)[0][1], rtol=1e-9)


def test_report_refuses():
    with pytest.raises(
        PartitionError,
        match="the graph has 40 nodes and the number of workers is 41; choose 1 to 40 ",
    ):
        gt.partition_report(GRAPH, 41)
    with pytest.raises(CommError, match="has no other workers; this partitioner communicates"):
        OneOf(3).all_sum(np.ones(2))


# ---- options, files, losses


@pytest.mark.parametrize(
    "name, option, said",
    [
        ("masters", "ldg:slack=-1", "ldg: slack is -1.0; expected at least 0"),
        ("masters", "ldg:passes=0", "passes is 0; expected at least 1"),
        ("masters", "fennel:gamma=1", "gamma is 1.0; expected above 1"),
        ("masters", "bgl:blocks=0", "blocks is 0; expected at least 1"),
        ("masters", "degree-block:node=0", "node is 0; expected at least 1"),
        ("masters", "louvain:passes=-1", "passes is -1"),
        ("masters", "grem:passes=0", "passes is 0; expected at least 1"),
        ("masters", "grem:cycles=0", "cycles is 0; expected at least 1"),
        ("masters", "gemini:a=1", "no option 'a'; there is none"),
        ("partitioner", "hdrf:slack=-1", "hdrf: slack is -1.0; expected at least 0"),
        (
            "partitioner",
            "libra:balance=2",
            (
                "partitioner=libra:balance=2: there is no option 'balance'; there is slack, owners,"
                " seed"
            ),
        ),
        (
            "masters",
            "file",
            "masters=file needs the file of owners; give masters=file:path=owners.npy",
        ),
    ],
)
def test_options_are_checked(name, option, said):
    with pytest.raises(ConfigError, match=said):
        gt.partition_report(GRAPH, 2, **{name: option})


def test_names_are_built_in():
    with pytest.raises(ConfigError, match="the node partitioner 'ldg' is built in"):
        gt.PARTITIONERS.add(gt.PARTITIONERS["ldg"])
    with pytest.raises(
        ConfigError, match=r"partitioner: unknown edge placement 'hdfr' \(did you mean 'hdrf'\?\)"
    ):
        gt.Job(partitioner="hdfr")


def test_owners_from_a_file(tmp_path):
    path = tmp_path / "owners.npy"
    owner = np.arange(40) * 7 % 3
    np.save(path, owner)
    np.testing.assert_array_equal(assigned(GRAPH, 3, f"file:path={path}")[0], owner)
    with pytest.raises(
        PartitionError,
        match="masters=file: the owners of 40 nodes range from 0 to 2; expected 0 to 1",
    ):
        assigned(GRAPH, 2, f"file:path={path}")
    np.save(path, owner[1:])
    with pytest.raises(
        FormatError,
        match=(
            r"holds int64 numbers of shape \[39\]; expected the owners, one integer for each of"
            r" the 40"
        ),
    ):
        assigned(GRAPH, 3, f"file:path={path}")
    with pytest.raises(FormatError, match="other"):
        assigned(GRAPH, 3, f"file:path={tmp_path / 'other.npy'}")


KEYS = dict(
    dataset="sbm:n_nodes=60,n_edges=400,classes=3,features=6",
    epochs=3,
    backend="reference",
    dtype="float64",
    hidden=8,
)
# each node partitioner with some placements, and each placement with some node partitioners
COMBINED = [
    ("ldg:passes=2", "1d-dst"),
    ("ldg", "hdrf"),
    ("fennel", "libra"),
    ("fennel", "vertex-cut"),
    ("bgl", "hybrid:threshold=5"),
    ("bgl", "1d-src"),
    ("grem", "hdrf"),
    ("louvain", "oblivious"),
    ("metis", "hdrf:owners=no"),
    ("metis", "1d-dst"),
    ("degree-block", "random"),
    ("gemini", "1d-src"),
    ("gemini", "libra:owners=no"),
    ("block", "hybrid"),
    ("hash", "oblivious"),
]


def losses(comm, masters="hash", placement="1d-src"):
    trainer = gt.Trainer("gat", comm=comm, masters=masters, partitioner=placement, **KEYS)
    return [row["loss"] for row in trainer.fit().history]


@cache
def alone():
    return run_simulated(1, losses)[0]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("masters, placement", COMBINED)
def test_losses_are_those_of_one_worker(masters, placement):
    with_library(masters)
    np.testing.assert_allclose(run_simulated(3, losses, masters, placement)[0], alone(), rtol=1e-9)
