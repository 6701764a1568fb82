"""Runs that are stopped and go on: the same numbers as if nothing had happened, on any number of
ranks.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import hear

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.atomic import MARKER
from graphtheta.cli import doctor
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, FormatError
from graphtheta.run.agreement.digest import in_other_forms
from graphtheta.run.checkpoints import checkpoint
from graphtheta.run.checkpoints.checkpoint import ARRAYS, CHECKPOINTS, steps_in
from graphtheta.run.checkpoints.keeper import FREE, check_same, job_hash
from graphtheta.run.checkpoints.progress import Progress
from graphtheta.run.checkpoints.stopping import Stop, Stopped
from graphtheta.run.checkpoints.weights import read_saved
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.job import Job, choices
from graphtheta.run.job.keys import FIELDS
from graphtheta.train.loop import build, trainer

MPIEXEC = doctor.find_mpiexec()
needs_mpi = pytest.mark.skipif(MPIEXEC is None, reason="MPI is not installed")
KEYS: dict[str, Any] = {
    "dataset": "sbm:n_nodes=200,n_edges=900,classes=3,features=6",
    "hidden": 6,
    "epochs": 4,
    "dtype": "float64",
    "backend": "reference",
    "norm": "layer",
    "dropout": 0.3,
    "keep": 1,
    "checkpoint_every": 3,
}
MINI = {"strategy": "mini", "batch_size": 12, "fanout": "3,2"}
# batch norm leaves gradients of biases that are nothing but rounding, which Adam would make large
BATCH = {"norm": "batch", "optimiser": "sgd", "momentum": 0.9}
PLUGINS = Path(__file__).resolve().parent.parent / "plugins"
RUNS: dict[str, dict[str, Any]] = {
    "own walks": {"strategy": f"{PLUGINS / 'strategy.py'}:Walks:roots=20", "epochs": 3},
    "own curriculum": {"strategy": f"{PLUGINS / 'curriculum.py'}:Curriculum"},
    "own curriculum independent": {
        "strategy": f"{PLUGINS / 'curriculum.py'}:Curriculum:until=3",
        "mode": "independent",
        "views_per_step": 2,
    },
    "global": {"epochs": 8, "patience": 3, "lr": 0.1},
    "global link": {"epochs": 8, "task": "link"},
    "mini": MINI,
    "mini batch norm": {**MINI, **BATCH, "eval_every": 3},
    "mini in flight": {**MINI, **BATCH, "views_in_flight": 3, "views_per_step": 3},
    "mini independent": {
        **MINI,
        **BATCH,
        "mode": "independent",
        "views_per_step": 2,
        "views_in_flight": 2,
    },
    "mini stale": {**MINI, "staleness": 2, "optimiser": "adamw"},
    "mini stale in flight": {
        **MINI,
        **BATCH,
        "staleness": 2,
        "views_in_flight": 3,
        "model": "gat",
        "heads": 2,
    },
    "mini scheduled": {
        **MINI,
        "lr_schedule": "cosine",
        "lr_decay_updates": 12,
        "lr_warmup_updates": 3,
        "clip_norm": 0.3,
        "groups": {"layers.1.*": {"lr": 0.02, "weight_decay": 0.0}},
        "freeze": ["layers.0.bias"],
    },
    "mini plateau": {
        **MINI,
        "epochs": 7,
        "lr": 0.3,
        "lr_schedule": "plateau",
        "lr_patience": 1,
        "lr_decay": 0.3,
        "lr_warmup_updates": 3,
        "optimiser": "rmsprop",
        "momentum": 0.5,
        "centered": True,
    },
    "mini steps": {**MINI, "steps": 11},
    "cluster": {
        "strategy": "cluster",
        "clusters": 8,
        "clusters_per_batch": 2,
        "cluster_method": "clusters.npy",
    },
}
# what asks the runs of a rank to stop
ASKS: ContextVar[Callable[[], bool]] = ContextVar("asks", default=lambda: False)
Numbers = tuple[dict[str, np.ndarray], list[dict[str, Any]], int]


class Asked(Stop):
    """Asked by a test instead of a signal."""

    def flags(self) -> list[float]:
        return [float(ASKS.get()()), 0.0]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "Stop", Asked)
    ASKS.set(lambda: False)
    np.save("clusters.npy", np.arange(200) % 8)
    return tmp_path


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: x for name, x in row.items() if name not in ("seconds", "time")} for row in rows]


def run(comm: Comm, stop_after: int | None = None, **keys: Any) -> Numbers | int:
    """Weights, history and best epoch; the exit code if it is asked to stop."""
    one = gt.Trainer(comm=comm, **{**KEYS, "out": "run", **keys})
    # one rank alone is asked
    ASKS.set(
        lambda: stop_after is not None and one.step >= stop_after and comm.rank == comm.size - 1
    )
    try:
        result = one.fit()
    except Stopped as stopped:
        return int(stopped.code)
    return one.model.state(), timeless(result.history), result.best_epoch


@cache
def uninterrupted(name: str, size: int) -> Numbers:
    out = f"whole {name} {size}"
    return run_simulated(size, run, **{**RUNS[name], "out": out, "keep": 0})[0]


def same(a: Numbers, b: Numbers, exactly: bool) -> None:
    assert a[2] == b[2] and len(a[1]) == len(b[1])
    for name, x in a[0].items():
        np.testing.assert_allclose(
            x, b[0][name], rtol=0 if exactly else 1e-8, atol=0 if exactly else 1e-10
        )
    if exactly:
        assert a[1] == b[1]
    else:
        assert all(
            row == pytest.approx(other, rel=1e-8) for row, other in zip(a[1], b[1], strict=True)
        )


@pytest.mark.one_in(13, 2)
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        # all go on on as many ranks, and on more or on fewer
        *((name, 2 - i % 2, 2 - i % 2) for i, name in enumerate(RUNS)),
        *((name, *((1, 3), (2, 1))[i % 2]) for i, name in enumerate(RUNS)),
    ],
)
def test_a_run_goes_on_as_if_it_had_not_stopped(name: str, before: int, after: int) -> None:
    whole = uninterrupted(name, after)
    steps = whole[1][-1]["step"]
    at = int(np.random.default_rng(before + 10 * after + len(name)).integers(1, steps + 1))
    assert run_simulated(before, run, at, **RUNS[name]) == [75] * before
    changed = {"partitioner": "vertex-cut", "masters": "block"} if before != after else {}
    found = run_simulated(after, run, **RUNS[name], **changed, resume=True)
    for rank in found:
        same(rank, whole, exactly=before == after)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "keys",
    [
        {**MINI, "vertex_limit": 50},
        {"strategy": "mini", "sampler": "saint_walk:roots=9,depth=2,coverage=5"},
    ],
    ids=["limit", "node sets"],
)
def test_what_is_measured_before_training_is_measured_again(keys: dict[str, Any]) -> None:
    (whole,) = run_simulated(1, run, **keys, out="whole", keep=0)
    assert run(gt.start(), 5, **keys) == 75
    for rank in run_simulated(2, run, **keys, resume=True):
        same(rank, whole, exactly=False)


def test_a_run_that_stops_at_every_step() -> None:
    for at in range(1, 40):
        found = run(gt.start(), at, **RUNS["mini stale"], resume=True)
        if found != 75:
            break
    same(found, uninterrupted("mini stale", 1), exactly=True)
    assert at > 5


class Steps(gt.Callback):
    """Lists the steps after which it is called."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_step(self, now: Any) -> None:
        self.seen.append(now.step)


