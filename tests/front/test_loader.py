"""Loaders: the batches of training, on any number of workers, and the order in which they come."""

from __future__ import annotations

import sys
import threading
from itertools import islice
from pathlib import Path

import graphs
import numpy as np
import pytest
from ranks import MPIEXEC, needs_mpi, run

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ArgumentError, ConfigError, DataError
from graphtheta.graph.store.from_graph import write_store
from graphtheta.train.loader.batch import Fields
from graphtheta.train.loader.layout import TypedLayout

GRAPH = graphs.random_graph(60, 400).replace(
    node_columns={"time": 20 + np.arange(60) % 30},
    edge_columns={"w": 1 + np.arange(400) % 3, "time": np.arange(400) % 50},
)
KEYS = {"fanout": [3, 2], "batch_size": 7, "seed": 4}
SAMPLERS = [
    {},
    {"replace": True},
    {"share_sample": True, "fanout": [3, 3]},
    {"fanout": "all,2"},
    {"fanout": [4], "direction": "out"},
    {"sampler": "weighted:weight=w"},
    {"sampler": "temporal"},
    {"sampler": "labor"},
    {"sampler": "labor:star=yes"},
    {"sampler": "labor:iterations=2"},
    {"sampler": "ladies", "fanout": [9, 9]},
    {"sampler": "pladies", "fanout": [9, 9]},
    {"order": "proximity:sequences=2"},
    {"order": "balanced"},
    {"order": "ids"},
]


def loaded(comm, epoch=0, **keys):
    """The batches of an epoch on this rank."""
    loader = gt.Loader(GRAPH, to="arrays", comm=comm, **{**KEYS, **keys})
    loader.set_epoch(epoch)
    batches = list(loader)
    assert len(batches) == len(loader)
    return batches


def trained(comm, epoch=0, direction="in", **keys):
    """The views of training with the same keys, as batches."""
    keys = {**KEYS, "strategy": "mini", "model": "sage", "direction": direction, **keys}
    hops = str(keys["fanout"]).count(",") + 1
    trainer = gt.Trainer(graph=GRAPH, comm=comm, layers=hops, backend="reference", **keys)
    views = trainer.training.own_views(epoch, 0, trainer.strategy.steps_per_epoch)
    fields = Fields.of(GRAPH)
    return [fields.batch(view) for view in views]


