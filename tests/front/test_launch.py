"""``graphtheta launch``: what is restarted, how often and when not; signals; and that no process of
a job is left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import hear

from graphtheta.__main__ import main
from graphtheta.cli import launch, processes
from graphtheta.cli.doctor import find_mpiexec
from graphtheta.cli.launch import Restarts, Runs, in_words

# processes that signals and the end of others reach
pytestmark = pytest.mark.cold
needs_mpi = pytest.mark.skipif(find_mpiexec() is None, reason="MPI is not installed")
# rank 0 counts the tries in a file; the words say how each try ends, the last word all that follow
ENDS = """
import os, sys, time
from pathlib import Path
file, words = Path("tries"), sys.argv[1:]
tries = int(file.read_text()) if file.exists() else 0
word = words[min(tries, len(words) - 1)]
first = os.environ.get("PMI_RANK", "0") == "0"
others = int(os.environ.get("PMI_SIZE", "1")) > 1
ready = Path("ready-%d" % tries)
if not first:
    ready.write_text(str(os.getpid()))
while others and not (ready.exists() and ready.read_text()):
    time.sleep(0.02)
if first:
    file.write_text(str(tries + 1))
if word.startswith("signal"):
    # mpiexec of MPICH now and then does not notice that rank 0 was killed; the other then ends it
    time.sleep(0 if first else 20)
    os.kill(os.getpid(), int(word[6:]))
# mpiexec kills a rank that outlives one with an error, and then reports both
while first and others and Path("/proc", ready.read_text()).exists():
    time.sleep(0.02)
sys.exit(int(word) if first else 0)
"""
# notes its process, then waits; ends with 75 after SIGTERM and 130 after Ctrl-C, unless it is
# stubborn
WAITS = """
import os, signal, sys, time
from pathlib import Path
def end(number, frame):
    Path("asked").write_text(signal.Signals(number).name)
    if "stubborn" not in sys.argv:
        sys.exit(75 if number == signal.SIGTERM else 130)
signal.signal(signal.SIGTERM, end), signal.signal(signal.SIGINT, end)
Path("rank-" + os.environ.get("PMI_RANK", "0")).write_text(str(os.getpid()))
for _ in range(600):
    time.sleep(0.1)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the two programs."""
    monkeypatch.chdir(tmp_path)
    Path("ends.py").write_text(ENDS)
    Path("waits.py").write_text(WAITS)
    return tmp_path


def begin(*words: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [sys.executable, "-m", "graphtheta", "launch", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear,
    )


def run(*words: str) -> tuple[int, list[str]]:
    """Exit code, and the lines the launch itself said."""
    done = begin(*words)
    _, err = done.communicate(timeout=60)
    return done.returncode, [line for line in err.splitlines() if line.startswith("launch: ")]


def waiting(*words: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A launch whose ranks all wait, and their processes."""
    launched = begin(*words)
    ranks = int(words[words.index("-n") + 1])
    end = time.monotonic() + 30
    while not all((file := Path(f"rank-{i}")).exists() and file.read_text() for i in range(ranks)):
        assert time.monotonic() < end and launched.poll() is None
        time.sleep(0.05)
    return launched, [int(Path(f"rank-{i}").read_text()) for i in range(ranks)]


