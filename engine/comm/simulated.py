"""Simulated ranks inside one process, for tests and debuggers.

Each rank is a thread, or several that it starts, but only one runs at a time: when it waits for
others, the next one continues. The order is therefore the same in every run, a debugger can stop
anywhere, and numpy is never called from two threads at once. Mistakes that would hang or corrupt
data under MPI raise errors here: mismatched collectives, messages without a sender or receiver, and
buffers that are accessed between ``move_begin`` and ``end``.
"""

from __future__ import annotations

import contextvars
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import contains
from typing import Any, TypeVar

import numpy as np

from graphtheta.errors import CommError, PeerError, annotate

from .call_site import call_site, mismatch
from .channel import Send, purpose
from .communicator import Comm

T = TypeVar("T")
_Key = tuple[int, int, int, int, int]


@dataclass
class _Wait:
    """A rank that waits: its condition, and a description for error messages."""

    ready: Callable[[], bool]
    line: str


@dataclass
class _Collective:
    """An active collective: values and positions of the ranks in it, and how many have left."""

    operation: tuple[Any, ...]
    values: dict[int, np.ndarray] = field(default_factory=dict)
    positions: dict[int, str] = field(default_factory=dict)
    left: int = 0


class _World:
    """State shared by the simulated ranks: turns, messages, and active collectives.

    Turns go round the threads. The first ``size`` are the ranks; those that they start follow.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rank_of: list[int] = []
        # all locked, until a thread may go on; semaphores take twice as long
        self.turns: list[threading.Lock] = []
        self.finished = threading.Semaphore(0)
        self.waits: list[_Wait | None] = []
        self.done: list[bool] = []
        self.messages: dict[_Key, np.ndarray] = {}
        self.collectives: dict[tuple[int, int], _Collective] = {}
        self.failures: list[tuple[int, BaseException]] = []
        self.deadlock: str | None = None
        for rank in range(size):
            self.add(rank)

    def add(self, rank: int) -> int:
        """Count a further thread of a rank; returns its number."""
        self.rank_of.append(rank)
        turn = threading.Lock()
        turn.acquire()
        self.turns.append(turn)
        self.waits.append(None)
        self.done.append(False)
        return len(self.turns) - 1

    def wait(self, thread: int, ready: Callable[[], bool], line: str) -> None:
        """Let other threads run until ``ready`` is true; raises if it cannot become true."""
        if ready():
            return
        self.waits[thread] = _Wait(ready, line)
        self.pass_on(thread)
        self.turns[thread].acquire()
        self.waits[thread] = None
        if ready():
            return
        if self.failures:
            failed, error = self.failures[0]
            raise PeerError(
                f"rank {failed} failed with {type(error).__name__}: {error}; rank"
                f" {self.rank_of[thread]} stops: {line}"
            )
        raise CommError(self.deadlock or "deadlock: every rank waits for another rank")

    def pass_on(self, thread: int) -> None:
        """Let the next thread that can continue run, counting up from ``thread``."""
        n = len(self.turns)
        live = [q % n for q in range(thread + 1, thread + 1 + n) if not self.done[q % n]]
        for q in live:
            wait = self.waits[q]
            if wait is None or self.failures or self.deadlock or wait.ready():
                self.turns[q].release()
                return
        if live:
            self.deadlock = mismatch([self.state(q) for q in range(self.size)])
            self.turns[live[0]].release()
        else:
            self.finished.release()

    def state(self, rank: int) -> str:
        """Position of a rank, for error messages."""
        wait = self.waits[rank]
        if self.done[rank]:
            return "has returned"
        return "is running" if wait is None else wait.line


class SimComm(Comm):
    """One of several simulated ranks; made by ``run_simulated``."""

    # one thread of all ranks runs at a time
    takes_threads = False

    def __init__(self, rank: int, world: _World) -> None:
        super().__init__(rank, world.size)
        self._world = world
        self._started: Counter[int] = Counter()
        self._counts: Counter[tuple[str, int, int, int]] = Counter()
        self._open: dict[int, str] = {}
        self._moves = 0
        self._thread = threading.local()

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Let other ranks, and other threads of this one, run until ``ready`` is true."""
        self._world.wait(getattr(self._thread, "number", self.rank), ready, line)

    def start_thread(self, work: Callable[[], None], name: str) -> Callable[[], bool]:
        """Call a function in another thread of this rank, which has its turns as a rank has."""
        world = self._world
        number = world.add(self.rank)

        def run() -> None:
            self._thread.number = number
            world.turns[number].acquire()
            try:
                work()
            finally:
                world.done[number] = True
                world.pass_on(number)

        super().start_thread(run, name)
        return lambda: world.done[number]

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        np.stack(self._exchange(x), out=out)

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        np.stack([rows[self.rank] for rows in self._exchange(x)], out=out)

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        x[:] = self._exchange(x)[root]

    def _exchange(self, x: np.ndarray) -> list[np.ndarray]:
        """``x`` of every rank, once all ranks have entered the collective."""
        world = self._world
        channel = self._channel_number
        number = channel, self._started[channel]
        self._started[channel] += 1
        active = world.collectives.setdefault(number, _Collective(self.operation))
        active.positions[self.rank] = position = self._own_position()
        if active.operation != self.operation:
            raise CommError(
                mismatch([active.positions.get(q) or world.state(q) for q in range(self.size)])
            )
        active.values[self.rank] = x.copy()
        self.until(lambda: len(active.values) == self.size, f"waits in {position}")
        active.left += 1
        if active.left == self.size:
            del world.collectives[number]
        return [active.values[q] for q in range(self.size)]

    def _positions(self) -> list[str]:
        return [
            self._own_position() if q == self.rank else self._world.state(q)
            for q in range(self.size)
        ]

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        begun_at = call_site()
        out = [(self._key("send", self.rank, q, tag), array, array.copy()) for q, array in sends]
        into = [(self._key("recv", q, self.rank, tag), array) for q, array in recvs]
        for key, _, copy in out:
            self._world.messages[key] = copy
        for _, array in into:
            _poison(array)
        self._moves += 1
        move = self._moves
        self._open[move] = begun_at

        def finish() -> None:
            for key, array in into:
                if key not in self._world.messages:
                    line = (
                        f"waits for {array.size} {array.dtype} from rank {key[0]} ({purpose(tag)})"
                        f" at {call_site()}, begun at {begun_at}"
                    )
                    self.until(partial(contains, self._world.messages, key), line)
                self._receive(key, array, begun_at, at_most)
            for key, array, copy in out:
                if array.tobytes() != copy.tobytes():
                    raise CommError(
                        f"the array sent to rank {key[1]} ({purpose(tag)}) at {begun_at} was"
                        " changed before end(); copy it first"
                    )
            self._open.pop(move, None)

        return finish

    def _receive(self, key: _Key, array: np.ndarray, begun_at: str, at_most: bool) -> None:
        message = self._world.messages.pop(key)
        if message.dtype != array.dtype or not (
            message.size == array.size or (at_most and message.size < array.size)
        ):
            raise CommError(
                f"move: rank {self.rank} expects {array.size} {array.dtype} from rank {key[0]}"
                f" ({purpose(key[2])}, begun at {begun_at}), got {message.size} {message.dtype};"
                " both sides must use the same plan"
            )
        array.reshape(-1)[: message.size] = message.reshape(-1)

    def _key(self, side: str, src: int, dst: int, tag: int) -> _Key:
        """Key of the next message with this tag; both ranks count, so the order is that of MPI."""
        partner = dst if side == "send" else src
        number = self._counts[side, partner, self._channel_number, tag]
        self._counts[side, partner, self._channel_number, tag] += 1
        return src, dst, tag, self._channel_number, number

    def check_closed(self) -> None:
        """Check that every move was ended.

        Raises:
            CommError: A move was not; the message says where it was begun.
        """
        if self._open:
            raise CommError(
                f"rank {self.rank} returned without end() of the move begun at"
                f" {next(iter(self._open.values()))}; call end once for each move_begin"
            )


