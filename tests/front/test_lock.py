"""Two jobs in one folder: the second is refused, whatever became of the first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base import atomic
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import FormatError
from graphtheta.run.checkpoints import lock
from graphtheta.run.checkpoints.lock import check_free, exclusive

pytestmark = pytest.mark.reference

HOLDER = """
import sys, time
from pathlib import Path
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.run.checkpoints.lock import exclusive
with exclusive(Path(sys.argv[1]), SerialComm()):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.3)


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that has the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_folder_is_taken_until_its_process_is_killed(holder, tmp_path, capsys):
    words = ["train", "--dataset", "ring", "--epochs", "1", "--out", str(tmp_path / "run")]
    for more in ([], ["--resume"]):
        assert main([*words, *more]) == 1
        assert (
            "another job is writing to this folder; wait until it ends, or choose another folder"
            " with --out" in capsys.readouterr().err
        )
    with pytest.raises(FormatError, match="another job"):
        gt.Trainer(
            "gcn", dataset="ring", epochs=1, out=str(tmp_path / "run"), checkpoint_every=1
        ).fit()
    assert os.listdir(tmp_path / "run") == [lock.MARKER]
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert main(words) == 0
    assert main([*words, "--resume"]) == 0


def test_all_ranks_are_told(holder, tmp_path):
    def program(comm):
        with pytest.raises(FormatError, match="another job"), exclusive(tmp_path / "run", comm):
            pass

    run_simulated(3, program)


def test_it_ends_with_the_block(tmp_path):
    for _ in range(2):
        with exclusive(tmp_path / "a" / "run", SerialComm()), pytest.raises(FormatError):
            check_free(tmp_path / "a" / "run")
    check_free(tmp_path / "a" / "run")
    check_free(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_one_that_ends_soon_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 60.0)
    code = HOLDER.replace("time.sleep(600)", "time.sleep(0.5)")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with exclusive(tmp_path, SerialComm()):
            pass


@pytest.mark.parametrize(
    "error", [OSError(37, "No locks available"), OSError(38, "Function not implemented")]
)
def test_without_locks_jobs_run(tmp_path, monkeypatch, error):
    def no_locks(file, how):
        raise error

    monkeypatch.setattr(atomic.fcntl, "flock", no_locks)
    with exclusive(tmp_path, SerialComm()):
        check_free(tmp_path)
