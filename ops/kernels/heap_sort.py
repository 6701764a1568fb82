"""Heap sort. ``np.sort`` and ``np.argsort`` in a kernel take a second to compile, and are no
faster on lists of the edges of a node.
"""

from __future__ import annotations

from numba import njit


@njit
def sort(keys, values):  # type: ignore[no-untyped-def]
    """Sort keys, and move the values of the keys along; equal keys are in any order.

    Args:
        keys: [n]; changed.
        values: [n]; changed. It may be ``keys``, where there is nothing to move along.
    """
    root = len(keys) >> 1
    end = len(keys)
    # the lower half becomes a heap with the highest key on top, which then moves to the end
    while end > 1:
        if root > 0:
            root -= 1
            key, value = keys[root], values[root]
        else:
            end -= 1
            key, value = keys[end], values[end]
            keys[end], values[end] = keys[0], values[0]
        at = root
        child = 2 * at + 1
        while child < end:
            if child + 1 < end and keys[child + 1] > keys[child]:
                child += 1
            if keys[child] <= key:
                break
            keys[at], values[at] = keys[child], values[child]
            at = child
            child = 2 * at + 1
        keys[at], values[at] = key, value
