"""A short run of the fuzz of all readers; bench/fuzz.py does the long one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
INPUTS = 500


@pytest.mark.second
def test_readers_accept_what_is_sound_and_refuse_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    words = ["--inputs", str(INPUTS), "--seed", "17", "--folder", str(tmp_path), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, str(BENCH / "fuzz.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum(row["inputs"] for row in rows) == INPUTS and len(rows) == 10
    # the process does not start unless each reader accepts its undamaged files; damage of a few
    # bytes may leave none sound
    assert all(
        row["refused"] and row["accepted"] + row["refused"] == row["inputs"] for row in rows
    ), rows
    assert sum(row["accepted"] for row in rows) > 20


@pytest.mark.second
def test_damaged_runs_and_links_give_the_same_or_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from fuzz_runs import search

    counts, faults = search(range(40))
    assert not faults
    assert min(counts["accepted"], counts["refused"]) > 10


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import fuzz

    return fuzz


def planted(fuzz, read, data: bytes = b"data " * 100, tmp_path: Path = Path()) -> list[dict]:
    """Reports about a reader of our own."""
    from fuzz_formats import Target

    return list(
        fuzz.fuzz("planted", Target({"f.txt": data}, read), range(3), 0, tmp_path, tmp_path)
    )


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda folder, name: [][1], "IndexError"),
        (lambda folder, name: bytearray(1 << 24), "MiB for"),
    ],
)
def test_faults_are_seen(fuzz, read, told: str, tmp_path: Path) -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        reports = planted(fuzz, read, tmp_path=tmp_path)
    finally:
        tracemalloc.stop()
    assert (
        len(reports) == 4
        and all(told in report["fault"] for report in reports[:3])
        and reports[-1]["faults"] == 3
    )
    assert len(list(tmp_path.glob("planted-0-*"))) == 3
