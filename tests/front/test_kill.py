"""A rank that is killed at a random moment: one run of the bench that shows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphtheta.cli.doctor import find_mpiexec

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"


@pytest.mark.cold
@pytest.mark.second
@pytest.mark.skipif(
    find_mpiexec() is None or sys.platform != "linux",
    reason="needs MPI, and to see the processes of a job",
)
def test_nothing_is_lost_when_a_rank_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    words = [
        sys.executable,
        str(BENCH / "kills.py"),
        "--runs",
        "1",
        "--steps",
        "50",
        "--seed",
        "17",
        "--out",
        str(out),
    ]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=600, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for row in map(json.loads, out.read_text().splitlines()) if "run" in row]
    assert [row["note"] for row in rows] == [""] and rows[0]["killed"] != "at its end"
    # resumed on as many ranks
    assert rows[0]["difference"] == 0
