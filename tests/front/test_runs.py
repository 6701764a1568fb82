"""Runs made in Python: what their folders hold, and what takes them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covering import covering

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.atomic import MARKER
from graphtheta.base.console import figure
from graphtheta.cli.command import train
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.run.log import shown

pytestmark = pytest.mark.reference

DATASET = "sbm:n_nodes=120,n_edges=700,classes=3,features=6"
KEYS = {"epochs": 3, "backend": "reference"}
FILES = {
    ".lock",
    "checkpoints",
    "job.yaml",
    "metrics.jsonl",
    "profile.json",
    "result.json",
    "weights.safetensors",
}


class Net(gt.Model):
    def __init__(self, d_in: int, d_out: int, width: int = 5):
        self.first = gt.Linear(d_in, width)
        self.last = gt.Linear(width, d_out)

    def forward(self, graph: Any) -> Any:
        return self.last(gt.relu(self.first(graph.x)))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys_of(path: str) -> Any:
    """A file of JSON, without times."""
    record = json.loads(Path(path).read_text())
    record.pop("seconds")
    return record


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2])
def test_python_writes_what_the_command_writes(
    ranks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(comm: Comm) -> tuple[dict[str, float], Any]:
        trainer = gt.Trainer("gcn", dataset=DATASET, comm=comm, out="python", **KEYS)
        metrics = trainer.fit().metrics
        again = gt.open_run("python", comm=comm)
        assert again.evaluate("test") == trainer.evaluate("test")
        return metrics, again.predict()

    metrics, predicted = run_simulated(ranks, program)[0]
    flags = [word for key, x in KEYS.items() for word in (f"--{key}", str(x))]
    assert main(["train", "--model", "gcn", "--dataset", DATASET, "--out", "cli", *flags]) == 0
    assert {path.name for path in Path("python").iterdir()} == FILES
    assert {path.name for path in Path("cli").iterdir()} == FILES
    job = Path("python/job.yaml").read_text().replace("out: python", "out: cli")
    assert job == Path("cli/job.yaml").read_text()
    mine, theirs = keys_of("python/result.json"), keys_of("cli/result.json")
    assert mine.pop("metrics") == metrics
    assert metrics == pytest.approx(theirs.pop("metrics"), rel=1e-4)
    assert mine.keys() == theirs.keys()
    capsys.readouterr()
    assert main(["runs", ".", "--json", "runs.json"]) == 0
    record = json.loads(Path("runs.json").read_text())
    assert [line["name"] for line in record["runs"]] == ["cli", "python"]
    assert record["runs"][1]["metrics"] == metrics
    # what does not differ is not shown
    assert "lr" not in capsys.readouterr().out
    assert main(["report", "python"]) == 0
    assert main(["evaluate", "python"]) == 0
    assert main(["predict", "python", "--to", "p.npz"]) == 0
    with np.load("p.npz") as rows:
        np.testing.assert_allclose(rows["probability"], predicted[1], rtol=1e-4, atol=1e-5)


class Rows:
    """A log of a user."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Nothing is to be done."""

    def epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """Note the loss."""
        self.losses.append(row["loss"])
        return {"noted": 1.0}


def test_a_log_receives_the_rows_of_a_run_too() -> None:
    rows = Rows()
    history = gt.Trainer("gcn", dataset=DATASET, out="run", **KEYS).fit(rows).history
    written = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert rows.losses == [row["loss"] for row in written] == [row["loss"] for row in history]
    assert all(row["noted"] == 1.0 for row in history)


@pytest.mark.parametrize(
    ("keys", "has_run"),
    [
        ({}, False),
        ({"keep": 0}, False),
        ({"keep": 3}, True),
        ({"checkpoint_every": 2}, True),
        ({"resume": True}, True),
        ({"out": "run", "keep": 0}, True),
    ],
)
def test_which_keys_make_a_run(here: Path, keys: dict[str, Any], has_run: bool) -> None:
    trainer = gt.Trainer("gcn", dataset=DATASET, **KEYS, **keys)
    trainer.fit()
    assert bool(list(here.iterdir())) == has_run
    assert (trainer.job.folder / "weights.safetensors").is_file() == has_run


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("keep", [0, 1])
def test_a_run_is_not_replaced(ranks: int, keep: int) -> None:
    def program(comm: Comm, **keys: Any) -> Any:
        return (
            gt.Trainer("gcn", dataset=DATASET, comm=comm, out="run", keep=keep, **KEYS | keys)
            .fit()
            .metrics
        )

    first = run_simulated(ranks, program)
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")}
    with pytest.raises(ConfigError, match=r"run holds a finished run; .*resume=True.*out="):
        run_simulated(ranks, program)
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")} == before
    if keep:
        assert run_simulated(ranks, program, resume=True) == first
        run_simulated(ranks, program, resume=True, epochs=5)
        assert len(Path("run/metrics.jsonl").read_text().splitlines()) == 5


