"""The watchdog: ends a job that makes no progress, and reports the position of every rank.

A thread of each rank checks a few times a second whether the rank has made progress, which is to
finish a collective, a move or a work item. A rank that has waited for longer than its limit
queries the positions of all ranks. The job ends only if every rank has exceeded its limit, which
follows the longest pause so far.

Slow ranks are not taken for a hang. A rank that compiles or computes for long, or reads from a
slow disk, shows signs of life and has a higher limit; so has user code between steps. Time in
which the process was suspended does not count. A rank that no other rank waits for may be idle for
ever.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from ..comm.channel import active_work_items
from .control import Control, ControlTransport, Position
from .liveness import Liveness
from .stacks import WATCHDOG, frames, in_debugger, in_step, stacks, where

# Seconds between two checks, and between two queries.
TICK, AGAIN = 0.25, 1.0
# A pause may last this many seconds, or this many times the longest one so far.
LEAST, FACTOR = 10.0, 5.0
# Factors of this limit for a rank that shows signs of life, and for code between steps.
WORKING, BETWEEN = 6.0, 30.0
# Lowest bandwidth to expect, in bytes per second.
SLOWEST = 10e6
# Signs of life are checked only in pauses of more than this many seconds.
SHORT = 1.0


@dataclass
class Pace:
    """How long a rank has made no progress, and how long that may last.

    Attributes:
        patience: Limit set by the user, in seconds; 0 for none, None for one that follows the
            longest pause.
        pause: Seconds since the last progress.
        idle: Seconds since the last progress or sign of life.
        asleep: Seconds without a sign of life since the last progress, those before the last sign
            included.
        longest: The longest pause that ended, between steps and in a step.
        stepping: Whether the rank was in a step at the last check.
    """

    patience: float | None = None
    pause: float = 0.0
    idle: float = 0.0
    asleep: float = 0.0
    longest: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    stepping: bool = False

    def update(
        self,
        seconds: float,
        progress: bool,
        alive: Callable[[], bool],
        stepping: Callable[[], bool],
    ) -> None:
        """Count the time since the last check.

        Args:
            seconds: This time; less than that of the clock if the process was suspended.
            progress: Whether the rank has made progress.
            alive: Whether the process shows signs of life.
            stepping: Whether the rank is in a step.
        """
        if progress:
            self.longest[self.stepping] = max(self.longest[self.stepping], self.pause)
            self.pause = self.idle = self.asleep = 0.0
            return
        self.pause += seconds
        if self.pause > SHORT:
            self.stepping = stepping()
            if alive():
                self.idle = 0.0
            else:
                self.idle += seconds
                self.asleep += seconds

    def limit(self, grace: float = 1.0) -> float:
        """Seconds that a pause may last."""
        if self.patience is not None:
            return self.patience or float("inf")
        return max(LEAST * grace, FACTOR * self.longest[self.stepping])

    def late(self, waits: bool, n_bytes: int) -> bool:
        """Whether the pause has lasted too long.

        Args:
            waits: Whether the rank waits for others.
            n_bytes: Bytes that it waits for.
        """
        if waits:
            return self.pause > self.limit() + n_bytes / SLOWEST
        grace = 1.0 if self.stepping else BETWEEN
        return self.idle > self.limit(grace) or self.pause > self.limit(grace * WORKING)


@dataclass
class Unresponsive:
    """A rank that does not answer queries.

    Attributes:
        since: Time of the first query without an answer.
        process: Its process, if that is on this machine.
        pace: How long it has not answered, and how long that may last.
    """

    since: float
    process: Liveness | None
    pace: Pace

    def late(self, now: float) -> bool:
        """Whether the rank has not answered for too long."""
        if self.process is not None and (self.process.ended or self.process.traced):
            return self.process.ended
        self.pace.update(
            now - self.since - self.pace.pause,
            False,
            lambda: self.process is None or self.process.check(),
            lambda: True,
        )
        return self.pace.late(False, 0)

    def describe(self) -> str:
        """Text for a report."""
        return (
            "does not respond:"
            f" {self.process.describe() if self.process else 'killed, stopped or disconnected'}"
        )


class Watchdog:
    """Watches one rank.

    Args:
        transport: Delivers control messages to and from the watchdogs of the other ranks.
        activity: Returns the operation in a channel, its number, and the stage of the ledger.
        end: Prints a text and ends all ranks.
        pids: Process ids of the ranks on this machine, by rank.

    Attributes:
        marks: How often the rank has made progress, counted by the communicator.
        waits: Description of what a thread waits for, or None, for each thread that has used the
            communicator.
        sizes: Bytes that the communicator waits for, by a key of each wait.
        left: Whether the program of this rank has ended. The rank then waits only for the others
            to end.
        pace: That of the rank.
    """

    def __init__(
        self,
        transport: ControlTransport,
        activity: Callable[[int | None], tuple[str, int, str]],
        end: Callable[[str], None],
        pids: dict[int, int],
    ) -> None:
        self.control = Control(transport, self.position)
        self.marks = 0
        self.waits: dict[int, str | None] = {}
        self.sizes: dict[int, int] = {}
        self.left = False
        self._activity = activity
        self._end = end
        self._pids = pids
        self.pace = Pace()
        self._unresponsive: dict[int, Unresponsive] = {}
        self._stop = threading.Event()
        self._seen = monotonic()
        self._marks = 0
        self._query_at = 0.0
        self._thread = threading.Thread(target=self._run, name=WATCHDOG, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def watching(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        process = Liveness(self._pids[self.control.rank])
        while not self._stop.wait(TICK):
            self.control.receive()
            self._check(process)
            if self._should_query():
                self._investigate()

    def _check(self, process: Liveness) -> None:
        now = monotonic()
        # the process was suspended if there is a longer time between two ticks
        seconds = min(now - self._seen, 2 * TICK)
        self._seen = now
        marks = self._marks
        self._marks = self.marks
        self.pace.update(
            seconds,
            marks != self._marks,
            process.check,
            lambda: any(in_step(stack) for stack in self._stacks()),
        )

    # -- position of this rank ----

    def _workers(self) -> dict[int, list]:
        """Stacks of the threads that do the work of this rank."""
        current = sys._current_frames()
        used = [ident for ident in list(self.waits) if ident in current]
        stacks = {
            ident: frames(current[ident])
            for ident in used or [threading.main_thread().ident or 0]
            if ident in current
        }
        # the frame of this call is among them; the circle would keep the values of all frames in
        # memory
        current.clear()
        return stacks

    def _stacks(self) -> list:
        return [
            *self._workers().values(),
            *(frames(item.state()[1]) for item in active_work_items()),
        ]

    def _waiting(self) -> bool:
        """Whether every thread of this rank waits."""
        return all(self.waits.get(ident) for ident in self._workers())

    def _n_bytes(self) -> int:
        return sum(list(self.sizes.values()))

    def position(self, channel: int | None = None) -> Position:
        """Position of this rank, for other ranks and for reports."""
        workers = self._workers()
        waits = self._waiting()
        stack = next(
            (stack for ident, stack in workers.items() if waits or not self.waits.get(ident)), []
        )
        operation, number, stage = self._activity(channel)
        pace = self.pace
        if self.left:
            stack = []
            waits = True
        return {
            "waits": waits,
            "what": (
                # threads that start meanwhile add lines
                next((line for line in list(self.waits.values()) if line), operation)
                if waits
                else ""
            ),
            "operation": operation,
            "number": number,
            "stage": stage,
            "left": self.left,
            "where": where(stack) if stack else "the end of its program",
            "pause": pace.pause,
            "asleep": pace.asleep,
            "stacks": stacks(),
            "late": (
                pace.late(waits, self._n_bytes())
                and not any(in_debugger(worker) for worker in workers.values())
            ),
        }

    # -- detection of hangs ----

    def _should_query(self) -> bool:
        """Whether this rank has waited for too long, and no lower rank has sent a query lately."""
        now = monotonic()
        if (
            self.left
            or now < self._query_at
            or self.control.failed
            or not self.pace.late(True, self._n_bytes())
            or not self._waiting()
        ):
            return False
        return not any(
            q < self.control.rank and now < when + 4 * AGAIN
            for q, when in list(self.control.queried.items())
        )

    def _investigate(self) -> None:
        positions = self.control.query()
        now = monotonic()
        self._query_at = now + AGAIN
        missing = set(range(self.control.size)) - set(positions)
        self._unresponsive = {
            q: self._unresponsive.get(q) or self._new_unresponsive(q, now) for q in missing
        }
        if not all(position["late"] for position in positions.values()) or not all(
            r.late(now) for r in self._unresponsive.values()
        ):
            return
        if self.control.first_to_report() and self.marks == self._marks:
            self._end(
                report(
                    positions, {q: r.describe() for q, r in self._unresponsive.items()}, self.pace
                )
            )

    def _new_unresponsive(self, rank: int, now: float) -> Unresponsive:
        process = Liveness(self._pids[rank]) if rank in self._pids else None
        return Unresponsive(now, process, Pace(self.pace.patience))


# ---- text of reports


def one_line(position: Position) -> str:
    """The position of a rank in one line."""
    at = f"at {position['where']}, stage {position['stage']}"
    seconds = f"for {position['pause']:.0f} s"
    if position["left"]:
        return f"has exited, after operation {position['number']}, {position['operation']}"
    if position["waits"]:
        return f"waits {seconds} in {position['what']}, operation {position['number']}, {at}"
    pace = "asleep" if position["asleep"] > position["pause"] / 2 else "busy"
    return (
        f"is {pace} {seconds} {at}, after operation {position['number']}, {position['operation']}"
    )


def operation_line(position: Position) -> str:
    """The operation of a rank in one line."""
    return (
        f"operation {position['number']}, {position['operation']} at {position['where']}, stage"
        f" {position['stage']}"
    )


def meanwhile(positions: dict[int, Position], missing: list[int]) -> str:
    """Positions of the other ranks when one failed; ranks at the same position share a line.

    Args:
        positions: Positions of the ranks that have answered.
        missing: The ranks that have not.
    """
    by_line: dict[str, list[int]] = {}
    for q, position in positions.items():
        what = f"in {position['what']}" if position["waits"] else "busy"
        line = (
            "has exited"
            if position["left"]
            else f"{what} at {position['where']}, stage {position['stage']}"
        )
        by_line.setdefault(line, []).append(q)
    for q in missing:
        by_line.setdefault("does not respond", []).append(q)
    return "".join(f"meanwhile {_ranks(ranks)}: {line}\n" for line, ranks in by_line.items())


def with_stacks(positions: dict[int, Position]) -> str:
    """The stacks of all ranks, outermost call first; ranks with equal stacks share a block."""
    alike: dict[str, list[int]] = {}
    for q, position in positions.items():
        text = [
            line
            for name, lines in position["stacks"]
            for line in (f"    {name}:", *(f"        {line}" for line in lines))
        ]
        alike.setdefault("\n".join(text) or "    none", []).append(q)
    return "\n".join(f"stacks of {_ranks(ranks)}:\n{text}" for text, ranks in alike.items())


def report(positions: dict[int, Position], unresponsive: dict[int, str], pace: Pace) -> str:
    """Report of a deadlock or a timeout, for the user.

    Args:
        positions: Positions of the ranks that have answered.
        unresponsive: Descriptions of the other ranks.
        pace: Pace of the rank that reports.
    """
    size = len(positions) + len(unresponsive)
    stuck = {q: position for q, position in positions.items() if not position["waits"]}
    waiting = [q for q, position in positions.items() if position["waits"] and not position["left"]]
    lines = [f"rank {q}/{size} {text}" for q, text in unresponsive.items()]
    lines += [
        f"rank {q}/{size} makes no progress: it {one_line(position)}"
        for q, position in stuck.items()
    ]
    if not lines:
        lines = [f"rank {q}/{size} {one_line(position)}" for q, position in positions.items()]
        head = "deadlock: every rank waits for another rank:"
    else:
        head = (
            f"timeout: {_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for other ranks"
            " that make no progress:"
        )
        first = positions[waiting[0]]
        lines.append(
            f"{_ranks(waiting)}: {first['what']} at {first['where']}, stage {first['stage']}"
        )
    if pace.patience:
        limit = f"the limit set by GRAPHTHETA_PATIENCE={pace.patience:g}"
    else:
        limit = (
            f"while the longest pause before was {max(SHORT, *pace.longest.values()):.0f} s. If the"
            " program was not stuck, set GRAPHTHETA_PATIENCE to a time limit in seconds, or to 0"
            " for no limit"
        )
    return "\n".join(
        [
            f"graphtheta: {head}",
            *(f"  {line}" for line in lines),
            f"Aborted after {pace.pause:.0f} s, {limit}.",
            "",
            with_stacks(positions),
            "",
        ]
    )


def _ranks(ranks: list[int]) -> str:
    """Text of a list of ranks, such as "ranks 0, 1 and 2"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
