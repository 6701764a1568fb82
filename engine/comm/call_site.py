"""Which operation a rank is in, and where: the words of every message about ranks that disagree."""
from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
# packages and modules that carry messages; a line in one of them is never the one a reader is looking for
MACHINERY = {__package__}


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
    package, *inside = str(frame.f_globals.get("__name__", "")).split(".")
    ours = package == __name__.split(".")[0] and inside
    path = f"{'/'.join(inside)}.py" if ours else "/".join(Path(frame.f_code.co_filename).parts[-2:])
    return f"{path}:{frame.f_lineno} in {frame.f_code.co_name}"


def in_machinery(frame: FrameType) -> bool:
    """Whether a frame belongs to what carries messages, and not to those who send them."""
    return not MACHINERY.isdisjoint((frame.f_globals.get("__package__"), frame.f_globals.get("__name__")))


def describe(operation: tuple[Any, ...]) -> str:
    """``("all_sum", "float32", (3,))`` as ``all_sum(float32, (3,))``."""
    if not operation:
        return "the beginning"
    name, *detail = operation
    return f"{name}({', '.join(map(str, detail))})"


def mismatch(lines: list[str]) -> str:
    """Error text for ranks that are in different places, one line for each rank."""
    where = "".join(f"\n  rank {rank}: {line}" for rank, line in enumerate(lines))
    return f"ranks called different operations; all ranks must call the same collectives in the same order:{where}"