def command(**keys: Any) -> None:
    """Train by the command; raises its error."""
    given = {"dataset": DATASET, **KEYS, **keys}
    words = [
        word
        for key, value in given.items()
        for word in (f"--{key.replace('_', '-')}", *([] if value is True else [str(value)]))
    ]
    train(words)()


def program(**keys: Any) -> None:
    """Train in Python, as a run."""
    gt.Trainer(
        **{"model": "gcn", "dataset": DATASET, "checkpoint_every": 100, **KEYS, **keys}
    ).fit()


def times(folder: str) -> dict[Path, int]:
    """When each file was written; the marker says who looked last."""
    return {
        path: path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.name != MARKER
    }


NAME = "runs/sbm-gcn-global"
BOTH = pytest.mark.parametrize("train", [command, program])


@pytest.mark.one_in(2)
@BOTH
def test_a_default_folder_has_a_number_if_the_last_run_is_finished(
    train: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    train()
    first = times(NAME)
    train(lr=0.1)
    assert f"{NAME} holds a run; this one is written to {NAME}-2" in capsys.readouterr().out
    second = times(f"{NAME}-2")
    train(lr=0.2)
    assert gt.Job.from_yaml(f"{NAME}-3/job.yaml").lr == 0.2
    # the last run of the name is resumed, and replaced
    assert main(["report"]) == 0 and Path(f"{NAME}-3/report.html").is_file()
    train(lr=0.2, epochs=5, resume=True)
    assert len(Path(f"{NAME}-3/metrics.jsonl").read_text().splitlines()) == 5
    train(lr=0.3, overwrite=True)
    assert gt.Job.from_yaml(f"{NAME}-3/job.yaml").lr == 0.3
    assert (times(NAME), times(f"{NAME}-2")) == (first, second)
    assert not Path(f"{NAME}-4").exists()
    # a gap is not filled, as the newest run has the highest number
    shutil.rmtree(f"{NAME}-2")
    train()
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        Path(NAME).name + end for end in ("", "-3", "-4")
    ]


def stopped() -> None:
    """A run that was stopped after its first epoch."""
    with pytest.raises(KeyError):
        gt.Trainer("gcn", dataset=DATASET, out="run", checkpoint_every=1, **KEYS).fit(
            StopsInTheSecondEpoch()
        )


