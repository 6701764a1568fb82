"""Strategies of strategy.py and curriculum.py, the same numbers on any ranks; strategies that make
batches of the package, the same to the bit; and mistakes, an error on every rank.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import plugins.curriculum
import plugins.strategy
import pytest
from ranks import MPIEXEC, needs_mpi, run

import graphtheta as gt
from graphtheta.base.rng import Permutation, Purpose, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

HERE = Path(__file__).parent
GRAPH = graphs.random_graph(40, 240)
JOB: dict[str, Any] = {
    "model": "sage",
    "epochs": 3,
    "backend": "reference",
    "dtype": "float64",
    "dropout": 0.0,
}
ELSEWHERE = {"partitioner": "vertex-cut", "masters": "block"}
WALKS = "random_walks:roots=5,length=3"
CURRICULUM = "curriculum:clusters=3"
TYPED_LINKS: dict[str, Any] = {
    "graph": graphs.papers(),
    "model": "rgcn",
    "task": "link",
    "eval_negatives": 3,
}
OWN_VIEWS = {"mode": "independent", "views_per_step": 2}


def losses(comm: Comm, **keys: Any) -> list[float]:
    trainer = gt.Trainer(graph=keys.pop("graph", GRAPH), comm=comm, **{**JOB, **keys})
    return [row["loss"] for row in trainer.fit().history]


def raised(comm: Comm, **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        losses(comm, **keys)
    return str(caught.value)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": WALKS},
        {"strategy": f"{HERE / 'strategy.py'}:Walks"},
        {"strategy": WALKS, **OWN_VIEWS},
        {"strategy": WALKS, "views_in_flight": 3, "views_per_step": 2},
        {"strategy": WALKS, "macrobatch": "auto"},
        {
            "strategy": WALKS,
            **OWN_VIEWS,
            "macrobatch": "2",
            "feature_cache": "10",
            "cache_policy": "belady",
        },
        {"strategy": WALKS, "staleness": 1, "class_weights": "balanced"},
        {"strategy": WALKS, "steps": 7, "epochs": 0},
        {"strategy": CURRICULUM},
        {"strategy": f"{HERE / 'curriculum.py'}:Curriculum:until=1,hops=1"},
        {"strategy": CURRICULUM, **OWN_VIEWS},
        {"strategy": CURRICULUM, "mode": "auto", "views_per_step": 3, "views_in_flight": 2},
        {"strategy": CURRICULUM, "macrobatch": "2", "feature_cache": "20%"},
        {
            "strategy": CURRICULUM,
            **OWN_VIEWS,
            "macrobatch": "5",
            "feature_cache": "9",
            "cache_policy": "probability",
        },
        {"strategy": CURRICULUM, "steps": 6, "epochs": 0, "views_per_step": 2},
        {"strategy": f"{CURRICULUM},hops=1", "task": "link", "eval_negatives": 3},
        {"strategy": CURRICULUM, "task": "link", "eval_negatives": 3, **OWN_VIEWS},
    ],
    ids=lambda keys: " ".join(f"{Path(str(x)).name}" for x in keys.values()),
)
def test_losses_are_those_of_one_worker(keys: dict[str, Any]) -> None:
    (one,) = run_simulated(1, losses, **keys)
    assert all(np.isfinite(one))
    for found in run_simulated(3, losses, **keys, **ELSEWHERE):
        np.testing.assert_allclose(found, one, rtol=1e-9)


@needs_mpi
@pytest.mark.second
@pytest.mark.parametrize("strategy", ["strategy.py:Walks:roots=9", "curriculum.py:Curriculum"])
def test_losses_are_those_of_one_worker_under_mpiexec(tmp_path: Path, strategy: str) -> None:
    flags = "--dataset sbm:n_nodes=120,n_edges=500 --epochs 3 --dtype float64 --backend reference"
    train = [sys.executable, "-m", "graphtheta", "train", *flags.split()]
    train += ["--strategy", str(HERE / strategy)]
    found = []
    for size in (1, 3):
        out = tmp_path / str(size)
        done = run([str(MPIEXEC), "-n", str(size), *train, "--out", str(out)], OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr
        lines = (out / "metrics.jsonl").read_text().splitlines()
        found.append([row["loss"] for row in map(json.loads, lines)])
    np.testing.assert_allclose(*found, rtol=1e-9)


class _Registered(gt.OwnStrategy):
    """A strategy of a test, found by name."""

    def n_batches(self, epoch: int) -> int:
        return 1

    def choose(self, epoch: int, i: int) -> gt.Batch:
        raise NotImplementedError


@gt.STRATEGIES.add
class Targets(_Registered):
    """The batches of strategy=mini, batch_size=7, by ids."""

    name = "own_targets"

    def n_batches(self, epoch: int) -> int:
        return -(-self.task.n_targets // 7)

    def choose(self, epoch: int, i: int) -> gt.Batch:
        ids = np.sort(np.concatenate(self.partition.halo_comm.all_gather(self.task.ids)))
        order = Permutation(key(self.seed, Purpose.BATCH, epoch), len(ids))
        return gt.Batch(targets=ids[order.position(np.arange(len(ids))) // 7 == i][::-1])


@gt.STRATEGIES.add
class Clusters(_Registered):
    """The batches of strategy=cluster with clusters of the ids below and above 20."""

    name = "own_clusters"

    def __init__(
        self,
        partition: Any,
        layers: Any,
        task: Any,
        seed: int = 0,
        *,
        hops: int = 0,
        ids: bool = False,
    ):
        super().__init__(partition, layers, task, seed)
        self.hops = hops
        self.ids = ids

    def n_batches(self, epoch: int) -> int:
        return 2

    def choose(self, epoch: int, i: int) -> gt.Batch:
        (cluster,) = Permutation(key(self.seed, Purpose.BATCH, epoch), 2).item(np.array([i]))
        nodes = np.arange(40) // 20 == cluster
        listed = np.flatnonzero(nodes)
        return gt.Batch(nodes=listed if self.ids else nodes[self.partition.masters], hops=self.hops)


@gt.STRATEGIES.add
class Whole(_Registered):
    """The batches of strategy=global."""

    name = "own_whole"

    def __init__(self, partition: Any, layers: Any, task: Any, seed: int = 0, *, ids: bool = False):
        super().__init__(partition, layers, task, seed)
        self.ids = ids

    def choose(self, epoch: int, i: int) -> gt.Batch:
        p = self.partition
        return gt.Batch(nodes=np.arange(p.n_nodes) if self.ids else np.ones(p.n_masters, bool))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("size", "own", "like"),
    [
        (1, {"strategy": "own_targets"}, {"strategy": "mini", "batch_size": 7}),
        (
            3,
            {"strategy": "own_targets", **OWN_VIEWS},
            {"strategy": "mini", "batch_size": 7, **OWN_VIEWS},
        ),
        (3, {"strategy": "own_clusters"}, {"strategy": "cluster"}),
        (
            1,
            {"strategy": "own_clusters:ids=yes", **OWN_VIEWS},
            {"strategy": "cluster", **OWN_VIEWS},
        ),
        (3, {"strategy": "own_clusters:hops=2"}, {"strategy": "cluster", "boundary_hops": 2}),
        (
            3,
            {"strategy": "own_targets", "task": "link", "eval_negatives": 3},
            {"strategy": "mini", "batch_size": 7, "task": "link", "eval_negatives": 3},
        ),
        (1, {"strategy": "own_whole"}, {"strategy": "global"}),
        (3, {"strategy": "own_whole:ids=yes"}, {"strategy": "global"}),
        (3, {"strategy": "own_whole", **TYPED_LINKS}, {"strategy": "global", **TYPED_LINKS}),
        (
            1,
            {"strategy": "own_whole:ids=yes", **TYPED_LINKS},
            {"strategy": "global", **TYPED_LINKS},
        ),
        (3, {"strategy": "curriculum:until=0"}, {"strategy": "global"}),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_batches_of_the_package_have_its_numbers(
    size: int,
    own: dict[str, Any],
    like: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("clusters.npy", np.arange(40) // 20)
    if like["strategy"] == "cluster":
        like = {**like, "cluster_method": "clusters.npy"}
    assert run_simulated(size, losses, **own) == run_simulated(size, losses, **like)


class Spread(gt.Layer):
    sum = "std"


class SpreadNet(gt.Model):
    def __init__(self, d_in: int, d_out: int, dropout: float = 0.0):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.layer = Spread()

    def forward(self, graph: Any) -> Any:
        return gt.matmul(self.layer(graph, graph.x), self.weight)


@pytest.mark.parametrize(
    ("model", "backend", "forms"),
    [
        ("gin", "reference", ("mask", "ids", "weights")),
        # an edge of weight 0 must not divide by the sum of weights so far
        (SpreadNet, "fused", ("weights",)),
    ],
)
def test_edges_and_their_weights(model: Any, backend: str, forms: tuple[str, ...]) -> None:
    """Messages along some edges only, given by mask and by ids, are those of a graph of these; and
    sums are weighted.
    """
    kept = np.arange(GRAPH.n_edges) % 3 > 0
    thin = GRAPH.keep_edges(np.flatnonzero(kept))

    class Thin(Whole):
        name = "own_thin"
        form = "mask"

        def choose(self, epoch: int, i: int) -> gt.Batch:
            p = self.partition
            everything = np.ones(p.n_masters, bool)
            if self.form == "ids":
                return gt.Batch(nodes=everything, edges=np.flatnonzero(kept))
            mask = kept[p.edge_gid]
            if self.form == "weights":
                return gt.Batch(nodes=everything, edge_weights=mask.astype(float))
            return gt.Batch(nodes=everything, edges=mask)

    gt.STRATEGIES.add(Thin)
    keys = {"model": model, "epochs": 2, "backend": backend}
    (expected,) = run_simulated(1, losses, graph=thin, **keys)
    for Thin.form in forms:
        for size in (1, 3):
            found = run_simulated(size, losses, strategy="own_thin", **keys)[0]
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_loss_of_walks_estimates_that_of_all_targets() -> None:
    """The mean over batches of an untrained model is about the loss of the whole graph."""
    keys = {**JOB, "lr": 1e-12, "epochs": 60}
    walks = gt.Trainer(graph=GRAPH, strategy="random_walks:counted=300", **keys)
    walked = np.mean([walks.train_epoch(epoch) for epoch in range(60)])
    whole = gt.Trainer(graph=GRAPH, strategy="global", **keys).train_epoch(0)
    # means over neighbours inside a batch are not those of the graph
    assert walked == pytest.approx(whole, rel=0.15)


def test_epochs_have_their_own_numbers_of_steps() -> None:
    trainer = gt.Trainer(graph=GRAPH, strategy=CURRICULUM, **JOB)
    history = trainer.fit().history
    assert [row["step"] for row in history] == [3, 6, 7]
    assert trainer.step == 7


@pytest.mark.parametrize("checkpoint_every", ["0", "1"])
def test_a_strategy_may_know_the_epochs_of_the_run_alone(
    tmp_path: Path, checkpoint_every: str
) -> None:
    numbers = [3, 1, 2]
    parts = {
        "n_batches": lambda s, epoch: numbers[epoch],
        "choose": lambda s: gt.Batch(targets=s.task.ids),
    }
    keys = {**JOB, "epochs": 3, "out": str(tmp_path), "checkpoint_every": checkpoint_every}
    keys |= {"graph": GRAPH, "strategy": strategy_of(parts)}
    assert [row["step"] for row in gt.Trainer(**keys).fit().history] == [3, 4, 6]
    assert gt.Trainer(**keys, resume=True).fit().history[-1]["step"] == 6
    numbers.append(1)
    longer = gt.Trainer(**{**keys, "epochs": 4}, resume=True).fit().history
    assert longer[-1]["step"] == 7


def test_a_custom_loop_has_the_same_numbers() -> None:
    for strategy in (WALKS, CURRICULUM):
        own = gt.Run(
            graph=GRAPH, strategy=strategy, **{k: x for k, x in JOB.items() if k != "epochs"}
        )
        means = []
        for epoch in range(JOB["epochs"]):
            found = []
            for view in own.views(epoch):
                found.append(own.backward(own.loss(own.forward(view), view)))
                own.step()
            means.append(np.mean(found))
        assert means == losses(gt.start(), strategy=strategy)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "nodes outside": (
        {"choose": lambda s: gt.Batch(nodes=np.array([3, 40]))},
        r"choose\(0, 0\): nodes has ids from 3 to 40, outside of the graph, which has 40 nodes",
    ),
    "negative": (
        {"choose": lambda s: gt.Batch(nodes=np.array([-1]))},
        "nodes has ids from -1 to -1, outside of the graph",
    ),
    "edges outside": (
        {"choose": lambda s: gt.Batch(edges=np.array([10**6]))},
        "edges has ids from 1000000 to 1000000, outside",
    ),
    "targets outside": (
        {"choose": lambda s: gt.Batch(targets=np.array([0, 1, 10**6]))},
        r"has \d target\(s\) that are no training targets of the graph",
    ),
    "targets outside of nodes": (
        {"choose": lambda s: gt.Batch(targets=np.ones(len(s.task.ids), bool), nodes=np.array([0]))},
        r"batch 0 of epoch 0 has \d+ target\(s\) outside of its nodes",
    ),
    "twice": (
        {"choose": lambda s: gt.Batch(nodes=np.array([2, 2]))},
        "nodes has an id twice",
    ),
    "floats": (
        {"choose": lambda s: gt.Batch(nodes=np.array([1.0]))},
        r"nodes is an array of float64, \[1\]; expected a mask of this worker's nodes, or node ids",
    ),
    "a list": (
        {"choose": lambda s: gt.Batch(targets=[1, 2])},
        "targets is \\[1, 2\\]; expected a mask",
    ),
    "a mask of all nodes": (
        {"choose": lambda s: gt.Batch(nodes=np.ones(41, bool))},
        r"nodes has 41 places, and this worker has \d+ nodes",
    ),
    "weights of no batch": (
        {"choose": lambda s: gt.Batch(loss_weights=np.ones(s.partition.n_masters))},
        "loss_weights are given by all batches of a strategy with weighs_loss",
    ),
    "no weights": ({"weighs_loss": True}, "loss_weights are given by all batches"),
    "integer weights": (
        {
            "weighs_loss": True,
            "choose": lambda s: gt.Batch(loss_weights=np.ones(s.partition.n_masters, int)),
        },
        r"loss_weights is an array of int64, \[\d+\]; expected a float for each node",
    ),
    "negative weights": (
        {
            "weighs_loss": True,
            "choose": lambda s: gt.Batch(loss_weights=np.full(s.partition.n_masters, -1.0)),
        },
        "loss_weights must be finite numbers of at least 0",
    ),
    "hops": ({"choose": lambda s: gt.Batch(hops=1)}, "hops and edge_weights need nodes"),
    "hops of a float": (
        {"choose": lambda s: gt.Batch(nodes=np.array([1]), hops=1.5)},
        "hops is 1.5; expected 0 or more",
    ),
    "nothing": ({"choose": lambda s: None}, r"choose\(0, 0\) returned None; return a gt.Batch"),
    "a mask": (
        {"choose": lambda s: np.ones(s.partition.n_masters, bool)},
        "returned a value of type ndarray",
    ),
    "empty": (
        {"choose": lambda s: gt.Batch(nodes=np.zeros(s.partition.n_masters, bool))},
        "batch 0 of epoch 0 is empty: it has no nodes on any worker",
    ),
    "no targets": (
        {"choose": lambda s: gt.Batch(targets=np.zeros(len(s.task.ids), bool))},
        "batch 0 of epoch 0 is empty: it has no targets on any worker",
    ),
    "no batches": ({"n_batches": lambda s, epoch: 0}, r"n_batches\(0\) returned 0; expected an"),
    "half a batch": ({"n_batches": lambda s, epoch: 2.5}, r"n_batches\(0\) returned 2.5"),
}
# what only several ranks can do wrong
DIFFERENT: dict[str, dict[str, Any]] = {
    "ids": {"choose": lambda s: gt.Batch(nodes=np.array([s.partition.halo_comm.rank]))},
    "kinds": {
        "choose": lambda s: (
            gt.Batch() if s.partition.halo_comm.rank else gt.Batch(nodes=np.arange(40))
        )
    },
    "hops": {"choose": lambda s: gt.Batch(nodes=np.arange(9), hops=s.partition.halo_comm.rank % 2)},
    "numbers": {"n_batches": lambda s, epoch: 1 + s.partition.halo_comm.rank},
    "later numbers": {"n_batches": lambda s, epoch: 4 - epoch * s.partition.halo_comm.rank},
    "last numbers": {"n_batches": lambda s, epoch: 2 + (epoch == 2 and s.partition.halo_comm.rank)},
}


def strategy_of(parts: dict[str, Any]) -> str:
    """Register a strategy with some methods; those that are not given make whole graphs."""
    choose = parts.get("choose")
    methods = {**parts, "name": "own_wrong"}
    if choose is not None:
        methods["choose"] = lambda self, epoch, i: choose(self)
    gt.STRATEGIES.add(type("Wrong", (Whole,), methods))
    return "own_wrong"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_error_on_every_rank(name: str) -> None:
    parts, told = MISTAKES[name]
    strategy = strategy_of(parts)
    for size in (1, 3):
        for message in run_simulated(size, raised, strategy=strategy):
            assert message.count("strategy=own_wrong") == 1
            assert re.search(told, message), message


KEYS_OF_DIFFERENT: list[dict[str, Any]] = [
    {},
    OWN_VIEWS,
    {"views_in_flight": 2},
    {"macrobatch": "2"},
    {"macrobatch": "2", "feature_cache": "9", "cache_policy": "belady", **OWN_VIEWS},
    {"steps": 30, "epochs": 0},
    {"views_per_step": 3, "views_in_flight": 2},
]


# the first stage has each kind of difference with several keys
@pytest.mark.one_in(3, 2)
@pytest.mark.parametrize("keys", KEYS_OF_DIFFERENT, ids=" ".join)
@pytest.mark.parametrize("name", DIFFERENT)
def test_different_batches_are_an_error_on_every_rank(name: str, keys: dict[str, Any]) -> None:
    strategy = strategy_of(DIFFERENT[name])
    for message in run_simulated(3, raised, strategy=strategy, **keys):
        what = "number" if "n_batches" in DIFFERENT[name] else "batch"
        assert f"is another {what} on rank 1 than on rank 0; choose batches by seed" in message


def test_a_mistake_of_one_rank_is_an_error_on_every_rank() -> None:
    def longer(self: gt.OwnStrategy) -> gt.Batch:
        p = self.partition
        return gt.Batch(nodes=np.ones(p.n_masters + (p.halo_comm.rank == 1), bool))

    strategy = strategy_of({"choose": longer})
    for keys in ({}, OWN_VIEWS, {"views_in_flight": 2}, {"macrobatch": "2"}):
        first, second, third = run_simulated(3, raised, strategy=strategy, **keys)
        assert "nodes has" in second and first == third == f"rank 1: {second}"


def test_a_mask_of_the_user_is_not_changed() -> None:
    kept = np.ones(int(GRAPH.train.sum()), bool)
    strategy = strategy_of(
        {"choose": lambda s: gt.Batch(targets=kept, nodes=np.ones(s.partition.n_masters, bool))}
    )
    losses(gt.start(), strategy=strategy)
    assert kept.all()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("keys", "weighs"),
    [
        ({}, False),
        ({"views_in_flight": 3}, True),
        ({"macrobatch": "3"}, False),
        ({"mode": "independent"}, True),
        ({"mode": "independent", "macrobatch": "2"}, False),
        ({"macrobatch": "3"}, True),
    ],
    ids=str,
)
def test_batches_may_be_written_into_the_same_arrays(keys: dict[str, Any], weighs: bool) -> None:
    class Reusing(_Registered):
        name = "own_reusing"
        weighs_loss = weighs
        reuses = False

        def n_batches(self, epoch: int) -> int:
            return 3

        def choose(self, epoch: int, i: int) -> gt.Batch:
            p = self.partition
            arrays = {"nodes": p.masters % 3 != i, "edges": p.edge_gid % 3 != i}
            arrays["edge_weights"] = 1.0 + (p.edge_gid + i) % 5
            if weighs:
                arrays["loss_weights"] = 1.0 + (p.masters + i) % 5
            if not self.reuses:
                return gt.Batch(**arrays)
            if not hasattr(self, "_arrays"):
                self._arrays = arrays
            for name, x in arrays.items():
                self._arrays[name][:] = x
            return gt.Batch(**self._arrays)

    gt.STRATEGIES.add(Reusing)
    keys = {"strategy": "own_reusing", "views_per_step": 3, "epochs": 2, **keys}
    new = run_simulated(3, losses, **keys)
    Reusing.reuses = True
    assert run_simulated(3, losses, **keys) == new


def test_what_is_no_strategy(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import graphtheta as gt\n"
        "class Half(gt.OwnStrategy):\n"
        "    name = 'half'\n"
        "    def n_batches(self, epoch):\n"
        "        return 1\n"
        "class Other:\n"
        "    name = 'other'\n"
    )
    for text, told in {
        f"{file}:Half": "strategy=half: Half has no method choose",
        f"{file}:Other": f"{file} has no strategy Other; it has Half",
        f"{file}:None": f"{file} has no strategy None",
        str(tmp_path / "no.py:Half"): "the strategy file .* does not exist",
        f"{WALKS},steps=3": "there is no option 'steps'; there is roots, length, counted",
        "random_walks:roots=few": "roots is 'few'; expected a value of type int",
        "mini:batch_size=3": "mini has no options; its settings are keys of the job",
        "random_wlks": "did you mean 'random_walks'",
    }.items():
        for size in (1, 2):
            for message in run_simulated(size, raised, strategy=text):
                assert re.search(told, message), message
    with pytest.raises(ConfigError, match="the class str is not a strategy"):
        gt.STRATEGIES.add(str)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="weighs the losses of nodes"):
        gt.Trainer(graph=GRAPH, strategy=WALKS, task="link", **JOB)


def test_batches_of_two_kinds_share_no_step_of_independent_workers() -> None:
    class Mixed(Whole):
        name = "own_mixed"

        def n_batches(self, epoch: int) -> int:
            return 2

        def choose(self, epoch: int, i: int) -> gt.Batch:
            return gt.Batch() if i else super().choose(epoch, i)

    gt.STRATEGIES.add(Mixed)
    one, three = (run_simulated(size, losses, strategy="own_mixed")[0] for size in (1, 3))
    np.testing.assert_allclose(three, one, rtol=1e-9)
    for message in run_simulated(2, raised, strategy="own_mixed", **OWN_VIEWS):
        assert "all batches of a step must be of one kind" in message


def test_keys_of_the_package_have_no_meaning_with_it() -> None:
    for name, x in {"batch_size": 5, "fanout": "3", "clusters": 3, "precompute": "yes"}.items():
        with pytest.raises(
            ConfigError, match=f"{name}={x} has no meaning with strategy=random_walks"
        ):
            gt.Job(strategy="random_walks", **{name: x})
    assert plugins.strategy.Walks.name in gt.STRATEGIES
    assert plugins.curriculum.Curriculum.name in gt.STRATEGIES
    assert gt.Job(strategy="a/b.py:Mine:x=1").folder == Path("runs", "sbm-gcn-Mine")