def gone(pids: list[int]) -> bool:
    """Whether all processes end soon."""
    end = time.monotonic() + 10
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has asked about since it ended does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    "words, told",
    [
        (["-n", "0", "train"], "-n: got 0, expected a whole number from 1"),
        (["-n", "x", "train"], "-n: got x, expected a whole number from 1"),
        (["--max-restarts", "-1", "train"], "--max-restarts: "),
        (["--max-restart", "2", "train"], "did you mean '--max-restarts'"),
        (["-n", "2"], "expected a command to run"),
        (["-n", "2", "trian"], "did you mean 'train'"),
        (["report"], "cannot run 'report'"),
        (["train", "--lrr", "3"], "did you mean '--lr'"),
        (["train", "--strategy", "mni"], "did you mean 'mini'"),
        (["train", "--overwrite"], "--overwrite cannot be given; move the run away"),
        (["nothing.py"], "nothing.py: the script does not exist"),
        (["--mpiexec", "no-such-program -f x", "train"], "no-such-program -f x"),
        (["--mpiexec", "'x", "train"], "No closing quotation"),
    ],
)
def test_bad_usage_is_one_message_before_anything_starts(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and told in err and err.count("\n") == 1


def test_refuses_to_run_on_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert main(["launch", "-n", "2", "train"]) == 2
    assert "starts the ranks itself" in capsys.readouterr().err


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", ["1", pytest.param("2", marks=needs_mpi)])
def test_restarts_until_it_ends_well(here: Path, ranks: str) -> None:
    code, said = run("-n", ranks, "ends.py", "1", "signal9", "0")
    assert code == 0 and Path("tries").read_text() == "3"
    assert [line.partition(" after ")[0] for line in said[::2]] == [
        "launch: try 1 ended with code 1",
        "launch: try 3 succeeded",
    ]
    assert "killed by SIGKILL" in said[1] and said[1].endswith("restart 2 of 3 in 2 s")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("code", [2, 130, 141])
def test_not_restarted(here: Path, code: int) -> None:
    assert run("-n", "1", "ends.py", str(code))[0] == code
    assert Path("tries").read_text() == "1"


def test_gives_up(here: Path) -> None:
    code, said = run("--max-restarts", "1", "ends.py", "75", "1")
    assert code == 1 and Path("tries").read_text() == "2"
    assert (
        "was pre-empted (code 75)" in said[0]
        and "gave up: no newer checkpoint after 1 restart" in said[1]
    )


@pytest.mark.one_in(5)
@pytest.mark.parametrize("ranks", ["1", pytest.param("2", marks=needs_mpi)])
@pytest.mark.parametrize(
    "number, code", [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGHUP, 75)]
)
def test_a_signal_is_passed_on_once(here: Path, ranks: str, number: int, code: int) -> None:
    launched, pids = waiting("-n", ranks, "waits.py")
    launched.send_signal(number)
    _, err = launched.communicate(timeout=30)
    assert launched.returncode == code and f"stopped by {signal.Signals(number).name}" in err
    assert Path("asked").read_text() == (
        "SIGINT" if number == signal.SIGINT else "SIGTERM"
    ) and gone(pids)


@pytest.mark.second
@pytest.mark.parametrize("ranks", ["1", pytest.param("2", marks=needs_mpi)])
def test_a_second_signal_kills(here: Path, ranks: str) -> None:
    launched, pids = waiting("-n", ranks, "waits.py", "stubborn")
    launched.send_signal(signal.SIGTERM)
    while not Path("asked").exists():
        time.sleep(0.05)
    assert all(map(alive, pids))
    launched.send_signal(signal.SIGTERM)
    launched.communicate(timeout=30)
    assert launched.returncode == 75 and gone(pids)


@pytest.mark.second
def test_a_signal_ends_the_pause(here: Path) -> None:
    launched = begin("--max-restarts", "9", "ends.py", "1")
    while not (Path("tries").exists() and Path("tries").read_text() == "3"):
        time.sleep(0.05)
    time.sleep(0.5)  # in the third pause, which takes four seconds
    began = time.monotonic()
    launched.send_signal(signal.SIGTERM)
    launched.communicate(timeout=30)
    assert (
        launched.returncode == 75
        and time.monotonic() - began < 3
        and Path("tries").read_text() == "3"
    )


@pytest.mark.second
@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not tell a child that its parent died"
)
@pytest.mark.parametrize("ranks", ["1", pytest.param("2", marks=needs_mpi)])
def test_the_job_dies_with_its_launch(here: Path, ranks: str) -> None:
    launched, pids = waiting("-n", ranks, "waits.py", "stubborn")
    launched.kill()
    launched.communicate(timeout=30)
    assert gone(pids)


@pytest.mark.second
@needs_mpi
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not adopt orphans")
def test_ranks_of_a_killed_mpiexec_are_gone_before_the_next_try(here: Path) -> None:
    launched, pids = waiting("-n", "2", "waits.py", "stubborn")
    os.kill(
        int(Path(f"/proc/{launched.pid}/task/{launched.pid}/children").read_text()), signal.SIGKILL
    )
    assert launched.stderr is not None
    while "restart 1 of 3" not in (line := launched.stderr.readline()):
        assert line
    assert not any(map(alive, pids))
    launched.send_signal(signal.SIGTERM)
    launched.communicate(timeout=30)
    assert launched.returncode == 75


