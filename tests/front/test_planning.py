"""Plans: bytes and messages equal to those that the ledgers count, memory equal to that of built
partitions, refusals.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp
from covering import covering

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli.plan import bytes_of
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import SimComm, run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.errors import ConfigError, PartitionError
from graphtheta.inspect.planning import messages, rehearsal
from graphtheta.inspect.planning.holding import partition_bytes
from graphtheta.inspect.planning.machine import Machine
from graphtheta.inspect.planning.placement import Placement
from graphtheta.inspect.planning.plan import Row, planned
from graphtheta.inspect.planning.report import Limit, refusal, report
from graphtheta.inspect.planning.skeleton import Process, Skeleton, skeleton
from graphtheta.inspect.planning.work import reduced, work_of
from graphtheta.ops.parallel import buffers
from graphtheta.partitioners.pairs import pair_of
from graphtheta.run.memory.bound import Extent

pytestmark = pytest.mark.usefixtures("settled")
# seconds that float32 rounds are sent as they are
GRAPH = graphs.random_graph(40, 160).replace(
    node_columns={"seconds": 1.7e9 + np.arange(40) / 4},
    edge_columns={"seconds": 1.7e9 - np.arange(160) / 8},
)
KEYS: dict[str, Any] = {"backend": "reference", "hidden": 6, "seed": 3}
SPEED = Machine(
    seconds=(1e-11, 1e-10, *[3e-10] * 3, 1e-10, 1e-9, 1e-8, 2e-4, 1e-6, 2e-4, 1e-4, 1e-4, 2e-4),
    crowded=1.5,
    wake=1e-4,
    together=(1.2, 1.1),
    message=1e-4,
    collective=2e-5,
    latency=1e-5,
    byte=4e-10,
    wire=3e-10,
    cores=2,
    error=0.1,
)
GLOBAL: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "attention": {"model": "gat", "heads": 2},
    "both directions": {"model": "sage", "direction": "both"},
    "in order": {"model": "sage", "aggregator": "lstm", "neighbour_order": "src.in_degree"},
    "in order of senders": {
        "model": "sage",
        "aggregator": "lstm",
        "neighbour_order": "src.seconds",
        "direction": "both",
    },
    "links": {"model": "gcn", "task": "link", "decoder": "dot"},
    "recomputed": {"model": "gcn", "layers": 3, "recompute": True},
    "no layers": {"model": "mlp", "layers": 0, "task": "link", "decoder": "hadamard"},
}
BATCHES: dict[str, dict[str, Any]] = {
    "mini": {"model": "gcn", "strategy": "mini", "batch_size": 4},
    "sampled": {"model": "sage", "strategy": "mini", "batch_size": 4, "fanout": "3,2"},
    "clusters": {"model": "gat", "strategy": "cluster", "clusters": 5},
    "in order": {
        "model": "sage",
        "aggregator": "gru",
        "neighbour_order": "seconds",
        "direction": "both",
        "strategy": "mini",
        "batch_size": 4,
        "fanout": "3,2",
    },
    "links": {
        "model": "sage",
        "task": "link",
        "decoder": "hadamard",
        "strategy": "mini",
        "batch_size": 20,
    },
    "no layers": {
        "model": "mlp",
        "layers": 0,
        "task": "link",
        "decoder": "dot",
        "strategy": "mini",
        "batch_size": 20,
    },
}
CUTS = [
    ("hash", "1d-src"),
    ("block", "1d-dst"),
    ("hash", "vertex-cut"),
    ("ldg", "random"),
    ("hash", "hdrf"),
]


@cache
def bare(name: str, batches: bool = False) -> Skeleton:
    return skeleton(gt.Job(**KEYS, **(BATCHES if batches else GLOBAL)[name]), GRAPH)


def counted(comm: Comm, keys: dict[str, Any]) -> list[float]:
    """Of this rank in the first step: rows, rows and edges of levels, bytes and messages of halo
    moves and of sums of gradients.
    """
    one = gt.Trainer(graph=GRAPH, comm=comm, **KEYS, **keys)
    view = one.strategy.batch(0, 0)
    before = comm.ledger.snapshot()
    with one.training.scope(), one.training.tape(0, view) as tape:
        one.training.backward(tape, one.setup.task.loss(view, one.model(view)))
    since = comm.ledger.since(before)
    sizes = [x for level in view.levels for x in (level.n_in, level.n_out, level.n_edges)]
    return [
        view.space.n,
        *sizes,
        *(since[stage][field] for stage in ("move", "reduce") for field in ("bytes", "messages")),
    ]


def predicted(held: Skeleton, placement: Placement) -> np.ndarray:
    work = work_of(held, held.strategy(held.job).batch(0, 0), placement)
    sums = reduced(held.order, list(held.prepared.model.parameters()), placement.size)
    sizes = [x for share in work.shares for x in (share.rows_in, share.rows_out, share.edges)]
    return np.stack([work.nodes, *sizes, work.sent, work.messages, *sums], axis=1)


# every cut meets even or odd numbers of workers, every number two cuts or three
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("masters", "partitioner", "size"),
    [(*cut, size) for i, cut in enumerate(CUTS) for size in range(1 + i % 2, 9, 2)],
)
def test_global_batches_are_exact(masters: str, partitioner: str, size: int) -> None:
    name = list(GLOBAL)[(CUTS.index((masters, partitioner)) + size) % len(GLOBAL)]
    held = bare(name)
    found = predicted(held, Placement.of(held.graph, size, partitioner, masters, 3))
    np.testing.assert_array_equal(
        found,
        run_simulated(
            size, counted, {**GLOBAL[name], "masters": masters, "partitioner": partitioner}
        ),
    )
    assert size == 1 or found[:, -4].sum() > 0


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("global", name) for name in GLOBAL), *(("batch", name) for name in BATCHES)],
)
def test_every_kind_of_job_has_a_plan(kind: str, name: str) -> None:
    held = bare(name, kind == "batch")
    rows = planned(held, [held.job], [1, 2], SPEED, views=2)
    assert rows and all(row.memory > row.bound.total > 0 and row.seconds > 0 for row in rows)
    assert (rows[0].bound.pairs > 0) == (held.prepared.kind.name == "link")
    assert report(rows, Limit(1 << 40, 0), SPEED)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_exact(name: str) -> None:
    held = bare(name, True)
    # every number of workers meets two kinds of batches
    for size in range(1 + list(BATCHES).index(name) % 3, 9, 3):
        masters, partitioner = CUTS[(size + list(BATCHES).index(name)) % len(CUTS)]
        found = predicted(held, Placement.of(held.graph, size, partitioner, masters, 3))
        keys = {**BATCHES[name], "masters": masters, "partitioner": partitioner}
        np.testing.assert_array_equal(
            found, run_simulated(size, counted, keys), err_msg=f"{size} {masters} {partitioner}"
        )


# what an epoch sends: strategies in both modes, macrobatches, caches, totals, orders, histories,
# halos
SAMPLED: dict[str, Any] = {"model": "sage", "strategy": "mini", "batch_size": 4, "fanout": "3,2"}
ALONE: dict[str, Any] = {**SAMPLED, "mode": "independent"}
EPOCHS: dict[str, tuple[int, dict[str, Any]]] = {
    "mini": (3, {"model": "gcn", "strategy": "mini", "batch_size": 3}),
    "several views a step": (2, {**ALONE, "views_per_step": 3}),
    "clusters": (3, {**BATCHES["clusters"], "mode": "independent"}),
    "gas": (2, {**BATCHES["clusters"], "model": "gcn", "history": "gas"}),
    "links": (2, {**BATCHES["links"], "mode": "independent"}),
    "labor": (3, {**ALONE, "sampler": "labor"}),
    "macrobatch": (3, {**SAMPLED, "macrobatch": "3"}),
    "macrobatch with features": (3, {**ALONE, "macrobatch": "2", "fetch_batch": 1}),
    "cache": (3, {**ALONE, "feature_cache": "8", "cache_policy": "lru"}),
    "belady": (
        2,
        {**ALONE, "feature_cache": "8", "cache_policy": "belady:window=3", "macrobatch": "2"},
    ),
    "cache of a machine": (4, {**ALONE, "feature_cache": "4", "machine_cache": "9"}),
    "totals": (3, {**ALONE, "model": "gcn", "dropout": 0.0, "precompute": "yes"}),
    "totals of a global batch": (3, {"model": "sage", "dropout": 0.0, "precompute": "yes"}),
    "proximity": (2, {**SAMPLED, "order": "proximity"}),
    "narrow halo": (3, {"model": "gcn", "halo": "bf16", "hidden": 16}),
    "short values": (3, {"model": "gcn", "values": "bfloat16", "hidden": 16}),
    "short values of attention": (2, {"model": "gat", "values": "bfloat16", "hidden": 16}),
    "short values alone": (3, {**ALONE, "values": "bfloat16", "hidden": 16}),
    "bns": (3, {"model": "gcn", "exchange": "bns:rate=0.3", "partitioner": "1d-dst"}),
    "pipegcn": (3, {"model": "gcn", "exchange": "pipegcn", "partitioner": "1d-dst"}),
    "learned features": (3, {"model": "gcn", "embedding": 5, "partitioner": "vertex-cut"}),
    "learned features of batches": (2, {**SAMPLED, "embedding": 5}),
    "learned features alone": (3, {**ALONE, "embedding": 5, "views_in_flight": 2}),
    "learned features with macrobatches": (2, {**ALONE, "embedding": 5, "macrobatch": "2"}),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", EPOCHS)
def test_an_epoch_is_exact(name: str) -> None:
    size, keys = EPOCHS[name]
    job = gt.Job(**{**KEYS, **keys})
    machines = 2 if job.machine_cache != "0" else 1
    graph = GRAPH.replace(x=None) if job.embedding else GRAPH
    if job.values == "bfloat16":
        graph = graph.replace(x=np.ones((graph.n_nodes, 21), np.float32))
    held = skeleton(job, graph)
    (row,) = planned(held, [job], [size], SPEED, [job.mode], size // machines, views=sys.maxsize)

    def epoch(comm: Comm) -> list[float]:
        comm.machines = np.arange(size) * machines // size
        one = gt.Trainer(graph=graph, comm=comm, job=job)
        if row.views == 1:
            # bns tells workers the ids of their halo rows once
            one.train_epoch(0)
        before = comm.ledger.snapshot()
        one.train_epoch(0 if row.views > 1 else 1)
        books = comm.ledger.since(before)
        # losses, and in cooperative mode numbers of targets, are summed in this stage
        losses = 8 * row.views * (1 if row.mode == "independent" else 1 + held.sums)
        messages = 1 if row.mode == "independent" else 1 + row.views * held.sums
        return [
            books["move"]["bytes"],
            books["reduce"]["bytes"],
            sum(books[stage]["bytes"] for stage in ("batch", "fetch", "other")) - losses,
            sum(book["messages"] for book in books.values()) - messages,
            *one.caches.counts(),
        ]

    assert row.counted == row.views and row.steps == -(
        -row.views // (job.views_per_step or (size if job.mode == "independent" else 1))
    )
    assert [row.moved, row.summed, row.built, row.messages, row.hits, row.misses] == np.sum(
        run_simulated(size, epoch), axis=0
    ).tolist()


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "gin", "norm": "batch"},
        {"model": "gcn", "norm": "batch", "layers": 3},
        GLOBAL["links"],
    ],
)
def test_sums_of_a_step_are_counted(keys: dict[str, Any]) -> None:
    def collectives(comm: Comm) -> int:
        one = gt.Trainer(graph=GRAPH, comm=comm, **KEYS, **keys)
        view = one.strategy.batch(0, 0)
        before = comm.ledger.snapshot()
        moved = comm.ledger.receivers(2)[:, 1].sum()
        one.training.update(view)
        both = sum(int(book["messages"]) for book in comm.ledger.since(before).values())
        return both - int(comm.ledger.receivers(2)[:, 1].sum() - moved)

    held = skeleton(gt.Job(**KEYS, **keys), GRAPH)
    assert run_simulated(2, collectives) == [held.sums] * 2 and held.sums >= 1


def test_macrobatches_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    job = gt.Job(**KEYS, **{**ALONE, "batch_size": 1}, macrobatch="auto")
    held = skeleton(job, GRAPH)
    sampled = held.sampled(job)
    # it measures the memory of this process, which grows by a page now and then
    monkeypatch.setattr(Skeleton, "sampled", lambda *arguments: sampled)
    alone, free = (
        planned(held, [job.change(macrobatch=size)], [2], SPEED, ["independent"])[0]
        for size in ("1", "auto")
    )
    groups = free.steps
    limit = alone.memory + (free.memory - alone.memory) // 2
    (bounded,) = planned(held, [job], [2], SPEED, ["independent"], limit=limit)
    assert alone.macrobatch == 1 < bounded.macrobatch < free.macrobatch == groups
    assert (
        alone.memory < bounded.memory <= limit
        and f"--macrobatch {bounded.macrobatch} " in bounded.name
    )


def test_many_views_are_sampled() -> None:
    held = bare("mini", True)
    rows = planned(held, [held.job], [2], SPEED, views=2)
    views = rows[0].views
    assert {row.mode: (row.counted, row.steps) for row in rows} == {
        "cooperative": (2, views),
        "independent": (2, -(-views // 2)),
    }
    assert "scaled from 2 sampled views" in report(rows, Limit(1 << 40, 0), SPEED)


@pytest.mark.parametrize(("size", "partitioner"), [(1, "1d-src"), (3, "1d-dst"), (4, "vertex-cut")])
def test_memory_of_parts_is_exact_and_that_of_steps_within_the_bound(
    size: int, partitioner: str
) -> None:
    held = bare("gcn")
    placement = Placement.of(held.graph, size, partitioner, "hash", 3)

    def built(comm: Comm) -> tuple[int, Extent, int]:
        one = gt.Trainer(graph=GRAPH, comm=comm, partitioner=partitioner, **KEYS, **GLOBAL["gcn"])
        part = build_partition(held.graph.replace(x=GRAPH.x), comm, partitioner, "hash", 3)
        return part.nbytes(), Extent.of(part), one.setup.bound.total

    parts, extents, bounds = zip(*run_simulated(size, built), strict=True)
    np.testing.assert_array_equal(partition_bytes(held, placement), parts)
    np.testing.assert_array_equal(placement.mirrors, [extent.mirrors for extent in extents])
    np.testing.assert_array_equal(placement.planned, [extent.sent for extent in extents])
    (row,) = planned(held, [held.job.change(partitioner=partitioner)], [size], SPEED)
    assert 0 < row.bound.total <= max(bounds) and row.memory > row.bound.total


@pytest.mark.one_in(3)
@pytest.mark.fused
@pytest.mark.parametrize(
    "model, values, dropout, features",
    covering(["gcn", "sage", "gat"], ["float32", "bfloat16"], [0.0, 0.5], ["dense", "sparse"]),
)
def test_the_bound_of_a_step_is_above_what_it_holds_and_not_far(
    model: str, values: str, dropout: float, features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions that products compute are not stored, also dropout of features."""
    n = 2200
    rng = np.random.default_rng(4)
    x = rng.standard_normal((n, 160)).astype(np.float32)
    graph = graphs.random_graph(n, n, x=sp.csr_array(x * (x > 1)) if features == "sparse" else x)
    keys = {**KEYS, "hidden": 64, "model": model, "values": values, "backend": "fused"}
    if model == "gat":
        keys |= {"hidden": 16, "heads": 4}
    job = gt.Job(**keys, dropout=dropout, strategy="global")
    (row,) = planned(skeleton(job, graph), [job], [1], SPEED)
    trainer = gt.Trainer(graph=graph, job=job)
    # the second copies the features
    for epoch in range(2):
        trainer.train_epoch(epoch)
    monkeypatch.setattr(buffers, "LARGE", 1 << 12)
    store = buffers.Store()
    monkeypatch.setattr(buffers, "_STORE", store)
    trainer.train_epoch(2)
    assert store._most <= row.bound.values <= 1.5 * store._most


