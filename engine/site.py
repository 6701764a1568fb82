"""Which operation a rank is in, and where: the words of every message about ranks that disagree."""
from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_FOLDER = Path(__file__).parent
# frames of these files are never the place a reader is looking for
_MACHINERY = {str(_FOLDER / f"{name}.py")
              for name in ("channel", "comm", "mpi", "queue", "reduction", "serial", "simulate", "site", "slow")}


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
    while frame.f_back is not None and frame.f_code.co_filename in _MACHINERY:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{frame.f_lineno} in {frame.f_code.co_name}"


def describe(operation: tuple[Any, ...]) -> str:
    """``("all_sum", "float32", (3,))`` as ``all_sum(float32, (3,))``."""
    name, *detail = operation
    return f"{name}({', '.join(map(str, detail))})"


def mismatch(lines: list[str]) -> str:
    """Error text for ranks that are in different places, one line for each rank."""
    where = "".join(f"\n  rank {rank}: {line}" for rank, line in enumerate(lines))
    return f"ranks disagree on what comes next; all must run the same collectives in the same order:{where}"


def digest(value: Any) -> int:
    """64 bits of hash of ``repr(value)``, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little", signed=True)
