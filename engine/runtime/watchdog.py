"""The watchdog: ends a job in which nothing goes on any more, and says where every rank is.

A thread on each rank looks a few times a second whether the rank has made progress, which is to finish a collective, a
move or a task. A rank that has waited for too long asks all ranks where they are. Only if none of them can be expected to
go on, the job is ended. How long is too long follows the longest pause that ended well.

What must not be taken for a hang, and is not: a rank that compiles or computes for long, or reads from a slow disk, shows
signs of life and has more time; so has code of the user's between steps. While one rank is within its time, the others wait.
Time in which this process was suspended does not count. A rank that nobody waits for may be idle for ever.
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from ..comm.channel import under_way
from .control import Control, Letters, Place
from .liveness import Life
from .stacks import WATCHDOG, frames, in_debugger, in_step, stacks, where

# Seconds between two looks, and between two questions.
TICK, AGAIN = 0.25, 1.0
# A pause may last this many seconds, or this many times the longest one so far.
LEAST, FACTOR = 10.0, 5.0
# By how much longer it may last in a rank that shows signs of life, and in code between steps.
WORKING, BETWEEN = 6.0, 30.0
# Bytes a second at which messages arrive at least.
SLOWEST = 10e6
# Pauses shorter than this are not looked at closely.
SHORT = 1.0


@dataclass
class Pace:
    """How long a rank has made no progress, and how long that may last.

    Attributes:
        patience: What the user has set for it, in seconds; 0 for ever, None to follow the pace.
        pause: Seconds since the last progress.
        still: Seconds since the last progress or sign of life.
        longest: The longest pause that ended, between steps and in a step.
    """

    patience: float | None = None
    pause: float = 0.0
    still: float = 0.0
    longest: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    stepping: bool = False

    def look(self, seconds: float, progress: bool, alive: Callable[[], bool], stepping: Callable[[], bool]) -> None:
        """Count the time since the last look.

        Args:
            seconds: How much it is; less than the clock says if the process was suspended.
            progress: Whether there was any.
            alive: Whether the process shows signs of life.
            stepping: Whether the rank is in a step.
        """
        if progress:
            self.longest[self.stepping] = max(self.longest[self.stepping], self.pause)
            self.pause = self.still = 0.0
            return
        self.pause += seconds
        if self.pause > SHORT:
            self.stepping = stepping()
            self.still = 0.0 if alive() else self.still + seconds

    def limit(self, grace: float = 1.0) -> float:
        """Seconds that a pause may last."""
        if self.patience is not None:
            return self.patience or float("inf")
        return max(LEAST * grace, FACTOR * self.longest[self.stepping])

    def late(self, waits: bool, n_bytes: int) -> bool:
        """Whether the pause has lasted too long.

        Args:
            waits: Whether the rank waits for others.
            n_bytes: Size of what it waits for.
        """
        if waits:
            return self.pause > self.limit() + n_bytes / SLOWEST
        grace = 1.0 if self.stepping else BETWEEN
        return self.still > self.limit(grace) or self.pause > self.limit(grace * WORKING)


@dataclass
class Silence:
    """A rank that does not answer, since when, and its process if that is on this machine."""

    since: float
    life: Life | None
    pace: Pace

    def late(self, now: float) -> bool:
        """Whether it has lasted too long; whoever asks has waited for some time already."""
        if self.life is not None and (self.life.ended or self.life.traced):
            return self.life.ended
        self.pace.look(now - self.since - self.pace.pause, False, lambda: self.life is None or self.life.look(), lambda: True)
        return self.pace.late(False, 0)

    def words(self) -> str:
        """What is known of it."""
        return f"does not respond: {self.life.words() if self.life else 'killed, stopped or disconnected'}"


class Watchdog:
    """Watches one rank.

    Args:
        letters: To talk to the watchdogs of the other ranks.
        patience: As ``Pace`` has it.
        position: What the program does in a channel: operation, its number, and stage of the ledger.
        end: Writes a text and ends all ranks.
        pids: Of ranks on this machine, by rank.

    Attributes:
        marks: How often the rank has made progress; counted by those who do.
        waits: Threads that have used the communicator: what each waits for, or None.
        sizes: Bytes of what is waited for, by any key.
        left: Whether this rank has left the program. It then waits for nothing but the end of the others.
    """

    def __init__(self, letters: Letters, patience: float | None, position: Callable[[int | None], tuple[str, int, str]],
                 end: Callable[[str], None], pids: dict[int, int]) -> None:
        self.control = Control(letters, self.here)
        self.marks = 0
        self.waits: dict[int, str | None] = {}
        self.sizes: dict[int, int] = {}
        self.left = False
        self._position, self._end, self._pids = position, end, pids
        self._pace = Pace(patience)
        self._silent: dict[int, Silence] = {}
        self._stop = threading.Event()
        self._seen, self._marks, self._ask_at = monotonic(), 0, 0.0
        self._thread = threading.Thread(target=self._run, name=WATCHDOG, daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    @property
    def watching(self) -> bool:
        """Whether there is a thread that reads letters."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Watch no longer; returns when the thread has ended."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        life = Life(self._pids[self.control.rank])
        while not self._stop.wait(TICK):
            self.control.hear()
            self._look(life)
            if self._should_ask():
                self._investigate()

    def _look(self, life: Life) -> None:
        now = monotonic()
        # a longer time between two ticks was spent suspended
        seconds, self._seen = min(now - self._seen, 2 * TICK), now
        marks, self._marks = self._marks, self.marks
        self._pace.look(seconds, marks != self._marks, life.look, lambda: any(in_step(stack) for stack in self._stacks()))

    # -- where this rank is ------------------------------------------------------------------------------------------

    def _workers(self) -> dict[int, list]:
        """Stacks of the threads that do the work of this rank."""
        current = sys._current_frames()
        used = [ident for ident in list(self.waits) if ident in current]
        return {ident: frames(current[ident]) for ident in used or [threading.main_thread().ident or 0] if ident in current}

    def _stacks(self) -> list:
        return [*self._workers().values(), *(frames(task.look()[1]) for task in under_way())]

    def _waiting(self) -> bool:
        """Whether every thread of this rank waits."""
        return all(self.waits.get(ident) for ident in self._workers())

    def _n_bytes(self) -> int:
        return sum(list(self.sizes.values()))

    def here(self, channel: int | None = None) -> Place:
        """Where this rank is, for others and for reports."""
        workers, waits = self._workers(), self._waiting()
        stack = next((stack for ident, stack in workers.items() if waits or not self.waits.get(ident)), [])
        operation, number, stage = self._position(channel)
        pace = self._pace
        if self.left:
            stack, waits = [], True
        return {
            "waits": waits, "what": next((line for line in self.waits.values() if line), operation) if waits else "",
            "operation": operation, "number": number, "stage": stage, "left": self.left, "where": where(stack) if stack else "its end",
            "pause": pace.pause, "still": pace.still, "stacks": stacks(),
            "late": pace.late(waits, self._n_bytes()) and not any(in_debugger(worker) for worker in workers.values()),
        }

    # -- when nothing goes on ----------------------------------------------------------------------------------------

    def _should_ask(self) -> bool:
        """Whether this rank waits for too long, and no lower one has asked lately."""
        now = monotonic()
        if self.left or now < self._ask_at or self.control.failed or not self._pace.late(True, self._n_bytes()) or not self._waiting():
            return False
        return not any(q < self.control.rank and now < when + 4 * AGAIN for q, when in list(self.control.asked.items()))

    def _investigate(self) -> None:
        places = self.control.ask()
        now = monotonic()
        self._ask_at = now + AGAIN
        missing = set(range(self.control.size)) - set(places)
        self._silent = {q: self._silent.get(q) or self._silence(q, now) for q in missing}
        if not all(place["late"] for place in places.values()) or not all(s.late(now) for s in self._silent.values()):
            return
        if self.control.first_to_report() and self.marks == self._marks:
            self._end(report(places, {q: s.words() for q, s in self._silent.items()}, self._pace))

    def _silence(self, rank: int, now: float) -> Silence:
        life = Life(self._pids[rank]) if rank in self._pids else None
        return Silence(now, life, Pace(self._pace.patience))