@pytest.mark.parametrize("values", ["float32", "bfloat16"])
def test_one_worker_holds_rounded_features_beside_those_of_the_graph(values: str) -> None:
    graph = GRAPH.replace(x=np.zeros((40, 5000), np.float32))
    job = gt.Job(**KEYS, model="gcn", strategy="global", values=values)
    # what is held while the part is built, besides the graph
    process = Process(base=-(1 << 40), loading=0, building=0, holding=-(1 << 40))
    (row,) = planned(replace(skeleton(job, graph), process=process), [job], [1], SPEED)
    features = 0 if values == "float32" else 2 * graph.x.size
    assert features <= row.memory < features + 1e5


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
def test_memory_of_learned_features_is_exact(optimiser: str) -> None:
    graph = GRAPH.replace(x=None)
    job = gt.Job(**KEYS, model="gcn", embedding=5, embedding_optimiser=optimiser)
    held = skeleton(job, graph)

    def built(comm: Comm) -> int:
        return int(gt.Trainer(graph=graph, comm=comm, job=job).partition.nbytes())

    placement = Placement.of(held.graph, 3, job.partitioner, job.masters, 3)
    np.testing.assert_array_equal(partition_bytes(held, placement), run_simulated(3, built))


def test_features_are_not_read() -> None:
    held = bare("gcn")
    assert GRAPH.x is not None and held.feature_bytes == 4 * GRAPH.x.shape[1]
    assert held.graph.x.nbytes == 0 and held.graph.x.shape == GRAPH.x.shape


