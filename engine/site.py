"""Which operation a rank is in, and where: the words of every message about ranks that disagree."""
from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_FOLDER = Path(__file__).parent
# frames of these files are never the place a reader is looking for
_MACHINERY = {str(_FOLDER / f"{name}.py") for name in (
    "channel", "comm", "control", "mpi", "place", "queue", "reduction", "serial", "simulate", "site", "slow", "watchdog", "wire")}


def collective(function: F) -> F:
    """Mark a function that all ranks must call together, in the same order, and say so in its docstring.

    Args:
        function: The function; its docstring is extended.

    Returns:
        The same function.
    """
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nCollective: all ranks must call this together.\n".lstrip()
    return function


def call_site() -> str:
    """Where the communicator was called from, as ``folder/file:line in function``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and in_machinery(frame):
        frame = frame.f_back
    return site_of(frame)


def site_of(frame: FrameType) -> str:
    """The line a frame is at, as ``folder/file:line in function``."""
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{frame.f_lineno} in {frame.f_code.co_name}"


def in_machinery(frame: FrameType) -> bool:
    """Whether a frame belongs to what carries messages, and not to those who send them."""
    return frame.f_code.co_filename in _MACHINERY


def describe(operation: tuple[Any, ...]) -> str:
    """``("all_sum", "float32", (3,))`` as ``all_sum(float32, (3,))``."""
    if not operation:
        return "the beginning"
    name, *detail = operation
    return f"{name}({', '.join(map(str, detail))})"


def mismatch(lines: list[str]) -> str:
    """Error text for ranks that are in different places, one line for each rank."""
    where = "".join(f"\n  rank {rank}: {line}" for rank, line in enumerate(lines))
    return f"ranks disagree on what comes next; all must run the same collectives in the same order:{where}"
