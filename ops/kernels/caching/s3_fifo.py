"""Evictions by three queues (S3-FIFO): new rows pass a small queue, and only those that are used
again reach the main one.

Rows evicted from the small queue leave their keys in a third queue, of ghosts; a row that comes
back while its ghost is there goes to the main queue at once.

Source: Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023,
https://doi.org/10.1145/3600006.3613147
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit
from .index import put, remove, search

# uses of a row are counted up to this number; so many in the small queue let it enter the main one
MOST_USES, USES_TO_STAY = 3, 2
# the state: first entry and length of both queues, filled slots, next ghost
SMALL, N_SMALL, MAIN, N_MAIN, FILLED, GHOST = range(6)


@jit()
def s3_hit(uses, slots):  # type: ignore[no-untyped-def]
    """Slots are read, [n] int32; ``uses`` of each slot, [capacity] uint8, change."""
    for i in range(len(slots)):
        uses[slots[i]] = min(uses[slots[i]] + 1, MOST_USES)


@njit(inline="always")
def push(queue, state, which, slot):  # type: ignore[no-untyped-def]
    """Put a slot at the end of a queue."""
    queue[(state[which] + state[which + 1]) % len(queue)] = slot
    state[which + 1] += 1


@njit(inline="always")
def pop(queue, state, which):  # type: ignore[no-untyped-def]
    """Take the first slot of a queue."""
    slot = queue[state[which]]
    state[which] = (state[which] + 1) % len(queue)
    state[which + 1] -= 1
    return slot


@njit(inline="always")
def evicted(  # type: ignore[no-untyped-def]
    state, small, main, uses, slot_keys, ghosts, table, shift, most_small
):
    """A slot whose row is evicted."""
    while True:
        if state[N_MAIN] == 0 or state[N_SMALL] >= most_small:
            slot = pop(small, state, SMALL)
            if uses[slot] < USES_TO_STAY:
                put(ghosts, table, shift, slot_keys[slot], state[GHOST])
                state[GHOST] = (state[GHOST] + 1) % len(ghosts)
                return slot
            uses[slot] = 0
            push(main, state, MAIN, slot)
        else:
            slot = pop(main, state, MAIN)
            if uses[slot] == 0:
                return slot
            uses[slot] -= 1
            push(main, state, MAIN, slot)


@jit()
def s3_place(  # type: ignore[no-untyped-def]
    state, small, main, uses, slot_keys, ghosts, table, shift, most_small, keys, out
):
    """Slots for new rows.

    Args:
        state: [6] int64; changed, like all arrays up to ``table``.
        small, main: Slots of both queues, rings of [capacity] int32.
        uses: Of each slot, [capacity] uint8.
        slot_keys: Key of each slot, [capacity] int64.
        ghosts, table, shift: Keys of the ghosts and their table; see ``index.table_of``.
        most_small: Slots of the small queue, if the main one is not empty.
        keys: Of the new rows, [n] int64.
        out: Output, [n] int32.
    """
    for i in range(len(keys)):
        seen = table[search(ghosts, table, shift, keys[i])] >= 0
        if seen:
            remove(ghosts, table, shift, keys[i])
        if state[FILLED] < len(slot_keys):
            slot = np.int64(state[FILLED])
            state[FILLED] += 1
        else:
            slot = np.int64(
                evicted(
                    state=state,
                    small=small,
                    main=main,
                    uses=uses,
                    slot_keys=slot_keys,
                    ghosts=ghosts,
                    table=table,
                    shift=shift,
                    most_small=most_small,
                )
            )
        slot_keys[slot] = keys[i]
        uses[slot] = 0
        out[i] = slot
        if seen:
            push(main, state, MAIN, slot)
        else:
            push(small, state, SMALL, slot)
