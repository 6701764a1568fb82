"""A communicator that merges the messages of several functions: as many rounds as one of them has.

The functions run in turn, each as a coroutine, until all of them wait for other ranks. What they
wait for is one *wave*: their collectives are concatenated, and their moves become one message for
each pair of ranks. All ranks run the same functions, so that they agree on every wave without a
further message; functions may have different numbers of operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

import numpy as np
from greenlet import greenlet

from graphtheta.engine.comm.call_site import INTERNAL_MODULES, mismatch
from graphtheta.engine.comm.channel import Channel, Send, Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.ledger import Ledger
from graphtheta.engine.comm.wrapped import WrappedComm
from graphtheta.errors import CommError

INTERNAL_MODULES.add(__name__)

T = TypeVar("T")
# messages start with the lengths of their parts
LENGTH = np.dtype(np.int64)


class _Part:
    """One of the functions, and what it waits for.

    Attributes:
        channel: Its own; the ledger counts what the function would send alone.
        wanted: Kind, arguments of the collective that it waits for; empty for moves only.
        moves: Its moves of this wave: what it sends, what it receives, and whether messages may be
            shorter than their buffers.
        counted: Bytes and messages of its collectives that the communicator has not counted.
    """

    def __init__(self, work: Callable[[], Any], comm: MergedComm):
        self.channel = comm._new_channel(Ledger())
        self.counted = (0, 0)
        self.wanted: tuple[Any, ...] = ("",)
        self.moves: list[tuple[list[Send], list[Send], bool]] = []
        self.coroutine = greenlet(lambda: self._run(work))
        self.coroutine.gr_context = copy_context()
        self.result: Any = None

    def _run(self, work: Callable[[], Any]) -> None:
        _PART.set(self)
        self.result = work()

    def wait(self, *wanted: Any) -> None:
        """Let the others run; returns after the next wave."""
        self.wanted = wanted
        self.coroutine.parent.switch()


_PART: ContextVar[_Part | None] = ContextVar("graphtheta_merged_part", default=None)


class MergedComm(WrappedComm):
    """Another communicator, with ``together``; everything else is passed on to it.

    Args:
        inner: Communicator that carries the messages.

    Attributes:
        alone: Messages and bytes of all functions so far, if each had sent its own.
        merged: Messages and bytes that were sent for them.
    """

    def __init__(self, inner: Comm):
        super().__init__(inner)
        self.alone = np.zeros(2, np.int64)
        self.merged = np.zeros(2, np.int64)

    def together(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """Run functions that communicate by this communicator, with merged messages; returns their
        results in order.

        One of these functions may call it too. Its merged messages are then merged with those of
        the others.

        Args:
            work: The functions, the same on every rank; each makes its collective calls as it
                would alone.

        Raises:
            BaseException: The first error of a function; the others are stopped.

        Collective: all ranks.
        """
        if self.size == 1:
            return [function() for function in work]
        parts = waiting = [_Part(function, self) for function in work]
        try:
            while waiting:
                for part in waiting:
                    part.coroutine.switch()
                self._take_counts(waiting)
                waiting = [part for part in waiting if not part.coroutine.dead]
                if waiting:
                    self._wave(waiting)
        finally:
            for part in parts:
                if not part.coroutine.dead:
                    part.coroutine.throw()
        if _PART.get() is None:
            sent = [book for part in parts for book in part.channel.ledger.snapshot().values()]
            self.alone += [
                sum(int(book[field]) for book in sent) for field in ("messages", "bytes")
            ]
        return [part.result for part in parts]

    def _wave(self, parts: list[_Part]) -> None:
        """Do what all parts wait for."""
        calls_of = defaultdict(list)
        for part in parts:
            kind, *arguments = part.wanted
            calls_of[kind if kind != "broadcast" else (kind, arguments.pop())].append(arguments)
        self._enter("together", len(parts))
        for key, calls in sorted(calls_of.items(), key=str):
            if key == "gather":
                self._joined(self._gather_flat, calls, 1)
            elif key == "swap":
                self._joined(self._swap_flat, calls, self.size)
            elif key:
                joined = np.concatenate([_raw(x, 1)[0] for (x,) in calls])
                self._broadcast_flat(joined, key[1])
                for (x,), values in zip(
                    calls, _split(joined[None], [x.nbytes for (x,) in calls]), strict=True
                ):
                    if self.rank != key[1]:
                        x.view(np.uint8)[...] = values[0]
        if any(part.moves for part in parts):
            self._move([move for part in parts for move in part.moves])
            for part in parts:
                part.moves.clear()

    def _take_counts(self, parts: list[_Part]) -> None:
        """Count collectives of the same kind as one message."""
        messages: dict[str, int] = defaultdict(int)
        for part in parts:
            messages[part.wanted[0]] = max(messages[part.wanted[0]], part.counted[1])
        counts = sum(messages.values()), sum(part.counted[0] for part in parts)
        self._count(*counts[::-1])
        if _PART.get() is None:
            self.merged += counts
        for part in parts:
            part.counted = 0, 0

    def _joined(
        self,
        primitive: Callable[[np.ndarray, np.ndarray], None],
        calls: list[list[np.ndarray]],
        rows: int,
    ) -> None:
        """One primitive for several calls with arguments (x, out); x has so many rows."""
        raw = [_raw(x, rows) for x, _ in calls]
        x = np.concatenate(raw, axis=1)
        out = np.empty((self.size, x.shape[1]), np.uint8)
        primitive(x if rows > 1 else x[0], out)
        for (_, into), values in zip(
            calls, _split(out, [part.shape[1] for part in raw]), strict=True
        ):
            into.reshape(self.size, -1).view(np.uint8)[...] = values

    def _move(self, moves: list[tuple[list[Send], list[Send], bool]]) -> None:
        """All moves in one message for each pair of ranks."""
        out = defaultdict(list)
        into = defaultdict(list)
        for sends, receives, at_most in moves:
            for q, x in sends:
                out[q].append(_raw(x, 1)[0])
            for q, x in receives:
                into[q].append((x, at_most))
        sent = [
            (
                q,
                np.concatenate(
                    [np.array([x.nbytes for x in parts], LENGTH).view(np.uint8), *parts]
                ),
            )
            for q, parts in out.items()
        ]
        received = [
            (q, np.empty(sum(LENGTH.itemsize + x.nbytes for x, _ in parts), np.uint8))
            for q, parts in into.items()
        ]
        if _PART.get() is None:
            self.merged += len(sent), sum(x.nbytes for _, x in sent)
        self.move_begin(sent, received, Tag.MERGED, at_most=True).end()
        for (q, parts), (_, message) in zip(into.items(), received, strict=True):
            begin = LENGTH.itemsize * len(parts)
            for (x, at_most), n in zip(parts, message[:begin].view(LENGTH).tolist(), strict=True):
                if n > x.nbytes or (n < x.nbytes and not at_most):
                    raise CommError(
                        f"move: rank {self.rank} expects {x.nbytes} bytes from rank {q}, got {n};"
                        " both sides must use the same plan"
                    )
                x.reshape(-1).view(np.uint8)[:n] = message[begin : begin + n]
                begin += n

    # -- passed on, or merged ----

    @property
    def _channel(self) -> Channel:
        part = _PART.get()
        return super()._channel if part is None else part.channel

    def _count(self, n_bytes: int, messages: int = 1) -> None:
        super()._count(n_bytes, messages)
        if (part := _PART.get()) is not None:
            part.counted = part.counted[0] + n_bytes, part.counted[1] + messages

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        part = _PART.get()
        super()._gather_flat(x, out) if part is None else part.wait("gather", x, out)

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        part = _PART.get()
        super()._swap_flat(x, out) if part is None else part.wait("swap", x, out)

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        part = _PART.get()
        super()._broadcast_flat(x, root) if part is None else part.wait("broadcast", x, root)

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        part = _PART.get()
        if part is None:
            return super()._post(sends, recvs, tag, at_most)
        move = (sends, recvs, at_most)
        part.moves.append(move)
        # identity: equal lists of arrays cannot be compared
        return lambda: part.wait("") if any(move is other for other in part.moves) else None

    def _disagreement(self) -> CommError:
        return (
            super()._disagreement()
            if _PART.get() is None
            else CommError(mismatch([self._own_position()]))
        )


def _raw(x: np.ndarray, rows: int) -> np.ndarray:
    """The bytes of an array, [rows, n] uint8."""
    return np.ascontiguousarray(x).reshape(rows, -1).view(np.uint8)


def _split(joined: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Consecutive columns of an array of bytes."""
    return np.split(joined, np.cumsum(sizes)[:-1], axis=1)
