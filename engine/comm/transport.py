"""What carries the collectives: channels of messages, and the primitives that a kind of communicator supplies.

The first message of every collective carries a header of eight bytes, made of the number and the name of the operation. A
rank that is in another operation than the others is therefore noticed by the message that would have gone wrong.
"""
from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from graphtheta.errors import CommError

from .call_site import call_site, describe, mismatch
from .channel import TASK, Channel, Send
from .ledger import Ledger
from .ordered_reduce import Reduction

# An encoded object up to this size travels together with its length.
FRAME = 240


class Wire(ABC):
    """Ranks, channels and headers; see ``Comm`` for what is done with them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.cores = 1
        self._channels = [self._new_channel(Ledger())]

    @property
    def ledger(self) -> Ledger:
        """Account of time, bytes and messages of the current channel; that of channel 0 contains the others.

        A collective counts as one message with the bytes this rank contributes; with one rank nothing is counted.
        """
        return self._now.ledger

    @property
    def operation(self) -> tuple[Any, ...]:
        """The collective being run in the current channel, for error messages."""
        return self._now.operation

    def until(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready``; meanwhile other tasks of this rank may compute.

        Args:
            ready: Cheap and without side effects on what others see; called from any thread, often.
            line: What is waited for, for messages about ranks that wait for each other.
        """
        task = TASK.get()
        if task is None:
            self.poll(ready, line)
        else:
            task.wait(ready, line)

    @abstractmethod
    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready``, without letting other tasks compute."""

    @abstractmethod
    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write every rank's ``x`` [n] into ``out`` [size, n]."""

    @abstractmethod
    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        """Send row q of ``x`` [size, n] to rank q and write the rows received into ``out`` [size, n]."""

    @abstractmethod
    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        """Fill the bytes ``x`` [n] with those of ``root``."""

    @abstractmethod
    def _post(self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool) -> Callable[[], None]:
        """Start messages between distinct ranks, as ``move_begin`` takes them; returns the function that waits for them."""

    def _new_channel(self, ledger: Ledger) -> Channel:
        return Channel(ledger, Reduction(self.size, self._gather_into, self._swap_into))

    @property
    def _number(self) -> int:
        task = TASK.get()
        return 0 if task is None else task.channel

    @property
    def _now(self) -> Channel:
        return self._channels[self._number]

    # -- headers ---------------------------------------------------------------------------------------------------

    def _enter(self, *operation: Any) -> None:
        now = self._now
        now.calls += 1
        now.operation = operation
        # number and name of the operation in 64 bits
        now.header = (now.calls & 0x7FFFFFFF) << 32 | _code(operation)

    def _check(self, headers: np.ndarray) -> None:
        """Raise if a rank is in another operation.

        Args:
            headers: Those that have arrived, [n].

        Raises:
            CommError: Naming the place of every rank.
        """
        # a list is compared in a tenth of the time of a short array
        if headers.tolist() != [self._now.header] * len(headers):
            raise self._disagreement()

    def _disagreement(self) -> CommError:
        return CommError(mismatch(self._places()))

    def _place(self) -> str:
        """Where this rank is, in the current channel."""
        now = self._now
        return f"operation {now.calls}, {describe(now.operation)} at {call_site()}"

    def _places(self) -> list[str]:
        """Where every rank is, as far as that can be known."""
        return [self._place()]

    # -- primitives with headers and accounts ----------------------------------------------------------------------

    def _count(self, n_bytes: int, messages: int = 1) -> None:
        if self.size > 1:
            self.ledger.sent(n_bytes, messages)

    def _gather_into(self, x: np.ndarray, out: np.ndarray) -> None:
        with self.ledger.waiting():
            self._gather_flat(x, out)

    def _swap_into(self, x: np.ndarray, out: np.ndarray) -> None:
        with self.ledger.waiting():
            self._swap_flat(x, out)

    def _meet(self, data: np.ndarray) -> np.ndarray:
        """Bytes [n] of every rank, [size, n], which are in the same operation."""
        n = data.nbytes
        own = np.empty(1 + (n + 7) // 8, np.int64)
        own[0] = self._now.header
        if n:
            own.view(np.uint8)[8 : 8 + n] = data
        rows = np.empty((self.size, len(own)), np.int64)
        self._gather_into(own, rows)
        self._check(rows[:, 0])
        return rows.view(np.uint8)[:, 8 : 8 + n]

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        frame = np.zeros(8 + FRAME, np.uint8)
        frame[:8].view(np.int64)[0] = len(data)
        frame[8 : 8 + len(data)] = np.frombuffer(data[:FRAME], np.uint8)
        frames = self._meet(frame)
        lengths = frames[:, :8].copy().view(np.int64)[:, 0]
        rest = int(lengths.max()) - FRAME
        if rest > 0:
            tail, tails = np.zeros(rest, np.uint8), np.empty((self.size, rest), np.uint8)
            tail[: max(len(data) - FRAME, 0)] = np.frombuffer(data[FRAME:], np.uint8)
            self._gather_into(tail, tails)
            frames = np.concatenate([frames, tails], axis=1)
        self._count(len(data))
        return [row[8 : 8 + n].tobytes() for row, n in zip(frames, lengths, strict=True)]


@lru_cache(4096)
def _code(operation: tuple[Any, ...]) -> int:
    """32 bits that tell operations apart, the same in every process."""
    return zlib.crc32(repr(operation).encode())