def test_a_callback_of_steps_is_called_once_for_each_update() -> None:
    keys = {**KEYS, **MINI, "epochs": 3, "out": "run"}
    views = gt.Trainer(**keys).strategy.views_of(0)
    calls = Steps()
    # after the last update of an epoch, before its end
    assert run(gt.start(), views, **MINI, epochs=3) == 75
    ASKS.set(lambda: False)
    gt.Trainer(**keys, resume=True).fit(callbacks=[calls])
    assert calls.seen == list(range(views + 1, 3 * views + 1))


def test_views_in_flight_may_change() -> None:
    assert run(gt.start(), 5, **RUNS["mini stale in flight"]) == 75
    found = run(gt.start(), **{**RUNS["mini stale in flight"], "views_in_flight": 1}, resume=True)
    same(found, uninterrupted("mini stale in flight", 1), exactly=True)


@pytest.mark.second
def test_mode_macrobatch_and_caches_may_change() -> None:
    keys = {**RUNS["mini independent"], "macrobatch": "3", "fetch_batch": 2}
    caches = {"machine_cache": "9", "feature_cache": "9", "cache_policy": "lru"}
    for out, after, changed in (
        ("run", 2, {"macrobatch": "2"}),
        ("other", 3, {"mode": "cooperative"}),
    ):
        assert run_simulated(2, run, 5, **keys, **caches, out=out) == [75] * 2
        found = run_simulated(
            after, run, **{**RUNS["mini independent"], **changed}, out=out, resume=True
        )[0]
        whole = uninterrupted("mini independent", after)
        for name, x in whole[0].items():
            np.testing.assert_allclose(found[0][name], x, rtol=1e-8, atol=1e-10)
        # earlier rows have counts of the caches
        assert [row["loss"] for row in found[1]] == pytest.approx(
            [row["loss"] for row in whole[1]], rel=1e-8
        )


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(gt.start(), 7, **RUNS["mini"], keep=3) == 75
    newest, older = [path for _, path in steps_in(Path("run", CHECKPOINTS))][:2]
    (newest / ARRAYS).write_bytes((newest / ARRAYS).read_bytes()[:-1])
    same(run(gt.start(), **RUNS["mini"], resume=True), uninterrupted("mini", 1), exactly=True)
    told = capsys.readouterr().err
    assert (
        f"{newest.name}/{ARRAYS}: damaged" in told
        and "looking for the checkpoint before it" in told
        and older.name not in told
    )


