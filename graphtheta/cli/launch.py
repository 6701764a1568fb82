"""The command ``launch``: starts a command on several ranks, and restarts it if it fails.

A restart resumes from the newest intact checkpoint.

No process of a job outlives ``launch``:

- The job runs in a session of its own. Ctrl-C in a terminal therefore reaches ``launch`` only,
  which passes it on once.
- The job is killed when ``launch`` dies (``PR_SET_PDEATHSIG``). The proxies of mpiexec then kill
  the ranks on every host.
- Orphaned processes of a job become children of ``launch`` (``PR_SET_CHILD_SUBREAPER``), which
  kills them before the next try, so that two tries never write to one folder.

Nor does shared memory of MPI, whose files a killed rank leaves behind.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import SimpleNamespace, TracebackType
from typing import Any

from graphtheta.base.console import complain
from graphtheta.base.mpiexec import find_mpiexec
from graphtheta.base.wording import did_you_mean
from graphtheta.cli.doctor import GET_MPI
from graphtheta.cli.processes import (
    SharedMemory,
    adopt_orphans,
    children,
    dies_with,
    has_lost_its_ranks,
    kill_all_but,
)
from graphtheta.engine.runtime.start import launched
from graphtheta.errors import ConfigError
from graphtheta.run.checkpoints.checkpoint import CHECKPOINTS, steps_in
from graphtheta.run.checkpoints.run_folder import run_of, seed_jobs
from graphtheta.run.checkpoints.stopping import INTERRUPTED, PREEMPTED
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.help import number_from
from graphtheta.run.job.job import Job
from graphtheta.run.job.run_files import RESULT_FILE

COMMANDS = ("train", "evaluate", "predict")
# exit codes after which there is no restart: success, invalid arguments, Ctrl-C, closed output
FINAL = (0, 2, INTERRUPTED, 141)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_PAUSE = 60.0
# seconds between two looks at the processes of a job, and looks after which ranks that are lost are
# given up
LOOK = 1.0
LOOKS = 5


def parser_of_launch() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "launch",
        "Run a command on several ranks. A training run that fails is restarted from its newest"
        " intact checkpoint, after a pause of 1, 2, 4 ... at most 60 s; the count of restarts is"
        " reset once an attempt has written a newer checkpoint.",
        "graphtheta launch -n 4 --max-restarts 3 train --dataset cora --checkpoint-every 50",
        "[-n N] [--max-restarts N] [--mpiexec WORDS] {" + ",".join(COMMANDS) + ",SCRIPT.py} ",
    )
    parser.add_argument(
        "-n",
        dest="ranks",
        type=number_from(int, 1),
        default=1,
        metavar="N",
        help="number of ranks; one rank runs without MPI [1]",
    )
    parser.add_argument(
        "--max-restarts",
        type=number_from(int, 0),
        default=3,
        metavar="N",
        help="largest number of restarts in a row without a newer checkpoint [3]",
    )
    parser.add_argument(
        "--mpiexec",
        metavar="WORDS",
        help=(
            'command that starts the ranks, such as "mpiexec -f hosts" or "srun --mpi=pmi2" '
            "[mpiexec of this environment]"
        ),
    )
    parser.add_argument(
        "words",
        nargs="...",
        metavar="COMMAND",
        help="command to run, with its flags; your own script is restarted with the same arguments",
    )
    return parser


def launch(argv: list[str]) -> int:
    """Run a command on several ranks until it succeeds, fails for good, or is stopped.

    Args:
        argv: Own flags, then the command and its flags.

    Returns:
        Exit code of the last try; 75 after SIGTERM or SIGHUP, 130 after Ctrl-C.

    Raises:
        ConfigError: The arguments are invalid, or there is no MPI for several ranks.
    """
    options, _ = parser_of_launch().read(argv)
    if launched()[1] > 1:
        raise ConfigError(
            "graphtheta launch starts the ranks itself; run it without mpiexec or srun in front"
            " of it"
        )
    program, runs = program_of(options.words)
    return Restarts(starter(options) + program, options.max_restarts, runs).run()


@dataclass(frozen=True)
class Runs:
    """Output folders of a training run, one per seed; empty for other commands."""

    folders: tuple[Path, ...] = ()

    def step(self) -> int:
        """Sum of the steps of the newest checkpoints."""
        return sum(
            steps[0][0] for folder in self.folders if (steps := steps_in(folder / CHECKPOINTS))
        )

    def whole(self) -> bool:
        """Whether all results are written, which is the last action of a run.

        The exit code does not suffice: mpiexec returns 0 even if a rank exits early.
        """
        return all((folder / RESULT_FILE).is_file() for folder in self.folders)


def program_of(words: list[str]) -> tuple[list[str], Runs]:
    """The command line of each rank, and the output folders of the run.

    Args:
        words: The command and its flags.

    Raises:
        ConfigError: There is no such command, or the job is invalid; nothing has been started.
    """
    if not words:
        raise ConfigError(
            f"expected a command to run ({', '.join(COMMANDS)}) or a script; see graphtheta launch"
            " --help"
        )
    command = words[0]
    rest = words[1:]
    if command.endswith(".py"):
        if not Path(command).is_file():
            raise ConfigError(f"{command}: the script does not exist; check the path")
        return [sys.executable, command, *rest], Runs()
    if command not in COMMANDS:
        raise ConfigError(
            f"graphtheta launch cannot run '{command}'{did_you_mean(command, COMMANDS)}; it runs"
            f" {', '.join(COMMANDS)} or a script whose name ends in .py"
        )
    program = [sys.executable, "-m", "graphtheta", command, *rest]
    if command != "train":
        return program, Runs()
    parser = Parser("train", "Train a model.", "graphtheta launch -n 4 train --dataset cora")
    parser.add_job_keys()
    _, keys = parser.read(rest)
    if keys.get("overwrite"):
        raise ConfigError(
            "graphtheta launch: each try goes on with the run in the output folder, so that"
            " --overwrite cannot be given; move the run away, or choose another folder with --out"
        )
    job = Job(**{**keys, "resume": True})
    jobs = seed_jobs(job.change(out=str(run_of(job))))
    return [*program, "--resume"], Runs(tuple(one.folder for one in jobs))


def starter(options: SimpleNamespace) -> list[str]:
    """The beginning of the command line, which starts the ranks.

    Raises:
        ConfigError: The program that starts the ranks is not found.
    """
    if options.mpiexec is None:
        if options.ranks == 1:
            return []
        mpiexec = find_mpiexec()
        if mpiexec is None:
            raise ConfigError(f"-n {options.ranks}: no mpiexec found; {GET_MPI}")
        return [str(mpiexec), "-n", str(options.ranks)]
    try:
        words = shlex.split(options.mpiexec)
    except ValueError as error:
        raise ConfigError(f"--mpiexec {options.mpiexec!r}: {error}") from None
    # as for the default, programs of this environment come first, even if it is not activated
    program = (
        shutil.which(
            words[0],
            path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        )
        if words
        else None
    )
    if program is None:
        raise ConfigError(
            f"--mpiexec {options.mpiexec!r}: the program is not found on PATH; check its name, or"
            " give its path"
        )
    return [program, *words[1:], "-n", str(options.ranks)]


class Restarts:
    """Runs a program and restarts it while it fails.

    Args:
        words: Command line of the program.
        most: Largest number of restarts in a row without a newer checkpoint.
        runs: Output folders of the program.
    """

    def __init__(self, words: list[str], most: int, runs: Runs):
        self.words = words
        self.most = most
        self.runs = runs
        self._stop: int | None = None
        self._others = children()

    def run(self) -> int:
        """Run the program until it succeeds, fails for good, or is stopped; returns the code."""
        adopt_orphans()
        before = self.runs.step()
        tries = 0
        restarts = 0
        with Signals() as signals:
            while True:
                tries += 1
                began = monotonic()
                code, how = self._ended(signals)
                step = self.runs.step()
                restarts = 1 if step > before else restarts + 1
                before = step
                at = f", last checkpoint at step {step}" * (step > 0)
                outcome = f"launch: try {tries} {how} after {monotonic() - began:.0f} s{at}"
                if code == 0 or (self._stop is None and code in FINAL):
                    if tries > 1 or code:
                        complain(outcome)
                    return code
                if self._stop is None and restarts > self.most:
                    why = (
                        f"; gave up: no newer checkpoint after {self.most}"
                        f" restart{'s' * (self.most > 1)}"
                    )
                    complain(outcome + why * (self.most > 0))
                    return 128 - code if code < 0 else code
                if self._stop is None:
                    pause = min(2.0 ** (restarts - 1), LONGEST_PAUSE)
                    complain(f"{outcome}; restart {restarts} of {self.most} in {pause:.0f} s")
                    self._pause(signals, pause)
                if self._stop is not None:
                    name = signal.Signals(self._stop).name
                    complain(
                        f"launch: stopped by {name} in try {tries}{at}; run the same command again"
                        " to resume"
                    )
                    return INTERRUPTED if self._stop == signal.SIGINT else PREEMPTED

    def _ended(self, signals: Signals) -> tuple[int, str]:
        """Run once; the exit code, and what it means."""
        code = self._try(signals)
        if code == 0 and not self.runs.whole():
            return 1, "ended with code 0 but wrote no result; a rank may have exited early"
        return code, in_words(code)

    def _try(self, signals: Signals) -> int:
        """Run once; the first signal is passed on to the job, and a second one kills it.

        A job whose ranks are lost is killed, too.
        """
        job = subprocess.Popen(
            self.words,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=dies_with(os.getpid()),
        )
        memory = SharedMemory()
        lost = 0
        try:
            while job.poll() is None:
                started = children() - self._others
                memory.note(started.union(*(children(pid, further=True) for pid in started)))
                lost = lost + 1 if has_lost_its_ranks(job.pid, self._others) else 0
                if lost == LOOKS:
                    complain(
                        f"launch: {self.words[0]} does not notice that its ranks have ended or have"
                        " been lost; it is killed"
                    )
                    os.killpg(job.pid, signal.SIGKILL)
                for number in signals.wait(LOOK):
                    if self._stop is not None:
                        os.killpg(job.pid, signal.SIGKILL)
                    else:
                        self._stop = number
                        # SIGHUP, from a closed terminal, ends the job gracefully as SIGTERM does
                        job.send_signal(
                            signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
                        )
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            kill_all_but(self._others)
            memory.remove()
        return job.returncode

    def _pause(self, signals: Signals, seconds: float) -> None:
        """Wait, unless a signal comes."""
        end = monotonic() + seconds
        while self._stop is None and (left := end - monotonic()) > 0:
            self._stop = next(iter(signals.wait(left)), None)


class Signals:
    """Context manager that queues the signals that ask this process to end."""

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old: dict[int, Any] = {}
        for number in (*STOPS, signal.SIGCHLD):
            # a signal that is ignored, as under nohup, stays ignored
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                self._old[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float | None) -> list[int]:
        """Wait for any signal, including the end of a child; returns those of ``STOPS``.

        Args:
            seconds: The longest wait; None waits without limit.
        """
        select.select([self._read], [], [], seconds)
        with suppress(BlockingIOError):
            return [number for number in os.read(self._read, 64) if number in STOPS]
        return []


def in_words(code: int) -> str:
    """How a process ended; mpiexec returns the number of the signal that killed a rank."""
    if code == 0:
        return "succeeded"
    number = -code if code < 0 else code - 128 if code > 128 and code not in FINAL else code
    name = next((s.name for s in signal.Signals if s == number), "")
    if code < 0 or (number != code and name):
        return f"was killed by {name or number}"
    if code == PREEMPTED:
        return "was pre-empted (code 75)"
    return f"ended with code {code}" + f" (a rank was killed by {name})" * (
        2 < code < 32 and bool(name)
    )