def test_pairs_and_auto_are_resolved() -> None:
    held = bare("gcn")
    rows = planned(
        held, [held.job.change(partitioner=name) for name in ("auto", "graphx")], [2], SPEED
    )
    assert [(row.masters, row.partitioner) for row in rows] == [
        ("hash", "1d-src"),
        ("hash", "vertex-cut"),
    ]


def row_of(**changes: Any) -> Row:
    (row,) = planned(bare("gcn"), [bare("gcn").job], [2], SPEED)
    return Row(**{**vars(row), **changes})


def test_time_is_the_sum_of_its_parts_and_shared_machines_are_slower() -> None:
    held = bare("gcn")
    (apart,), (together,) = (
        planned(held, [held.job], [2], replace(SPEED, cores=1), per_machine=n) for n in (1, 2)
    )
    assert together.seconds == together.compute + together.build + together.transfer
    assert (
        together.compute > apart.compute
        and together.transfer > apart.transfer
        and together.sent == apart.sent
    )


def test_refusal_names_what_would_fit() -> None:
    small = row_of(memory=5 << 30, workers=4)
    large = row_of(memory=9 << 30)
    text = refusal([large], [small], Limit(8 << 30, 0))
    assert (
        "needs 9.0 GiB a worker, limit 8.0 GiB" in text
        and "on 4 worker(s) would fit with 5.0 GiB" in text
    )
    assert "nor on up to 4 workers" in refusal([large], [small], Limit(1 << 30, 0))


