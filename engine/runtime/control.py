"""Control messages between ranks: failures, exits, reports, and queries of positions.

The watchdog of a rank receives them a few times a second, and so does a rank that queries the
others or exits. Every receive takes all messages that have arrived and answers queries at once,
whatever the program of the rank is doing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from threading import RLock
from time import monotonic, sleep
from typing import Any, Protocol

import numpy as np

from ..comm.codec import decode, encode

# Seconds in which the messages of a rank that has exited arrive.
DELIVERY = 1.0
# Seconds to wait for answers. A rank that can answer does so within a tick of its watchdog.
ANSWER = 2.0
# Seconds that ranks with an error or a report wait for each other, so that only the lowest prints.
TOGETHER = 0.7
# Seconds between two polls.
PAUSE = 2e-3

Position = dict[str, Any]


class Kind(IntEnum):
    """Kind of a control message."""

    FAILED = 1
    LEFT = 2
    QUERY = 3
    POSITION = 4
    REPORTS = 5


class ControlTransport(Protocol):
    """Delivers short messages that no rank has to wait for; hold ``lock`` to send or receive."""

    rank: int
    size: int
    lock: RLock

    def send(self, to: int, kind: int, data: bytes) -> None:
        """Start to send a message."""

    def receive(self) -> list[tuple[int, int, bytes]]:
        """Sender, kind and content of every message that has arrived since the last call."""

    def all_sent(self) -> bool:
        """Whether all sends of this rank are complete."""


class Control:
    """The control messages of one rank.

    Args:
        transport: Delivers the messages.
        position: Returns the position of this rank, with its operation in a channel.

    Attributes:
        left: Ranks that have exited: collectives they started in each channel, and when all their
            messages have arrived.
        failed: Ranks with an uncaught error.
        reporting: When each rank last announced a report.
        queried: When each rank last queried positions.
    """

    def __init__(
        self, transport: ControlTransport, position: Callable[[int | None], Position]
    ) -> None:
        self.rank = transport.rank
        self.size = transport.size
        self._transport = transport
        self._position = position
        self.left: dict[int, tuple[np.ndarray, float]] = {}
        self.failed: set[int] = set()
        self.reporting: dict[int, float] = {}
        self.queried: dict[int, float] = {}
        self._answers: dict[int, tuple[float, Position]] = {}

    def send_all(self, kind: Kind, data: bytes = b"") -> None:
        """Send a message to every other rank."""
        for q in range(self.size):
            if q != self.rank:
                self._transport.send(q, kind, data)

    def all_sent(self) -> bool:
        """Whether all sends of this rank are complete."""
        return self._transport.all_sent()

    def receive(self) -> None:
        """Read all messages that have arrived, and answer queries."""
        with self._transport.lock:
            for source, kind, data in self._transport.receive():
                self._read(source, kind, data)

    def _read(self, source: int, kind: int, data: bytes) -> None:
        if kind == Kind.FAILED:
            self.failed.add(source)
        elif kind == Kind.LEFT:
            self.left[source] = np.frombuffer(data, np.int64), monotonic() + DELIVERY
        elif kind == Kind.REPORTS:
            self.reporting[source] = monotonic()
        elif kind == Kind.QUERY:
            self.queried[source] = monotonic()
            self._transport.send(source, Kind.POSITION, encode(self._position(decode(data))))
        elif kind == Kind.POSITION:
            self._answers[source] = monotonic(), decode(data)

    def query(self, channel: int | None = None) -> dict[int, Position]:
        """Positions by rank. Ranks that do not answer within ``ANSWER`` seconds are missing.

        Args:
            channel: The channel whose operation ranks report; None for that of an active work
                item.
        """
        began = monotonic()
        self.send_all(Kind.QUERY, encode(channel))
        while True:
            self.receive()
            fresh = {
                q: position for q, (when, position) in list(self._answers.items()) if when >= began
            }
            if len(fresh) == self.size - 1 or monotonic() > began + ANSWER:
                return dict(sorted({**fresh, self.rank: self._position(channel)}.items()))
            sleep(PAUSE)

    def first_to_report(self) -> bool:
        """Announce a report and wait ``TOGETHER`` seconds; returns whether to print it.

        It is printed if no lower rank announces one in this time and no rank has failed.
        """
        began = monotonic()
        self.send_all(Kind.REPORTS)
        while monotonic() < began + TOGETHER:
            self.receive()
            sleep(PAUSE)
        lower = any(
            q < self.rank and when > began - 2 * TOGETHER
            for q, when in list(self.reporting.items())
        )
        return not lower and not self.failed
