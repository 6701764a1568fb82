"""Requests to stop: SIGTERM, which schedulers send before they end a job, SIGHUP of a terminal that
is closed, and Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# exit codes: that of a shell for programs ended by Ctrl-C, and EX_TEMPFAIL: no error, try again
INTERRUPTED, PREEMPTED = 130, 75


class Stopped(SystemExit):
    """The run was asked to stop, and has written a checkpoint; the exit code is 75 or 130."""


class Stop:
    """Context manager that records requests to stop this rank; ``flags`` reports them.

    A second Ctrl-C raises KeyboardInterrupt at once. Python delivers signals to the main thread
    only; in other threads signal handlers are not changed.

    Args:
        listens: Whether to record requests; otherwise signal handlers are not changed.
    """

    def __init__(self, listens: bool) -> None:
        self.asked = 0
        self._listens = listens and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if self._listens:
            # a signal that is ignored, as under nohup, stays ignored
            wanted = [
                number
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
                if signal.getsignal(number) != signal.SIG_IGN
            ]
            self._before = {number: signal.signal(number, self._note) for number in wanted}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.asked:
            raise KeyboardInterrupt
        self.asked = self.asked or number

    def flags(self) -> list[float]:
        """Requests to this rank as two numbers to sum over all ranks: SIGTERM or SIGHUP, Ctrl-C."""
        return [
            float(self.asked in numbers)
            for numbers in ((signal.SIGTERM, signal.SIGHUP), (signal.SIGINT,))
        ]


def code_of(terminated: float, interrupted: float) -> int:
    """Exit code for the sums of ``flags``; 0 without a request."""
    return PREEMPTED if terminated else INTERRUPTED if interrupted else 0
