"""Kills a rank of a job at a random moment, and resumes the job on a random number of ranks.

    python bench/kills.py           200 runs
    python bench/kills.py --runs 10 --seed 7
    python bench/kills.py --reuse   jobs with stale exchange, histories, caches and macrobatches

A run is a training of 2 or 3 ranks with drawn keys. One rank gets SIGKILL at a drawn moment: while
the job starts, while it trains (moves, collectives and the steps between them), or as soon as a
checkpoint is being written. Then all processes must end, and the newest checkpoint that exists must
be valid. A second job resumes from it, half of the time on as many ranks with the same partition,
otherwise on 1 to 4 ranks with any edge placement. Its final state must be that of a job that was
never interrupted: in the first case all arrays and the history to the bit, in the second case the
parameters to rounding. Jobs whose numbers depend on the partition, or that hold values by
partition, resume as they were.

"reached" is the last step that the killed job reported, and "lost" the number of steps that were
done again. "late" are the seconds from the step of the next checkpoint, which was not on disk yet,
to the kill. "ended" are the seconds from the kill to the end of all processes. "difference" is the
largest of any parameter, relative to the largest number of its array.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from harness import machine, say, table
from kill_plan import Plan

from graphtheta.cli.doctor import find_mpiexec
from graphtheta.run.checkpoints.checkpoint import (
    ASIDE,
    CHECKPOINTS,
    Checkpoint,
    newest_good,
    steps_in,
)
from graphtheta.run.job.run_files import METRICS_FILE

# seconds: until all processes of a job must have ended, until a checkpoint must be on disk, until a
# job is given up
ENDED = 10.0
LATE = 2.0
PATIENCE = 120.0
# of parameters after as many steps on another number of ranks
ROUNDING = 1e-8
COLUMNS = [
    "run",
    "strategy",
    "reuse",
    "partitioner",
    "staleness",
    "in flight",
    "ranks",
    "link",
    "every",
    "aim",
    "killed",
    "writing",
    "reached",
    "resumed",
    "lost",
    "late",
    "ended",
    "then",
    "difference",
    "note",
]


@dataclass
class Running:
    """A job whose processes can all be found."""

    ranks: int
    words: list[str]
    link: str = ""
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        # one thread each, so that ranks do not take turns on the cores more than they have to
        variables = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
            "GRAPHTHETA_BENCH_TAG": self.tag,
            "GRAPHTHETA_LINK": self.link,
        }
        front = [str(find_mpiexec()), "-n", str(self.ranks)] if self.ranks > 1 else []
        self.output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by said)
        self.process = subprocess.Popen(
            [*front, sys.executable, "-m", "graphtheta", *self.words],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.began = monotonic()

    def processes(self) -> dict[int, int]:
        """Ranks of the processes that live, -1 for helpers."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environ = (path / "environ").read_bytes().split(b"\0")
                dead = (path / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if f"GRAPHTHETA_BENCH_TAG={self.tag}".encode() in environ and not dead:
                rank = next(
                    (int(x[9:]) for x in environ if x.startswith(b"PMI_RANK=")),
                    -1 if self.ranks > 1 else 0,
                )
                found[int(path.name)] = rank
        return found

    def wait(self) -> int:
        """Let it come to its end; its exit code."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill_all()
            return self.process.wait()

    def seconds_to_end(self) -> float:
        """Wait until no process is left; the rest is killed after a time that is too long."""
        began = monotonic()
        while self.processes():
            if monotonic() - began > 3 * ENDED:
                self.kill_all()
            self.process.poll()
            sleep(0.02)
        self.process.wait()
        return monotonic() - began

    def kill_all(self) -> None:
        """Kill what is left."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def said(self) -> str:
        """All it printed."""
        self.output.seek(0)
        text = self.output.read()
        self.output.close()
        return text


@dataclass
class Reference:
    """A job that was never interrupted: its last checkpoint, and the seconds until its first step
    was told.
    """

    state: Checkpoint
    start: float


def reference(plan: Plan, folder: Path, steps: int) -> Reference:
    """Run the job of a plan to its end.

    Raises:
        RuntimeError: It fails.
    """
    job = Running(plan.ranks, plan.words(folder, steps, "--partitioner", plan.partitioner))
    while job.process.poll() is None and not reached(folder):
        sleep(0.005)
    start = monotonic() - job.began
    code = job.wait()
    text = job.said()
    state = newest_good(folder / CHECKPOINTS, say)
    if code or state is None:
        raise RuntimeError(f"{plan}: code {code}: {text[-2000:]}")
    return Reference(state, start)


def strike(plan: Plan, job: Running, folder: Path, start: float, steps: int) -> Moments | None:
    """Wait for the moment and kill the rank; returns how far the job was, None if it ended before
    the moment came.

    Args:
        plan: Says what to aim at; its moment is a part of ``start``, of the steps, or of the first
            checkpoints.
        job: All its processes.
        folder: Of the run.
        start: Seconds it takes to start.
        steps: Of the job.
    """
    now = Moments(job, folder)
    seen = 0
    last = ""
    while job.process.poll() is None:
        pid = now.pid_of(plan.rank)
        if plan.aim == "start":
            come = now.elapsed >= plan.moment * start or now.step > 0
        elif plan.aim == "training":
            # the moment lies between two rows of metrics
            come = (
                now.step >= plan.moment * steps and now.since_row >= plan.within * now.row_seconds
            )
        else:
            new = next(
                (
                    name
                    for name in _names(folder / CHECKPOINTS)
                    if name.startswith(ASIDE) and name != last
                ),
                "",
            )
            seen = seen + bool(new)
            last = new or last
            come = seen > plan.moment * min(8, steps // plan.every)
        if come and pid:
            os.kill(pid, signal.SIGKILL)
            return now
        # to look for the process takes longer than this pause
        sleep(0.0005 if pid else 0.02)
    return None


class Moments:
    """How far a job is."""

    def __init__(self, job: Running, folder: Path):
        self._job = job
        self._folder = folder
        self._size = 0
        self._step = 0
        self._rows: list[float] = []
        self._steps: list[int] = []
        self._pids: dict[int, int] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since it was started."""
        return monotonic() - self._job.began

    @property
    def step(self) -> int:
        """The last step it told."""
        file = self._folder / METRICS_FILE
        size = file.stat().st_size if file.exists() else 0
        if size != self._size:
            self._size, self._step = size, reached(self._folder)
            self._rows.append(self.elapsed)
            self._steps.append(self._step)
        return self._step

    def since(self, step: int) -> float:
        """Seconds since it told this step or one after it; 0 if it did not yet."""
        return max(
            (self.elapsed - t for t, s in zip(self._rows, self._steps, strict=True) if s >= step),
            default=0.0,
        )

    @property
    def since_row(self) -> float:
        """Seconds since it last told one."""
        return self.elapsed - self._rows[-1] if self._rows else 0.0

    @property
    def row_seconds(self) -> float:
        """Seconds from one to the next."""
        return (
            (self._rows[-1] - self._rows[0]) / (len(self._rows) - 1) if len(self._rows) > 1 else 0.0
        )

    def pid_of(self, rank: int) -> int | None:
        """The process of a rank, once it is there; looked for once, since that takes longer than a
        write.
        """
        if rank not in self._pids:
            self._pids = {other: pid for pid, other in self._job.processes().items()}
        return self._pids.get(rank)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def reached(folder: Path) -> int:
    """The last step of which there is a whole row of metrics."""
    step = 0
    for line in (
        (folder / METRICS_FILE).read_text().splitlines() if (folder / METRICS_FILE).exists() else ()
    ):
        try:
            step = json.loads(line)["step"]
        except ValueError:
            break
    return step


def compare(plan: Plan, mine: Checkpoint, theirs: Checkpoint) -> tuple[float, str]:
    """The largest relative difference of parameters, and what is wrong."""
    names = [name for name in theirs.arrays if name.startswith("model/")]
    worst = max(
        float(np.abs(mine.arrays[n] - theirs.arrays[n]).max() / np.abs(theirs.arrays[n]).max())
        for n in names
    )
    if not plan.goes_on_as_it_was:
        return worst, "" if worst <= ROUNDING else "parameters differ by more than rounding"
    differ = [
        n
        for n in theirs.arrays
        if n not in mine.arrays or mine.arrays[n].tobytes() != theirs.arrays[n].tobytes()
    ]
    losses = [[row["loss"] for row in c.manifest.progress.history] for c in (mine, theirs)]
    wrong = [*differ, *(["the history of losses"] if losses[0] != losses[1] else [])]
    wrong += [
        name
        for name in ("step", "counters")
        if getattr(mine.manifest, name) != getattr(theirs.manifest, name)
    ]
    return worst, f"not to the bit: {', '.join(wrong[:3])}" if wrong else ""


def one(
    run: int, plan: Plan, folder: Path, steps: int, usual: Reference, start: float
) -> dict[str, Any]:
    """A row of the table: kill, look at what is left, go on, compare."""
    faults = []
    job = Running(
        plan.ranks,
        plan.words(
            folder, steps, "--partitioner", plan.partitioner, "--views-in-flight", plan.in_flight
        ),
        plan.link,
    )
    killed = strike(plan, job, folder, start, steps)
    died = monotonic()
    ended = job.seconds_to_end()
    text = job.said()
    if killed and ended > ENDED:
        faults.append(f"processes lived for {ended:.0f} s")
    there = [step for step, _ in steps_in(folder / CHECKPOINTS)]
    if killed and not job.process.returncode and there[:1] != [steps]:
        faults.append("exit code 0")
    told: list[str] = []
    good = newest_good(folder / CHECKPOINTS, told.append)
    resumed = good.manifest.step if good else 0
    if there and resumed != there[0]:
        faults.append(f"the newest checkpoint is damaged: {told[0]}")
    far = reached(folder)
    writing = any(name.startswith(ASIDE) for name in _names(folder / CHECKPOINTS))
    late = max(0.0, killed.since(resumed + plan.every) - (monotonic() - died)) if killed else 0.0
    if late > LATE:
        faults.append(
            f"the checkpoint of step {resumed + plan.every} was not there after {late:.1f} s"
        )
    then = Running(
        plan.then_ranks,
        plan.words(folder, steps, "--partitioner", plan.then_partitioner, "--resume"),
    )
    code = then.wait()
    more = then.said()
    difference = None
    last = newest_good(folder / CHECKPOINTS, told.append)
    if code or last is None or last.manifest.step != steps:
        faults.append(f"resumed with code {code}: {(more or text)[-500:]}")
    else:
        difference, wrong = compare(plan, last, usual.state)
        faults += [wrong] * bool(wrong)
    return {
        "run": run,
        "strategy": plan.strategy,
        "reuse": plan.reuse,
        "partitioner": plan.partitioner,
        "staleness": plan.staleness,
        "in flight": plan.in_flight,
        "ranks": plan.ranks,
        "link": plan.link,
        "every": plan.every,
        "aim": plan.aim,
        "killed": str(plan.rank) if killed else "at its end",
        "writing": "yes" if writing else "",
        "reached": far,
        "resumed": resumed,
        "lost": max(0, far - resumed),
        "late": late,
        "ended": ended,
        "then": f"{plan.then_ranks} {plan.then_partitioner}",
        "same": plan.goes_on_as_it_was,
        "difference": difference,
        "note": "; ".join(faults),
    }


def findings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures over all runs."""
    same = [row for row in rows if row["same"]]
    other = [row for row in rows if not row["same"]]
    hit = [row for row in rows if row["killed"] != "at its end"]
    figures = {
        "runs": str(len(rows)),
        "killed before their end": str(len(hit)),
        "while a checkpoint was being written": str(sum(row["writing"] == "yes" for row in hit)),
        "resumed as they were": str(len(same)),
        "of these equal to the bit": str(
            sum(not row["note"] and row["difference"] == 0 for row in same)
        ),
        "resumed in another way": str(len(other)),
        "largest difference of these": max(
            (row["difference"] for row in other if row["difference"] is not None), default=None
        ),
        "seconds to the end of all processes, most": max(
            (row["ended"] for row in hit), default=None
        ),
        "steps lost, most": str(max((row["lost"] for row in hit), default=0)),
        "seconds a checkpoint was late, most": max((row["late"] for row in hit), default=None),
        "runs with a fault": str(sum(bool(row["note"]) for row in rows)),
    }
    return [{"finding": name, "value": value} for name, value in figures.items()]


def write(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """Add rows to the file of results, if there is one."""
    if path:
        with path.open("a", encoding="utf-8") as f:
            f.writelines(
                json.dumps({"bench": "kills", **row, "machine": machine()}) + "\n" for row in rows
            )


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    options.add_argument(
        "--reuse", action="store_true", help="jobs that reuse values, features or expansions"
    )
    options.add_argument("--steps", type=int, default=200, help="of a job; 200")
    options.add_argument("--out", type=Path, help="JSON lines, one per run")
    options = options.parse_args()
    rows: list[dict[str, Any]] = []
    references: dict[tuple[object, ...], Reference] = {}
    with tempfile.TemporaryDirectory() as work:
        for run in range(options.runs):
            plan = Plan.draw(run, options.seed, options.reuse)
            if plan.numbers not in references:
                references[plan.numbers] = reference(
                    plan, Path(work, f"reference-{len(references)}"), options.steps
                )
            # the first of them compiled
            start = min(r.start for r in references.values())
            rows.append(
                one(
                    run=run,
                    plan=plan,
                    folder=Path(work, f"run-{run}"),
                    steps=options.steps,
                    usual=references[plan.numbers],
                    start=start,
                )
            )
            write(options.out, rows[-1:])
            say(f"run {run + 1} of {options.runs}: {rows[-1]['note'] or 'good'}")
    found = findings(rows)
    print(table(rows, COLUMNS), "", table(found, ["finding", "value"]), sep="\n", flush=True)
    write(options.out, found)
    return int(any(row["note"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
