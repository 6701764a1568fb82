"""Where the time of one rank goes: seconds, waiting, bytes and messages, stage by stage.

Always on. Time belongs to exactly one bucket at any moment: a stage, or the waiting done inside a stage. Changing
bucket costs one clock read, so a ``with`` block costs two, and the sum of all buckets is the time since the ledger
was made: nothing is counted twice and nothing is lost.
"""
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from .event_log import MARK, SPAN, Trace

STAGES = ("transform", "move", "gather", "apply", "reduce", "batch", "evaluate", "other")
FIELDS = ("seconds", "wait", "bytes", "messages")

Snapshot = dict[str, dict[str, float]]


class _Bucket:
    """A reusable ``with`` block that books time under one field of one stage."""

    __slots__ = ("_field", "_ledger", "_stage")

    def __init__(self, ledger: Ledger, stage: str | None, field: str) -> None:
        self._ledger = ledger
        self._stage = stage
        self._field = field

    def __enter__(self) -> None:
        # waiting has no stage of its own: it is booked under the stage it happens in
        stage = self._ledger.current if self._stage is None else self._stage
        self._ledger._enter(stage, self._field)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
        current: Stage that time and messages are booked under now; "other" outside of every ``with`` block.
        trace: Where every booking becomes an event of a timeline, or None.
        row: The row of the timeline they go to.
    """

    def __init__(self) -> None:
        self._books: Snapshot = {stage: {"seconds": 0.0, "wait": 0.0, "bytes": 0, "messages": 0} for stage in STAGES}
        self._stages = {stage: _Bucket(self, stage, "seconds") for stage in STAGES}
        self._waiting = _Bucket(self, None, "wait")
        self._sent_to: dict[int, list[int]] = {}
        self._outer: list[tuple[str, str, float]] = []
        self.current = "other"
        self.trace: Trace | None = None
        self.row = "main"
        self._field = "seconds"
        self._since = perf_counter()
        self._running = True
        self._branches: list[Ledger] = []

    def stage(self, name: str) -> _Bucket:
        """A ``with`` block whose time belongs to stage ``name``; the time of blocks inside it is taken out.

        Args:
            name: One of ``STAGES``.

        Returns:
            The context manager.

        Raises:
            KeyError: If there is no such stage.
        """
        return self._stages[name]

    def waiting(self) -> _Bucket:
        """A ``with`` block that books its time as waiting, apart from the working seconds of the stage around it."""
        return self._waiting

    def sent(self, n_bytes: int, messages: int = 1) -> None:
        """Count what this rank sends under the current stage.

        Args:
            n_bytes: Bytes of payload.
            messages: Number of messages they go in.
        """
        book = self._books[self.current]
        book["bytes"] += n_bytes
        book["messages"] += messages

    def sent_to(self, rank: int, n_bytes: int) -> None:
        """Count a message to another rank, under the current stage and under that rank.

        Args:
            rank: Who receives it.
            n_bytes: Bytes of payload.
        """
        self.sent(n_bytes)
        book = self._sent_to.setdefault(rank, [0, 0])
        book[0] += n_bytes
        book[1] += 1

    def receivers(self, size: int) -> np.ndarray:
        """Bytes and messages sent to each rank since the ledger was made, int64 [size, 2]; collectives are not among them."""
        own = np.array([self._sent_to.get(rank, (0, 0)) for rank in range(size)], np.int64)
        return sum((branch.receivers(size) for branch in self._branches), own)

    def record(self, trace: Trace | None) -> None:
        """Keep what this ledger and its branches book as events of a trace, or no longer."""
        self.trace = trace
        for branch in self._branches:
            branch.record(trace)

    def task(self, name: str, **args: Any) -> AbstractContextManager[None]:
        """A ``with`` block that shows as one bar of the timeline, around what is booked inside it.

        Args:
            name: What it says, such as "forward".
            **args: What else to show, such as the step or the version of the parameters.
        """
        return nullcontext() if self.trace is None else self.trace.task(self.row, name, args)

    def mark(self, name: str) -> None:
        """A moment on the timeline."""
        if self.trace is not None:
            self.trace.add(MARK, self.row, "mark", name, now := perf_counter(), now)

    def branch(self) -> Ledger:
        """A ledger of its own for another thread, which stands still until it is resumed; this one's snapshots contain it."""
        branch = Ledger()
        branch._running = False
        branch.trace, branch.row = self.trace, f"channel {len(self._branches) + 1}"
        self._branches.append(branch)
        return branch

    def pause(self) -> None:
        """Book no time from now on."""
        self._book()
        self._running = False

    def resume(self) -> None:
        """Book time again, from now on."""
        self._since = perf_counter()
        self._running = True

    def snapshot(self) -> Snapshot:
        """All counters since the ledger was made.

        Returns:
            ``{stage: {"seconds", "wait", "bytes", "messages"}}``, a copy that later work does not change.
        """
        if self._running:
            self._book()
        parts = [self._books, *(branch.snapshot() for branch in self._branches)]
        return {stage: {field: sum(part[stage][field] for part in parts) for field in FIELDS} for stage in STAGES}

    def since(self, snapshot: Snapshot) -> Snapshot:
        """All counters since ``snapshot`` was taken.

        Args:
            snapshot: What ``snapshot()`` returned earlier.

        Returns:
            The differences, in the same form.
        """
        now = self.snapshot()
        return {stage: {field: book[field] - snapshot[stage][field] for field in FIELDS} for stage, book in now.items()}

    def _book(self) -> None:
        now = perf_counter()
        self._books[self.current][self._field] += now - self._since
        self._since = now

    def _enter(self, stage: str, field: str) -> None:
        self._book()
        self._outer.append((self.current, self._field, self._since))
        self.current, self._field = stage, field

    def _exit(self) -> None:
        self._book()
        stage, field = self.current, self._field
        self.current, self._field, began = self._outer.pop()
        if self.trace is not None:
            waits = field == "wait"
            self.trace.add(SPAN, self.row, "wait" if waits else "stage", "wait" if waits else stage, began, self._since,
                           {"stage": stage} if waits else None)
