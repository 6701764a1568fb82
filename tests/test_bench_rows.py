"""Figures of several runs in the benches: the shortest time of each step, and lines of seeds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt

BENCH = Path(__file__).resolve().parent.parent / "bench"


def test_of_each_step_the_shortest_of_all_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from shortest import run_job, shortest

    runs = [
        {"ranks": [{"seconds": [3, 1]}, {"seconds": [2, 5]}]},
        {"ranks": [{"seconds": [1, 4]}, {"seconds": [4, 2]}]},
    ]
    assert shortest(runs, "seconds").tolist() == [2, 4]
    keys = {
        "dataset": "ring:n=64",
        "model": "gcn",
        "strategy": "mini",
        "batch_size": 4,
        "backend": "reference",
        "keep": 0,
    }
    found = run_job(keys, 1, 2, 0.0)
    assert len(found["epochs"]) == 2 and shortest([found], "seconds").sum() <= min(found["epochs"])
    (rank,) = found["ranks"]
    assert (
        len(rank["seconds"]) == len(rank["processor"]) > 1
        and rank["memory"] > 0
        and rank["sent"] == 0
    )


def test_seeds_that_were_run_before_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from accuracy_rows import command, kept, row

    out = tmp_path / "rows.jsonl"

    def run(task: str, seed: int, folder: Path | None) -> dict[str, Any]:
        assert folder == tmp_path / "runs" / f"rows-one-{seed}" and kept(folder) == {
            "out": str(folder),
            "resume": True,
        }
        folder.mkdir(parents=True)
        # the lines of earlier seeds have been written
        assert len(out.read_text(encoding="utf-8").splitlines() if out.exists() else []) == seed
        return {
            "seed": seed,
            **row(task, [80.0 + seed], [10 * seed], 2.0, "81"),
            "macro": 70.0 + seed,
        }

    for first, seeds in ((0, 2), (2, 1)):
        monkeypatch.setattr(
            sys, "argv", ["bench", "--seeds", str(seeds), "--first", str(first), "--out", str(out)]
        )
        assert (
            command(
                "",
                ["one"],
                run,
                ["task", "mean", "deviation", "macro", "epoch", "runs", "seconds"],
                seeds=5,
            )
            == 0
        )
    assert [json.loads(line)["seed"] for line in out.read_text(encoding="utf-8").splitlines()] == [
        0,
        1,
        2,
    ]
    assert not any((tmp_path / "runs").iterdir())
    assert capsys.readouterr().out.splitlines()[-1].split() == [
        "one",
        "81",
        "1",
        "71",
        "10",
        "3",
        "6",
    ]


def test_a_run_that_ended_early_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    import graph_accuracy

    rng = np.random.default_rng(0)
    part = np.arange(12) % 3
    ring = (np.arange(4), (np.arange(4) + 1) % 4)
    rings = [gt.Graph(ring, 4, x=rng.normal(size=(4, 3)) + i % 2) for i in range(12)]
    graph = gt.whole_graphs(
        rings, np.arange(12) % 2, train=part == 0, val=part == 1, test=part == 2
    )
    monkeypatch.setattr(graph_accuracy.gt, "load", lambda dataset, fold: graph)
    monkeypatch.setattr(graph_accuracy, "FOLDS", 2)
    keys = {"dataset": "rings", "hidden": 4, "batch_size": 3, "backend": "reference"}
    whole, fewer = (graph_accuracy.folds({**keys, "epochs": epochs}, 0, None) for epochs in (6, 2))
    # the first of two folds ends after two epochs
    with monkeypatch.context() as early:
        early.setattr(graph_accuracy, "FOLDS", 1)
        assert graph_accuracy.folds({**keys, "epochs": 2}, 0, tmp_path)[0] == fewer[0][:1]
    assert graph_accuracy.folds({**keys, "epochs": 6}, 0, tmp_path) == whole
    assert "resuming from step 6, in epoch 3" in capsys.readouterr().out
