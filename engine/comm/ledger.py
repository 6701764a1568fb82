"""Where the time of one rank goes: seconds, waiting, bytes and messages, stage by stage.

Always on. Time belongs to exactly one bucket at any moment: a stage, or the waiting done inside a
stage. Changing bucket costs one clock read, so a ``with`` block costs two, and the sum of all
buckets is the time since the ledger was made: nothing is counted twice and nothing is lost.

The same intervals are counted a second time by the part of a batch that they belong to: a layer
forward or backward, the update, or the rest. Each batch has a record of its parts. Records of
several ranks are compared at the end of a run; they hold durations, because clocks differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from .event_log import MARK, SPAN, EventLog

STAGES = ("transform", "move", "gather", "apply", "reduce", "batch", "fetch", "evaluate", "other")
FIELDS = ("seconds", "wait", "bytes", "messages")

# the layer and what is done there, of time in a batch
Part = tuple[str, str]
REST: Part = ("", "rest")
UPDATE: Part = ("", "update")
# latest batches of which records are kept
MOST_BATCHES = 100_000

Snapshot = dict[str, dict[str, float]]
# number of a batch; seconds and waiting of each of its parts
BatchRecord = tuple[int, dict[Part, tuple[float, float]]]


class _Bucket:
    """A reusable ``with`` block that counts time under one field of one stage."""

    __slots__ = ("_field", "_ledger", "_stage")

    def __init__(self, ledger: Ledger, stage: str | None, field: str) -> None:
        self._ledger = ledger
        self._stage = stage
        self._field = field

    def __enter__(self) -> None:
        ledger = self._ledger
        ledger._book()
        ledger._outer.append((ledger.current, ledger._field, ledger._since))
        # waiting has no stage of its own: it is counted under the current stage
        if self._stage is not None:
            ledger.current = self._stage
        ledger._field = self._field

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ledger._exit()


class Ledger:
    """The account of one rank.

    Example:
        >>> ledger = Ledger()
        >>> before = ledger.snapshot()
        >>> with ledger.stage("gather"):
        ...     ledger.sent(800)
        >>> ledger.since(before)["gather"]["bytes"]
        800

    Attributes:
        current: Stage for which time and messages are counted; "other" outside of all ``with``
            blocks.
        event_log: Stores every interval as an event, or None.
        row: Row of these events in the timeline.
    """

    def __init__(self) -> None:
        self._books: Snapshot = {
            stage: {"seconds": 0.0, "wait": 0.0, "bytes": 0, "messages": 0} for stage in STAGES
        }
        self._stages = {stage: _Bucket(self, stage, "seconds") for stage in STAGES}
        self._waiting = _Bucket(self, None, "wait")
        self._sent_to: dict[int, list[int]] = {}
        self._outer: list[tuple[str, str, float]] = []
        self._parts: dict[Part, dict[str, float]] = {REST: {"seconds": 0.0, "wait": 0.0}}
        self._of_part = self._parts[REST]
        self._batches: deque[BatchRecord] = deque(maxlen=MOST_BATCHES)
        self.current = "other"
        self.event_log: EventLog | None = None
        self.row = "main"
        self._field = "seconds"
        self._since = perf_counter()
        self._running = True
        self._branches: list[Ledger] = []

    def stage(self, name: str) -> _Bucket:
        """A ``with`` block whose time belongs to stage ``name``, except that of stages inside it.

        Args:
            name: One of ``STAGES``.

        Returns:
            The context manager.

        Raises:
            KeyError: If there is no such stage.
        """
        return self._stages[name]

    def waiting(self) -> _Bucket:
        """A ``with`` block whose time counts as waiting, not as seconds of the stage around it."""
        return self._waiting

    def switch(self, part: Part) -> None:
        """Count time under a part of a batch from now on."""
        self._book()
        book = self._parts.get(part)
        if book is None:
            book = self._parts[part] = {"seconds": 0.0, "wait": 0.0}
        self._of_part = book

    @contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """A ``with`` block whose time belongs to a part of a batch, besides its stages."""
        outer = self._of_part
        self.switch(part)
        try:
            yield
        finally:
            self._book()
            self._of_part = outer

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """A ``with`` block that is one batch, of which a record is kept.

        Args:
            number: Of the batch, the same on all ranks.
        """
        self.switch(REST)
        for book in self._parts.values():
            book["seconds"] = 0.0
            book["wait"] = 0.0
        yield
        self.switch(REST)
        times = {part: (book["seconds"], book["wait"]) for part, book in self._parts.items()}
        self._batches.append((number, times))

    def batches(self, first: int = 0) -> list[BatchRecord]:
        """The records of the latest batches, of this ledger and its branches, by number.

        Args:
            first: Number of the first batch that is wanted.
        """
        records = [*self._batches, *(x for branch in self._branches for x in branch._batches)]
        records.sort(key=lambda record: record[0])
        return [record for record in records if record[0] >= first][-MOST_BATCHES:]

    def sent(self, n_bytes: int, messages: int = 1) -> None:
        """Count messages that this rank sends, under the current stage.

        Args:
            n_bytes: Bytes of payload.
            messages: Number of messages.
        """
        book = self._books[self.current]
        book["bytes"] += n_bytes
        book["messages"] += messages

    def sent_to(self, rank: int, n_bytes: int) -> None:
        """Count a message to another rank, under the current stage and under that rank.

        Args:
            rank: Rank that receives it.
            n_bytes: Bytes of payload.
        """
        self.sent(n_bytes)
        book = self._sent_to.setdefault(rank, [0, 0])
        book[0] += n_bytes
        book[1] += 1

    def receivers(self, size: int) -> np.ndarray:
        """Bytes and messages sent to each rank since the ledger was made, int64 [size, 2];
        collectives are not among them.
        """
        sent = np.array([self._sent_to.get(rank, (0, 0)) for rank in range(size)], np.int64)
        return sum((branch.receivers(size) for branch in self._branches), sent)

    def record(self, event_log: EventLog | None) -> None:
        """Store intervals of this ledger and its branches in an event log; None stops."""
        self.event_log = event_log
        for branch in self._branches:
            branch.record(event_log)

    def span(self, name: str, **args: Any) -> AbstractContextManager[None]:
        """A ``with`` block that is one bar of the timeline, around the stages inside it.

        Args:
            name: Label of the bar, such as "forward".
            **args: Further values to show, such as the step or the version of the parameters.
        """
        return (
            nullcontext() if self.event_log is None else self.event_log.span(self.row, name, args)
        )

    def mark(self, name: str) -> None:
        """Mark the current moment on the timeline."""
        if self.event_log is not None:
            now = perf_counter()
            self.event_log.add(
                kind=MARK, row=self.row, category="mark", name=name, began=now, ended=now
            )

    def branch(self) -> Ledger:
        """A paused ledger for another thread; snapshots of this ledger include it."""
        branch = Ledger()
        branch._running = False
        branch.event_log = self.event_log
        branch.row = f"channel {len(self._branches) + 1}"
        self._branches.append(branch)
        return branch

    def pause(self) -> None:
        """Stop counting time."""
        self._book()
        self._running = False

    def resume(self) -> None:
        """Count time again from now on."""
        self._since = perf_counter()
        self._running = True

    def snapshot(self) -> Snapshot:
        """All counters since the ledger was made.

        Returns:
            ``{stage: {"seconds", "wait", "bytes", "messages"}}``, a copy that later work does not
            change.
        """
        if self._running:
            self._book()
        parts = [self._books, *(branch.snapshot() for branch in self._branches)]
        return {
            stage: {field: sum(part[stage][field] for part in parts) for field in FIELDS}
            for stage in STAGES
        }

    def since(self, snapshot: Snapshot) -> Snapshot:
        """All counters since ``snapshot`` was taken.

        Args:
            snapshot: What ``snapshot()`` returned earlier.

        Returns:
            The differences, in the same form.
        """
        now = self.snapshot()
        return {
            stage: {field: book[field] - snapshot[stage][field] for field in FIELDS}
            for stage, book in now.items()
        }

    def _book(self) -> None:
        now = perf_counter()
        passed = now - self._since
        self._books[self.current][self._field] += passed
        self._of_part[self._field] += passed
        self._since = now

    def _exit(self) -> None:
        self._book()
        stage = self.current
        field = self._field
        self.current, self._field, began = self._outer.pop()
        if self.event_log is not None:
            waits = field == "wait"
            self.event_log.add(
                kind=SPAN,
                row=self.row,
                category="wait" if waits else "stage",
                name="wait" if waits else stage,
                began=began,
                ended=self._since,
                args={"stage": stage} if waits else None,
            )