# ---- words


def one_line(place: Place) -> str:
    """Where a rank is, in one line."""
    at, seconds = f"at {place['where']}, stage {place['stage']}", f"for {place['pause']:.0f} s"
    if place["left"]:
        return f"has exited, after operation {place['number']}, {place['operation']}"
    if place["waits"]:
        return f"waits {seconds} in {place['what']}, operation {place['number']}, {at}"
    pace = "asleep" if place["still"] > place["pause"] / 2 else "busy"
    return f"is {pace} {seconds} {at}, after operation {place['number']}, {place['operation']}"


def position(place: Place) -> str:
    """The operation a rank is in, in one line."""
    return f"operation {place['number']}, {place['operation']} at {place['where']}, stage {place['stage']}"


def meanwhile(places: dict[int, Place], missing: list[int]) -> str:
    """Where the other ranks were when one failed, ranks at one place in one line."""
    by_line: dict[str, list[int]] = {}
    for q, place in places.items():
        what = f"in {place['what']}" if place["waits"] else "busy"
        line = "has exited" if place["left"] else f"{what} at {place['where']}, stage {place['stage']}"
        by_line.setdefault(line, []).append(q)
    for q in missing:
        by_line.setdefault("does not respond", []).append(q)
    return "".join(f"meanwhile {_ranks(ranks)}: {line}\n" for line, ranks in by_line.items())


