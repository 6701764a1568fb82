"""Call sites of collectives, and the error text for ranks that called different operations."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

# packages and modules that implement communication; call sites leave out their frames, and those
# between a ``with`` block and the function that it calls
INTERNAL_MODULES = {__package__, "contextlib"}


def call_site() -> str:
    """Where the communicator was called from, as ``folder/file:line in function``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_internal(frame):
        frame = frame.f_back
    return format_frame(frame)


def format_frame(frame: FrameType) -> str:
    """The current line of a frame, as ``folder/file:line in function``."""
    package, *inside = str(frame.f_globals.get("__name__", "")).split(".")
    ours = package == __name__.split(".")[0] and inside
    path = f"{'/'.join(inside)}.py" if ours else "/".join(Path(frame.f_code.co_filename).parts[-2:])
    return f"{path}:{line_of(frame)} in {frame.f_code.co_name}"


def line_of(frame: FrameType) -> int:
    """The current line of a frame; the first one of its function where the code has none."""
    # the jump back to the head of a loop is the work of no line, and another thread may see it
    return frame.f_lineno or frame.f_code.co_firstlineno


def is_internal(frame: FrameType) -> bool:
    """Whether a frame belongs to the implementation of communication and not to its callers."""
    return not INTERNAL_MODULES.isdisjoint(
        (frame.f_globals.get("__package__"), frame.f_globals.get("__name__"))
    )


def describe(operation: tuple[Any, ...]) -> str:
    """Text of an operation: ``("all_sum", "float32", (3,))`` is ``all_sum(float32, (3,))``."""
    if not operation:
        return "the start of the program"
    name, *detail = operation
    return f"{name}({', '.join(map(str, detail))})"


def mismatch(lines: list[str]) -> str:
    """Error text for ranks in different operations, with one line for each rank."""
    where = "".join(f"\n  rank {rank}: {line}" for rank, line in enumerate(lines))
    return (
        "ranks called different operations; all ranks must call the same collectives in the same"
        f" order:{where}"
    )
