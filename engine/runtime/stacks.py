"""Stack traces of the threads and work items of a rank, without lines that do not help."""

from __future__ import annotations

import linecache
import sys
import sysconfig
import threading
from collections.abc import Iterable
from types import FrameType

from ..comm.call_site import format_frame, is_internal, line_of
from ..comm.channel import active_work_items

# number of outermost and of innermost lines shown of a long stack
OUTER, INNER = 3, 14
# name of the thread of the watchdog
WATCHDOG = "watchdog"
# longest source line that is shown
WIDTH = 120
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_LIBRARIES = {
    "numpy",
    "scipy",
    "numba",
    "llvmlite",
    "greenlet",
    "mpi4py",
    "msgpack",
    "pydantic",
    "threadpoolctl",
    "tqdm",
}
# a thread with a frame in one of these modules is being debugged
_DEBUGGERS = ("bdb", "pydevd", "debugpy")


def frames(frame: FrameType | None) -> list[FrameType]:
    """A frame and those that called it, innermost first."""
    frames_ = []
    while frame is not None:
        frames_.append(frame)
        frame = frame.f_back
    return frames_


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def is_ours(frame: FrameType) -> bool:
    """Whether a frame belongs to this package."""
    return _module(frame).startswith("graphtheta.")


def is_users(frame: FrameType) -> bool:
    """Whether a frame belongs to neither this package nor a library."""
    name = frame.f_code.co_filename
    standard = name.startswith("<frozen") or (
        name.startswith(_STANDARD) and "-packages" not in name
    )
    return not standard and not is_ours(frame) and _module(frame).split(".")[0] not in _LIBRARIES


def in_step(stack: Iterable[FrameType]) -> bool:
    """Whether a thread is in a step of training or evaluation, and not in user code between steps.

    Modules that run steps contain ``RUNS_STEPS = True``.
    """
    return any(frame.f_globals.get("RUNS_STEPS") is True for frame in stack)


def in_debugger(stack: Iterable[FrameType]) -> bool:
    """Whether a thread is being debugged."""
    return any(_module(frame).split(".")[0] in _DEBUGGERS for frame in stack)


def where(stack: list[FrameType]) -> str:
    """The current line of a thread, and the line of user code that led to it if another one."""
    wanted = [
        frame for frame in stack if (is_ours(frame) and not is_internal(frame)) or is_users(frame)
    ]
    if not wanted:
        return format_frame(stack[0])
    users = next((frame for frame in wanted if is_users(frame)), wanted[0])
    return format_frame(wanted[0]) + (
        f", called from {format_frame(users)}" if users is not wanted[0] else ""
    )


def lines(stack: list[FrameType]) -> list[str]:
    """A stack as text, outermost call first.

    It contains the lines of user code and of this package, and the innermost line of any library.
    It is empty for threads of libraries.
    """
    stack = [frame for frame in stack if not is_internal(frame)]
    wanted = [frame for frame in stack if is_ours(frame) or is_users(frame)]
    text = [
        _line(frame)
        for frame in (
            [] if not wanted else wanted if wanted[0] is stack[0] else [stack[0], *wanted]
        )[::-1]
    ]
    return (
        text
        if len(text) <= OUTER + INNER
        else [*text[:OUTER], f"... {len(text) - OUTER - INNER} more", *text[-INNER:]]
    )


def _line(frame: FrameType) -> str:
    source = linecache.getline(frame.f_code.co_filename, line_of(frame), frame.f_globals).strip()
    return format_frame(frame) + (f": {source[:WIDTH]}" if source else "")


def stacks() -> list[tuple[str, list[str]]]:
    """Names and lines of all threads of this process, and of all work items that wait."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        (names.get(ident, "thread"), lines(frames(frame)))
        for ident, frame in sorted(sys._current_frames().items())
        if names.get(ident) != WATCHDOG
    ]
    for item in active_work_items():
        name, frame = item.state()
        if frame is not None:
            threads.append((name, lines(frames(frame))))
    return [(name, text) for name, text in threads if text]