def test_more_epochs_go_on_with_a_run_that_came_to_its_end() -> None:
    keys = {**RUNS["mini"], "epochs": 2}
    run(gt.start(), **keys)
    whole = run(gt.start(), **{**keys, "out": "shorter"}, keep=0)
    same(run(gt.start(), **keys, resume=True), whole, exactly=True)
    same(run(gt.start(), **RUNS["mini"], resume=True), uninterrupted("mini", 1), exactly=True)


def test_more_steps_go_on_inside_an_epoch() -> None:
    run(gt.start(), **{**RUNS["mini"], "steps": 6})
    weights = run(gt.start(), **{**RUNS["mini"], "steps": 11, "patience": 9}, resume=True)[1][-1]
    assert weights == pytest.approx(uninterrupted("mini steps", 1)[1][-1], rel=0)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"lr": 0.5}, "lr=0.5, but the run in run has lr=0.01; give --lr 0.01"),
        ({"fanout": "4,2"}, r"fanout=4,2, but the run in run has fanout=3,2"),
        ({"seed": 3}, "seed=3, but"),
        ({"staleness": 1}, "staleness=1, but"),
    ],
)
def test_another_job_is_refused(keys: dict[str, Any], told: str) -> None:
    run(gt.start(), 5, **MINI)
    with pytest.raises(ConfigError, match=told):
        run_simulated(2, run, **{**MINI, **keys}, resume=True)


# values of keys that have no choices
VALUES: tuple[Any, ...] = (3, 0.5, "2", "3,2", "yes", "auto", "a b.yaml", "it's.py:X y")


def test_a_refused_job_is_told_words_that_resume_the_run() -> None:
    n = 0
    for key in FIELDS.keys() - set(FREE):
        default = Job.model_fields[key].default
        values = (not default,) if isinstance(default, bool) else choices(key) or VALUES
        for value in values:
            try:
                jobs = Job(**{key: value}), Job()
            except ConfigError:
                continue
            for of_run, other in (jobs, jobs[::-1]):
                if job_hash(of_run) == job_hash(other):
                    continue
                manifest = checkpoint.CheckpointManifest(
                    step=1,
                    counters={},
                    progress=Progress(),
                    job=of_run.model_dump(mode="json"),
                    job_hash=job_hash(of_run),
                )
                with pytest.raises(ConfigError) as refused:
                    check_same(other, manifest, Path("my runs"))
                told = re.search(
                    r"; (drop|give) (.*) to resume it, .* --config ('.*'),", str(refused.value)
                )
                assert told is not None
                assert shlex.split(told[3]) == [str(Path("my runs", "job.yaml"))]
                parser = Parser("train", "", "")
                parser.add_job_keys()
                words = shlex.split(told[2]) if told[1] == "give" else []
                keys = {key: getattr(other, key)} if told[1] == "give" else {}
                again = Job(**{**keys, **parser.read(words)[1]})
                assert job_hash(again) == job_hash(of_run)
                n += 1
    assert n > 100


