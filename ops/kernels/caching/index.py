"""The slots of the keys of a cache: a hash table with linear probing, whose entries can be removed.

A table is as in ``kernels/lookup.py``: it has a power of two of entries, at least twice as many as
slots; an entry is a slot, or -1. ``slot_keys`` has the key of each slot, -1 for an empty one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit
from ..hash import GOLDEN

EMPTY = -1


def table_of(n: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Keys of n empty slots, [n] int64; an empty table, int32; and its shift, for the functions
    below.
    """
    bits = (2 * max(n, 1) + 1).bit_length()
    return np.full(n, EMPTY, np.int64), np.full(1 << bits, EMPTY, np.int32), 64 - bits


@njit(inline="always")
def home(table, shift, key):  # type: ignore[no-untyped-def]
    """The entry at which the search for a key begins."""
    return np.int64(np.uint64(key) * GOLDEN >> np.uint64(shift))


@njit(inline="always")
def search(slot_keys, table, shift, key):  # type: ignore[no-untyped-def]
    """The entry of a key, or the empty one where it would be put."""
    at = home(table, shift, key)
    while table[at] >= 0 and slot_keys[table[at]] != key:
        at = (at + 1) & (len(table) - 1)
    return at


@njit(inline="always")
def remove(slot_keys, table, shift, key):  # type: ignore[no-untyped-def]
    """Remove the entry of a key; entries behind it that it has displaced move up."""
    at = search(slot_keys, table, shift, key)
    if table[at] >= 0:
        slot_keys[table[at]] = EMPTY
        mask = len(table) - 1
        hole = at
        at = (at + 1) & mask
        while table[at] >= 0:
            if ((at - home(table, shift, slot_keys[table[at]])) & mask) >= ((at - hole) & mask):
                table[hole] = table[at]
                hole = at
            at = (at + 1) & mask
        table[hole] = EMPTY


@njit(inline="always")
def put(slot_keys, table, shift, key, slot):  # type: ignore[no-untyped-def]
    """Store a key that has no entry in a slot, whose key is evicted."""
    if slot_keys[slot] >= 0:
        remove(slot_keys, table, shift, slot_keys[slot])
    slot_keys[slot] = key
    at = home(table, shift, key)
    while table[at] >= 0:
        at = (at + 1) & (len(table) - 1)
    table[at] = slot


@jit()
def assign(slot_keys, table, shift, keys, slots, last):  # type: ignore[no-untyped-def]
    """Store keys in slots, one after another; a slot may occur several times.

    Args:
        slot_keys, table, shift: The table; changed.
        keys: Without an entry, none twice, [n] int64.
        slots: Slot of each, -1 for none, [n] int32.
        last: Output: whether a key is in its slot at the end, [n] bool.
    """
    for i in range(len(keys)):
        if slots[i] >= 0:
            put(slot_keys=slot_keys, table=table, shift=shift, key=keys[i], slot=slots[i])
    for i in range(len(keys)):
        last[i] = slots[i] >= 0 and slot_keys[slots[i]] == keys[i]
