"""Evictions by the time of the last use: LRU exactly, CLOCK by a bit for each slot."""

from __future__ import annotations

from numba import njit

from ...compile.jit import jit


@njit(inline="always")
def to_front(before, after, slot):  # type: ignore[no-untyped-def]
    """Move a slot to the front of a circular list, whose last entry is its head."""
    head = len(after) - 1
    after[before[slot]] = after[slot]
    before[after[slot]] = before[slot]
    before[slot], after[slot] = head, after[head]
    before[after[head]] = slot
    after[head] = slot


@jit()
def lru_hit(before, after, slots):  # type: ignore[no-untyped-def]
    """Slots are read.

    Args:
        before, after: Neighbours in the list from the last to the first use, [capacity + 1] int32.
        slots: [n] int32.
    """
    for i in range(len(slots)):
        to_front(before, after, slots[i])


@jit()
def lru_place(before, after, out):  # type: ignore[no-untyped-def]
    """Slots for new rows, out [n] int32: those of the longest time without a use."""
    for i in range(len(out)):
        out[i] = before[len(before) - 1]
        to_front(before, after, out[i])


@jit()
def clock_place(used, hand, out):  # type: ignore[no-untyped-def]
    """Slots for new rows, out [n] int32: the next ones without a use since the hand passed them.

    Args:
        used: Whether a slot was read, [capacity] bool; changed.
        hand: Position of the hand, [1] int64; changed.
        out: Output.
    """
    at = hand[0]
    for i in range(len(out)):
        while used[at]:
            used[at] = False
            at = at + 1 if at + 1 < len(used) else 0
        out[i] = at
        at = at + 1 if at + 1 < len(used) else 0
    hand[0] = at
