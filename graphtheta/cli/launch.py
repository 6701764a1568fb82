"""The command ``launch``: starts a command on several ranks, and starts it again from its last good checkpoint when it fails.

No process of a job outlives its launch. The job is a session of its own, so that a terminal's Ctrl-C reaches it once,
through here; it is killed when this process dies (``PR_SET_PDEATHSIG``; mpiexec's helpers kill the ranks of every host
once it is gone); and what a job leaves behind becomes a child of this process (``PR_SET_CHILD_SUBREAPER``), which kills
it before the next try, so that two tries never write to one folder.
"""
from __future__ import annotations

import ctypes
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import SimpleNamespace, TracebackType
from typing import Any

from graphtheta.cli.doctor import GET_MPI, find_mpiexec
from graphtheta.console import complain
from graphtheta.engine.runtime.start import launched
from graphtheta.errors import ConfigError
from graphtheta.job.flag import Parser
from graphtheta.job.job import Job
from graphtheta.recovery.checkpoint import CHECKPOINTS, steps_in
from graphtheta.recovery.stopping import INTERRUPTED, PREEMPTED
from graphtheta.reports.runlog import RESULT_FILE
from graphtheta.wording import did_you_mean

COMMANDS = ("train", "evaluate", "predict")
# a restart changes nothing about: success, words that cannot be understood, Ctrl-C, output that nobody reads
FINAL = (0, 2, INTERRUPTED, 141)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_PAUSE = 60.0
# of linux/prctl.h
_PDEATHSIG, _SUBREAPER = 1, 36


def launch(argv: list[str]) -> int:
    """Run a command on several ranks until it succeeds, cannot, or is stopped.

    Args:
        argv: Own flags, then the command and its flags.

    Returns:
        Exit code of the last try; 75 if this process was asked to end (SIGTERM), 130 after Ctrl-C.

    Raises:
        ConfigError: The words cannot be understood, or there is no MPI for several ranks.
    """
    parser = Parser("launch", "Run a command on several ranks. A training run that fails is restarted from its newest intact checkpoint, "
                    "after a pause of 1, 2, 4 ... at most 60 s; the count of restarts is reset once an attempt has "
                    "written a newer checkpoint.",
                    "graphtheta launch -n 4 --max-restarts 3 train --dataset cora --checkpoint-every 50",
                    "[-n N] [--max-restarts N] [--mpiexec WORDS] {" + ",".join(COMMANDS) + ",SCRIPT.py} ")
    parser.add_argument("-n", dest="ranks", type=int, default=1, metavar="N", help="number of ranks; one rank runs without MPI [1]")
    parser.add_argument("--max-restarts", type=int, default=3, metavar="N",
                        help="largest number of restarts in a row without a newer checkpoint [3]")
    parser.add_argument("--mpiexec", metavar="WORDS", help='command that starts the ranks, such as "mpiexec -f hosts" or "srun --mpi=pmi2" '
                        "[mpiexec of this environment]")
    parser.add_argument("words", nargs="...", metavar="COMMAND",
                        help="command to run, with its flags; your own script is restarted with the same arguments")
    options, _ = parser.read(argv)
    if launched()[1] > 1:
        raise ConfigError("graphtheta launch starts the ranks itself; run it without mpiexec or srun in front of it")
    for name, value, least in (("-n", options.ranks, 1), ("--max-restarts", options.max_restarts, 0)):
        if value < least:
            raise ConfigError(f"{name}: got {value}, expected at least {least}")
    program, runs = program_of(options.words)
    return Restarts(starter(options) + program, options.max_restarts, runs).run()


@dataclass(frozen=True)
class Runs:
    """Folders that a training leaves, one for each seed; none for other commands, of which no more is known than their code."""

    folders: tuple[Path, ...] = ()

    def step(self) -> int:
        """Steps of the newest checkpoints, added up."""
        return sum(found[0][0] for folder in self.folders if (found := steps_in(folder / CHECKPOINTS)))

    def whole(self) -> bool:
        """Whether results are there, which are written last; mpiexec calls it a success if a rank leaves without a word."""
        return all((folder / RESULT_FILE).is_file() for folder in self.folders)


def program_of(words: list[str]) -> tuple[list[str], Runs]:
    """What each rank runs, and what that leaves.

    Args:
        words: The command and its flags.

    Raises:
        ConfigError: There is no such command; or the job cannot be understood, before anything is started.
    """
    if not words:
        raise ConfigError(f"expected a command to run ({', '.join(COMMANDS)}) or a script; see graphtheta launch --help")
    command, rest = words[0], words[1:]
    if command.endswith(".py"):
        if not Path(command).is_file():
            raise ConfigError(f"{command}: the script does not exist; check the path")
        return [sys.executable, command, *rest], Runs()
    if command not in COMMANDS:
        raise ConfigError(f"graphtheta launch cannot run '{command}'{did_you_mean(command, COMMANDS)}; it runs {', '.join(COMMANDS)} "
                          "or a script whose name ends in .py")
    program = [sys.executable, "-m", "graphtheta", command, *rest]
    if command != "train":
        return program, Runs()
    parser = Parser("train", "Train a model.", "graphtheta launch -n 4 train --dataset cora")
    parser.add_job_keys()
    job = Job(**parser.read(rest)[1])
    seeds = range(job.seed, job.seed + job.seeds) if job.seeds > 1 else ()
    return [*program, "--resume"], Runs(tuple(job.folder / f"seed-{seed}" for seed in seeds) or (job.folder,))


