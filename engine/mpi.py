"""The communicator of real processes. The only file that imports mpi4py.

Waiting is never left to the MPI library, which spins: with more ranks than cores a spinning rank keeps the one it waits
for from running (measured: four ranks on two cores become a hundred times slower). All operations are started
non-blocking and polled here, first with ``sched_yield`` in between, which costs nothing when the message is near, then
with short sleeps. Polling also lets Ctrl-C through and notices ranks that have left the program.
"""
from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from time import monotonic, sleep

import mpi4py
import numpy as np

from graphtheta.errors import CommError

from .channel import Send
from .comm import Comm
from .site import call_site, collective, describe

mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI  # noqa: E402  (starts MPI, with the thread level set above)

# Seconds of looking before the first sleep: little where ranks take turns on a core.
SHORT, LONG = 1e-4, 2e-3
FIRST_SLEEP, LONGEST_SLEEP = 1e-5, 2e-4
# Longest message in one piece: counts stay below 2^31 for libraries of any age.
PIECE = 1 << 30
# How long a failing rank waits for the others to fail alike, so that one speaks for all.
TOGETHER = 0.7
# How long messages of a rank that has left may still be under way.
LATE = 1.0
_FAILED, _LEFT = 1, 2


@dataclass
class _Link:
    """What carries one channel: communicators of its own for moves and collectives, and how many of these were started."""

    moves: MPI.Comm
    collectives: MPI.Comm
    started: int = 0


def _new_link() -> _Link:
    return _Link(MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup())


