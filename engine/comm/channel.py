"""A stream of messages between ranks, and what a task that waits for one must do.

Several tasks may be under way on a rank. Each uses a channel of its own, so that the order in which tasks take turns
may differ from rank to rank and no message goes to the wrong one.
"""
from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from types import FrameType
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from graphtheta.errors import CommError, ShapeError

from .call_site import call_site
from .ledger import Ledger
from .ordered_reduce import Reduction

# A tag is the purpose of a move and, above it, the last bits of its number. MPI promises tags up to 32767.
PURPOSES, NUMBERS = 64, 512

Send = tuple[int, np.ndarray]


class Tag(IntEnum):
    """What a move is for; messages of different tags never match each other."""

    TO_MIRRORS = 1
    TO_MASTERS = 2
    GATHER_ROWS = 3
    ALL_TO_ALL = 4
    REDUCE = 5
    REDUCED = 6
    ROWS = 7


def numbered(purpose: int, number: int) -> int:
    """The tag of a move: messages of moves that are not the same do not match, even if they serve the same purpose."""
    return number % NUMBERS * PURPOSES + purpose


def purpose(tag: int) -> str:
    """What a move with this tag is for, in words."""
    kind = tag % PURPOSES
    return Tag(kind).name.lower() if kind in list(Tag) else f"move {kind}"


class Running(Protocol):
    """What runs in the current thread, if it is one of several tasks of a rank (``engine.runtime.scheduler``)."""

    channel: int

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        """Let other tasks compute until ``ready``; ``line`` says what for."""

    def look(self) -> tuple[str, FrameType | None]:
        """What it is and waits for, and where, unless it runs."""


TASK: ContextVar[Running | None] = ContextVar("graphtheta_task", default=None)
# all there are, for reports of where a rank is
TASKS: WeakSet[Running] = WeakSet()


def under_way() -> list[Running]:
    """Tasks of this process; of use in any thread."""
    while True:
        try:
            return list(TASKS)
        except RuntimeError:
            # another thread has started a task meanwhile
            continue


@dataclass
class Channel:
    """What a communicator keeps for each stream of messages.

    Attributes:
        ledger: Account of the stream.
        reduction: How arrays of all ranks are combined; it keeps buffers.
        operation: The collective being run, for error messages.
        calls: Collectives and moves begun so far.
        header: What the first message of the collective begins with.
    """

    ledger: Ledger
    reduction: Reduction
    operation: tuple[Any, ...] = ()
    calls: int = 0
    header: int = 0


class Pending:
    """Messages under way. Until ``end`` returns, sent arrays must not be changed and received ones not be read."""

    __slots__ = ("_finish", "_ledger")

    def __init__(self, ledger: Ledger, finish: Callable[[], None]) -> None:
        self._ledger = ledger
        self._finish: Callable[[], None] | None = finish

    def end(self) -> None:
        """Wait until every array is sent and received.

        Raises:
            CommError: If called twice, or if a message has not the size its receiver expects.
        """
        if self._finish is None:
            raise CommError(f"Pending.end was called twice (second time at {call_site()}); call end once for each move_begin")
        finish, self._finish = self._finish, None
        with self._ledger.waiting():
            finish()


def follow(ledger: Ledger, sends: list[Send], recvs: list[Send], tag: int, finish: Callable[[], None]) -> Pending:
    """A move that has been posted: counted by receiver, and kept as an event if there is a timeline.

    Args:
        finish: Waits for the messages.
    """
    for partner, array in sends:
        ledger.sent_to(partner, array.nbytes)
    if ledger.trace is not None:
        finish = ledger.trace.moved(ledger.row, purpose(tag), sends, recvs, finish)
    return Pending(ledger, finish)


def check_move(rank: int, size: int, sends: list[Send], recvs: list[Send], tag: int) -> None:
    """Refuse what would hang or corrupt data: see ``Comm.move_begin``.

    Raises:
        CommError: A partner, an array or the tag cannot be used.
    """
    for partner, array in (*sends, *recvs):
        if not 0 <= partner < size or partner == rank:
            raise CommError(f"move: rank {rank} of {size} cannot exchange with rank {partner}, at {call_site()}")
        if not array.flags.c_contiguous:
            raise CommError(f"move: array {array.shape} for rank {partner} is not contiguous, at {call_site()}; copy it first")
    for partner, array in recvs:
        if not array.flags.writeable:
            raise CommError(f"move: the array to receive from rank {partner} into is read-only, at {call_site()}")
    if not 0 <= tag < PURPOSES:
        raise CommError(f"move: expected a tag from 0 to {PURPOSES - 1}, got {tag} at {call_site()}")


def check_rows(name: str, kinds: list[tuple[str, tuple[int, ...]]]) -> None:
    """Refuse parts of different dtypes or trailing shapes.

    Args:
        name: The collective.
        kinds: Dtype and trailing shape of each part.

    Raises:
        ShapeError: They differ.
    """
    for index, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ShapeError(
                f"{name}: part 0 has {kinds[0][0]} rows of shape {kinds[0][1]}, part {index} {kind[0]} rows of shape "
                f"{kind[1]}, at {call_site()}; use one dtype and trailing shape on all ranks"
            )