def test_report_recommends_the_shortest_epoch_that_fits() -> None:
    fast = row_of(memory=9 << 30, compute=1.0)
    slow = row_of(memory=1 << 30, compute=2.0, masters="block")
    text = report([fast, slow], Limit(8 << 30, 0), SPEED)
    assert "--masters block" in text.partition("shortest epoch")[2]
    assert [line.split()[-1] for line in text.splitlines()[2:4]] == ["no", "yes"]


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("graphtheta.cli.plan.machine", lambda again: SPEED)
    monkeypatch.setattr("graphtheta.cli.plan.recorded_speed", lambda: SPEED)
    # other tests have
    monkeypatch.setattr("graphtheta.ops.compile.jit.n_compiled", lambda: 0)
    return main(["plan", "--dataset", "ring:n=64", "--backend", "reference", *words])


def test_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    assert (
        command(
            monkeypatch,
            "--workers",
            "1,3",
            "--strategies",
            "global,mini",
            "--batch-size",
            "8",
            "--partitioners",
            "1d-src,block",
            "--memory-limit",
            "8G",
            "--json",
            str(path),
        )
        == 0
    )
    rows = json.loads(path.read_text(encoding="utf-8"))
    assert {(r["strategy"], r["mode"], r["workers"], r["masters"]) for r in rows} == {
        (*way, masters)
        for masters in ("hash", "block")
        for way in (
            ("global", "", 1),
            ("global", "", 3),
            ("mini", "", 1),
            ("mini", "cooperative", 3),
            ("mini", "independent", 3),
        )
    }
    assert "shortest epoch" in capsys.readouterr().out


