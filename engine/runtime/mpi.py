"""The communicator of real processes. The only file that imports mpi4py.

Waiting is never left to the MPI library, which spins: with more ranks than cores a spinning rank keeps the one it waits
for from running (measured: four ranks on two cores become a hundred times slower). All operations are started
non-blocking and polled here, first with ``sched_yield`` in between, which costs nothing when the message is near, then
with short sleeps. Polling also lets Ctrl-C through and notices ranks that have left the program.
"""
from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock, get_ident
from time import monotonic, sleep

import mpi4py
import numpy as np

from graphtheta.errors import CommError

from ..comm.call_site import call_site, collective, describe, mismatch
from ..comm.channel import Send, purpose, under_way
from ..comm.communicator import Comm
from ..comm.failure import BROKEN_PIPE, wait_until_read
from .control import ANSWER, TOGETHER, Kind
from .watchdog import Watchdog, meanwhile, position, with_stacks

mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI  # noqa: E402  (starts MPI, with the thread level set above)

# Seconds of looking before the first sleep: little where ranks take turns on a core.
SHORT, LONG = 1e-4, 2e-3
FIRST_SLEEP, LONGEST_SLEEP = 1e-5, 2e-4
# Longest message in one piece: counts stay below 2^31 for libraries of any age.
PIECE = 1 << 30


@dataclass
class _Link:
    """What carries one channel: communicators of its own for moves and collectives, and how many of these were started."""

    moves: MPI.Comm
    collectives: MPI.Comm
    started: int = 0


def _new_link() -> _Link:
    return _Link(MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup())


class _Letters:
    """Letters of the watchdogs, on a communicator of their own: no message of ours can match one of the user's."""

    def __init__(self, lock: RLock) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.lock = lock
        # requests with the memory they use
        self._leaving: list[tuple[MPI.Request, bytearray]] = []
        self._arriving: list[tuple[MPI.Request, bytearray, int, int]] = []

    def send(self, to: int, kind: int, data: bytes) -> None:
        with self.lock:
            buffer = bytearray(data)
            self._leaving.append((self._comm.Isend([buffer, MPI.BYTE], to, kind), buffer))

    def take(self) -> list[tuple[int, int, bytes]]:
        with self.lock:
            status = MPI.Status()
            while message := self._comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
                buffer = bytearray(status.Get_count(MPI.BYTE))
                self._arriving.append((message.Irecv([buffer, MPI.BYTE]), buffer, status.Get_source(), status.Get_tag()))
            here = [letter[0].Test() for letter in self._arriving]
            found = [(source, kind, bytes(buffer)) for done, (_, buffer, source, kind) in zip(here, self._arriving, strict=True) if done]
            self._arriving = [letter for done, letter in zip(here, self._arriving, strict=True) if not done]
            return found

    def sent(self) -> bool:
        with self.lock:
            self._leaving = [letter for letter in self._leaving if not letter[0].Test()]
            return not self._leaving