@pytest.mark.second
@needs_mpi
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not adopt orphans")
def test_a_job_whose_proxy_was_killed_is_started_again(here: Path) -> None:
    """mpiexec does not end, since it waits for its proxy."""
    launched, pids = waiting("-n", "2", "waits.py", "stubborn")
    proxy = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(proxy, signal.SIGKILL)
    assert launched.stderr is not None
    while "restart 1 of 3" not in (line := launched.stderr.readline()):
        assert line
    assert not any(map(alive, pids))
    launched.send_signal(signal.SIGTERM)
    launched.communicate(timeout=30)
    assert launched.returncode == 75


# maps files into memory, and waits
MAPS = """
import mmap, sys, time
files = [open(path, "r+b") for path in sys.argv[1:]]
mapped = [mmap.mmap(file.fileno(), 0) for file in files]
print(flush=True)
time.sleep(60)
"""


def test_only_shared_memory_of_the_own_job_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SHARED", tmp_path)
    names = ["mpich_shm_1_0", "mpich_shm_2_0", "data"]
    for name in names:
        (tmp_path / name).write_bytes(bytes(4096))
    job, other = (
        subprocess.Popen(
            [sys.executable, "-c", MAPS, *(str(tmp_path / name) for name in mapped)],
            stdout=subprocess.PIPE,
        )
        for mapped in ((names[0], names[2]), (names[1],))
    )
    memory = processes.SharedMemory()
    for process in (job, other):
        assert process.stdout is not None
        process.stdout.readline()
    memory.note([job.pid])
    for process in (job, other):
        process.kill()
        process.wait()
    memory.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


LEAVES = """
import os
from pathlib import Path
import graphtheta as gt
from graphtheta.models import GCN

class Net(gt.Model):
    def __init__(self, d_in, d_out, d_edge):
        self.layer = GCN(d_in, d_out)

    def forward(self, graph):
        if os.environ.get("PMI_RANK", "1") == "1" and not Path("left").exists():
            Path("left").touch()
            os._exit(0)
        return self.layer(graph, graph.x)
"""


@pytest.mark.second
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=needs_mpi)])
def test_a_rank_that_leaves_without_a_word_is_no_success(here: Path, ranks: int) -> None:
    Path("leaves.py").write_text(LEAVES)
    code, said = run(
        "-n",
        str(ranks),
        "train",
        "--model",
        "leaves.py:Net",
        "--dataset",
        "ring",
        "--epochs",
        "2",
        "--out",
        "run",
    )
    assert code == 0 and Path("run/result.json").exists()
    assert (
        "try 1 ended with code 0 but wrote no result" in said[0]
        and "restart 1 of 3 in 1 s" in said[0]
    )
    assert "try 2 succeeded" in said[1]


def test_progress_counts_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = iter([0, 0, 0, 10, 10, 20, 20, 20, 20])
    pauses = []
    monkeypatch.setattr(Runs, "step", lambda runs: next(steps))
    restarts = Restarts(["unused"], 2, Runs())
    monkeypatch.setattr(restarts, "_try", lambda signals: 1)
    monkeypatch.setattr(restarts, "_pause", lambda signals, seconds: pauses.append(seconds))
    monkeypatch.setattr(launch, "adopt_orphans", lambda: None)
    assert restarts.run() == 1
    # tries 3 and 5 made progress; 5, 6 and 7 are two restarts in vain
    assert pauses == [1, 2, 1, 2, 1, 2]
    said = capsys.readouterr().err.splitlines()
    assert (
        "last checkpoint at step 10; restart 1 of 2 in 1 s" in said[2]
        and "gave up" in said[-1]
        and len(said) == 7
    )


@pytest.mark.parametrize(
    "code, words",
    [
        (0, "succeeded"),
        (1, "ended with code 1"),
        (-9, "was killed by SIGKILL"),
        (137, "was killed by SIGKILL"),
        (75, "was pre-empted (code 75)"),
        (15, "ended with code 15 (a rank was killed by SIGTERM)"),
        (130, "ended with code 130"),
        (255, "ended with code 255"),
    ],
)
def test_ends_in_words(code: int, words: str) -> None:
    assert in_words(code) == words