def test_command_refuses_with_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        command(monkeypatch, "--workers", "1", "--strategies", "global", "--memory-limit", "1M")
        == 1
    )
    out, err = capsys.readouterr()
    assert "no" in out and "limit 1.0 MiB" in err and "iB a worker" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--workers", "0"), "--workers: got '0'"),
        (("--workers", "two"), "--workers: got 'two'"),
        (("--strategies", "globl"), "unknown name 'globl' (did you mean 'global'?)"),
        (("--partitioners", "metiss"), "unknown name 'metiss'"),
        (("--memory-limit", "8X"), "--memory-limit: got '8X'"),
        (("--memory-limit", "0"), "--memory-limit: got '0'"),
        (("--per-machine", "-1"), "--per-machine: got -1"),
        (
            ("--strategies", "global", "--batch-size", "3"),
            "batch_size=3 has no meaning with strategy=global",
        ),
        (
            ("--strategies", "global", "--exchange", "skip", "--partitioner", "1d-dst"),
            "does not predict exchange=skip",
        ),
        (
            ("--strategies", "mini", "--history", "hec", "--partitioner", "1d-dst"),
            "does not predict history=hec",
        ),
        (("--workers", "65"), "plan at most 64 workers"),
    ],
)
def test_wrong_flags_are_one_message(
    words: tuple[str, ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(monkeypatch, *words) in (1, 2)
    assert told in capsys.readouterr().err


def test_under_mpiexec_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphtheta.cli.plan.launched", lambda: (0, 2))
    with pytest.raises(ConfigError, match="without mpiexec"):
        gt.cli.plan.plan(["--dataset", "ring"])


@pytest.mark.parametrize(
    ("text", "n"),
    [("8G", 8 << 30), ("512M", 512 << 20), ("1.5GiB", 3 << 29), ("100", 100), ("2kb", 2048)],
)
def test_sizes(text: str, n: int) -> None:
    assert bytes_of(text) == n


def test_too_many_workers_are_refused() -> None:
    with pytest.raises(PartitionError, match="at most 40 workers"):
        Placement.of(GRAPH, 41, "1d-src", "hash", 0)


def test_a_rehearsal_leaves_out_the_time_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of each worker that runs in messages alone, views take no time."""
    clock = threading.local()
    post = SimComm._post
    posted = []

    def later() -> None:
        clock.now = getattr(clock, "now", 0.0) + 1

    def slow(self: SimComm, *args: Any) -> Any:
        later()
        receive = post(self, *args)
        posted.append(self.rank)

        def finish() -> None:
            later()
            receive()

        return finish

    monkeypatch.setattr(SimComm, "_post", slow)
    for module in (rehearsal, messages):
        monkeypatch.setattr(module, "thread_time", lambda: getattr(clock, "now", 0.0))
    job = gt.Job(**KEYS, **BATCHES["mini"], mode="independent")
    found = rehearsal.rehearse(
        skeleton(job, GRAPH), job, pair_of(job.partitioner, job.masters), 2, 4
    )
    assert set(posted) == {0, 1} and found.sent.all()
    assert not found.seconds.any()