def check_equal(a, b):
    """That two batches are the same to the bit."""
    np.testing.assert_array_equal(a.nodes, b.nodes)
    assert a.n_targets == b.n_targets and a.columns.keys() == b.columns.keys()
    for name, x in a.columns.items():
        np.testing.assert_array_equal(x, b.columns[name], err_msg=name)
    assert len(a.blocks) == len(b.blocks)
    for one, other in zip(a.blocks, b.blocks, strict=True):
        assert one.n_out == other.n_out and one.columns.keys() == other.columns.keys()
        for name in ("nodes", "src", "dst", "edge", "weight"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        for name, x in one.columns.items():
            np.testing.assert_array_equal(x, other.columns[name], err_msg=name)


def edges_of(block):
    return set(zip(block.edge.tolist(), block.weight.tolist(), strict=True))


def check_union(shares, whole):
    """That the shares of the ranks together are a batch."""
    own = [set(share.nodes[: share.n_targets].tolist()) for share in shares]
    targets = whole.nodes[: whole.n_targets].tolist()
    assert sum(map(len, own)) == len(targets) and set().union(*own) == set(targets)
    for k, block in enumerate(whole.blocks):
        assert set().union(*(edges_of(share.blocks[k]) for share in shares)) == edges_of(block)
        assert set().union(*(share.blocks[k].nodes.tolist() for share in shares)) == set(
            block.nodes.tolist()
        )
    for share in shares:
        # what leads to a node is in the share of each rank that computes it
        for k, block in enumerate(share.blocks):
            into = np.isin(GRAPH.dst[whole.blocks[k].edge], share.nodes[: block.n_out])
            assert edges_of(block) >= {
                e for e, i in zip(edges_in_order(whole.blocks[k]), into, strict=True) if i
            }


def edges_in_order(block):
    return list(zip(block.edge.tolist(), block.weight.tolist(), strict=True))


def check_values(batch, direction="in"):
    """That a batch has the values of the graph."""
    ends = (GRAPH.src, GRAPH.dst) if direction == "in" else (GRAPH.dst, GRAPH.src)
    for name in ("x", "y", "train", "val", "test"):
        np.testing.assert_array_equal(batch.columns[name], getattr(GRAPH, name)[batch.nodes])
    np.testing.assert_array_equal(batch.columns["time"], GRAPH.node_columns["time"][batch.nodes])
    assert len(np.unique(batch.nodes)) == len(batch.nodes)
    assert batch.sizes[0] == batch.n_targets and batch.sizes[-1] == len(batch.nodes)
    for block in batch.blocks:
        np.testing.assert_array_equal(block.nodes[block.src], ends[0][block.edge])
        np.testing.assert_array_equal(block.nodes[block.dst], ends[1][block.edge])
        order = np.lexsort((block.edge, block.dst))
        np.testing.assert_array_equal(order, np.arange(len(order)))
        for name in ("edge_attr", "edge_weight", "edge_y"):
            np.testing.assert_array_equal(block.columns[name], getattr(GRAPH, name)[block.edge])
        np.testing.assert_array_equal(block.columns["w"], GRAPH.edge_columns["w"][block.edge])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("keys", SAMPLERS, ids=str)
def test_batches_are_those_of_training(keys):
    """On one worker and on three, dealt and divided."""
    (one,) = run_simulated(1, loaded, epoch=1, **keys)
    (expected,) = run_simulated(1, trained, epoch=1, **keys)
    for batch, view in zip(one, expected, strict=True):
        check_values(batch, keys.get("direction", "in"))
        check_equal(batch, view)
    dealt = run_simulated(3, loaded, epoch=1, mode="independent", **keys)
    views = run_simulated(3, trained, epoch=1, mode="independent", **keys)
    for step, own in enumerate(zip(*dealt, strict=True)):
        for rank, batch in enumerate(own):
            check_equal(batch, views[rank][step])
            if 3 * step + rank < len(one):
                check_equal(batch, one[3 * step + rank])
            else:
                assert batch.n_targets == len(batch.nodes) == 0
    shares = run_simulated(3, loaded, epoch=1, mode="cooperative", **keys)
    if keys.get("direction", "in") == "in":
        for own, whole in zip(zip(*shares, strict=True), one, strict=True):
            check_union(own, whole)


@pytest.mark.parametrize("mode", ["cooperative", "independent"])
def test_macrobatches_caches_and_files_change_nothing(mode, tmp_path):
    write_store(GRAPH, tmp_path / "graph.store", SerialComm())
    stored = gt.load(tmp_path / "graph.store")
    more = {"macrobatch": 2, "feature_cache": 9, "cache_policy": "belady:window=2"}

    def program(comm, graph, **keys):
        loader = gt.Loader(graph, to="arrays", comm=comm, mode=mode, **KEYS, **keys)
        made = [batch for _ in range(2) for batch in loader]
        return made, loader.reuse.caches.counts().sum()

    for size in (1, 2):
        plain = run_simulated(size, program, GRAPH)
        for graph in (GRAPH, stored):
            reused = run_simulated(size, program, graph, **more)
            for (expected, _), (batches, looked_up) in zip(plain, reused, strict=True):
                assert (looked_up > 0) == (size > 1 or graph is stored)
                for a, b in zip(batches, expected, strict=True):
                    check_equal(a, b)


def test_every_iteration_is_another_epoch_and_goes_on_where_it_was_stopped():
    loader = gt.Loader(GRAPH, to="arrays", **KEYS)
    epochs = [[batch.nodes.tolist() for batch in loader] for _ in range(3)]
    assert epochs[0] != epochs[1] and loader.epoch == 2
    assert loader.state_dict() == {"epoch": 3, "step": 0, "workers": 1}
    other = gt.Loader(GRAPH, to="arrays", **KEYS)
    first = [batch.nodes.tolist() for batch in islice(other, 2)]
    assert first == epochs[0][:2] and other.state_dict() == {
        "epoch": 0,
        "step": 2,
        "workers": 1,
    }
    resumed = gt.Loader(GRAPH, to="arrays", **KEYS)
    resumed.load_state_dict(other.state_dict())
    assert [batch.nodes.tolist() for batch in resumed] == epochs[0][2:]
    assert [batch.nodes.tolist() for batch in resumed] == epochs[1]
    # an epoch that was broken off is not finished by the next loop
    assert [batch.nodes.tolist() for batch in other] == epochs[1]
    other.set_epoch(2, step=1)
    assert [batch.nodes.tolist() for batch in other] == epochs[2][1:]


def test_steps_of_independent_workers_are_resumed_by_as_many():
    """A step is as many batches as there are workers."""

    def program(comm, state):
        loader = gt.Loader(GRAPH, to="arrays", comm=comm, mode="independent", **KEYS)
        loader.load_state_dict(state)

    state = {"epoch": 1, "step": 1, "workers": 2}
    run_simulated(2, program, state)
    run_simulated(1, program, {**state, "step": 0})
    with pytest.raises(ConfigError, match=r"state is that of 2 workers.*set_epoch\(1\)"):
        run_simulated(1, program, state)
    with pytest.raises(ConfigError, match="the state has no step and no workers; give what"):
        run_simulated(1, program, {"epoch": 1})


def test_batches_are_shown_by_their_sizes():
    batch = next(iter(gt.Loader(GRAPH, to="arrays", **KEYS)))
    last = f"Block({len(batch.blocks[1].nodes)} -> 7 nodes, {len(batch.blocks[1].edge)} edges)"
    text = repr(batch)
    assert repr(batch.blocks[1]) == last and last in text
    assert text.startswith(f"LoaderBatch(7 targets, {len(batch.nodes)} nodes, ")
    assert f"x [{len(batch.nodes)}, {GRAPH.x.shape[1]}]" in text and len(text) < 300


@pytest.mark.parametrize("mode", ["cooperative", "independent"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_last_batches_may_be_dropped(mode, size):
    n = int(GRAPH.train.sum())
    assert n % 7

    def sizes(comm, **keys):
        loader = gt.Loader(GRAPH, to="arrays", comm=comm, mode=mode, **KEYS, **keys)
        made = [batch.n_targets for batch in loader]
        assert len(made) == len(loader)
        return made

    assert np.sum(run_simulated(size, sizes)) == n
    if mode == "independent" and size > n // 7:
        with pytest.raises(ConfigError, match="has 2 of the 3 batches of mode='independent'"):
            run_simulated(size, sizes, drop_last=True)
        return
    full = np.array(run_simulated(size, sizes, drop_last=True))
    if mode == "independent":
        assert np.all(full == 7) and full.shape == (size, n // 7 // size)
    else:
        assert full.sum(axis=0).tolist() == [7] * (n // 7)


def test_targets_are_splits_masks_ids_or_all_nodes():
    def order(targets, graph=GRAPH):
        loader = gt.Loader(
            graph, targets=targets, to="arrays", order="ids", fanout=[2], batch_size=8
        )
        return np.concatenate([batch.nodes[: batch.n_targets] for batch in loader]).tolist()

    assert order("val") == np.flatnonzero(GRAPH.val).tolist() == order(GRAPH.val)
    assert order("all") == list(range(60)) and order([9, 2, 30]) == [2, 9, 30]
    named = GRAPH.replace(node_ids=np.array([f"v{59 - i:02d}" for i in range(60)]))
    assert order(["v03", "v20"], named) == [39, 56]
    numbered = GRAPH.replace(node_ids=59 - np.arange(60))
    for dtype in (np.int8, np.uint8, np.uint64):
        assert order(np.array([3, 20], dtype), numbered) == [39, 56]
    for graph in (GRAPH, named, numbered):
        with pytest.raises(DataError, match=r"expected ids of shape \[n\], got \[\]"):
            order(3, graph)
        with pytest.raises(DataError, match="no node 18446744073709551615"):
            order(np.array([2**64 - 1], np.uint64), graph)


def test_each_worker_samples_targets_of_its_own():
    def program(comm):
        loader = gt.Loader(GRAPH, to="arrays", comm=comm, mode="independent", **KEYS)
        targets = [[9, 2, 17], [], [5]][comm.rank]
        return targets, loader.sample(targets, step=3)

    for targets, batch in run_simulated(3, program):
        assert batch.nodes[: batch.n_targets].tolist() == targets
        for block, expected in zip(
            batch.blocks, gt.sample(GRAPH, targets, [3, 2], seed=4, step=3), strict=True
        ):
            for name in ("nodes", "src", "dst", "edge", "weight"):
                np.testing.assert_array_equal(getattr(block, name), getattr(expected, name))


@pytest.mark.parametrize("keys", [{}, {"macrobatch": 3}], ids=str)
def test_a_thread_makes_the_same_batches_ahead_and_ends(keys):
    before = threading.active_count()
    plain = gt.Loader(GRAPH, to="arrays", **KEYS, **keys)
    ahead = gt.Loader(GRAPH, to="arrays", prefetch=2, **KEYS, **keys)
    for _ in range(2):
        for a, b in zip(ahead, plain, strict=True):
            check_equal(a, b)
    for _ in ahead:
        break
    assert not [t for t in threading.enumerate() if t.name == "graphtheta loader"]
    assert threading.active_count() <= before + 2
    assert ahead.state_dict() == {"epoch": 2, "step": 1, "workers": 1}


def test_an_error_of_the_thread_is_raised_in_the_loop(monkeypatch):
    loader = gt.Loader(GRAPH, to="arrays", prefetch=2, **KEYS)
    batch = Fields.batch
    made = []

    def failing(self, view, first=None):
        made.append(view)
        if len(made) == 3:
            raise DataError("the third batch")
        return batch(self, view, first)

    monkeypatch.setattr(Fields, "batch", failing)
    taken = []
    with pytest.raises(DataError, match="the third batch"):
        taken += loader
    assert len(made) == 3
    assert not [t for t in threading.enumerate() if t.name == "graphtheta loader"]


def test_sets_of_nodes_and_clusters_are_batches():
    for keys in (
        {"sampler": "saint_walk:roots=5,depth=2"},
        {"strategy": "cluster", "clusters": 4},
    ):
        loader = gt.Loader(GRAPH, to="arrays", mode="independent", **keys)
        for batch in islice(loader, 3):
            (block,) = batch.blocks
            assert batch.n_targets == len(batch.nodes) == block.n_out
            inside = np.isin(GRAPH.src, batch.nodes) & np.isin(GRAPH.dst, batch.nodes)
            assert sorted(block.edge.tolist()) == np.flatnonzero(inside).tolist()
            assert ("loss_weight" in batch.columns) == ("sampler" in keys)


def test_types_have_their_own_nodes_columns_and_edges():
    graph = graphs.papers()
    layout = TypedLayout(graph)
    for batch in gt.Loader(graph, to="arrays", fanout=[4, 3], batch_size=4):
        nodes = layout.nodes(batch)
        assert {kind: sorted(x.columns) for kind, x in nodes.items()} == {
            "paper": ["train", "x", "y"],
            "author": [],
            "subject": ["x"],
        }
        for kind, own in nodes.items():
            all_of_them = graph.nodes_of(kind)
            np.testing.assert_array_equal(all_of_them[own.numbers], batch.nodes[own.rows])
        assert nodes["paper"].columns["x"].shape[1] == 8
        assert nodes["subject"].columns["x"].shape[1] == 4
        for block in batch.blocks:
            edges = layout.edges(block)
            assert sum(map(len, edges.values())) == len(block.edge)
            for relation, at in edges.items():
                columns = layout.edge_columns(block, relation, at)
                wide = "writes" in relation[1]
                assert sorted(columns) == (["edge_attr", "year"] if wide else [])
                assert not wide or columns["edge_attr"].shape == (len(at), 2)
    by_type = gt.Loader(graph, targets=("subject", [2, 0]), to="arrays", fanout=[2], order="ids")
    (batch,) = by_type
    assert batch.nodes[:2].tolist() == graph.nodes_of("subject")[[0, 2]].tolist()


@pytest.mark.parametrize(
    "keys, error, said",
    [
        ({"fanout": []}, ConfigError, "fanout is empty"),
        ({"fanout": [2], "mode": "auto"}, ConfigError, "mode 'auto' is not known"),
        ({"fanout": [2], "to": "jax"}, ConfigError, "to='jax' is no form of batches"),
        ({"fanout": [2], "lr": 0.1}, ConfigError, "lr has no meaning for gt.Loader"),
        ({"fanout": [2], "fan_out": 3}, ConfigError, "fan_out.*did you mean 'fanout'"),
        ({"fanout": [2], "strategy": "global"}, ConfigError, "strategy=global"),
        ({"fanout": [2], "prefetch": -1}, ConfigError, "prefetch: got -1"),
        ({"fanout": [2], "drop_last": 3}, ArgumentError, "drop_last is 3"),
        ({"fanout": [2], "targets": "valid"}, ConfigError, "targets='valid' is no set of nodes"),
        ({"fanout": [2], "targets": [60]}, DataError, "the graph has no node 60"),
        ({"fanout": [2], "targets": []}, DataError, "training set is empty"),
        ({"sampler": "saint_node:budget=9"}, ConfigError, "give mode='independent'"),
        ({"sampler": "labor"}, ConfigError, "no fanout is given"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_one_line(keys, error, said):
    with pytest.raises(error, match=said) as raised:
        gt.Loader(GRAPH, **{"to": "arrays", **keys})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("to", ["pyg", "dgl"])
def test_relations_are_not_given_backwards(to):
    """Their ends would be numbers of nodes of the other type."""
    keys = {"to": to, "fanout": [2], "direction": "out"}
    with pytest.raises(ConfigError, match=r"against the relations.*with_inverse_relations"):
        gt.Loader(graphs.papers(), **keys)


def test_other_arguments_on_other_ranks_are_refused():
    def program(comm):
        gt.Loader(GRAPH, to="arrays", comm=comm, drop_last=comm.rank == 1, **KEYS)

    with pytest.raises(ConfigError, match=r"gt\.Loader: drop_last=true on rank 1"):
        run_simulated(2, program)


@pytest.mark.second
def test_processes_of_torchrun_are_refused():
    """Each would make all of the batches."""
    program = "import graphtheta as gt; gt.Loader(gt.load('sbm'), fanout=[2], to='arrays')"
    environment = {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "2"}
    done = run([sys.executable, "-c", program], **environment)
    assert done.returncode and "mpiexec -n 2 python" in done.stderr.strip().splitlines()[-1]
    assert run([sys.executable, "-c", program], WORLD_SIZE="2").returncode == 0


@pytest.mark.second
@needs_mpi
def test_workers_have_the_batches_of_one(tmp_path):
    """With threads that make batches ahead, while the loop sends messages of its own and trains
    with views in flight, and with loops that end early.
    """
    program = Path(__file__).with_name("loader_digests.py")
    digests = []
    for size in (1, 2):
        done = run([MPIEXEC, "-n", str(size), sys.executable, str(program)], OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr[-3000:]
        digests.append(done.stdout)
    assert digests[0] == digests[1] and digests[0].count("\n") == 2


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(
        "graphtheta.train.loader.forms.import_module",
        lambda name: (_ for _ in ()).throw(ImportError("No module named 'torch'")),
    )
    for to, package in (("pyg", "torch_geometric"), ("dgl", "dgl")):
        with pytest.raises(ConfigError, match=f"pip install {package}, or give to='arrays'"):
            gt.Loader(GRAPH, to=to, fanout=[2])
