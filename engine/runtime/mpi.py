"""The communicator of MPI processes. The only file that imports mpi4py.

Blocking calls of an MPI library spin. With more ranks than cores, a spinning rank keeps the rank
it waits for from running (measured: four ranks on two cores become a hundred times slower). All
operations are therefore non-blocking and polled here, first with ``sched_yield`` in between, which
costs nothing if the message arrives soon, then with short sleeps. Polling also lets Ctrl-C through
and detects ranks that have exited.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from threading import RLock, get_ident
from time import monotonic, sleep

import mpi4py
import numpy as np

from graphtheta.errors import CommError

from ..comm.call_site import call_site, describe, mismatch
from ..comm.channel import Send, active_work_items, purpose
from ..comm.communicator import Comm
from ..comm.failure import BROKEN_PIPE, wait_until_read
from .control import ANSWER, TOGETHER, Kind
from .watchdog import Watchdog, meanwhile, operation_line, with_stacks

mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI  # noqa: E402  (starts MPI, with the thread level set above)

# Seconds of polling before the first sleep: SHORT if ranks share cores, LONG if not.
SHORT, LONG = 1e-4, 2e-3
FIRST_SLEEP, LONGEST_SLEEP = 1e-5, 2e-4
# Ranks that share cores sleep for this share of the time that they have waited, up to so many
# seconds; 64 ranks on two cores would otherwise spend half of the time polling.
SHARE = 1 / 32
LONGEST_SHARED = 1e-2
# Longer messages are sent in pieces of this many bytes: old libraries need counts below 2^31.
# The first shorter piece ends a message, so that its receiver need not know its length.
PIECE = 1 << 30


@dataclass
class _Link:
    """The MPI communicators of one channel, and the number of collectives started."""

    moves: MPI.Comm
    collectives: MPI.Comm
    started: int = 0


class _Arriving:
    """A message that arrives in pieces.

    Args:
        source: The rank that sends it.
        buffer: What it fills from the beginning, [n] uint8.

    Attributes:
        arrived: Bytes that have arrived.
        continues: Whether another piece follows those that have arrived.
    """

    def __init__(self, source: int, buffer: np.ndarray) -> None:
        self.source = source
        self.buffer = buffer
        self.arrived = 0
        self.continues = True

    @property
    def may_continue(self) -> bool:
        """Whether another piece may follow the one that is being received."""
        return len(self.buffer) - self.arrived >= PIECE

    def next_piece(self, moves: MPI.Comm, tag: int) -> MPI.Request:
        """Begin to receive the next piece."""
        piece = self.buffer[self.arrived : self.arrived + PIECE]
        return moves.Irecv([piece, MPI.BYTE], self.source, tag)

    def add(self, n_bytes: int) -> None:
        """Count a piece that has arrived."""
        self.arrived += n_bytes
        self.continues = n_bytes == PIECE


class _ControlTransport:
    """Control messages on a communicator of their own: none matches one of the program."""

    def __init__(self, lock: RLock) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.lock = lock
        # requests with their buffers
        self._sending: list[tuple[MPI.Request, bytearray]] = []
        self._receiving: list[tuple[MPI.Request, bytearray, int, int]] = []
        self._ending: MPI.Request | None = None

    def send(self, to: int, kind: int, data: bytes) -> None:
        with self.lock:
            buffer = bytearray(data)
            self._sending.append((self._comm.Isend([buffer, MPI.BYTE], to, kind), buffer))

    def receive(self) -> list[tuple[int, int, bytes]]:
        with self.lock:
            status = MPI.Status()
            while message := self._comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
                buffer = bytearray(status.Get_count(MPI.BYTE))
                self._receiving.append(
                    (
                        message.Irecv([buffer, MPI.BYTE]),
                        buffer,
                        status.Get_source(),
                        status.Get_tag(),
                    )
                )
            arrived = [item[0].Test() for item in self._receiving]
            items = list(zip(arrived, self._receiving, strict=True))
            self._receiving = [item for done, item in items if not done]
            return [
                (source, kind, bytes(buffer)) for done, (_, buffer, source, kind) in items if done
            ]

    def all_sent(self) -> bool:
        with self.lock:
            self._sending = [item for item in self._sending if not item[0].Test()]
            return not self._sending

    def all_ended(self) -> bool:
        """Whether all ranks have called this; the first call starts a barrier."""
        with self.lock:
            if self._ending is None:
                self._ending = self._comm.Ibarrier()
            return bool(self._ending.Test())


class MpiComm(Comm):
    """All processes started by mpiexec or srun."""

    def __init__(self) -> None:
        self._eager = SHORT
        self._longest = LONGEST_SHARED
        world = MPI.COMM_WORLD
        # held in every call of the library
        self._lock = RLock()
        self._links = [_Link(world.Dup(), world.Dup())]
        self._open: list[MPI.Request] = []
        self._ended = False
        super().__init__(world.Get_rank(), world.Get_size())
        processes = world.allgather((platform.node(), os.getpid()))
        self.machines = np.unique([node for node, _ in processes], return_inverse=True)[1]
        pids = {rank: pid for rank, (node, pid) in enumerate(processes) if node == platform.node()}
        self._transport = _ControlTransport(self._lock)
        self._watchdog = Watchdog(
            transport=self._transport,
            activity=self._activity,
            end=self._end,
            pids=pids,
        )
        self._control = self._watchdog.control
        if MPI.Query_thread() >= MPI.THREAD_SERIALIZED:
            self._watchdog.start()

    @property
    def library(self) -> str:
        """Name and version of the MPI library."""
        vendor, version = MPI.get_vendor()
        return f"{vendor} {'.'.join(map(str, version))}"

    def open_channels(self, user: str, n: int) -> list[int]:
        """As ``Comm.open_channels``.

        Raises:
            CommError: The MPI library does not let threads take turns.

        Collective: all ranks.
        """
        if n and MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise CommError(
                "views_in_flight above 1, and prefetch, need an MPI library with"
                " MPI_THREAD_SERIALIZED; use views_in_flight=1 and prefetch=0, or another MPI"
                " library"
            )
        numbers = super().open_channels(user, n)
        while len(self._links) < len(self._channels):
            self._links.append(_Link(self._new_comm(), self._new_comm()))
        return numbers

    def _new_comm(self) -> MPI.Comm:
        """A new MPI communicator of all ranks, made without blocking inside the library."""
        with self._lock:
            duplicate, request = MPI.COMM_WORLD.Idup()
        self._wait([request], None, None, describe(self.operation), 0)
        return duplicate

    # -- primitives ----

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._collect(
            lambda on: on.Iallgather([_raw(x), MPI.BYTE], [_raw(out), MPI.BYTE]), out.nbytes
        )

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._collect(
            lambda on: on.Ialltoall([_raw(x), MPI.BYTE], [_raw(out), MPI.BYTE]), out.nbytes
        )

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        for _, piece in _in_turns([(root, x)]):
            self._collect(methodcaller("Ibcast", [piece, MPI.BYTE], root), piece.nbytes)

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        moves = self._links[self._channel_number].moves
        arriving = [_Arriving(partner, _raw(array)) for partner, array in recvs]
        with self._lock:
            receiving = [message.next_piece(moves, tag) for message in arriving]
            sending = [
                moves.Isend([piece, MPI.BYTE], partner, tag) for partner, piece in _in_turns(sends)
            ]
            self._open.extend(receiving + sending)
        what = f"{purpose(tag)} from ranks {[message.source for message in arriving]}"
        n_bytes = sum(array.nbytes for _, array in (*sends, *recvs))

        def finish() -> None:
            requests, unfinished = receiving, arriving
            # a partner may need the pieces sent here before it sends its own, so these are waited
            # for last
            while any(message.may_continue for message in unfinished):
                self._receive(requests, unfinished, what, n_bytes)
                unfinished = [message for message in unfinished if message.continues]
                with self._lock:
                    requests = [message.next_piece(moves, tag) for message in unfinished]
                    self._open.extend(requests)
            self._receive(requests + sending, unfinished, what, n_bytes)
            for message in arriving:
                if message.arrived != len(message.buffer) and not at_most:
                    raise CommError(
                        f"move: rank {self.rank} expects {len(message.buffer)} bytes from rank"
                        f" {message.source} ({purpose(tag)}), got {message.arrived}, at"
                        f" {call_site()}; both sides must use the same plan"
                    )

        return finish

    def _receive(
        self, requests: list[MPI.Request], arriving: list[_Arriving], what: str, n_bytes: int
    ) -> None:
        """Wait for requests, the first of which are those of a piece of each message."""
        statuses = [MPI.Status() for _ in requests]
        self._wait(
            list(requests), statuses, [message.source for message in arriving], what, n_bytes
        )
        for message, status in zip(arriving, statuses, strict=False):
            message.add(status.Get_count(MPI.BYTE))

    def _collect(self, start: Callable[[MPI.Comm], MPI.Request], n_bytes: int) -> None:
        link = self._links[self._channel_number]
        link.started += 1
        with self._lock:
            request = start(link.collectives)
            self._open.append(request)
        self._wait([request], None, None, describe(self.operation), n_bytes)

    def own_core(self) -> None:
        """Poll for longer before the first sleep, and more often after it: no other rank uses the
        core of this one.
        """
        self._eager = LONG
        self._longest = LONGEST_SLEEP

    def limit_pauses(self, patience: float | None) -> None:
        """Set how long a rank may make no progress while others wait for it, as in
        ``watchdog.Pace``.
        """
        self._watchdog.pace.patience = patience

    # -- waiting ----

    def _wait(
        self,
        requests: list[MPI.Request],
        statuses: list[MPI.Status] | None,
        sources: list[int] | None,
        what: str,
        n_bytes: int,
    ) -> None:
        """Return when all requests are done; ``sources`` are the ranks they depend on, None for a
        collective.
        """
        number = self._channel_number
        arrived = False
        patience = monotonic() + self._eager

        def done() -> bool:
            nonlocal arrived
            # a second test of finished requests would overwrite their statuses
            if arrived:
                return True
            with self._lock:
                arrived = MPI.Request.Testall(requests, statuses)
                if not arrived and monotonic() > patience:
                    self._check_left(number, sources, what)
                return arrived

        self._watchdog.sizes[id(requests)] = n_bytes
        try:
            self.until(done, what)
        except MPI.Exception as error:
            raise self._broken(
                sources is None,
                f"{what}: {error}, at {call_site()}; check that all ranks use the same sizes "
                "and order",
            ) from error
        finally:
            del self._watchdog.sizes[id(requests)]
        self._watchdog.marks += 1
        with self._lock:
            self._open = [request for request in self._open if request]

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready`` is true; polls without sleeping at first, then with pauses."""
        waits = self._watchdog.waits
        thread = get_ident()
        waits[thread] = line
        try:
            end = monotonic() + self._eager
            while monotonic() < end:
                if ready():
                    return
                os.sched_yield()
            pause = FIRST_SLEEP
            while not ready():
                sleep(pause)
                pause = min(
                    2 * pause, max(LONGEST_SLEEP, min(SHARE * (monotonic() - end), self._longest))
                )
        finally:
            waits[thread] = None

    def _check_left(self, number: int, sources: list[int] | None, what: str) -> None:
        """Raise if a rank that channel ``number`` waits for has exited."""
        if not self._watchdog.watching:
            self._control.receive()
        begun = self._links[number].started
        for rank, (started, deadline) in self._control.left.items():
            missing = (
                (number >= len(started) or started[number] < begun)
                if sources is None
                else rank in sources and monotonic() > deadline
            )
            if missing:
                raise CommError(
                    f"rank {rank} has exited, but rank {self.rank} waits for it in {what} at"
                    f" {call_site()}; all ranks must run the same operations"
                )

    # -- positions of ranks ----

    def _activity(self, channel: int | None) -> tuple[str, int, str]:
        """Operation, its number, and stage in a channel; None is that of an active work item."""
        if channel is None:
            channel = next((item.channel for item in active_work_items()), 0)
        now = self._channels[min(channel, len(self._channels) - 1)]
        return describe(now.operation), now.calls, now.ledger.current

    def _disagreement(self) -> CommError:
        positions = self._control.query(channel=self._channel_number)
        lines = [
            operation_line(positions[q]) if q in positions else "does not respond"
            for q in range(self.size)
        ]
        return CommError(f"{mismatch(lines)}\n\n{with_stacks(positions)}")

    def _broken(self, collective: bool, text: str) -> CommError:
        """The error for a failure in the library: a mismatch, if collectives differ."""
        if collective:
            positions = self._control.query(channel=self._channel_number)
            if (
                len(
                    {(position["number"], position["operation"]) for position in positions.values()}
                )
                > 1
            ):
                return self._disagreement()
        return CommError(text)

    # -- the end ----

    def close(self) -> None:
        """Wait for the ends of all ranks in a barrier. Called when Python exits."""
        if self._ended or MPI.Is_finalized():
            return
        self._ended = True
        self._watchdog.left = True
        deadline = monotonic() + TOGETHER
        sent = False
        pause = FIRST_SLEEP
        while not (self._transport.all_ended() and self._control.all_sent()):
            # others may wait for this rank in an operation
            if not sent and monotonic() > deadline:
                self._control.send_all(Kind.LEFT, self._started())
                sent = True
            self._control.receive()
            sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)
        self._watchdog.stop()

    def leave(self, text: str, code: int) -> int:
        """End the job after an uncaught error on this rank.

        If all ranks fail within ``TOGETHER`` seconds, the lowest one prints ``text`` and all exit
        by themselves. Otherwise the lowest failing rank prints it with the positions of the
        others, and aborts them.

        Args:
            text: Message for the user.
            code: Exit status.

        Returns:
            The exit status, if all ranks fail together.
        """
        if self._ended or MPI.Is_finalized():
            return code
        self._ended = True
        if self.rank == 0:
            _print(text)
        self._control.send_all(Kind.FAILED, self._started())
        failed = self._control.failed
        deadline = monotonic() + TOGETHER
        while monotonic() < deadline:
            self._control.receive()
            if len(failed) == self.size - 1 and self._control.all_sent() and self._at_rest():
                self._watchdog.stop()
                _finalize(code)
                return code
            sleep(LONGEST_SLEEP)
        if failed and min(failed) < self.rank:
            sleep(TOGETHER + ANSWER)  # a lower rank is about to print and abort
        elif code != BROKEN_PIPE:
            if self.rank or not text:
                where = f"rank {self.rank}/{self.size}"
                _print(text or f"{where}: the program ended here with exit status {code}\n")
            self._print_positions()
        self._abort(code)
        return code

    def _at_rest(self) -> bool:
        """Whether all requests of this rank are complete."""
        with self._lock:
            return bool(MPI.Request.Testall(self._open))

    def _print_positions(self) -> None:
        """Print the positions of the ranks that have not failed."""
        positions = self._control.query()
        others = set(range(self.size)) - {self.rank} - self._control.failed
        _print(
            meanwhile(
                {q: positions[q] for q in others if q in positions}, sorted(others - set(positions))
            )
        )

    def _end(self, text: str) -> None:
        """End the job; called by the watchdog."""
        _print(text)
        self._abort(1)

    def _abort(self, code: int) -> None:
        """End all processes.

        If another thread blocks the library, end this process; the launcher then ends the others.
        """
        if self._lock.acquire(timeout=TOGETHER):
            _abort(code)
        os._exit(code)

    def _started(self) -> bytes:
        """How many collectives this rank has started in each channel."""
        return np.array([link.started for link in self._links], np.int64).tobytes()


def _raw(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


def _in_turns(sends: list[Send]) -> Iterator[tuple[int, np.ndarray]]:
    """The pieces of messages with their destinations: the first of each message, then the second of
    each, and so on.

    A receiver asks for pieces in this order. It learns from the length of a piece whether another
    one follows.
    """
    messages = [(partner, _raw(array)) for partner, array in sends]
    begin = 0
    while messages:
        for partner, raw in messages:
            yield partner, raw[begin : begin + PIECE]
        begin += PIECE
        messages = [(partner, raw) for partner, raw in messages if len(raw) >= begin]


def _print(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _finalize(code: int) -> None:
    """Finalize MPI. Unfinished operations may block the library, so a timer ends the process."""
    # long, since a rank that ends without MPI has the launcher kill the others; an overloaded
    # machine needs seconds
    guard = threading.Timer(20.0, os._exit, [code])
    guard.daemon = True
    guard.start()
    MPI.Finalize()
    guard.cancel()


def _abort(code: int) -> None:
    """End all processes. Output of the library is discarded, since the error has been printed."""
    sys.stdout.flush()
    sys.stderr.flush()
    for pipe in (1, 2):
        wait_until_read(pipe)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.dup2(null, 1)
    MPI.COMM_WORLD.Abort(code)