def test_another_graph_is_refused() -> None:
    keys = {**GRAPH_KEYS, **MINI, "out": "run"}
    gt.Trainer("gcn", gt.load(KEYS["dataset"]), **keys, steps=2).fit()
    with pytest.raises(
        ConfigError, match=r"the graph has 210 nodes, but the graph of the run in run had 200"
    ):
        gt.Trainer("gcn", gt.load(KEYS["dataset"].replace("200", "210")), **keys, resume=True).fit()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises where a run waits for something that never comes."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def relabelled(y: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(y)) == 7, (y + 1) % 3, y)


# another graph of as many nodes and edges, and what has changed in it
CHANGED: dict[str, tuple[Callable[[gt.Graph], gt.Graph], str]] = {
    "a label": (lambda g: g.replace(y=relabelled(g.y)), "y differs"),
    "a label more": (
        lambda g: g.replace(y=relabelled(g.y), n_classes=4),
        "number of nodes, edges, features or classes, y differ",
    ),
    "order of nodes": (lambda g: g.subset(np.roll(np.arange(g.n_nodes), 1)), "src, dst"),
    "order of edges": (lambda g: g.keep_edges(np.roll(np.arange(g.n_edges), 1)), "src, dst"),
    "a target": (
        lambda g: g.with_masks(np.roll(g.train, 1) & ~g.val & ~g.test, g.val, g.test),
        "train differs",
    ),
    "no test set": (lambda g: g.replace(test=None), "test differs"),
    "a feature": (lambda g: g.replace(x=np.asarray(g.x) + 1e-3), "x differs"),
    "an edge attribute": (
        lambda g: g.replace(edge_attr=np.asarray(g.edge_attr)[::-1]),
        "edge_attr differs",
    ),
    "a name": (
        lambda g: g.replace(meta={**g.meta, "class_names": ["c", "a", "b"]}),
        "meta['class_names'] differs",
    ),
    "a column": (
        lambda g: g.replace(node_columns={"age": np.arange(200)}),
        "node_columns.age differs",
    ),
}
GRAPH_KEYS = {key: value for key, value in KEYS.items() if key != "dataset"}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_graph_is_refused(name: str) -> None:
    change, told = CHANGED[name]
    graph = gt.load(KEYS["dataset"])
    keys = {**GRAPH_KEYS, **MINI, "out": "run"}
    gt.Trainer("gcn", graph, **keys, steps=2).fit()
    with pytest.raises(ConfigError, match="has changed since the run in run was begun") as caught:
        gt.Trainer("gcn", change(graph), **keys, resume=True).fit()
    assert told in str(caught.value)


