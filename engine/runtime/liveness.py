"""Whether a process does anything: computes, reads or writes files, waits for a disk or for swapped memory."""
from __future__ import annotations

import os
import time
from pathlib import Path

# A process that uses less of a core than this does nothing.
LEAST_SHARE = 0.02
# Seconds over which that is looked at.
WINDOW = 1.0
# the process waits for a disk, is held by a debugger, is stopped, or has ended
_BLOCKED, _TRACED, _STOPPED, _ENDED = "D", "t", "T", "ZX"


class Life:
    """Signs of life of a process of this machine.

    Args:
        pid: Its number.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folder = Path("/proc") / str(pid)
        self._since, self._seen = time.monotonic(), self._counters()

    def look(self) -> bool:
        """Whether it has done anything since this last returned True, or in the last seconds."""
        now, seen = time.monotonic(), self._counters()
        computed, moved = seen[0] - self._seen[0], seen[1:] != self._seen[1:]
        alive = moved or computed > LEAST_SHARE * max(now - self._since, WINDOW) or self._state() == _BLOCKED
        if alive or now - self._since > WINDOW:
            self._since, self._seen = now, seen
        return alive

    @property
    def ended(self) -> bool:
        """Whether nothing can be expected of it any more: it has ended, or is stopped and not by a debugger."""
        state = self._state()
        return state is None or state in _ENDED or state == _STOPPED

    @property
    def traced(self) -> bool:
        """Whether a debugger holds it."""
        return self._state() == _TRACED

    def words(self) -> str:
        """What can be said of a process that does not answer."""
        state = self._state()
        if state is None or state in _ENDED:
            return "its process has ended"
        return "its process is stopped" if state == _STOPPED else "its process runs, but its Python interpreter is blocked"

    def _state(self) -> str | None:
        """Letter by which the system names the state of the process; None if there is none, D if any of its threads has it."""
        try:
            states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in (self._folder / "task").iterdir()]
        except OSError:
            return None
        return _BLOCKED if _BLOCKED in states else states[0]

    def _counters(self) -> tuple[float, ...]:
        """Seconds of processor, faults that needed a disk, and bytes read from and written to disks.

        Of this process, the calling thread is left out: it looks and answers questions, which is no sign of life.
        """
        computed, faults, moved = 0.0, 0.0, list[float]()
        own = self._pid == os.getpid()
        try:
            # exact; the times in "stat" are counted in ticks, and a thread that wakes by the clock is always seen at one
            computed = time.process_time() - time.thread_time() if own else sum(
                int((task / "schedstat").read_text().split()[0]) / 1e9 for task in (self._folder / "task").iterdir())
            faults = float((self._folder / "stat").read_text().rpartition(")")[2].split()[9])
            # what reached a disk; reading this very file would count as reading otherwise
            words = (self._folder / "io").read_text().split()
            moved = [float(words[words.index(name) + 1]) for name in ("read_bytes:", "write_bytes:")]
        except (OSError, ValueError, IndexError):
            # not on this system, or the process has just ended
            pass
        return (computed, faults, *moved)