class MpiComm(Comm):
    """All processes started by mpiexec or srun.

    Args:
        strict: Check before each collective that all ranks are in the same one.
    """

    def __init__(self, strict: bool = False) -> None:
        self._eager = SHORT
        world = MPI.COMM_WORLD
        # one thread at a time may be in the library
        self._lock = RLock()
        self._links = [_new_link()]
        # no message of ours can match one of the user's, or one of another purpose
        self._control = world.Dup()
        self._open: list[MPI.Request] = []
        self._left: dict[int, tuple[np.ndarray, float]] = {}
        self._ended = False
        super().__init__(world.Get_rank(), world.Get_size(), strict)

    @collective
    def open_channels(self, n: int) -> None:
        """Have at least so many channels besides channel 0.

        Args:
            n: Their number, the same on all ranks.

        Raises:
            CommError: The MPI library does not let threads take turns.
        """
        if n and MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise CommError("several views at once need an MPI library that lets threads take turns (MPI_THREAD_SERIALIZED); "
                            "use views_in_flight=1 or another library")
        with self._lock:
            self._links += [_new_link() for _ in range(n + 1 - len(self._links))]
        super().open_channels(n)

    # -- primitives ------------------------------------------------------------------------------------------------

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._collect(lambda on: on.Iallgather([_raw(x), MPI.BYTE], [_raw(out), MPI.BYTE]))

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._collect(lambda on: on.Ialltoall([_raw(x), MPI.BYTE], [_raw(out), MPI.BYTE]))

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        for piece in _pieces(x):
            self._collect(lambda on, piece=piece: on.Ibcast([piece, MPI.BYTE], root))  # type: ignore[misc]

    def _post(self, sends: list[Send], recvs: list[Send], tag: int) -> Callable[[], None]:
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

        def finish() -> None:
            statuses = [MPI.Status() for _ in requests]
            self._wait(list(requests), statuses, sources)
            for partner_status, size in zip(statuses, sizes, strict=False):
                got = partner_status.Get_count(MPI.BYTE)
                if got != size:
                    raise CommError(
                        f"move: rank {self.rank} expects {size} bytes from rank {partner_status.Get_source()} (tag {tag}), "
                        f"got {got}, at {call_site()}; both sides must use the same plan"
                    )

        return finish

    def _collect(self, start: Callable[[MPI.Comm], MPI.Request]) -> None:
        link = self._links[self._number]
        link.started += 1
        with self._lock:
            request = start(link.collectives)
            self._open.append(request)
        self._wait([request], None, None)

    def own_core(self) -> None:
        """Wait eagerly from now on: no other rank needs the core of this one."""
        self._eager = LONG

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, requests: list[MPI.Request], statuses: list[MPI.Status] | None, sources: list[int] | None) -> None:
        """Return when all requests are done; ``sources`` are the ranks they depend on, None for a collective."""
        number, arrived, patience = self._number, False, monotonic() + self._eager
        what = describe(self.operation) if sources is None else f"a move from ranks {sources}"

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

        try:
            self.until(done, what)
        except MPI.Exception as error:
            raise CommError(f"{what}: {error}, at {call_site()}; do all ranks agree on sizes and order?") from error
        with self._lock:
            self._open = [request for request in self._open if request]

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Look until ``ready``: eagerly at first, then with pauses."""
        end = monotonic() + self._eager
        while monotonic() < end:
            if ready():
                return
            os.sched_yield()
        pause = FIRST_SLEEP
        while not ready():
            sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)

    def _check_left(self, number: int, sources: list[int] | None, what: str) -> None:
        """Raise if a rank that channel ``number`` waits for has ended its program."""
        self._hear_left()
        own = self._links[number].started
        for rank, (started, deadline) in self._left.items():
            missing = (number >= len(started) or started[number] < own) if sources is None else rank in sources and monotonic() > deadline
            if missing:
                raise CommError(f"rank {rank} has left the program, but rank {self.rank} waits for it in {what} at {call_site()}")

    def _hear_left(self) -> None:
        status = MPI.Status()
        while self._control.Iprobe(MPI.ANY_SOURCE, _LEFT, status):
            self._left[status.Get_source()] = (self._note_from(status, _LEFT), monotonic() + LATE)

    def _note_from(self, status: MPI.Status, tag: int) -> np.ndarray:
        """How many collectives a rank had started in each of its channels."""
        counts = np.zeros(status.Get_count(MPI.INT64_T), np.int64)
        self._control.Recv([counts, MPI.INT64_T], status.Get_source(), tag)
        return counts

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave in good order: returns when every rank is done. Called when Python exits."""
        if self._ended or MPI.Is_finalized():
            return
        self._ended = True
        notes = self._tell(_LEFT)
        pause = FIRST_SLEEP
        while len(self._left) < self.size - 1 or not MPI.Request.Testall(notes):
            self._hear_left()
            sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)

    def leave(self, text: str, code: int) -> int:
        """End the job after an uncaught error on this rank.

        If all ranks fail within ``TOGETHER`` seconds, the lowest one prints and all exit by themselves. Otherwise the
        lowest failing rank prints and aborts the others.

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
        notes = self._tell(_FAILED)
        failed = {self.rank}
        deadline = monotonic() + TOGETHER
        while monotonic() < deadline:
            self._hear_failed(failed)
            if len(failed) == self.size and MPI.Request.Testall(notes) and MPI.Request.Testall(self._open):
                _finalize(code)
                return code
            sleep(LONGEST_SLEEP)
        if min(failed) < self.rank:
            sleep(TOGETHER)  # a lower rank is about to speak and abort
        elif self.rank:
            _say(text)
        _abort(code)
        return code

    def _tell(self, tag: int) -> list[MPI.Request]:
        self._note = np.array([link.started for link in self._links], np.int64)
        return [self._control.Isend([self._note, MPI.INT64_T], q, tag) for q in range(self.size) if q != self.rank]

    def _hear_failed(self, failed: set[int]) -> None:
        status = MPI.Status()
        while self._control.Iprobe(MPI.ANY_SOURCE, _FAILED, status):
            self._note_from(status, _FAILED)
            failed.add(status.Get_source())


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
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.dup2(null, 1)
    MPI.COMM_WORLD.Abort(code)