def test_a_field_in_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a version that stores attributes of edges otherwise."""
    keys = {**KEYS, **MINI, "out": "run"}
    digests = build.graph_digests
    with monkeypatch.context() as earlier:
        earlier.setattr(
            build,
            "graph_digests",
            lambda *given: {
                {"edge_attr": "edge_attr_data"}.get(name, name): x
                for name, x in digests(*given).items()
            },
        )
        run(gt.start(), **{**keys, "epochs": 1})
    with pytest.raises(ConfigError, match=r"^edge_attr of the graph is stored in another form"):
        run(gt.start(), **keys, resume=True)


def test_fields_in_another_form() -> None:
    sparse = dict.fromkeys(("x_data", "x_indices", "x_indptr in files", "y"), 1)
    typed = dict.fromkeys(("x_type", "x_of_0 in files", "x_of_1"), 1)
    for x in ({"x": 1, "y_type": 2}, {"x in files": 1}, typed):
        assert in_other_forms(x, sparse)[:1] == in_other_forms(sparse, x)[:1] == ["x"]
        assert not in_other_forms(x, x)
    # a field that one of them lacks, and columns with such names
    assert not in_other_forms(sparse, {"src": 1, "y": 2})
    assert not in_other_forms({"node_columns.a_type": 1}, {"node_columns.a": 1})


def test_a_graph_that_was_written_to_a_store_is_the_same() -> None:
    graph = gt.load(KEYS["dataset"])
    keys = {**GRAPH_KEYS, **MINI, "out": "run"}
    gt.Trainer("gcn", graph, **keys, steps=2).fit()
    gt.import_graph(graph, to="store")
    gt.Trainer("gcn", gt.load("store"), **keys, steps=4, resume=True).fit()
    gt.Trainer("gcn", gt.load("store"), **keys, steps=5, resume=True).fit()


# keys of a run, and those with which it goes on time after time, until it is as long as the last
# says
LONGER: dict[str, tuple[dict[str, Any], list[dict[str, int]]]] = {
    "epochs": ({"eval_every": 3}, [{"epochs": n} for n in (1, 2, 4, 7, 8, 20)]),
    "steps": ({"eval_every": 2}, [{"steps": n} for n in (3, 8, 20, 30, 90)]),
    "patience": (
        {"eval_every": 3, "patience": 2, "lr": 0.3},
        [{"epochs": n} for n in (4, 5, 7, 8, 10, 11, 40)],
    ),
    "learned features": (
        {"eval_every": 3, "embedding": 3, "lr": 0.2, "dataset": "bare"},
        [{"epochs": n} for n in (4, 5, 12)],
    ),
    "more patience": (
        {"eval_every": 2, "lr": 0.3},
        [{"epochs": 9, "patience": 1}, {"epochs": 11, "patience": 3}],
    ),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", LONGER)
def test_an_evaluation_at_the_end_of_a_shorter_run_is_not_counted(name: str) -> None:
    keys, lengths = LONGER[name]
    gt.import_graph(gt.load(KEYS["dataset"]).replace(x=None), to="bare")
    keys = {**MINI, **keys}
    for number, length in enumerate(lengths):
        run(gt.start(), **keys, **length, resume=True)
        # of a run that came to its end the evaluation stays
        same(
            run(gt.start(), **keys, **length, resume=True),
            run(gt.start(), **keys, **length, out=f"at once {number}", keep=0),
            exactly=True,
        )


# updates after which a run is stopped, before an evaluation, and the length with which it is
# resumed; 4 updates are an epoch
SHORTER: dict[str, tuple[int, dict[str, int], int]] = {
    "inside an epoch": (6, {"steps": 3}, 6),
    "as many steps": (6, {"steps": 6}, 6),
    "at the end of an epoch": (8, {"epochs": 2}, 8),
    "at the end of a later epoch": (8, {"epochs": 1}, 8),
    "fewer epochs, inside one": (6, {"epochs": 1}, 6),
    "fewer steps, at the end of an epoch": (8, {"steps": 5}, 8),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", SHORTER)
@pytest.mark.filterwarnings("error")
def test_a_run_with_no_updates_left_is_evaluated_and_ends(name: str) -> None:
    stop, length, made = SHORTER[name]
    keys = {**MINI, "eval_every": 50, "checkpoint_every": 1}
    assert run(gt.start(), stop, **keys) == 75
    with within(30):
        result = run(gt.start(), **keys, **length, resume=True)
    assert not isinstance(result, int)
    (row,) = result[1]
    assert (row["step"], row["epoch"], result[2]) == (made, -(-made // 4), -(-made // 4))
    assert np.isfinite(row["loss"])


@pytest.mark.parametrize("more", [{}, {"steps": 40}])
def test_batches_of_other_workers_are_not_continued_inside_an_epoch(more: dict[str, int]) -> None:
    keys = {
        **MINI,
        **more,
        "batch_size": 16,
        "mode": "independent",
        "history": "hec",
        "partitioner": "1d-dst",
        "views_per_step": 2,
    }
    assert run_simulated(2, run, 1, **keys) == [75] * 2
    with (
        within(30),
        pytest.raises(
            ConfigError,
            match=(
                r"an epoch has \d+ batches with 1 worker\(s\), but \d+.*as many workers as it had"
            ),
        ),
    ):
        run(gt.start(), **keys, resume=True)


def test_no_more_checkpoints_are_made_of_a_run_that_goes_on() -> None:
    assert run(gt.start(), 5, **RUNS["mini"]) == 75
    same(
        run(gt.start(), **{**RUNS["mini"], "keep": 0}, resume=True),
        uninterrupted("mini", 1),
        exactly=True,
    )
    assert [step for step, _ in steps_in(Path("run", CHECKPOINTS))] == [6]


def test_keys_that_may_differ_are_keys() -> None:
    assert set(FREE) <= set(gt.Job.model_fields)


def test_another_model_of_the_same_name_is_refused() -> None:
    Path("net.py").write_text(
        "import graphtheta as gt\nfrom graphtheta.models import build_model\nclass Net(gt.Model):\n"
        "    def __init__(self, d_in, d_out, hidden):\n        self.a = build_model('gcn',"
        " d_in=d_in, d_out=d_out, hidden=hidden, d_edge=0, decoder='none')\n    def forward(self,"
        " graph):\n        return self.a.forward(graph)\n"
    )
    keys = {"model": "net.py:Net", "norm": "none", "dropout": 0.5}
    run(gt.start(), 2, **keys)
    Path("net.py").write_text(Path("net.py").read_text().replace("self.a", "self.b"))
    with pytest.raises(ConfigError, match="do not fit the model"):
        run(gt.start(), **keys, resume=True)


def test_an_unfinished_run_is_not_lost() -> None:
    assert run(gt.start(), 5, **MINI) == 75
    with pytest.raises(
        ConfigError,
        match=r"stopped in epoch 2, after step 6; resume it with --resume.*--out.*--overwrite",
    ):
        run_simulated(2, run, **MINI)
    run(gt.start(), **MINI, resume=True)
    with pytest.raises(
        ConfigError, match=r"run holds a finished run; .*resume=True.*out=.*overwrite=True"
    ):
        run(gt.start(), **{**MINI, "lr": 0.5})


def test_a_trainer_leaves_nothing_unasked(here: Path) -> None:
    keys = {name: x for name, x in KEYS.items() if name not in ("keep", "checkpoint_every")}
    gt.Trainer(**keys).fit()
    gt.Trainer(**KEYS | {"keep": 0}).fit()
    assert not Path("run").exists() and not Path("runs").exists()
    for asked in ({}, {"resume": True}):
        gt.Trainer(**keys, out="run", **asked).fit()
        assert [step for step, _ in steps_in(Path("run", CHECKPOINTS))] == [4]


def test_a_stop_whose_checkpoint_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*args: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("graphtheta.run.checkpoints.keeper.write_checkpoint", full)
    with pytest.raises(FormatError, match=r"No space left on device.*--resume"):
        run_simulated(2, run, 5, **MINI)


TINY = (
    "--dataset",
    "sbm:n_nodes=200,n_edges=1200,classes=3,features=8",
    "--epochs",
    "6",
    "--hidden",
    "8",
    "--backend",
    "reference",
    "--strategy",
    "mini",
    "--batch-size",
    "20",
    "--checkpoint-every",
    "1",
)


def rows(folder: str) -> list[dict[str, Any]]:
    return timeless(
        [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    )


def test_a_finished_run_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--out", "run"]) == 0

    def times() -> dict[Path, int]:
        """When each file was written; the marker says who looked last."""
        return {
            path: path.stat().st_mtime_ns for path in Path("run").rglob("*") if path.name != MARKER
        }

    before = times()
    assert main(["train", *TINY, "--out", "run", "--resume"]) == 0
    assert "holds a finished run; nothing was changed" in capsys.readouterr().out
    assert times() == before
    # what a run that was ended behind its last step did not come to
    Path("run", "result.json").unlink()
    Path("run", "weights.safetensors").unlink()
    assert main(["train", *TINY, "--out", "run", "--resume"]) == 0
    assert Path("run", "result.json").is_file() and Path("run", "weights.safetensors").is_file()


def test_several_seeds_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *TINY, "--epochs", "2", "--seeds", "2", "--out"]
    assert main([*words, "whole"]) == 0
    assert main(["train", *TINY, "--epochs", "2", "--out", "run/seed-0"]) == 0
    assert main([*words, "run", "--resume"]) == 0
    told = capsys.readouterr().out
    assert (
        "seed-0 holds a finished run" in told
        and "seed-1/checkpoints: there is no checkpoint to resume from" in told
    )
    assert json.loads(Path("run/result.json").read_text()) == json.loads(
        Path("whole/result.json").read_text()
    )


# slow enough to be stopped, until there is a file "hurry"
SLOW = """
import time
from pathlib import Path
import graphtheta as gt
from graphtheta.models import build_model