class MpiComm(Comm):
    """All processes started by mpiexec or srun.

    Args:
        patience: How long a rank may make no progress while others wait for it, as ``watchdog.Pace`` takes it.
    """

    def __init__(self, patience: float | None = None) -> None:
        self._eager = SHORT
        world = MPI.COMM_WORLD
        # one thread at a time may be in the library
        self._lock = RLock()
        self._links = [_new_link()]
        self._open: list[MPI.Request] = []
        self._ended = False
        super().__init__(world.Get_rank(), world.Get_size())
        processes = enumerate(world.allgather((platform.node(), os.getpid())))
        pids = {rank: pid for rank, (node, pid) in processes if node == platform.node()}
        self._watchdog = Watchdog(_Letters(self._lock), patience, self._position, self._end, pids)
        self._control = self._watchdog.control
        if MPI.Query_thread() >= MPI.THREAD_SERIALIZED:
            self._watchdog.start()

    @collective
    def open_channels(self, n: int) -> None:
        """Have at least so many channels besides channel 0.

        Args:
            n: Their number, the same on all ranks.

        Raises:
            CommError: The MPI library does not let threads take turns.
        """
        if n and MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise CommError("views_in_flight above 1 needs an MPI library with MPI_THREAD_SERIALIZED; "
                            "use views_in_flight=1, or another MPI library")
        super().open_channels(n)
        while len(self._links) <= n:
            self._links.append(_Link(self._new_comm(), self._new_comm()))

    def _new_comm(self) -> MPI.Comm:
        """A communicator of all ranks, made without staying in the library until the last of them is there."""
        with self._lock:
            made, request = MPI.COMM_WORLD.Idup()
        self._wait([request], None, None, describe(self.operation), 0)
        return made

    # -- primitives ------------------------------------------------------------------------------------------------

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._collect(lambda on: on.Iallgather([_raw(x), MPI.BYTE], [_raw(out), MPI.BYTE]), out.nbytes)

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._collect(lambda on: on.Ialltoall([_raw(x), MPI.BYTE], [_raw(out), MPI.BYTE]), out.nbytes)

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        for piece in _pieces(x):
            self._collect(lambda on, piece=piece: on.Ibcast([piece, MPI.BYTE], root), piece.nbytes)  # type: ignore[misc]

    def _post(self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool) -> Callable[[], None]:
        requests, sizes = [], []
        moves = self._links[self._number].moves
        with self._lock:
            for partner, array in recvs:
                for piece in _pieces(array):
                    requests.append(moves.Irecv([piece, MPI.BYTE], partner, tag))
                    sizes.append(piece.nbytes)
            for partner, array in sends:
                requests.extend(moves.Isend([piece, MPI.BYTE], partner, tag) for piece in _pieces(array))
            self._open.extend(requests)
        sources = [partner for partner, _ in recvs]
        n_bytes = sum(array.nbytes for _, array in (*sends, *recvs))

        def finish() -> None:
            statuses = [MPI.Status() for _ in requests]
            self._wait(list(requests), statuses, sources, f"{purpose(tag)} from ranks {sources}", n_bytes)
            for partner_status, size in zip(statuses, sizes, strict=False):
                got = partner_status.Get_count(MPI.BYTE)
                if got != size and not at_most:
                    raise CommError(
                        f"move: rank {self.rank} expects {size} bytes from rank {partner_status.Get_source()} ({purpose(tag)}), "
                        f"got {got}, at {call_site()}; both sides must use the same plan"
                    )

        return finish

    def _collect(self, start: Callable[[MPI.Comm], MPI.Request], n_bytes: int) -> None:
        link = self._links[self._number]
        link.started += 1
        with self._lock:
            request = start(link.collectives)
            self._open.append(request)
        self._wait([request], None, None, describe(self.operation), n_bytes)

    def own_core(self) -> None:
        """Wait eagerly from now on: no other rank needs the core of this one."""
        self._eager = LONG

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, requests: list[MPI.Request], statuses: list[MPI.Status] | None, sources: list[int] | None, what: str,
              n_bytes: int) -> None:
        """Return when all requests are done; ``sources`` are the ranks they depend on, None for a collective."""
        number, arrived, patience = self._number, False, monotonic() + self._eager

        def done() -> bool:
            nonlocal arrived
            # a second look at finished requests would overwrite their statuses
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
            raise self._broken(sources is None, f"{what}: {error}, at {call_site()}; check that all ranks use the same sizes "
                                                "and order") from error
        finally:
            del self._watchdog.sizes[id(requests)]
        self._watchdog.marks += 1
        with self._lock:
            self._open = [request for request in self._open if request]

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Look until ``ready``: eagerly at first, then with pauses."""
        waits, thread = self._watchdog.waits, get_ident()
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
                pause = min(2 * pause, LONGEST_SLEEP)
        finally:
            waits[thread] = None

    def _check_left(self, number: int, sources: list[int] | None, what: str) -> None:
        """Raise if a rank that channel ``number`` waits for has ended its program."""
        if not self._watchdog.watching:
            self._control.hear()
        own = self._links[number].started
        for rank, (started, deadline) in self._control.left.items():
            missing = (number >= len(started) or started[number] < own) if sources is None else rank in sources and monotonic() > deadline
            if missing:
                raise CommError(f"rank {rank} has exited, but rank {self.rank} waits for it in {what} at {call_site()}")

    # -- where ranks are -------------------------------------------------------------------------------------------

    def _position(self, channel: int | None) -> tuple[str, int, str]:
        """What the program does in a channel, or in that of one of its tasks: operation, its number, stage."""
        if channel is None:
            channel = next((task.channel for task in under_way()), 0)
        now = self._channels[min(channel, len(self._channels) - 1)]
        return describe(now.operation), now.calls, now.ledger.current

    def _disagreement(self) -> CommError:
        places = self._control.ask(channel=self._number)
        lines = [position(places[q]) if q in places else "does not answer" for q in range(self.size)]
        return CommError(f"{mismatch(lines)}\n\n{with_stacks(places)}")

    def _broken(self, collective: bool, text: str) -> CommError:
        """The error to raise when the library has found one: ranks in different collectives, if that is why."""
        if collective:
            places = self._control.ask(channel=self._number)
            if len({(place["number"], place["operation"]) for place in places.values()}) > 1:
                return self._disagreement()
        return CommError(text)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave in good order: returns when every rank is done. Called when Python exits."""
        if self._ended or MPI.Is_finalized():
            return
        self._ended = True
        self._watchdog.left = True
        self._control.tell(Kind.LEFT, self._started())
        pause = FIRST_SLEEP
        while len(self._control.left) < self.size - 1 or not self._control.told():
            self._control.hear()
            sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)
        self._watchdog.stop()

    def leave(self, text: str, code: int) -> int:
        """End the job after an uncaught error on this rank.

        If all ranks fail within ``TOGETHER`` seconds, the lowest one prints and all exit by themselves. Otherwise the
        lowest failing rank prints, also where the others were, and aborts them.

        Args:
            text: What to tell the user.
            code: Exit status.

        Returns:
            The exit status, if all ranks fail together.
        """
        if self._ended or MPI.Is_finalized():
            return code
        self._ended = True
        if self.rank == 0:
            _say(text)
        self._control.tell(Kind.FAILED, self._started())
        failed = self._control.failed
        deadline = monotonic() + TOGETHER
        while monotonic() < deadline:
            self._control.hear()
            if len(failed) == self.size - 1 and self._control.told() and self._at_rest():
                self._watchdog.stop()
                _finalize(code)
                return code
            sleep(LONGEST_SLEEP)
        if failed and min(failed) < self.rank:
            sleep(TOGETHER + ANSWER)  # a lower rank is about to speak and abort
        elif code != BROKEN_PIPE:
            if self.rank or not text:
                _say(text or f"rank {self.rank}/{self.size}: the program ended here with exit status {code}\n")
            self._say_meanwhile()
        self._abort(code)
        return code

    def _at_rest(self) -> bool:
        """Whether no message of this rank is under way."""
        with self._lock:
            return bool(MPI.Request.Testall(self._open))

    def _say_meanwhile(self) -> None:
        """Say where the ranks are that have not failed; those that fail because of this one are of no interest."""
        places = self._control.ask()
        others = set(range(self.size)) - {self.rank} - self._control.failed
        _say(meanwhile({q: places[q] for q in others if q in places}, sorted(others - set(places))))

    def _end(self, text: str) -> None:
        """Of the watchdog: end the job."""
        _say(text)
        self._abort(1)

    def _abort(self, code: int) -> None:
        """End all processes. If another thread is in the library for ever, end this one; the launcher then ends the others."""
        if self._lock.acquire(timeout=TOGETHER):
            _abort(code)
        os._exit(code)

    def _started(self) -> bytes:
        """How many collectives this rank has started in each channel."""
        return np.array([link.started for link in self._links], np.int64).tobytes()


def _raw(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


def _pieces(x: np.ndarray) -> list[np.ndarray]:
    raw = _raw(x)
    return [raw[begin : begin + PIECE] for begin in range(0, raw.nbytes, PIECE)]


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _finalize(code: int) -> None:
    """End MPI; a library that cannot, because of something left half done, must not keep the job alive."""
    guard = threading.Timer(2.0, os._exit, [code])
    guard.daemon = True
    guard.start()
    MPI.Finalize()
    guard.cancel()


def _abort(code: int) -> None:
    """End all processes. The library's own message would only repeat, in its words, what has been said."""
    sys.stdout.flush()
    sys.stderr.flush()
    for pipe in (1, 2):
        wait_until_read(pipe)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.dup2(null, 1)
    MPI.COMM_WORLD.Abort(code)