def run_simulated(size: int, fn: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
    """Run ``fn(comm, *args, **kwargs)`` on simulated ranks.

    Each rank runs in a thread with its own copy of the context variables, one rank at a time.

    Args:
        size: Number of ranks.
        fn: The program; called once for each rank with its communicator.
        *args: Passed to ``fn``. All ranks share these objects, so treat them as read-only.
        **kwargs: Passed to ``fn``.

    Returns:
        The results in rank order.

    Raises:
        CommError: If every rank waits for another one, or messages were not received.
        BaseException: The first error raised on a rank, with a note saying which; the other ranks
            see PeerError.
    """
    if size < 1:
        raise CommError(f"run_simulated: expected at least one rank, got {size}")
    world = _World(size)
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        world.turns[rank].acquire()
        try:
            comm = SimComm(rank, world)
            results[rank] = fn(comm, *args, **kwargs)
            if not world.failures:
                comm.check_closed()
        except BaseException as error:  # the caller must see every kind, SystemExit too
            world.failures.append((rank, error))
        world.done[rank] = True
        world.pass_on(rank)

    for rank in range(size):
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(run, rank), name=f"rank {rank}", daemon=True
        ).start()
    world.turns[0].release()
    world.finished.acquire()
    _raise_first(world)
    return results


def _raise_first(world: _World) -> None:
    for rank, error in world.failures:
        if not isinstance(error, PeerError):
            annotate(error, f"on simulated rank {rank}")
            raise error
    if world.messages:
        (src, dst, tag, *_), message = next(iter(world.messages.items()))
        raise CommError(
            f"rank {src} sent {message.size} {message.dtype} to rank {dst} ({purpose(tag)}), which"
            " did not receive them; every send needs a matching receive"
        )


def _poison(array: np.ndarray) -> None:
    """Fill a receive buffer with NaN or the largest integer, to expose reads before ``end``."""
    if array.dtype.kind in "fc":
        array[...] = np.nan
    elif array.dtype.kind in "iu":
        array[...] = np.iinfo(array.dtype).max
