"""Evictions by the number of uses (LFU), in constant time.

Slots with equally many uses are a bucket: a list from the last to the first use. Buckets are a
list by rising number of uses. The state is one array of int32 for each of: the uses of a bucket,
its neighbours, its first and last slot; the bucket of a slot and its neighbours there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit

NONE = -1
USES, BUCKET_BEFORE, BUCKET_AFTER, FIRST, LAST = range(5)
BUCKET, BEFORE, AFTER = range(3)


def lfu_state(capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Buckets, [5, capacity + 2] int32, and slots, [3, capacity] int32; all slots are empty, with 0
    uses.

    Bucket 0 is the head of the circular list of buckets. Free buckets are a list from its FIRST.
    """
    buckets = np.full((5, capacity + 3), NONE, np.int32)
    slots = np.empty((3, capacity), np.int32)
    slots[BUCKET], slots[BEFORE], slots[AFTER] = 1, np.arange(capacity) - 1, np.arange(capacity) + 1
    slots[AFTER, -1:] = NONE
    buckets[:, 1] = 0, 0, 0, 0, capacity - 1
    buckets[BUCKET_BEFORE : BUCKET_AFTER + 1, 0] = 1
    buckets[BUCKET_AFTER, 2:-1] = np.arange(3, capacity + 3)
    buckets[FIRST, 0] = 2
    return buckets, slots


@njit(inline="always")
def leave(buckets, slots, slot):  # type: ignore[no-untyped-def]
    """Take a slot out of its bucket."""
    b = slots[BUCKET, slot]
    before = slots[BEFORE, slot]
    after = slots[AFTER, slot]
    if before >= 0:
        slots[AFTER, before] = after
    else:
        buckets[FIRST, b] = after
    if after >= 0:
        slots[BEFORE, after] = before
    else:
        buckets[LAST, b] = before


@njit(inline="always")
def enter(buckets, slots, slot, uses, behind):  # type: ignore[no-untyped-def]
    """Put a slot in front of the bucket of so many uses, which comes after bucket ``behind`` and
    may have to be made.
    """
    b = buckets[BUCKET_AFTER, behind]
    if b == 0 or buckets[USES, b] != uses:
        after = b
        b = buckets[FIRST, 0]
        buckets[FIRST, 0] = buckets[BUCKET_AFTER, b]
        buckets[USES, b] = uses
        buckets[FIRST, b] = NONE
        buckets[LAST, b] = NONE
        buckets[BUCKET_BEFORE, b] = behind
        buckets[BUCKET_AFTER, b] = after
        buckets[BUCKET_AFTER, behind] = b
        buckets[BUCKET_BEFORE, after] = b
    first = buckets[FIRST, b]
    slots[BUCKET, slot] = b
    slots[BEFORE, slot] = NONE
    slots[AFTER, slot] = first
    if first >= 0:
        slots[BEFORE, first] = slot
    else:
        buckets[LAST, b] = slot
    buckets[FIRST, b] = slot


@njit(inline="always")
def drop_empty(buckets, b):  # type: ignore[no-untyped-def]
    """Free a bucket if it has no slots."""
    if buckets[FIRST, b] < 0:
        before = buckets[BUCKET_BEFORE, b]
        after = buckets[BUCKET_AFTER, b]
        buckets[BUCKET_AFTER, before] = after
        buckets[BUCKET_BEFORE, after] = before
        buckets[BUCKET_AFTER, b] = buckets[FIRST, 0]
        buckets[FIRST, 0] = b


@jit()
def lfu_hit(buckets, slots, read):  # type: ignore[no-untyped-def]
    """Slots are read, [n] int32; see ``lfu_state``."""
    for i in range(len(read)):
        slot = read[i]
        b = slots[BUCKET, slot]
        leave(buckets, slots, slot)
        enter(buckets=buckets, slots=slots, slot=slot, uses=buckets[USES, b] + 1, behind=b)
        drop_empty(buckets, b)


@jit()
def lfu_place(buckets, slots, out):  # type: ignore[no-untyped-def]
    """Slots for new rows, out [n] int32: those with the fewest uses, among these of the longest
    time without one.
    """
    for i in range(len(out)):
        b = buckets[BUCKET_AFTER, 0]
        slot = buckets[LAST, b]
        leave(buckets, slots, slot)
        enter(
            buckets=buckets,
            slots=slots,
            slot=slot,
            uses=1,
            behind=b if buckets[USES, b] == 0 else 0,
        )
        drop_empty(buckets, b)
        out[i] = slot
