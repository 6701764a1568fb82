"""Real processes: the contract under mpiexec, ends of a job, and how a process finds its
communicator.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import numpy as np
import pytest
from comm_contract import CONTRACT, awkward
from ranks import MPIEXEC, OPEN_MPI, needs_mpi, run

from graphtheta.engine.comm.failure import exit_code, report, wait_until_read
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.runtime.affinity import share
from graphtheta.engine.runtime.start import read_patience
from graphtheta.engine.runtime.start_watch import living, missing
from graphtheta.errors import ConfigError, DataError

# how a process starts, what it has imported then, and how the interpreter ends it
cold = pytest.mark.cold
PROGRAM = str(Path(__file__).with_name("mpi_program.py"))


def job(
    size: int, scenario: str, *flags: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    assert MPIEXEC is not None
    return run([MPIEXEC, "-n", str(size), sys.executable, PROGRAM, scenario, *flags], **environment)


both_ways = pytest.mark.parametrize(
    "flags", [[], pytest.param(["--hook"], marks=cold)], ids=["run_main", "excepthook"]
)


@needs_mpi
class TestMpi:
    @pytest.mark.parametrize("size", [2, 3])
    def test_contract(self, size):
        done = job(size, "contract")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"passed {len(CONTRACT)}\n" and done.stderr == ""

    def test_contract_in_many_small_pieces(self):
        done = job(2, "small_pieces")
        assert done.stdout == f"passed {len(CONTRACT)}\n", done.stderr

    def test_sums_have_the_bits_of_simulated_ranks(self):
        done = job(3, "bits")
        kinds, *digits = done.stdout.split()
        expected = run_simulated(
            3,
            lambda comm: [
                comm.all_sum(awkward(comm.rank, n)).tobytes().hex()[:4000] for n in (7, 400_001)
            ],
        )
        assert kinds == "1" and digits == expected[0], done.stderr

    def test_more_ranks_than_cores(self):
        done = job(2 * len(os.sched_getaffinity(0)) + 1, "crowd")
        assert done.stdout == "crowd passed\n" and done.returncode == 0, done.stderr

    @pytest.mark.skipif(OPEN_MPI, reason="its launcher ends the other ranks, and says why")
    @pytest.mark.second
    @pytest.mark.parametrize(
        ("gone", "end"),
        [(1, "sys.exit(3)"), (0, "sys.exit()"), (2, "os.environ['PMI_FD'] = '77'")],
        ids=str,
    )
    def test_a_rank_that_ends_before_mpi_has_started(self, gone, end):
        """Also by itself without an error, and if MPI does not start there."""
        program = (
            f"import os, sys\nif os.environ['PMI_RANK'] == '{gone}': {end}\nimport"
            " graphtheta.engine.runtime.start as s\ns.start()"
        )
        done = run([MPIEXEC, "-n", "3", sys.executable, "-c", program])
        speaks = 1 if gone == 0 else 0
        assert done.returncode != 0
        assert (
            f"rank {speaks}: CommError: MPI cannot start, because rank {gone} ended before it did;"
            " see the messages" in done.stderr
        )
        assert done.stderr.count("CommError") == 1

    @cold
    def test_status_of_the_program(self):
        done = job(2, "status")
        assert (done.returncode, done.stdout, done.stderr) == (5, "", "")

    @cold
    def test_start_is_idempotent(self):
        done = job(2, "interface")
        assert done.stdout == "[['MpiComm', 0, 2, True], ['MpiComm', 1, 2, True]]\n", done.stderr

    @cold
    def test_cores_are_shared_out(self):
        done = job(2, "shared_cores")
        cores = len(os.sched_getaffinity(0))
        if "NUMBA_NUM_THREADS" not in os.environ and "OMP_NUM_THREADS" not in os.environ:
            # some launchers pin each rank to its share of the cores
            shared = rf"\({max(1, cores // 2)}, \d+, 2\)"
            assert re.search(shared, done.stdout), done.stdout + done.stderr


@needs_mpi
class TestEnds:
    """An error on any rank ends all of them: one message, non-zero status."""

    @both_ways
    def test_one_rank_fails(self, flags):
        done = job(3, "one_raises", *flags)
        assert done.returncode != 0 and done.stdout == ""
        first, second = done.stderr.splitlines()
        assert (
            first
            == "rank 1/3: DataError: labels.npy has 3 rows, the graph 4 nodes; give one label for"
            " each node"
        )
        assert re.fullmatch(
            r"meanwhile ranks 0 and 2: in barrier\(\) at engine/mpi_program.py:\d+ in one_raises,"
            r" stage other",
            second,
        )

    @both_ways
    def test_a_bug_shows_its_traceback(self, flags):
        done = job(2, "first_raises", *flags)
        assert done.returncode != 0
        assert (
            done.stderr.startswith("rank 0/2: Traceback")
            and done.stderr.count("ZeroDivisionError: a bug") == 1
        )

    @pytest.mark.one_in(2)
    @both_ways
    @pytest.mark.parametrize("size", [2, 3])
    def test_all_fail_alike(self, size, flags):
        done = job(size, "all_raise", *flags)
        assert done.returncode == 2
        assert (
            done.stderr == f"rank 0/{size}: ConfigError: hidden: expected at least 1, got 0\n"
            and done.stdout == ""
        )

    @cold
    def test_all_fail_and_end_late(self):
        """If a rank ended itself where MPI takes long, the launcher would kill the others."""
        done = job(2, "all_fail_late")
        # the launcher may mix the lines of two ranks
        assert (done.returncode, sorted(done.stdout)) == (2, sorted("ended\nended\n"))
        assert done.stderr == "rank 0/2: ConfigError: nothing was asked for\n"

    def test_all_fail_with_messages_under_way(self):
        done = job(2, "all_raise_while_moving")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "rank 0/2: ConfigError: apply returned 3 rows, expected 4\n"

    @both_ways
    def test_agreed_error(self, flags):
        done = job(3, "agreed", *flags)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "rank 0/3: DataError: rank 2: edge 7 ends at node 99 of 10\n"

    @both_ways
    def test_a_bug_is_not_agreed_on_and_keeps_its_traceback(self, flags):
        done = job(3, "bug_in_agreed", *flags)
        assert done.returncode != 0 and done.stderr.startswith("rank 1/3: Traceback")
        assert "in bug_in_agreed" in done.stderr and "ZeroDivisionError: a bug" in done.stderr
        assert re.search(
            r"meanwhile ranks 0 and 2: in agreed\(\) at engine/mpi_program.py:\d+ in bug_in_agreed",
            done.stderr,
        )

    @both_ways
    def test_a_rank_leaves_early(self, flags):
        done = job(3, "leaves_early", *flags)
        assert done.returncode != 0
        where = "all_sum(float64, (3,)) at engine/mpi_program"
        assert f"CommError: rank 1 has exited, but rank 0 waits for it in {where}" in done.stderr
        assert done.stderr.count("CommError") == 1

    @both_ways
    def test_a_rank_exits(self, flags):
        done = job(2, "exits_early", *flags)
        assert done.returncode != 0 and done.stderr.count("\n") == 2
        said = (
            "rank 0/2: CommError: rank 1 has exited"
            if flags
            else "rank 1/2: the program ended here with exit status 3"
        )
        assert done.stderr.startswith(said)

    def test_missing_message(self):
        done = job(2, "missing_message")
        assert done.returncode != 0
        assert (
            "rank 0/2: CommError: rank 1 has exited, but rank 0 waits for it in to_mirrors from"
            " ranks [1]" in done.stderr
        )

    def test_wrong_size(self):
        done = job(2, "wrong_size")
        assert done.returncode != 0
        assert (
            "rank 0/2: CommError: move: rank 0 expects 32 bytes from rank 1 (to_mirrors), got 24"
            in done.stderr
        )

    def test_mismatch(self):
        done = job(2, "mismatch")
        assert done.returncode == 1 and done.stderr.count("CommError") == 1
        assert re.search(
            r"rank 0: operation \d+, all_sum\(float64, \(3,\)\) at engine/mpi_program.py:\d+ in"
            r" mismatch",
            done.stderr,
        )
        # where a library does not wait for the others, the rank has gone on
        assert re.search(
            r"rank 1: operation \d+, all_gather\(\) at engine/mpi_program.py:\d+ in"
            r" (mismatch|<module>)",
            done.stderr,
        )

    @both_ways
    def test_interrupted(self, flags):
        done = job(2, "interrupted", *flags)
        assert (done.returncode, done.stderr) == (130, "rank 0/2: interrupted\n")


@cold
class TestStart:
    def test_plain_python_knows_no_mpi(self):
        done = run([sys.executable, PROGRAM, "interface"])
        assert done.stdout == "[['SerialComm', 0, 1, False]]\n", done.stderr

    def test_slurm_batch_script_is_plain_python(self):
        done = run([sys.executable, PROGRAM, "interface"], SLURM_NTASKS="4", SLURM_PROCID="0")
        assert done.stdout == "[['SerialComm', 0, 1, False]]\n", done.stderr

    @needs_mpi
    @pytest.mark.parametrize(
        "environment",
        [
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
            {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"},
        ],
        ids=["openmpi", "slurm"],
    )
    @both_ways
    def test_launcher_of_another_mpi(self, environment, flags):
        done = run([sys.executable, PROGRAM, "interface", *flags], **environment)
        assert done.returncode == 1 and done.stdout == ""
        assert (
            "CommError: 2 processes were started together, but each has an MPI world of size 1"
            in done.stderr
        )
        assert done.stderr.count("\n") == 1

    def test_mpi_not_installed(self):
        without = (
            "import sys, runpy; sys.modules['mpi4py'] = None; del sys.argv[0];"
            " runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        for rank, lines in (("0", 1), ("1", 0)):
            done = run(
                [sys.executable, "-c", without, PROGRAM, "interface"], PMI_SIZE="2", PMI_RANK=rank
            )
            assert done.returncode == 2 and done.stderr.count("\n") == lines
            if rank == "0":
                assert (
                    "ConfigError: 2 processes were started together" in done.stderr
                    and '"graphtheta[mpich]"' in done.stderr
                )

    @needs_mpi
    def test_mpi_library_not_found(self):
        """One line, without the paths that were tried."""
        done = run(
            [sys.executable, PROGRAM, "interface"],
            PMI_SIZE="2",
            PMI_RANK="0",
            MPI4PY_LIBMPI="/nowhere/libmpi.so",
        )
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert "MPI cannot be used here (cannot load MPI library);" in done.stderr

    def test_patience(self):
        assert (
            read_patience(" ") is None and read_patience("0") == 0 and read_patience("2.5") == 2.5
        )
        for text in ("long", "-1", "nan", "inf"):
            with pytest.raises(ConfigError, match="is not a number of seconds"):
                read_patience(text)

    @needs_mpi
    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_wrong_variable_of_one_rank_ends_all(self, rank):
        program = [sys.executable, PROGRAM, "status"]
        wrong = ["env", "GRAPHTHETA_PATIENCE=long", *program]
        first, second = (wrong if rank == q else program for q in (0, 1))
        done = run([MPIEXEC, "-n", "1", *first, ":", "-n", "1", *second])
        assert (done.returncode, done.stdout) == (2, "")
        said = "" if rank == 0 else "rank 1: "
        assert done.stderr.startswith(
            f"rank 0/2: ConfigError: {said}GRAPHTHETA_PATIENCE='long' is not a number of seconds"
        )
        assert done.stderr.count("\n") == 1

    def test_one_rank_error_is_one_line(self):
        done = run([sys.executable, PROGRAM, "all_raise"])
        assert (done.returncode, done.stderr) == (
            2,
            "ConfigError: hidden: expected at least 1, got 0\n",
        )


class TestThreads:
    @pytest.mark.parametrize(
        ("cores", "neighbours", "quota", "omp", "expected"),
        [
            ([0, 1, 2, 3], [[0, 1, 2, 3]], None, "", 4),
            ([0, 1, 2, 3], [[0, 1, 2, 3]] * 2, None, "", 2),
            ([0, 1, 2, 3], [[0, 1, 2, 3]] * 3, None, "", 4 / 3),
            ([0, 1], [[0, 1]] * 8, None, "", 1 / 4),
            ([2, 3], [[0, 1], [2, 3]], None, "", 2),
            ([0, 1, 2, 3], [[0, 1, 2, 3]] * 2, 2.0, "", 1),
            ([0, 1, 2, 3], [[0, 1, 2, 3]], None, "3,2", 3),
            ([0, 1, 2, 3], [[0, 1, 2, 3]], None, "many", 4),
        ],
        ids=["alone", "two", "uneven", "crowd", "pinned", "quota", "omp", "omp-nonsense"],
    )
    def test_share(self, cores, neighbours, quota, omp, expected):
        assert share(cores, neighbours, quota, omp) == pytest.approx(expected)


class TestReport:
    def test_words(self):
        assert report(DataError("x"), 1, 4) == "rank 1/4: DataError: x\n"
        assert report(SystemExit(2), 0, 2) == "" and report(SystemExit("bye"), 0, 1) == "bye\n"
        assert (
            report(KeyboardInterrupt(), 0, 1) == "interrupted\n"
            and report(BrokenPipeError(), 0, 1) == ""
        )
        try:
            np.ones(2) @ np.ones(3)
        except ValueError as error:
            assert report(error, 0, 1).startswith("Traceback")

    def test_status(self):
        errors = (
            SystemExit(),
            SystemExit(0),
            SystemExit(3),
            SystemExit("x"),
            KeyboardInterrupt(),
            BrokenPipeError(),
            DataError(),
            ConfigError(),
        )
        assert [exit_code(error) for error in errors] == [0, 0, 3, 1, 130, 141, 1, 2]

    def test_what_was_said_is_waited_for(self):
        """Until it was read, and not for ever; of a file there is nothing to wait for."""
        reader, writer = os.pipe()
        os.write(writer, b"words")
        begin = time.monotonic()
        wait_until_read(writer, 0.2)
        assert time.monotonic() - begin >= 0.2
        slow = Timer(0.1, os.read, [reader, 100])
        begin = time.monotonic()
        slow.start()
        wait_until_read(writer, 60.0)
        assert 0.1 <= time.monotonic() - begin < 30
        slow.join()
        for path in (reader, writer):
            os.close(path)
        wait_until_read(writer)
        with open(__file__, encoding="utf-8") as file:
            file.seek(0, os.SEEK_END)
            wait_until_read(file.fileno(), 60.0)


def test_processes_that_are_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PMI_SIZE", "4")
    assert missing([0, 2], 4) == "rank 1, 3"
    assert missing([5], 2).startswith("1 of the 2 processes on ") and missing([5], 2).endswith(
        ", of which rank 5 still run,"
    )
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    assert living(tmp_path / "7") == []
    (tmp_path / "7" / "task" / "7" / "children").write_text("8 9 10 ")
    for pid, variables in ((8, "A=1\0PMI_RANK=3\0"), (9, ""), (10, "PMI_RANK=1\0B=2")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_text(variables)
    assert living(tmp_path / "7") == [1, 3]
