"""What ranks tell each other beside the data: that one has left the program or failed, and where each of them is.

Letters are read by the watchdog, a few times a second, and by whoever asks or ends. Each reads everything there is and answers
questions at once, so that a rank can be asked whatever its program is doing.
"""
from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from threading import RLock
from time import monotonic, sleep
from typing import Any, Protocol

import numpy as np

from ..comm.codec import decode, encode

# How long messages of a rank that has left may still be under way.
LATE = 1.0
# Seconds to wait for answers. A rank that can answer does so within a tick of its watchdog.
ANSWER = 2.0
# How long ranks that have something to say wait for each other, so that the lowest speaks for all.
TOGETHER = 0.7
PAUSE = 2e-3

Place = dict[str, Any]


class Kind(IntEnum):
    """What a letter says."""

    FAILED = 1
    LEFT = 2
    ASK = 3
    HERE = 4
    REPORTS = 5


class Letters(Protocol):
    """Short messages that arrive without anybody waiting for them; ``lock`` is held by who reads or sends."""

    rank: int
    size: int
    lock: RLock

    def send(self, to: int, kind: int, data: bytes) -> None:
        """Start sending a letter."""

    def take(self) -> list[tuple[int, int, bytes]]:
        """Sender, kind and content of every letter that has arrived since the last call."""

    def sent(self) -> bool:
        """Whether all letters sent from here are out of this rank's hands."""


class Control:
    """The letters of one rank.

    Args:
        letters: Carries them.
        here: Tells where this rank is, and what it does in a channel.

    Attributes:
        left: Ranks that have ended their program: collectives started in each channel, and when their messages are late.
        failed: Ranks with an uncaught error.
        reporting: When each rank last said that it is about to report that nothing goes on any more.
        asked: When each rank last asked for places.
    """

    def __init__(self, letters: Letters, here: Callable[[int | None], Place]) -> None:
        self.rank, self.size = letters.rank, letters.size
        self._letters, self._here = letters, here
        self.left: dict[int, tuple[np.ndarray, float]] = {}
        self.failed: set[int] = set()
        self.reporting: dict[int, float] = {}
        self.asked: dict[int, float] = {}
        self._answers: dict[int, tuple[float, Place]] = {}

    def tell(self, kind: Kind, data: bytes = b"") -> None:
        """Send a letter to every other rank."""
        for q in range(self.size):
            if q != self.rank:
                self._letters.send(q, kind, data)

    def told(self) -> bool:
        """Whether all letters sent from here are out of this rank's hands."""
        return self._letters.sent()

    def hear(self) -> None:
        """Read all letters there are, and answer questions."""
        with self._letters.lock:
            for source, kind, data in self._letters.take():
                self._read(source, kind, data)

    def _read(self, source: int, kind: int, data: bytes) -> None:
        if kind == Kind.FAILED:
            self.failed.add(source)
        elif kind == Kind.LEFT:
            self.left[source] = np.frombuffer(data, np.int64), monotonic() + LATE
        elif kind == Kind.REPORTS:
            self.reporting[source] = monotonic()
        elif kind == Kind.ASK:
            self.asked[source] = monotonic()
            self._letters.send(source, Kind.HERE, encode(self._here(decode(data))))
        elif kind == Kind.HERE:
            self._answers[source] = monotonic(), decode(data)

    def ask(self, channel: int | None = None) -> dict[int, Place]:
        """Where every rank is: its place by its number. Ranks that have not answered in time are missing.

        Args:
            channel: Whose operation to tell.
        """
        began = monotonic()
        self.tell(Kind.ASK, encode(channel))
        while True:
            self.hear()
            fresh = {q: place for q, (when, place) in list(self._answers.items()) if when >= began}
            if len(fresh) == self.size - 1 or monotonic() > began + ANSWER:
                return dict(sorted({**fresh, self.rank: self._here(channel)}.items()))
            sleep(PAUSE)

    def first_to_report(self) -> bool:
        """Announce a report; whether no lower rank announces one within ``TOGETHER`` seconds, and none has failed."""
        began = monotonic()
        self.tell(Kind.REPORTS)
        while monotonic() < began + TOGETHER:
            self.hear()
            sleep(PAUSE)
        lower = any(q < self.rank and when > began - 2 * TOGETHER for q, when in list(self.reporting.items()))
        return not lower and not self.failed
