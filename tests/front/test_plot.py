"""Learning curves: of which runs, what is drawn and saved, and what is refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import graphtheta as gt
from graphtheta.errors import GraphThetaError

pytestmark = pytest.mark.reference

Runs = tuple[Path, gt.Result]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A folder of two runs, and the result of the second."""
    folder = tmp_path_factory.mktemp("plot") / "runs"
    graph = gt.load("sbm:n_nodes=60,n_edges=300,classes=2")
    for seed, epochs in ((0, 3), (1, 5)):
        trainer = gt.Trainer("gcn", graph, hidden=4, epochs=epochs, out=folder / str(seed))
        result = trainer.fit()
    return folder, result


def legends(curves: Any) -> set[str]:
    """Texts of a picture that are no numbers."""
    root = ElementTree.fromstring(f"<a xmlns:xlink='x'>{curves.svg}</a>")
    texts = [text for element in root.iter("text") for text in element.itertext()]
    words = {text.strip("\u200b\n ") for text in texts}
    return {word for word in words if re.search("[a-z]", word) and not word.startswith("val 0.")}


def test_splits_of_one_run(runs: Runs) -> None:
    folder, result = runs
    for given in (result, folder / "1", str(folder / "1")):
        curves = gt.plot(given)
        assert curves.names == ("loss", result.metric)
        assert legends(curves) == {"epoch", "loss", "accuracy", "train", "val", "test"}
    assert f"at epoch {result.best_epoch}" in curves.svg


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (lambda folder, result: folder, {"0", "1"}),
        (lambda folder, result: [folder / "0", folder / "1"], {"0", "1"}),
        (lambda folder, result: (result, result), {"run 1", "run 2"}),
        (lambda folder, result: {"_a": result, "$b": folder / "0"}, {"_a", "$b"}),
        (lambda folder, result: {"both": folder}, {"both 0", "both 1"}),
    ],
    ids=["a folder of runs", "folders", "results", "names", "a name of a folder"],
)
def test_runs_side_by_side(runs: Runs, given: Callable[..., Any], names: set[str]) -> None:
    """A line for each, of the validation split."""
    curves = gt.plot(given(*runs))
    assert set(curves.runs) == names
    words = {name for name in names if re.search("[a-z]", name)}
    assert legends(curves) == {"epoch", "val loss", "val accuracy"} | words


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ("f1_macro", ("f1_macro",)),
        (["f1_macro", "loss", "loss"], ("f1_macro", "loss")),
        ("all", None),
    ],
)
def test_which_metrics(runs: Runs, metrics: Any, names: tuple[str, ...] | None) -> None:
    result = runs[1]
    measured = dict.fromkeys(name.partition("_")[2] for name in result.metrics)
    assert set(gt.plot(result, metrics).names) == set(names or measured)


def test_runs_without_a_split_or_a_metric(runs: Runs) -> None:
    """Runs of other tasks in one picture: each where it was measured."""
    history = [{"epoch": 1, "step": 1, "loss": 0.5}]
    bare = gt.Result(best_epoch=1, history=history)
    assert gt.plot(bare).names == ("loss",)
    both = gt.plot({"a": runs[1], "b": bare})
    assert both.names == ("loss", "accuracy")
    trained = [{"epoch": i, "step": i, "loss": 0.5, "train_auc": 0.5} for i in (1, 2)]
    assert "auc" in gt.plot(gt.Result(1, {"train_auc": 0.5}, trained)).names


def test_a_run_that_goes_on(runs: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    for name in ("job.yaml", "metrics.jsonl"):
        (folder / name).write_bytes((runs[0] / "1" / name).read_bytes())
    assert gt.plot(folder).runs["open"].best_epoch == runs[1].best_epoch
    (folder / "metrics.jsonl").write_text("")
    with pytest.raises(GraphThetaError, match=r"open: the run has no epochs yet; plot it after"):
        gt.plot(folder)


def test_what_a_notebook_shows_and_files(runs: Runs, tmp_path: Path) -> None:
    curves = gt.plot(runs[1])
    assert repr(curves) == "Curves(loss, accuracy of run)"
    for name in ("a.svg", "new/a.html"):
        # a picture is replaced
        curves.save(tmp_path / name)
        curves.save(tmp_path / name)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    page = (tmp_path / "new" / "a.html").read_text(encoding="utf-8")
    assert curves._repr_html_() in page and "://" not in page
    (tmp_path / "mine.svg").write_text("<svg/>")
    with pytest.raises(GraphThetaError, match=r"mine.svg: the picture cannot be written: there is"):
        curves.save(tmp_path / "mine.svg")


def test_one_process_writes(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    gt.plot(runs[1]).save(tmp_path / "a.svg")
    assert not (tmp_path / "a.svg").exists()


REFUSED: dict[str, tuple[Callable[[Path, gt.Result], Any], str]] = {
    "no folder": (lambda folder, result: gt.plot("nowhere"), "there is no folder nowhere; give"),
    "a folder without runs": (
        lambda folder, result: gt.plot(folder.parent.parent / "none"),
        "none: there is no run; give the output folder of one",
    ),
    "a file": (lambda folder, result: gt.plot(folder / "0" / "job.yaml"), "there is no folder"),
    "no runs": (lambda folder, result: gt.plot([]), "there are no runs; give what fit returned"),
    "rows": (lambda folder, result: gt.plot(result.history), "got a value of type dict; give what"),
    "a trainer": (
        lambda folder, result: gt.plot(gt.Trainer("gcn", epochs=1)),
        "got a value of type Trainer; give what fit returned, or the folder of a run",
    ),
    "no epochs": (lambda folder, result: gt.plot(gt.Result()), "the result has no epochs; train"),
    "a name twice": (
        lambda folder, result: gt.plot([folder / "0", folder / "0"]),
        "two runs have the same name; give a dict, by other names",
    ),
    "another metric": (
        lambda folder, result: gt.plot(result, "acc"),
        r"no run has 'acc' \(did you mean 'accuracy'\?\); choose from loss, accuracy",
    ),
    "no metrics": (lambda folder, result: gt.plot(result, []), "metrics is empty; choose from"),
    "a number": (lambda folder, result: gt.plot(result, 3), "metrics is 3; expected a text"),
    "another kind of file": (
        lambda folder, result: gt.plot(result).save("a.png"),
        "a.png: a picture is saved as .svg or .html; choose such a name",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(runs: Runs, case: str) -> None:
    (runs[0].parent.parent / "none").mkdir(exist_ok=True)
    call, message = REFUSED[case]
    with pytest.raises(GraphThetaError, match=message) as caught:
        call(*runs)
    assert "\n" not in str(caught.value)


def test_without_matplotlib(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(GraphThetaError, match=r"pictures need matplotlib: pip install"):
        gt.plot(runs[1])