class StopsInTheSecondEpoch:
    """A log that fails after the second epoch."""

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Nothing is to be done."""

    def epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """Raise once a checkpoint is there."""
        if row["epoch"] == 2:
            raise KeyError
        return {}


def seeds() -> None:
    command(out="run", seeds=2)


def stopped_seeds() -> None:
    """Runs of several seeds of which there is no result yet."""
    seeds()
    Path("run/result.json").unlink()


def finished() -> None:
    program(out="run")


def uncheckpointed() -> None:
    program(out="run", keep=0)


def only_weights() -> None:
    trainer = gt.Trainer("gcn", dataset=DATASET, **KEYS)
    trainer.save("run/weights.safetensors")


def only_predictions() -> None:
    gt.Trainer("gcn", dataset=DATASET, out="run", save_predictions=True, **KEYS).fit()
    for path in Path("run").iterdir():
        if path.name not in (MARKER, "predictions.npz"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


# what a folder holds, keys of a job, and words of the error; none if the job runs
HELD: dict[str, tuple[Callable[[], None], dict[str, Any], str]] = {
    "finished": (finished, {}, "holds a finished run; .*--resume.*--out.*--overwrite"),
    "finished, other settings": (finished, {"lr": 0.3}, "holds a finished run"),
    "finished, resumed": (finished, {"resume": True}, ""),
    "finished, resumed with others": (finished, {"lr": 0.3, "resume": True}, "give --lr 0.01"),
    "finished, replaced": (finished, {"lr": 0.3, "overwrite": True}, ""),
    "finished, without checkpoints": (uncheckpointed, {}, "holds a finished run"),
    "no checkpoints to resume from": (
        uncheckpointed,
        {"resume": True},
        "without checkpoints to resume from; .*--out.*--overwrite",
    ),
    "no checkpoints, replaced": (uncheckpointed, {"overwrite": True}, ""),
    "stopped": (stopped, {}, "stopped in epoch .*--resume.*--out.*--overwrite"),
    "stopped, resumed": (stopped, {"resume": True}, ""),
    "stopped, replaced": (stopped, {"overwrite": True}, ""),
    "weights": (only_weights, {}, "holds a run"),
    "predictions": (only_predictions, {}, "holds a run"),
    "seeds": (seeds, {}, "runs of several seeds"),
    "seeds, resumed as one": (seeds, {"resume": True}, "go on with them with --seeds and --resume"),
    "stopped seeds, resumed as one": (stopped_seeds, {"resume": True}, "runs of several seeds"),
}


@BOTH
@pytest.mark.one_in(3)
@pytest.mark.parametrize("held", HELD)
def test_a_run_is_replaced_only_if_the_job_says_so(held: str, train: Callable[..., None]) -> None:
    before, keys, words = HELD[held]
    before()
    files = times("run")
    if words:
        with pytest.raises(ConfigError, match=words):
            train(out="run", **keys)
        assert times("run") == files
    else:
        train(out="run", **keys)
        assert gt.Job.from_yaml("run/job.yaml").lr == keys.get("lr", 0.01)
        assert Path("run/result.json").is_file()


def test_seeds_and_one_run_do_not_share_a_folder() -> None:
    finished()
    for keys in ({}, {"resume": True}):
        with pytest.raises(ConfigError, match=r"run holds the run of one seed; .*--overwrite"):
            command(out="run", seeds=2, **keys)
    command(out="several", seeds=2)
    with pytest.raises(ConfigError, match=r"several.seed-0 holds a finished run"):
        command(out="several", seeds=2)
    with pytest.raises(ConfigError, match=r"several holds runs of several seeds; .*--overwrite"):
        command(out="several", seed=2, seeds=2)
    command(out="several", seeds=3, resume=True)
    assert json.loads(Path("several/result.json").read_text())["seeds"] == 3
    command(seeds=2)
    command(seeds=2)
    command()
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        Path(NAME).name + end for end in ("", "-2", "-3")
    ]


def test_predictions_of_a_run_are_not_replaced_by_those_of_another_trainer() -> None:
    program(save_predictions=True)
    before = times(NAME)
    trainer = gt.Trainer("gcn", dataset=DATASET, save_predictions=True, **KEYS)
    trainer.fit()
    assert times(NAME) == before
    assert str(trainer.job.folder) == f"{NAME}-2"
    assert Path(f"{NAME}-2/predictions.npz").is_file()


def test_a_run_that_is_replaced_leaves_no_weights_if_it_stops() -> None:
    finished()
    with pytest.raises(KeyError):
        gt.Trainer("gcn", dataset=DATASET, out="run", overwrite=True, **KEYS).fit(
            StopsInTheSecondEpoch()
        )
    with pytest.raises(ConfigError, match="the run has not ended"):
        gt.open_run("run")


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_workers_write_to_the_same_folder(ranks: int) -> None:
    def folder(comm: Comm) -> str:
        trainer = gt.Trainer("gcn", dataset=DATASET, comm=comm, keep=1, **KEYS)
        trainer.fit()
        return str(trainer.job.folder)

    folders = [run_simulated(ranks, folder) for _ in range(2)]
    assert folders == [[NAME] * ranks, [f"{NAME}-2"] * ranks]


def inside() -> type[gt.Model]:
    class Inner(Net):
        pass

    return Inner


def by_function(d_in: int, d_out: int) -> gt.Model:
    return Net(d_in, d_out)


# ways to give a model, and whether its file makes it again
GIVEN: dict[str, tuple[Callable[[gt.Graph], Any], bool]] = {
    "class": (lambda graph: Net, True),
    "class in a function": (lambda graph: inside(), False),
    "function": (lambda graph: by_function, False),
    "lambda": (lambda graph: lambda d_in, d_out: Net(d_in, d_out, 3), False),
    "object": (lambda graph: Net(graph.n_features, graph.n_classes, 4), False),
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.usefixtures("without_charts")
def test_models_of_users(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, reopens = GIVEN[name]
    graph = gt.load(DATASET)
    given = make(graph)
    trainer = gt.Trainer(given, dataset=DATASET, out="run", **KEYS)
    trainer.fit()
    expected = trainer.predict()[1]
    assert main(["report", "run"]) == 0
    again = gt.open_run("run", model=given)
    np.testing.assert_array_equal(again.predict()[1], expected)
    if reopens:
        with pytest.raises(ConfigError, match="trust"):
            gt.open_run("run")
        assert gt.Job.from_yaml("run/job.yaml").model == f"{Path(__file__)}:Net"
        np.testing.assert_array_equal(gt.open_run("run", trust=True).predict()[1], expected)
        assert main(["predict", "run", "--trust", "--to", "p.npz"]) == 0
        assert main(["evaluate", "run", "--model", f"{__file__}:Net"]) == 0
    else:
        with pytest.raises(ConfigError, match=r"no file makes again.*model=.*--model FILE\.py"):
            gt.open_run("run", trust=True)
        capsys.readouterr()
        assert main(["evaluate", "run", "--trust"]) == 2
        assert "no file makes again" in capsys.readouterr().err


def test_a_file_below_the_current_folder_is_named_from_there(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    trainer = gt.Trainer(Net, dataset=DATASET, **KEYS)
    assert trainer.job.model == f"{Path(__file__).name}:Net"


@pytest.mark.parametrize(
    "other", [{"activation": "tanh"}, {"direction": "out"}, {"seed": 3}, {"split": "fraction"}]
)
def test_a_job_of_another_run_is_refused(
    other: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights fit both models, and predict something else."""
    gt.Trainer("gcn", dataset=DATASET, out="run", **KEYS).fit()
    (key,) = other
    job = gt.Job.from_yaml("run/job.yaml")
    Path("run/job.yaml").write_text(job.change(**other).to_yaml())
    said = f"{key} is {other[key]} in job.yaml and {job.as_text(key)} in weights.safetensors"
    with pytest.raises(ConfigError, match=said):
        gt.open_run("run")
    for command in (["evaluate"], ["predict", "--to", "p.npz"]):
        assert main([command[0], "run", *command[1:]]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    # what is given is meant, and what only training reads decides nothing
    assert main(["evaluate", "run", f"--{key}", job.as_text(key)]) == 0
    Path("run/job.yaml").write_text(job.change(lr=0.5, epochs=9).to_yaml())
    assert main(["evaluate", "run"]) == 0


@pytest.mark.parametrize("command", [["evaluate"], ["predict", "--to", "p.npz"]])
def test_a_graph_given_in_python_is_asked_for(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    graph = gt.load(DATASET)
    trainer = gt.Trainer("gcn", graph, out="run", **KEYS)
    trainer.fit()
    np.testing.assert_array_equal(gt.open_run("run", graph).predict()[1], trainer.predict()[1])
    with pytest.raises(ConfigError, match="given in Python"):
        gt.open_run("run").evaluate()
    name, *flags = command
    assert main([name, "run", *flags]) == 2
    assert "given in Python" in capsys.readouterr().err
    assert main([name, "run", "--dataset", DATASET, *flags]) == 0


def rows_of(text: str, *columns: str) -> dict[str, list[str]]:
    """Cells of a table by the first one; ``columns`` are those to be there."""
    lines = text.split("\n\n")[0].splitlines()
    titles = lines[0].replace("best epoch", "best_epoch").split()
    places = [titles.index(column) for column in columns]
    return {cells[0]: [cells[i] for i in places] for cells in (line.split() for line in lines[2:])}


def write_run(folder: str, **keys: Any) -> None:
    gt.Trainer("gcn", dataset=DATASET, out=f"all/{folder}", **KEYS | keys).fit()


def test_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    write_run("a")
    write_run("b/seed-1", seed=1, lr=0.1)
    write_run("stopped", epochs=5)
    Path("all/stopped/result.json").unlink()
    assert main(["runs", "all"]) == 0
    out = capsys.readouterr().out
    assert rows_of(out, "epochs", "lr", "seed", "finished") == {
        "a": ["3", "0.01", "0", "yes"],
        "b/seed-1": ["3", "0.1", "1", "yes"],
        "stopped": ["5", "0.01", "0", "no"],
    }
    rows = [json.loads(line) for line in Path("all/stopped/metrics.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: row["val_accuracy"])
    assert rows_of(out, "best_epoch", "val_accuracy", "test_accuracy")["stopped"] == [
        str(best["epoch"]),
        figure(best["val_accuracy"]),
        figure(best["test_accuracy"]),
    ]
    assert main(["runs", "all/a"]) == 0
    assert list(rows_of(capsys.readouterr().out, "finished")) == ["a"]


# what is done to a run, and what is said of it; nothing if it is still compared
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no job": (lambda run: (run / "job.yaml").unlink(), "it has no job.yaml"),
    "no metrics": (lambda run: (run / "metrics.jsonl").unlink(), "metrics.jsonl is missing"),
    "a folder": (lambda run: [(run / "job.yaml").unlink(), (run / "job.yaml").mkdir()], "job.yaml"),
    "bytes": (lambda run: (run / "job.yaml").write_bytes(b"\xff\x00"), "job.yaml"),
    "another key": (lambda run: (run / "job.yaml").write_text("lra: 1"), "unknown key 'lra'"),
    "cut metrics": (lambda run: (run / "metrics.jsonl").write_text('{"ep'), "line 1: damaged"),
    "no rows": (lambda run: (run / "metrics.jsonl").write_text(""), ""),
    "a list": (lambda run: (run / "result.json").write_text("[]"), "expected a mapping"),
    "null metrics": (
        lambda run: (run / "result.json").write_text(
            '{"best_epoch": 1, "seconds": 1, "metrics": {"val_accuracy": null, "test_x": "y"}}'
        ),
        "",
    ),
    "a number": (
        lambda run: (run / "result.json").write_text(
            '{"best_epoch": 1, "seconds": 1, "metrics": 5}'
        ),
        "",
    ),
    "rows of mappings": (
        lambda run: [
            (run / "result.json").unlink(),
            (run / "metrics.jsonl").write_text(
                '{"epoch": 1, "step": 1, "loss": null, "val_accuracy": {}}'
            ),
        ],
        "",
    ),
    "a fifo": (
        lambda run: [(run / "job.yaml").unlink(), os.mkfifo(run / "job.yaml")],
        "job.yaml",
    ),
    "a loop": (lambda run: (run / "again").symlink_to("."), ""),
}


def test_damaged_runs_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run("good")
    for name, (damage, _) in DAMAGES.items():
        run = Path("all", name.replace(" ", "_"))
        shutil.copytree("all/good", run)
        damage(run)
    Path("all/notes.txt").write_text("not a folder")
    capsys.readouterr()
    assert main(["runs", "all", "--json", "runs.json"]) == 0
    record = json.loads(Path("runs.json").read_text())
    names = {line["name"] for line in record["runs"]}
    for name, (_, told) in DAMAGES.items():
        folder = name.replace(" ", "_")
        assert (folder in names) == (not told), name
        assert told in record["others"].get(folder, ""), name
    out = capsys.readouterr().out
    assert all(line["name"] in out for line in record["runs"])


@pytest.mark.parametrize("words", [["nowhere"], ["file"], ["file/x"], []])
def test_no_folder_of_runs(
    here: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("")
    assert main(["runs", *words]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_an_empty_folder_of_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "."]) == 0
    assert "there are no runs" in capsys.readouterr().out


def test_dir_shows_public_names_alone() -> None:
    assert {*dir(gt)} == {*gt.__all__, "errors", "models", "ops"}
    assert all(hasattr(gt, name) for name in dir(gt))


def named_classes() -> gt.Graph:
    graph = gt.load(DATASET)
    return graph.replace(name="<b>", meta={**graph.meta, "class_names": ("<a>", "b&", "c")})


@pytest.mark.parametrize("ranks", [1, 2])
def test_objects_say_what_they_are(ranks: int) -> None:
    def program(comm: Comm) -> dict[str, tuple[str, str]]:
        graph = named_classes()
        trainer = gt.Trainer(Net, graph, comm=comm, **KEYS)
        result = trainer.fit()
        report = trainer.class_report()
        run = gt.Run(Net, graph, comm=comm, backend="reference")
        every = (graph, trainer.model, trainer, run, trainer.on(graph), result, report)
        return {type(x).__name__: (repr(x), x._repr_html_()) for x in every}

    texts = run_simulated(ranks, program)[0]
    n_edges = re.findall(r"(\S+) edges", texts["Graph"][0])[0]
    place = f"(Net(53 parameters) on 120 nodes, {n_edges} edges"
    assert texts["Net"][0] == "Net(53 parameters)"
    for name in ("Trainer", "Inference", "Run"):
        assert texts[name][0].startswith(f"{name}{place}, {ranks} workers")
    assert texts["Trainer"][0].endswith("3 updates)")
    assert texts["Result"][0].startswith("Result(best epoch ")
    assert "test_accuracy 0." in texts["Result"][0] and "3 evaluations" in texts["Result"][0]
    assert texts["ClassReport"][0] == "ClassReport(3 classes, train, val, test)"
    for text, page in texts.values():
        assert len(text) < 200 and "\n" not in text and "0x" not in text
        assert page.startswith("<table>") and page.endswith("</table>")
        assert page.count("<tr>") == page.count("</tr>") > 1
        assert "<b>" not in page and "<a>" not in page
    assert "&lt;b&gt;" in texts["Graph"][1]
    assert "&lt;a&gt;" in texts["ClassReport"][1] and "b&amp;" in texts["ClassReport"][1]


@pytest.mark.parametrize(("name", "title"), [("graph", "Graph"), ("shop", "Graph shop")])
def test_the_title_of_a_graph_is_no_word_twice(name: str, title: str) -> None:
    page = gt.load(DATASET).replace(name=name)._repr_html_()
    assert re.findall(r"<caption>(.*?)</caption>", page) == [title]


def test_a_graph_of_many_columns_is_shown_shortly() -> None:
    graph = gt.load(DATASET).replace(
        node_columns={f"column_{i}": np.zeros(120, np.int32) for i in range(300)}
    )
    assert len(repr(graph)) < 400 and "more" in repr(graph)


class Odd(gt.Model):
    """A model whose attributes have names of its representation."""

    def __init__(self) -> None:
        self._size = 3
        self.named = {"a": gt.Parameter.zeros(2, 3), "b": [None, np.nan]}


class Unmade(gt.Model):
    def __init__(self) -> None:
        assert repr(self) == "Unmade(0 parameters)"


def test_models_say_what_they_are_at_any_time() -> None:
    assert repr(Odd()) == "Odd(6 parameters)"
    assert "<td>named.a</td><td>2 x 3</td>" in Odd()._repr_html_()
    Unmade()


def test_a_check_says_what_was_compared() -> None:
    report = gt.check(gt.models.GCN(3, 2))
    page = report._repr_html_()
    assert page.startswith("<table>")
    assert page.count("<tr>") == 7
    assert all(line.partition(":")[0] in page for line in str(report).splitlines())


class Stream(io.StringIO):
    """Standard error that may be a terminal."""

    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


# terminal, notebook, progress, and whether it is shown
SHOWN = (
    (True, False, None, True),
    (True, False, False, False),
    (False, False, None, False),
    (False, False, True, True),
    (False, True, None, True),
    (False, True, False, False),
)


@pytest.mark.parametrize(("ranks", "out", "case"), covering((1, 2), ("", "run"), SHOWN), ids=str)
def test_progress(
    ranks: int,
    out: str,
    case: tuple[bool, bool, bool | None, bool],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal, notebook, progress, shows = case
    stream = Stream(terminal)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(shown, "in_notebook", lambda: notebook)

    def program(comm: Comm) -> int:
        trainer = gt.Trainer("gcn", dataset=DATASET, comm=comm, out=out, **KEYS)
        return len(trainer.fit(progress=progress).history)

    assert run_simulated(ranks, program) == [3] * ranks
    written = stream.getvalue()
    assert bool(written) == shows
    if shows:
        assert "epoch/s" in written
        # of one rank alone
        assert written.count("0/3") == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("notebook", [True, False])
def test_a_notebook_without_widgets_has_the_bar_of_terminals(
    notebook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one warns on every page."""
    monkeypatch.setattr(shown, "in_notebook", lambda: notebook)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert shown.library_of_bars() == "tqdm"


def test_progress_goes_when_training_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[Any] = []
    begin = shown.Shown.begin

    def begun(self: shown.Shown, history: list[dict[str, Any]]) -> None:
        begin(self, history)
        bars.append(self._bar)

    monkeypatch.setattr(shown.Shown, "begin", begun)
    monkeypatch.setattr("sys.stderr", Stream(True))
    with pytest.raises(ZeroDivisionError):
        gt.Trainer("gcn", dataset=DATASET, **KEYS).fit(callbacks=[Failing()])
    assert bars[0].disable


class Failing(gt.Callback):
    def on_epoch(self, now: Any) -> bool | None:
        raise ZeroDivisionError
