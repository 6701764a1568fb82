"""Positions of ids in a list, by a hash table with linear probing.

Ids are int64 and none appears twice in the list. A table has a power of two of slots, at least
twice as many as ids; a slot holds the position of an id, or -1.
"""

from __future__ import annotations

import numpy as np

from ..compile.jit import jit
from .hash import GOLDEN

# fewer ids are sorted by NumPy before the compiled loop would be found
FEW = 64


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


@jit()
def number(ids, slots, shift, different, each):  # type: ignore[no-untyped-def]
    """Number ids by their first appearance; returns how many differ, -1 if they are more than
    ``different`` can hold.

    Args:
        ids: [n] int64; they may repeat.
        slots: All -1, int32, more than ``different`` can hold; changed.
        shift: 64 minus the binary logarithm of the number of slots.
        different: The different ids; changed.
        each: Number of each id, [n] int32; changed.
    """
    n = 0
    for i in range(len(ids)):
        at = np.int64(np.uint64(ids[i]) * GOLDEN >> np.uint64(shift))
        while slots[at] >= 0 and different[slots[at]] != ids[i]:
            at = (at + 1) & (len(slots) - 1)
        if slots[at] < 0:
            if n == len(different):
                return -1
            slots[at] = n
            different[n] = ids[i]
            n += 1
        each[i] = slots[at]
    return n


def distinct(ids: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """``np.unique(ids, return_inverse=True)`` in less time if ids repeat.

    Args:
        ids: [n] int64.
        most: How many of them differ at most; with more, the result is the same, and takes longer.

    Returns:
        The different ids, ascending, [m] int64, and the position of each id among them, [n].
    """
    if len(ids) < FEW:
        return np.unique(ids, return_inverse=True)
    room = min(len(ids), most)
    bits = (2 * room + 1).bit_length()
    different = np.empty(room, np.int64)
    each = np.empty(len(ids), np.int32)
    n = number(
        ids=ids,
        slots=np.full(1 << bits, -1, np.int32),
        shift=64 - bits,
        different=different,
        each=each,
    )
    if n < 0:
        return np.unique(ids, return_inverse=True)
    order = np.argsort(different[:n])
    place = np.empty(n, np.int32)
    place[order] = np.arange(n)
    return different[order], place[each]
