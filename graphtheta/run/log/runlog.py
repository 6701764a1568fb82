"""Writes the output folder of a run: metrics as JSON lines, job and profile."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from graphtheta.base.atomic import atomic_file, file_errors, make_folder, remove_file, started_file
from graphtheta.base.console import amount, figure, say, table
from graphtheta.base.memory import peak_bytes
from graphtheta.base.strict_json import to_json
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.ledger import REST, STAGES, UPDATE
from graphtheta.engine.runtime.timeline import TRACE_FILE, files_of
from graphtheta.run.checkpoints.run_folder import BEGINNING_OF
from graphtheta.run.checkpoints.weights import WEIGHTS
from graphtheta.run.job.job import Job
from graphtheta.run.job.keyfile import JOB_FILE
from graphtheta.run.job.run_files import METRICS_FILE, PREDICTIONS_FILE, PROFILE_FILE, RESULT_FILE
from graphtheta.run.log.profile import LISTED, Batches, Book, Profile
from graphtheta.run.log.shown import Shown, Wish

FIELDS = ("seconds", "wait", "bytes", "messages")
# parts of a batch that are listed after those of layers
LAST = (UPDATE, REST)


class RunLog:
    """Context manager that records and shows a row per evaluated epoch.

    Args:
        job: Gives the folder and the number of epochs.
        comm: All ranks; only rank 0 writes and prints.
        metric: Metric to show, such as accuracy.
        wish: What to show while training; see ``Shown``.

    Attributes:
        rows: One per evaluated epoch of the run.
        begun: Whether training has begun; False if there is nothing to train.
        written: Whether the run was written; False for one that had finished before.
    """

    def __init__(self, job: Job, comm: Comm, metric: str, wish: Wish = None):
        self.job = job
        self.comm = comm
        self.rows: list[dict[str, Any]] = []
        self.begun = False
        self.written = False
        # number of rows of an earlier process, whose times are excluded
        self._earlier = 0
        self._times = np.zeros((comm.size, len(STAGES), len(FIELDS)))
        self._file: BinaryIO | None = None
        self._shown = Shown(job, comm, metric, wish)
        self._before = comm.ledger.snapshot()
        self._sent = self._sent_before = comm.ledger.receivers(comm.size)
        self._clock = self._clock_before = perf_counter()
        # number of the first batch after the first evaluated epoch
        self._first_batch = 0
        self._batches: Batches | None = None

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Begin the log, or continue it after the rows of ``history``; replaces other runs.

        Raises:
            FormatError: The folder cannot be written; on all ranks together.

        Collective: all ranks of comm.
        """
        job = self.job
        self.begun = True
        self.rows = list(history)
        self._earlier = len(history)
        where = file_errors(job.folder, "the folder for results", "choose another with --out")
        with self.comm.agreed(), where:
            if self.comm.rank == 0:
                make_folder(job.folder)
                # results of an earlier run must not pass for this one's if it does not finish
                for name in (RESULT_FILE, PROFILE_FILE, WEIGHTS, PREDICTIONS_FILE):
                    remove_file(job.folder / name, BEGINNING_OF[name])
                for timeline in files_of(job.folder / TRACE_FILE):
                    remove_file(timeline, BEGINNING_OF[TRACE_FILE])
                with atomic_file(job.folder / JOB_FILE, BEGINNING_OF[JOB_FILE]) as file:
                    # the keys of the run, and not how this part of it was begun
                    keys = job.change(resume=False, overwrite=False)
                    file.write(keys.to_yaml().encode())
                self._file = started_file(job.folder / METRICS_FILE, BEGINNING_OF[METRICS_FILE])
                self._write(history)
        self._shown.begin(history)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shown.close()
        if self._file is not None:
            # what a full disk refused has been reported already
            with suppress(OSError):
                self._file.close()

    def finish(self) -> None:
        """Show where the time went; does nothing if no epoch was run."""
        if self.comm.rank == 0 and self._new:
            self._shown.close()
            say(self.time_table())
            if self._batches is not None:
                say(f"\ntime per batch\n{table(*self._batches.table())}")
                if self.comm.size > 1:
                    say(self._batches.text())

    @property
    def _new(self) -> list[dict[str, Any]]:
        """Rows of this process."""
        return self.rows[self._earlier :]

    def epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """Record an evaluated epoch: epoch, step, loss, seconds and the metrics of each split.

        Returns:
            The time, traffic and messages of the epoch by stage, to be stored in the row.

        Raises:
            FormatError: The row cannot be written; on all ranks together.

        Collective: all ranks of comm.
        """
        since = self.comm.ledger.since(self._before)
        mine = np.array([[since[stage][name] for name in FIELDS] for stage in STAGES])
        ranks = np.stack(self.comm.all_gather(mine))
        self._before = self.comm.ledger.snapshot()
        # the first epoch makes plans and warms caches; it is not representative
        self._times = ranks if len(self._new) < 2 else self._times + ranks
        if len(self._new) == 1:
            self._sent_before = self._sent
            self._clock_before = self._clock
        self._sent = self.comm.ledger.receivers(self.comm.size)
        self._clock = perf_counter()
        if not self._new:
            self._first_batch = max((n for n, _ in self.comm.ledger.batches()), default=-1) + 1
        mean = ranks.mean(axis=0).tolist()
        times = {
            "time": {
                stage: dict(zip(FIELDS, values, strict=True))
                for stage, values in zip(STAGES, mean, strict=True)
            }
        }
        self.rows.append({**row, **times})
        self._shown.epoch(row)
        path = self.job.folder / METRICS_FILE
        remedy = "free disk space, and go on with --resume"
        with self.comm.agreed(), file_errors(path, "the metrics", remedy):
            if self._file is not None:
                self._write(self.rows[-1:])
        return times

    def _write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows to the file."""
        assert self._file is not None
        for row in rows:
            self._file.write((to_json(row) + "\n").encode())
        self._file.flush()

    def write_profile(self, predicted: int, fallbacks: list[str]) -> None:
        """Write the profile of all ranks; does nothing if no epoch was run.

        Args:
            predicted: Predicted peak memory of this rank, in bytes.
            fallbacks: Which layers run on the reference back end although the fused one is chosen,
                and why.

        Raises:
            FormatError: It cannot be written; on all ranks together.

        Collective: all ranks of comm.
        """
        self.written = True
        if not self._new:
            return
        self._batches = self._times_of_batches()
        sent = self._sent - self._sent_before
        most = np.argsort(-sent[:, 0], kind="stable")[:LISTED]
        most = most[sent[most, 1] > 0]
        largest = self.comm.gather_rows(
            np.stack((np.full(len(most), self.comm.rank), most, *sent[most].T), axis=1)
        )
        memory = np.array(
            self.comm.all_gather([predicted, peak_bytes(), *sent.sum(axis=0).tolist()])
        )
        with self.comm.agreed():
            if largest is None:
                return
            books = [
                Book(**dict(zip(FIELDS, times.T.tolist(), strict=True)))
                for times in self._times.swapaxes(0, 1)
            ]
            profile = Profile(
                ranks=self.comm.size,
                epochs=self._epochs(),
                steps=self.rows[-1]["step"],
                elapsed=self._clock - self._clock_before,
                first_left_out=len(self._new) > 1,
                stages=dict(zip(STAGES, books, strict=True)),
                sent=memory[:, 2:].tolist(),
                largest=np.concatenate(largest).tolist(),
                batches=self._batches,
                predicted=memory[:, 0].tolist(),
                measured=memory[:, 1].tolist(),
                fallbacks=fallbacks,
            )
            profile.write(self.job.folder / PROFILE_FILE)

    def _times_of_batches(self) -> Batches | None:
        """Times of the batches after the first evaluated epoch, on rank 0; None elsewhere, and
        without batches.

        Collective: all ranks of comm.
        """
        records = self.comm.ledger.batches(self._first_batch if len(self._new) > 1 else 0)
        parts = list(dict.fromkeys(part for _, times in records for part in times))
        # the rest is there before a layer
        parts = [part for part in parts if part not in LAST] + [p for p in LAST if p in parts]
        none = (0.0, 0.0)
        times = np.array(
            [[of.get(part, none) for part in parts] for _, of in records], np.float64
        ).reshape(len(records), len(parts), 2)
        every = self.comm.gather_rows(times)
        if every is None or not len(records):
            return None
        return Batches.of(parts, np.stack(every))

    def time_table(self) -> str:
        """Table of an epoch by stage: mean time, slowest rank, waiting, bytes, messages sent."""
        times = self._times / self._epochs()
        lines = [
            self._line(stage, times[:, i]) for i, stage in enumerate(STAGES) if times[:, i].any()
        ]
        which = (
            "per epoch, without the first" if len(self._new) > 1 else "per epoch, with the first"
        )
        return f"\ntime {which}\n" + table(
            ("stage", "mean ms", "slowest ms", "waiting ms", "sent", "messages"),
            [*lines, self._line("total", times.sum(axis=1))],
        )

    def _epochs(self) -> int:
        """Number of epochs that the accumulated times cover; a row may cover several."""
        rows = self._new
        before = (
            rows[0]
            if len(rows) > 1
            else self.rows[self._earlier - 1]
            if self._earlier
            else {"epoch": 0}
        )
        return max(1, int(rows[-1]["epoch"] - before["epoch"]))

    def _line(self, name: str, times: np.ndarray) -> tuple[str, ...]:
        """One line of the table from [n_ranks, n_fields]."""
        seconds, wait, n_bytes, messages = times.T
        busy = 1e3 * (seconds + wait)
        columns = [f"{x:.2f}" for x in (busy.mean(), busy.max(), 1e3 * wait.mean())]
        return name, *columns, amount(n_bytes.sum()), figure(round(messages.sum()))
