"""Positions of ids in a list, by a hash table with linear probing.

Ids are int64 and none appears twice. A table has a power of two of slots, at least twice as many as
ids; a slot holds the position of an id, or -1.
"""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit
from .hash import GOLDEN


@jit()
def fill(ids, slots, shift):  # type: ignore[no-untyped-def]
    """Enter all ids.

    Args:
        ids: [n] int64.
        slots: All -1, int32; changed.
        shift: 64 minus the binary logarithm of the number of slots.
    """
    for i in range(len(ids)):
        at = np.int64(np.uint64(ids[i]) * GOLDEN >> np.uint64(shift))
        while slots[at] >= 0:
            at = (at + 1) & (len(slots) - 1)
        slots[at] = i


@jit()
def find(ids, slots, shift, wanted, out, first, last):  # type: ignore[no-untyped-def]
    """out[i] = position of wanted[i] in ``ids`` for some i, -1 if it is not there."""
    for i in range(first, last):
        at = np.int64(np.uint64(wanted[i]) * GOLDEN >> np.uint64(shift))
        while slots[at] >= 0 and ids[slots[at]] != wanted[i]:
            at = (at + 1) & (len(slots) - 1)
        out[i] = slots[at]
