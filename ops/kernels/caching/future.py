"""Evictions by the next use (Belady): a heap of slots with the latest next use on top.

The uses of a key are known for some time ahead: ``times[ptr[k]:ptr[k + 1]]``, ascending, for key
number k.

Source: Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems
Journal 5(2), 1966, https://doi.org/10.1147/sj.52.0078
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit

NEVER = np.iinfo(np.int64).max


@jit()
def next_uses(ptr, times, cursor, numbers, now, out):  # type: ignore[no-untyped-def]
    """Next use of some keys after ``now``.

    Args:
        ptr, times: The uses of all keys, [n_keys + 1] and [n_uses] int64.
        cursor: Position in ``times`` from which each key is searched, [n_keys] int64; changed.
        numbers: Numbers of the keys, -1 for those without a known use, [n] int32.
        now: The time.
        out: Output, [n] int64; NEVER if there is none.
    """
    for i in range(len(numbers)):
        k = numbers[i]
        out[i] = NEVER
        if k >= 0:
            while cursor[k] < ptr[k + 1] and times[cursor[k]] <= now:
                cursor[k] += 1
            if cursor[k] < ptr[k + 1]:
                out[i] = times[cursor[k]]


@njit(inline="always")
def sift(heap, at, when, n, place):  # type: ignore[no-untyped-def]
    """Move the slot at a place of the heap up or down to where it belongs."""
    slot = heap[place]
    while place > 0 and when[heap[(place - 1) >> 1]] < when[slot]:
        heap[place] = heap[(place - 1) >> 1]
        at[heap[place]] = place
        place = (place - 1) >> 1
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        if child + 1 < n and when[heap[child + 1]] > when[heap[child]]:
            child += 1
        if when[heap[child]] <= when[slot]:
            break
        heap[place] = heap[child]
        at[heap[place]] = place
        place = child
    heap[place] = slot
    at[slot] = place


@jit()
def belady_hit(heap, at, when, n, slots, uses):  # type: ignore[no-untyped-def]
    """Slots are read.

    Args:
        heap: Slots in heap order, [capacity] int32; changed, like the next two.
        at: Place of each slot in the heap, [capacity] int32.
        when: Next use of each slot, [capacity] int64.
        n: Filled slots.
        slots: [m] int32.
        uses: Their next uses, [m] int64.
    """
    for i in range(len(slots)):
        when[slots[i]] = uses[i]
        sift(heap=heap, at=at, when=when, n=n, place=np.int64(at[slots[i]]))


@jit()
def belady_place(heap, at, when, filled, uses, out):  # type: ignore[no-untyped-def]
    """Slots for new rows: those of the latest next use, if the new row is used before; else -1.

    Args:
        heap, at, when: As in ``belady_hit``; changed.
        filled: Filled slots, [1] int64; changed.
        uses: Next uses of the new rows, [m] int64.
        out: Output, [m] int32.
    """
    for i in range(len(uses)):
        out[i] = -1
        if filled[0] < len(heap):
            slot = np.int64(filled[0])
            filled[0] += 1
            heap[slot] = slot
            at[slot] = slot
        elif uses[i] < when[heap[0]]:
            slot = np.int64(heap[0])
        else:
            continue
        when[slot] = uses[i]
        out[i] = slot
        sift(heap=heap, at=at, when=when, n=filled[0], place=np.int64(at[slot]))
