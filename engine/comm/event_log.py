"""The event log of one rank: what each thread did and when, stored as tuples until the run ends.

It is written in the Chrome trace format, which Perfetto and chrome://tracing display. A row of the
timeline belongs to one ledger, which one thread uses at a time, so spans nest like the ``with``
blocks of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from graphtheta.base.strict_json import to_json

# partner and array
Message = tuple[int, np.ndarray]
# events stored for a rank; each takes about 200 bytes until it is written
MOST = 1_000_000
ROWS_APART = 10_000
# the kinds of events in the trace format
SPAN = "X"
MARK = "i"
MOVE = "b"


class EventLog:
    """Collects events; several threads may write to it.

    Args:
        most: Number of events to store; later ones are counted and dropped.

    Attributes:
        dropped: Number of events that were dropped.
    """

    def __init__(self, most: int = MOST) -> None:
        self.dropped = 0
        self._most = most
        # kind, row, category, name, begin, end, arguments
        self._events: list[tuple[str, str, str, str, float, float, dict[str, Any] | None]] = []

    def add(
        self,
        kind: str,
        row: str,
        category: str,
        name: str,
        began: float,
        ended: float,
        args: dict[str, Any] | None = None,
    ) -> None:
        """Store one event.

        Args:
            kind: ``SPAN``, ``MARK`` or ``MOVE``.
            row: Name of the row.
            category: Category for filters of viewers: "stage", "wait", "task", "move" or "mark".
            name: Label of the event.
            began, ended: Readings of ``perf_counter``.
            args: Shown when the event is selected.
        """
        if len(self._events) < self._most:
            self._events.append((kind, row, category, name, began, ended, args))
        else:
            self.dropped += 1

    @contextmanager
    def span(self, row: str, name: str, args: dict[str, Any]) -> Iterator[None]:
        """A ``with`` block that becomes a span."""
        began = perf_counter()
        try:
            yield
        finally:
            self.add(
                kind=SPAN,
                row=row,
                category="task",
                name=name,
                began=began,
                ended=perf_counter(),
                args=args,
            )

    def record_move(
        self,
        row: str,
        name: str,
        sends: list[Message],
        recvs: list[Message],
        finish: Callable[[], None],
    ) -> Callable[[], None]:
        """Record a move that begins now.

        Args:
            sends, recvs: Partners and arrays.
            finish: Waits for the messages.

        Returns:
            A function that calls ``finish`` and stores the event; ``finish`` itself if there is
            nothing to move.
        """
        if not sends and not recvs:
            return finish
        args = {"to": {q: x.nbytes for q, x in sends}, "from": {q: x.nbytes for q, x in recvs}}
        began = perf_counter()

        def finish_and_store() -> None:
            finish()
            self.add(
                kind=MOVE,
                row=row,
                category="move",
                name=name,
                began=began,
                ended=perf_counter(),
                args=args,
            )

        return finish_and_store

    def encode(self, rank: int, origin: float) -> str:
        """All events as JSON objects, one per line, sorted by the time they begin.

        Args:
            rank: This rank; viewers show it as a process.
            origin: Reading of this rank's clock that is shown as zero.

        Returns:
            Lines joined by commas, without the brackets around the list.
        """
        # "view 2" before "view 10"
        names = sorted(
            {event[1] for event in self._events} - {"main"}, key=lambda row: (len(row), row)
        )
        # viewers take the row whose number is that of the process for the main thread
        rows = {row: rank + ROWS_APART * i for i, row in enumerate(["main", *names])}
        lost = f" ({self.dropped} later events dropped)" if self.dropped else ""
        lines = [_about("process_name", rank, rank, {"name": f"rank {rank}{lost}"})]
        lines += [_about("process_sort_index", rank, rank, {"sort_index": rank})]
        for row, i in rows.items():
            lines += [
                _about("thread_name", rank, i, {"name": row}),
                _about("thread_sort_index", rank, i, {"sort_index": i}),
            ]
        timed: list[tuple[int, int, str]] = []
        for number, (kind, row, category, name, began, ended, args) in enumerate(self._events):
            # whole nanoseconds: what nests before rounding nests after it
            begin = round((began - origin) * 1e9)
            end = round((ended - origin) * 1e9)
            event: dict[str, Any] = {
                "ph": kind,
                "pid": rank,
                "tid": rows[row],
                "ts": begin / 1000,
                "cat": category,
                "name": name,
            }
            if kind == SPAN:
                event["dur"] = (end - begin) / 1000
            elif kind == MARK:
                event["s"] = "p"
            else:
                # local: the move is shown with its rank
                event["id2"] = {"local": hex(number)}
                timed.append((end, 1, to_json({**event, "ph": "e", "ts": end / 1000})))
            if args:
                event["args"] = args
            # of spans that begin together the longest is the outermost
            timed.append((begin, begin - end, to_json(event)))
        timed.sort(key=lambda item: item[:2])
        return ",\n".join([*lines, *(text for _, _, text in timed)])


def _about(name: str, rank: int, row: int, args: dict[str, Any]) -> str:
    return to_json({"ph": "M", "pid": rank, "tid": row, "ts": 0, "name": name, "args": args})