def with_stacks(places: dict[int, Place]) -> str:
    """The stacks of all ranks, outermost call first; ranks at one place are named together."""
    alike: dict[str, list[int]] = {}
    for q, place in places.items():
        text = [line for name, lines in place["stacks"] for line in (f"    {name}:", *(f"        {line}" for line in lines))]
        alike.setdefault("\n".join(text) or "    none", []).append(q)
    return "\n".join(f"stacks of {_ranks(ranks)}:\n{text}" for text, ranks in alike.items())


def report(places: dict[int, Place], silent: dict[int, str], pace: Pace) -> str:
    """What the user reads when nothing goes on any more.

    Args:
        places: Of the ranks that have answered.
        silent: What is known of the others.
        pace: Of the rank that reports.
    """
    size = len(places) + len(silent)
    stuck = {q: place for q, place in places.items() if not place["waits"]}
    waiting = [q for q, place in places.items() if place["waits"] and not place["left"]]
    lines = [f"rank {q}/{size} {words}" for q, words in silent.items()]
    lines += [f"rank {q}/{size} makes no progress: it {one_line(place)}" for q, place in stuck.items()]
    if not lines:
        lines = [f"rank {q}/{size} {one_line(place)}" for q, place in places.items()]
        head = "deadlock: every rank waits for another rank:"
    else:
        head = f"timeout: {_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for other ranks that make no progress:"
        first = places[waiting[0]]
        lines.append(f"{_ranks(waiting)}: {first['what']} at {first['where']}, stage {first['stage']}")
    limit = (f"the limit set by GRAPHTHETA_PATIENCE={pace.patience:g}" if pace.patience else
             f"while the longest pause before was {max(SHORT, *pace.longest.values()):.0f} s. If the program was not stuck, set "
             "GRAPHTHETA_PATIENCE to a time limit in seconds, or to 0 for no limit")
    return "\n".join([f"graphtheta: {head}", *(f"  {line}" for line in lines), f"Aborted after {pace.pause:.0f} s, {limit}.", "",
                      with_stacks(places), ""])


def _ranks(ranks: list[int]) -> str:
    """Numbers in words."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
