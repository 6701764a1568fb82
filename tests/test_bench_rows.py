"""Figures of several runs in the benches: the shortest time of each step, and lines of seeds."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


def test_of_each_step_the_shortest_of_all_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from shortest import run_job, shortest

    runs = [{"ranks": [{"seconds": [3, 1]}, {"seconds": [2, 5]}]}, {"ranks": [{"seconds": [1, 4]}, {"seconds": [4, 2]}]}]
    assert shortest(runs, "seconds").tolist() == [2, 4]
    keys = {"dataset": "ring:n=64", "model": "gcn", "strategy": "mini", "batch_size": 4, "backend": "reference", "keep": 0}
    found = run_job(keys, 1, 2, 0.0)
    assert len(found["epochs"]) == 2 and shortest([found], "seconds").sum() <= min(found["epochs"])
    (rank,) = found["ranks"]
    assert len(rank["seconds"]) == len(rank["processor"]) > 1 and rank["memory"] > 0 and rank["sent"] == 0


def test_seeds_that_were_run_before_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from accuracy_rows import command, row

    out = tmp_path / "rows.jsonl"

    def run(task: str, seed: int) -> dict[str, Any]:
        # the lines of earlier seeds have been written
        assert len(out.read_text(encoding="utf-8").splitlines() if out.exists() else []) == seed
        return {"seed": seed, **row(task, [80.0 + seed], [10 * seed], 2.0, "81"), "macro": 70.0 + seed}

    for first, seeds in ((0, 2), (2, 1)):
        monkeypatch.setattr(sys, "argv", ["bench", "--seeds", str(seeds), "--first", str(first), "--out", str(out)])
        assert command("", ["one"], run, ["task", "mean", "deviation", "macro", "epoch", "runs", "seconds"], seeds=5) == 0
    assert [json.loads(line)["seed"] for line in out.read_text(encoding="utf-8").splitlines()] == [0, 1, 2]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["one", "81", "1", "71", "10", "3", "6"]
