"""Liveness of a process: whether it computes, reads or writes files, or waits for a disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

# A process that uses a smaller share of a core than this is idle.
LEAST_SHARE = 0.02
# Seconds over which the share is measured.
WINDOW = 1.0
# states of a process: waits for a disk, held by a debugger, stopped, ended
_BLOCKED = "D"
_TRACED = "t"
_STOPPED = "T"
_ENDED = "ZX"


class Liveness:
    """Signs of life of a process on this machine.

    Args:
        pid: Process id.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folder = Path("/proc") / str(pid)
        self._since = time.monotonic()
        self._seen = self._counters()

    def check(self) -> bool:
        """Whether the process was active since the last True, or in the current window."""
        now = time.monotonic()
        seen = self._counters()
        computed = seen[0] - self._seen[0]
        moved = seen[1:] != self._seen[1:]
        alive = (
            moved
            or computed > LEAST_SHARE * max(now - self._since, WINDOW)
            or self._state() == _BLOCKED
        )
        if alive or now - self._since > WINDOW:
            self._since = now
            self._seen = seen
        return alive

    @property
    def ended(self) -> bool:
        """Whether it has ended, or is stopped and not by a debugger."""
        state = self._state()
        return state is None or state in _ENDED or state == _STOPPED

    @property
    def traced(self) -> bool:
        """Whether a debugger holds it."""
        return self._state() == _TRACED

    def describe(self) -> str:
        """Text for a report about a process that does not answer."""
        state = self._state()
        if state is None or state in _ENDED:
            return "its process has ended"
        return (
            "its process is stopped"
            if state == _STOPPED
            else "its process runs, but its Python interpreter is blocked"
        )

    def _state(self) -> str | None:
        """State letter in /proc: D if any thread has it; None if there is no process."""
        try:
            states = [
                (task / "stat").read_text().rpartition(")")[2].split()[0]
                for task in (self._folder / "task").iterdir()
            ]
        except OSError:
            states = []
        # a process that ends has no threads for a moment
        if not states:
            return None
        return _BLOCKED if _BLOCKED in states else states[0]

    def _counters(self) -> tuple[float, ...]:
        """CPU seconds, page faults that needed a disk, and bytes read from and written to disks.

        In this process the calling thread is left out: what the watchdog computes is no sign of
        life.
        """
        computed = 0.0
        faults = 0.0
        moved = list[float]()
        is_this_process = self._pid == os.getpid()
        try:
            # exact; the times in "stat" count clock ticks and overstate a thread that wakes at
            # each of them
            computed = (
                time.process_time() - time.thread_time()
                if is_this_process
                else sum(
                    int((task / "schedstat").read_text().split()[0]) / 1e9
                    for task in (self._folder / "task").iterdir()
                )
            )
            faults = float((self._folder / "stat").read_text().rpartition(")")[2].split()[9])
            # bytes that reached a disk; the other counters include the reading of this file
            words = (self._folder / "io").read_text().split()
            moved = [
                float(words[words.index(name) + 1]) for name in ("read_bytes:", "write_bytes:")
            ]
        except (OSError, ValueError, IndexError):
            # not on this system, or the process has just ended
            pass
        return (computed, faults, *moved)