def starter(options: SimpleNamespace) -> list[str]:
    """The words in front of the program.

    Raises:
        ConfigError: What should start the ranks is not there.
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
    # as the default is: that of this environment, also where it is not activated
    found = shutil.which(words[0], path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}") if words else None
    if found is None:
        raise ConfigError(f"--mpiexec {options.mpiexec!r}: the program is not found on PATH")
    return [found, *words[1:], "-n", str(options.ranks)]


class Restarts:
    """Tries of one program, one after another.

    Args:
        words: The program.
        most: Restarts without progress between them.
        runs: What they leave.
    """

    def __init__(self, words: list[str], most: int, runs: Runs):
        self.words, self.most, self.runs = words, most, runs
        self._stop: int | None = None
        self._others = children()

    def run(self) -> int:
        """Try until a try succeeds, cannot, or is stopped; returns the exit code."""
        prctl(_SUBREAPER, 1)
        before, tries, in_vain = self.runs.step(), 0, 0
        with Signals() as signals:
            while True:
                tries += 1
                began = monotonic()
                code, how = self._ended(signals)
                step = self.runs.step()
                in_vain = 1 if step > before else in_vain + 1
                before = step
                at = f", last checkpoint at step {step}" * (step > 0)
                told = f"launch: try {tries} {how} after {monotonic() - began:.0f} s{at}"
                if code == 0 or (self._stop is None and code in FINAL):
                    if tries > 1 or code:
                        complain(told)
                    return code
                if self._stop is None and in_vain > self.most:
                    vain = f"; gave up: no newer checkpoint after {self.most} restart{'s' * (self.most > 1)}"
                    complain(told + vain * (self.most > 0))
                    return 128 - code if code < 0 else code
                if self._stop is None:
                    pause = min(2.0 ** (in_vain - 1), LONGEST_PAUSE)
                    complain(f"{told}; restart {in_vain} of {self.most} in {pause:.0f} s")
                    self._pause(signals, pause)
                if self._stop is not None:
                    name = signal.Signals(self._stop).name
                    complain(f"launch: stopped by {name} in try {tries}{at}; run the same command again to resume")
                    return INTERRUPTED if self._stop == signal.SIGINT else PREEMPTED

    def _ended(self, signals: Signals) -> tuple[int, str]:
        """Run once; the exit code, and what it means."""
        code = self._try(signals)
        if code == 0 and not self.runs.whole():
            return 1, "ended with code 0 but wrote no result; a rank may have exited early"
        return code, in_words(code)

    def _try(self, signals: Signals) -> int:
        """Run once; the first signal is passed on, so that the job ends by itself, and a second one kills it."""
        job = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=dies_with(os.getpid()))
        try:
            while job.poll() is None:
                for number in signals.wait(None):
                    if self._stop is not None:
                        os.killpg(job.pid, signal.SIGKILL)
                    else:
                        self._stop = number
                        # a closed terminal is a reason to end in good order too
                        job.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            kill_all_but(self._others)
        return job.returncode

    def _pause(self, signals: Signals, seconds: float) -> None:
        """Wait, unless a signal comes."""
        end = monotonic() + seconds
        while self._stop is None and (left := end - monotonic()) > 0:
            self._stop = next(iter(signals.wait(left)), None)


class Signals:
    """Signals that ask this process to end, read one at a time; to be used as a ``with`` block."""

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old: dict[int, Any] = {}
        for number in (*STOPS, signal.SIGCHLD):
            # a signal that is ignored, as nohup does it, stays so
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                self._old[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float | None) -> list[int]:
        """Signals of ``STOPS`` that came; returns as soon as any signal has come, the end of a child among them.

        Args:
            seconds: The longest wait; None for ever.
        """
        select.select([self._read], [], [], seconds)
        with suppress(BlockingIOError):
            return [number for number in os.read(self._read, 64) if number in STOPS]
        return []


def in_words(code: int) -> str:
    """How a process ended. mpiexec gives the number of the signal that killed a rank as its own code."""
    if code == 0:
        return "succeeded"
    number = -code if code < 0 else code - 128 if code > 128 and code not in FINAL else code
    name = next((s.name for s in signal.Signals if s == number), "")
    if code < 0 or (number != code and name):
        return f"was killed by {name or number}"
    if code == PREEMPTED:
        return "was pre-empted (code 75)"
    return f"ended with code {code}" + f" (a rank was killed by {name})" * (2 < code < 32 and bool(name))


# ---- processes


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where the system is Linux."""
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)


def dies_with(parent: int) -> Callable[[], None]:
    """What a new child runs before its program, so that it is killed when its parent dies."""
    def ask() -> None:
        prctl(_PDEATHSIG, signal.SIGKILL)
        # the parent may have died before the question
        if os.getppid() != parent:
            os._exit(1)

    return ask


def children() -> set[int]:
    """Children of this process; none where the system does not tell."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, listed.read_text(encoding="ascii").split())) if listed.exists() else set()


def kill_all_but(others: set[int]) -> None:
    """Kill all other children, which are what a job left behind; returns when they are gone."""
    while left := children() - others:
        for pid in left:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


_LIBC = ctypes.CDLL(None)
