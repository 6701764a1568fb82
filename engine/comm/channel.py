"""Channels: independent streams of messages between ranks, one for each active work item.

Several work items may be active on a rank. Each has a channel of its own, so ranks may interleave
their work items in different orders and no message reaches the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from types import FrameType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import numpy as np

from graphtheta.errors import CommError, ShapeError

from .call_site import call_site
from .ledger import Ledger
from .ordered_reduce import Reduction

# A tag is the purpose of a move in the low bits and the number of the move, modulo NUMBERS, above.
# MPI guarantees tags up to 32767.
PURPOSES, NUMBERS = 64, 512

Send = tuple[int, np.ndarray]
T = TypeVar("T")


class Tag(IntEnum):
    """What a move is for; messages of different tags never match each other."""

    TO_MIRRORS = 1
    TO_MASTERS = 2
    GATHER_ROWS = 3
    ALL_TO_ALL = 4
    REDUCE = 5
    ROWS = 6
    MERGED = 7


def numbered(purpose: int, number: int) -> int:
    """The tag of a move. Messages of different moves do not match, even for the same purpose."""
    return number % NUMBERS * PURPOSES + purpose


def purpose(tag: int) -> str:
    """What a move with this tag is for, in words."""
    kind = tag % PURPOSES
    return Tag(kind).name.lower() if kind in list(Tag) else f"move {kind}"


class WorkItem(Protocol):
    """One of several work items of a rank; implemented in ``engine.train.scheduler``."""

    channel: int

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        """Let other work items run until ``ready`` returns True; ``line`` describes the wait."""

    def run_in(self, stage: str, function: Callable[[], T]) -> T:
        """Run a function on a thread of a stage of the pipeline; returns its result."""

    def state(self) -> tuple[str, FrameType | None]:
        """Its name and what it waits for, and the frame it is suspended in; None while it runs."""


# the work item that runs in the current context
WORK_ITEM: ContextVar[WorkItem | None] = ContextVar("graphtheta_work_item", default=None)
# active work items of this process, for reports
WORK_ITEMS: WeakSet[WorkItem] = WeakSet()


def active_work_items() -> list[WorkItem]:
    """Active work items of this process; may be called from any thread."""
    while True:
        try:
            return list(WORK_ITEMS)
        except RuntimeError:
            # another thread started a work item during the iteration
            continue


@dataclass
class Channel:
    """State of one channel of a communicator.

    Attributes:
        ledger: Time, bytes and messages of the channel.
        reduction: Combines arrays of all ranks; owns the receive buffer.
        operation: The collective being run, for error messages.
        calls: Collectives and moves begun so far, without those of sums of gradients.
        sums: Moves of sums of gradients begun so far.
        header: First eight bytes of the first message of the collective.
    """

    ledger: Ledger
    reduction: Reduction
    operation: tuple[Any, ...] = ()
    calls: int = 0
    sums: int = 0
    header: int = 0

    def next_move(self, tag: int) -> int:
        """Count a move; returns its number, by which its messages match those of other ranks.

        Moves of sums of gradients have numbers of their own: a rank begins them as soon as it has
        completed the gradients, which may be before or after moves of its layers that another rank
        begins in the other order.
        """
        if tag == Tag.REDUCE:
            self.sums += 1
            return self.sums
        self.calls += 1
        return self.calls


class Pending:
    """A started move. Until ``end``, do not change sent arrays and do not read receive buffers."""

    __slots__ = ("_finish", "_ledger")

    def __init__(self, ledger: Ledger, finish: Callable[[], None]) -> None:
        self._ledger = ledger
        self._finish: Callable[[], None] | None = finish

    def end(self) -> None:
        """Wait until every array is sent and received.

        Raises:
            CommError: If called twice, or if a message does not have the size that its receiver
                expects.
        """
        if self._finish is None:
            raise CommError(
                f"Pending.end was called twice (second time at {call_site()}); call end once for"
                " each move_begin"
            )
        finish = self._finish
        self._finish = None
        with self._ledger.waiting():
            finish()


def record_move(
    ledger: Ledger, sends: list[Send], recvs: list[Send], tag: int, finish: Callable[[], None]
) -> Pending:
    """Count a posted move by receiver, and store it as an event if there is an event log.

    Args:
        finish: Waits for the messages.

    Returns:
        The pending move.
    """
    for partner, array in sends:
        ledger.sent_to(partner, array.nbytes)
    if ledger.event_log is not None:
        finish = ledger.event_log.record_move(ledger.row, purpose(tag), sends, recvs, finish)
    return Pending(ledger, finish)


def check_move(rank: int, size: int, sends: list[Send], recvs: list[Send], tag: int) -> None:
    """Check the arguments of ``Comm.move_begin``, which would otherwise hang or corrupt data.

    Raises:
        CommError: A partner, an array or the tag cannot be used.
    """
    for partner, array in (*sends, *recvs):
        if not 0 <= partner < size or partner == rank:
            raise CommError(
                f"move: rank {rank} of {size} cannot exchange with rank {partner}, at"
                f" {call_site()}; give another rank, 0 to {size - 1}"
            )
        if not array.flags.c_contiguous:
            raise CommError(
                f"move: array {array.shape} for rank {partner} is not contiguous, at {call_site()};"
                " use numpy.ascontiguousarray to send, or a new array to receive into"
            )
    for partner, array in recvs:
        if not array.flags.writeable:
            raise CommError(
                f"move: the array to receive from rank {partner} into is read-only, at"
                f" {call_site()}; allocate a new array"
            )
    if not 0 <= tag < PURPOSES:
        raise CommError(
            f"move: expected a tag from 0 to {PURPOSES - 1}, got {tag} at {call_site()}"
        )


def check_rows(name: str, kinds: list[tuple[str, tuple[int, ...]]]) -> None:
    """Check that all parts have the same dtype and trailing shape.

    Args:
        name: The collective.
        kinds: Dtype and trailing shape of each part.

    Raises:
        ShapeError: They differ.
    """
    for index, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ShapeError(
                f"{name}: part 0 has {kinds[0][0]} rows of shape {kinds[0][1]}, part {index}"
                f" {kind[0]} rows of shape {kind[1]}, at {call_site()}; use one dtype and trailing"
                " shape on all ranks"
            )
