"""The base of communicators: channels, the primitives that each kind supplies, and the verifier.

The first message of every collective starts with a header of eight bytes, made of the number and
the name of the operation. The first message that a rank would misinterpret therefore shows that
ranks are in different operations.
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
from .channel import WORK_ITEM, Channel, Send
from .ledger import Ledger
from .ordered_reduce import Reduction

# An encoded object up to this size travels together with its length.
FRAME = 240


class Transport(ABC):
    """Ranks, channels and headers; ``Comm`` builds the collectives on them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.cores = 1
        self.machines = np.zeros(size, np.int64)
        self._channels = [self._new_channel(Ledger())]
        self._channels_of: dict[str, list[int]] = {}

    @property
    def ledger(self) -> Ledger:
        """Time, bytes and messages of the current channel; that of channel 0 includes the others.

        A collective counts as one message with the bytes this rank contributes; with one rank
        nothing is counted.
        """
        return self._channel.ledger

    @property
    def operation(self) -> tuple[Any, ...]:
        """The collective being run in the current channel, for error messages."""
        return self._channel.operation

    def until(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready`` is true; meanwhile other work items of this rank may run.

        Args:
            ready: Called often and from any thread; must be cheap and must not change what other
                threads see.
            line: Description of the wait, for messages about deadlocks.
        """
        item = WORK_ITEM.get()
        if item is None:
            self.poll(ready, line)
        else:
            item.wait(ready, line)

    @abstractmethod
    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready`` is true, without letting other work items run."""

    @abstractmethod
    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write every rank's ``x`` [n] into ``out`` [size, n]."""

    @abstractmethod
    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        """Send row q of ``x`` [size, n] to rank q and write the rows received into ``out`` [size,
        n].
        """

    @abstractmethod
    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        """Fill the bytes ``x`` [n] with those of ``root``."""

    @abstractmethod
    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        """Start the messages of ``move_begin``; returns a function that waits for them."""

    def _new_channel(self, ledger: Ledger) -> Channel:
        return Channel(ledger, Reduction(self.size, self._gather_into, self._swap_into))

    def _extend_channels(self, last: int) -> None:
        """Let there be channels up to a number."""
        while len(self._channels) <= last:
            self._channels.append(self._new_channel(self._channels[0].ledger.branch()))

    @property
    def _channel_number(self) -> int:
        item = WORK_ITEM.get()
        return 0 if item is None else item.channel

    @property
    def _channel(self) -> Channel:
        return self._channels[self._channel_number]

    # -- headers ----

    def _enter(self, *operation: Any) -> None:
        channel = self._channel
        channel.calls += 1
        channel.operation = operation
        # number and name of the operation in 64 bits
        channel.header = (channel.calls & 0x7FFFFFFF) << 32 | _code(operation)

    def _check(self, headers: np.ndarray) -> None:
        """Compare received headers with that of this rank.

        Args:
            headers: Headers of other ranks, [n].

        Raises:
            CommError: A rank is in another operation; the message gives the position of every
                rank.
        """
        # a list is compared in a tenth of the time of a short array
        if headers.tolist() != [self._channel.header] * len(headers):
            raise self._disagreement()

    def _disagreement(self) -> CommError:
        return CommError(mismatch(self._positions()))

    def _own_position(self) -> str:
        """Position of this rank in the current channel, for error messages."""
        channel = self._channel
        return f"operation {channel.calls}, {describe(channel.operation)} at {call_site()}"

    def _positions(self) -> list[str]:
        """Positions of all ranks, as far as they are known."""
        return [self._own_position()]

    # -- primitives with headers and the ledger ----

    def _count(self, n_bytes: int, messages: int = 1) -> None:
        if self.size > 1:
            self.ledger.sent(n_bytes, messages)

    def _gather_into(self, x: np.ndarray, out: np.ndarray) -> None:
        with self.ledger.waiting():
            self._gather_flat(x, out)

    def _swap_into(self, x: np.ndarray, out: np.ndarray) -> None:
        with self.ledger.waiting():
            self._swap_flat(x, out)

    def _gather_checked(self, data: np.ndarray) -> np.ndarray:
        """Gather bytes [n] of every rank into [size, n], and check that operations are equal."""
        n = data.nbytes
        packed = np.empty(1 + (n + 7) // 8, np.int64)
        packed[0] = self._channel.header
        if n:
            packed.view(np.uint8)[8 : 8 + n] = data
        rows = np.empty((self.size, len(packed)), np.int64)
        self._gather_into(packed, rows)
        self._check(rows[:, 0])
        return rows.view(np.uint8)[:, 8 : 8 + n]

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        frame = np.zeros(8 + FRAME, np.uint8)
        frame[:8].view(np.int64)[0] = len(data)
        frame[8 : 8 + len(data)] = np.frombuffer(data[:FRAME], np.uint8)
        frames = self._gather_checked(frame)
        lengths = frames[:, :8].copy().view(np.int64)[:, 0]
        rest = int(lengths.max()) - FRAME
        if rest > 0:
            tail = np.zeros(rest, np.uint8)
            tails = np.empty((self.size, rest), np.uint8)
            tail[: max(len(data) - FRAME, 0)] = np.frombuffer(data[FRAME:], np.uint8)
            self._gather_into(tail, tails)
            frames = np.concatenate([frames, tails], axis=1)
        self._count(len(data))
        return [row[8 : 8 + n].tobytes() for row, n in zip(frames, lengths, strict=True)]


@lru_cache(4096)
def _code(operation: tuple[Any, ...]) -> int:
    """A 32-bit hash of an operation, the same in every process."""
    return zlib.crc32(repr(operation).encode())
