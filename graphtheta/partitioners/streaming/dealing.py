"""Rounds in which streams give items to parts of limited room, without seeing what others give."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.comm.communicator import Comm

# rounds of all streams together, and the fewest and most of one
ROUNDS = 1 << 15
FEWEST = 16
MOST = 256


def n_rounds(size: int) -> int:
    """The most rounds of so many streams."""
    return min(MOST, max(FEWEST, ROUNDS // size))


def share_of_room(room: np.ndarray, stream: int) -> np.ndarray:
    """What one of as many streams as parts may give to each part in a round, [size] int64; the
    shares of all streams are the room.

    Args:
        room: What each part can still take, [size] int64.
        stream: Number of the stream.
    """
    size = len(room)
    number = (stream + np.arange(size)) % size
    share: np.ndarray = room * (number + 1) // size - room * number // size
    return share


def settle(
    comm: Comm, streams: list[int], parts: list[np.ndarray], load: np.ndarray, capacity: int
) -> np.ndarray:
    """The loads after a round, [size] int64. Items that found no room in the shares of their
    streams go to the least loaded parts.

    Args:
        comm: The workers.
        streams: Streams of this worker.
        parts: Part of each item of these streams, -1 for none, [n] int32 each; changed.
        load: Items of each part before the round, [size] int64.
        capacity: The most items of a part.

    Collective: all ranks of comm.
    """
    size = len(load)
    placed = np.zeros(size, np.int64)
    left = np.zeros(size, np.int64)
    for stream, out in zip(streams, parts, strict=True):
        placed += np.bincount(out[out >= 0], minlength=size)
        left[stream] = np.count_nonzero(out < 0)
    placed, left = comm.all_sum(np.stack((placed, left)))
    load = load + placed
    by_load = np.argsort(load, kind="stable")
    ends = np.cumsum((capacity - load)[by_load])
    for stream, out in zip(streams, parts, strict=True):
        out[out < 0] = by_load[
            np.searchsorted(ends, left[:stream].sum() + np.arange(left[stream]), side="right")
        ]
    load[by_load] += np.diff(np.minimum(ends, left.sum()), prepend=0)
    return load