class Net(gt.Model):
    def __init__(self, d_in, d_out, hidden):
        widths = dict(d_in=d_in, d_out=d_out, hidden=hidden, d_edge=0)
        self.inner = build_model("gcn", **widths, decoder="none")

    def forward(self, graph):
        if not Path("hurry").exists():
            time.sleep(0.02)
        return self.inner.forward(graph)
"""


def started(ranks: int, *words: str) -> subprocess.Popen[str]:
    launcher = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    command = [
        *launcher,
        sys.executable,
        "-m",
        "graphtheta",
        "train",
        *TINY,
        "--model",
        "slow.py:Net",
        "--dtype",
        "float64",
        *words,
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        preexec_fn=hear,
    )


def until_there(pattern: str, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if list(Path().glob(pattern)):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"no {pattern}")


# mpiexec passes SIGHUP on to no rank
@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("ranks", "number", "code", "told"),
    [
        (1, signal.SIGTERM, 75, "pre-empted"),
        (1, signal.SIGHUP, 75, "pre-empted"),
        (1, signal.SIGINT, 130, "interrupted"),
        pytest.param(2, signal.SIGTERM, 75, "pre-empted", marks=needs_mpi),
        pytest.param(2, signal.SIGINT, 130, "interrupted", marks=needs_mpi),
    ],
)
def test_a_signal_stops_all_ranks_after_the_step(
    number: int, code: int, told: str, ranks: int
) -> None:
    Path("slow.py").write_text(SLOW)
    process = started(ranks, "--out", "run")
    until_there("run/checkpoints/step-*", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    step = steps_in(Path("run", CHECKPOINTS))[0][0]
    assert (
        process.returncode == code and err == f"{told} at step {step}; continue with --resume\n"
    ), (out, err)
    # resumed on one rank, and compared with a run that nobody stopped
    Path("hurry").touch()
    for out in ("run", "whole"):
        assert (
            main(
                [
                    "train",
                    *TINY,
                    "--model",
                    "slow.py:Net",
                    "--dtype",
                    "float64",
                    "--out",
                    out,
                    *(["--resume"] * (out == "run")),
                ]
            )
            == 0
        )
    a, b = (read_saved(Path(out, "weights.safetensors")).weights for out in ("run", "whole"))
    for name, x in a.items():
        np.testing.assert_allclose(x, b[name], rtol=0 if ranks == 1 else 1e-8)
    assert ranks > 1 or rows("run") == rows("whole")


@pytest.mark.cold
def test_a_process_that_is_killed_loses_nothing_before_its_last_checkpoint() -> None:
    Path("slow.py").write_text(SLOW)
    process = started(1, "--out", "run")
    until_there("run/checkpoints/step-*", process)
    process.kill()
    process.wait(10)
    Path("hurry").touch()
    for out in ("run", "whole"):
        assert (
            main(
                [
                    "train",
                    *TINY,
                    "--model",
                    "slow.py:Net",
                    "--dtype",
                    "float64",
                    "--out",
                    out,
                    *(["--resume"] * (out == "run")),
                ]
            )
            == 0
        )
    a, b = (read_saved(Path(out, "weights.safetensors")).weights for out in ("run", "whole"))
    assert all(np.array_equal(x, b[name]) for name, x in a.items()) and rows("run") == rows("whole")


def test_a_second_ctrl_c_ends_at_once() -> None:
    Path("slow.py").write_text(SLOW.replace("0.02", "3"))
    process = started(1, "--out", "run")
    until_there("run/metrics.jsonl", process)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (
        process.returncode == 130 and err == "interrupted\n" and time.monotonic() - began < 2.5
    ), err


def test_a_signal_before_training_ends_the_process() -> None:
    Path("slow.py").write_text("import time\ntime.sleep(30)\n")
    process = started(1, "--out", "run")
    time.sleep(1)
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM and not Path("run").exists()


def test_a_second_process_sees_a_writer_that_was_killed() -> None:
    run(gt.start(), 5, **MINI)
    (Path("run", CHECKPOINTS) / f"{checkpoint.ASIDE}step-00000009-1").mkdir()
    same(run(gt.start(), **MINI, resume=True), uninterrupted("mini", 1), exactly=True)
    assert not list(Path("run", CHECKPOINTS).glob(f"{checkpoint.ASIDE}*"))
