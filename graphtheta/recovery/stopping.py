"""Being asked to stop: SIGTERM, which schedulers send before they end a job, and Ctrl-C."""
from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# what a shell says of programs that end by Ctrl-C, and EX_TEMPFAIL: nothing is wrong, try again
INTERRUPTED, PREEMPTED = 130, 75


class Stopped(SystemExit):
    """The run was asked to stop, finished its step and left a checkpoint; its code is 75 or 130."""


class Stop:
    """Whether this rank has been asked to stop; within the block the first request waits until somebody looks.

    A second Ctrl-C raises KeyboardInterrupt at once. Signals reach the main thread only; elsewhere nothing is changed.

    Args:
        listens: Whether requests wait; otherwise signals do what they always do.
    """

    def __init__(self, listens: bool) -> None:
        self.asked = 0
        self._listens = listens and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if self._listens:
            # what a process was started to ignore, as by nohup, it goes on to ignore
            wanted = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in wanted}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.asked:
            raise KeyboardInterrupt
        self.asked = self.asked or number

    def flags(self) -> list[float]:
        """Two numbers for this rank, which are added up over all: asked by SIGTERM, asked by Ctrl-C."""
        return [float(self.asked == number) for number in (signal.SIGTERM, signal.SIGINT)]


def code_of(terminated: float, interrupted: float) -> int:
    """Exit code that the sums of ``flags`` ask for; 0 to go on."""
    return PREEMPTED if terminated else INTERRUPTED if interrupted else 0
