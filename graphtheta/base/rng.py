"""Counter-based random numbers, keyed by their purpose and by global ids.

A draw is a pure function of (seed, purpose, words..., id, column), never of the order of calls. Any
rank can make the draw that belongs to a node or an edge, and all ranks, partitions and thread
counts agree on it.

Mixing function: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_COLUMN = np.uint64(0xD1B54A32D192ED03)


class Purpose(IntEnum):
    """The purpose of a stream of draws; streams of different purposes are independent."""

    INIT = 1
    DROPOUT = 2
    BATCH = 3
    SAMPLE = 4
    NEGATIVE = 5
    SPLIT = 6
    DATA = 7
    PLACEMENT = 8
    CHECK = 9
    HALO = 10
    EMBEDDING = 11
    EVALUATION = 12


def _mix_int(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def _mix(x: np.ndarray) -> np.ndarray:
    x = x ^ (x >> np.uint64(30))
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def key(seed: int, purpose: int, *words: int) -> int:
    """Fold seed, purpose and any further words (step, layer, ...) into one 64-bit key."""
    k = 0
    for word in (seed, int(purpose), *words):
        k = _mix_int((k + _GOLDEN + (int(word) & _MASK)) & _MASK)
    return k


def bits(key: int | np.ndarray, ids: np.ndarray, cols: int | None = None) -> np.ndarray:
    """64 random bits per id, [n] or [n, cols] uint64; with a key of its own for each id, [n]
    uint64, per pair of both.
    """
    h = _mix(np.asarray(ids).astype(np.uint64) * np.uint64(_GOLDEN) + np.asarray(key, np.uint64))
    if cols is None:
        return h
    return _mix(h[:, None] + np.arange(1, cols + 1, dtype=np.uint64) * _COLUMN)


def uniform(key: int | np.ndarray, ids: np.ndarray, cols: int | None = None) -> np.ndarray:
    """Uniform draws in [0, 1), float64, [n] or [n, cols]; keys as for ``bits``."""
    return (bits(key, ids, cols) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: int, ids: np.ndarray, cols: int | None = None) -> np.ndarray:
    """Standard normal draws (Box-Muller), float64, [n] or [n, cols]."""
    other = _mix_int((key + _GOLDEN) & _MASK)
    radius = np.sqrt(-2.0 * np.log1p(-uniform(key, ids, cols)))
    return radius * np.cos(2.0 * np.pi * uniform(other, ids, cols))


def integers(
    key: int | np.ndarray, ids: np.ndarray, high: int | np.ndarray, cols: int | None = None
) -> np.ndarray:
    """Uniform integers in [0, high), int64, [n] or [n, cols]; high is one number, or one for each
    id.
    """
    return np.minimum((uniform(key, ids, cols) * high).astype(np.int64), high - 1)


def shuffle(key: int, ids: np.ndarray) -> np.ndarray:
    """The ids in random order: sorted by their hash, ties by id."""
    ids = np.asarray(ids)
    return ids[np.lexsort((ids, bits(key, ids)))]


class Permutation:
    """A keyed permutation of [0, n), computed item by item in both directions, without a list.

    A Feistel network permutes all numbers of as many bits as n - 1 has. A result of n or above is
    permuted again until it is below n (cycle walking), which takes fewer than two passes on
    average.

    Args:
        key: Key of the permutation.
        n: Number of items, 0 to 2**62.

    Source: Luby and Rackoff, 1988, https://doi.org/10.1137/0217022; Black and Rogaway, 2002,
    https://doi.org/10.1007/3-540-45760-7_9
    """

    ROUNDS = 12

    def __init__(self, key: int, n: int):
        width = max(n - 1, 0).bit_length()
        self.n = n
        self._low = np.uint64(width - width // 2)
        self._masks = [np.uint64((1 << half) - 1) for half in (width - width // 2, width // 2)]
        self._rounds = [
            (i % 2, np.uint64(_mix_int((key + (i + 1) * _GOLDEN) & _MASK)))
            for i in range(self.ROUNDS)
        ]

    def item(self, positions: np.ndarray) -> np.ndarray:
        """The items at some positions, [k] int64."""
        return self._walk(positions, self._rounds)

    def position(self, items: np.ndarray) -> np.ndarray:
        """The positions of some items, [k] int64: the inverse of ``item``."""
        return self._walk(items, self._rounds[::-1])

    def _walk(self, x: np.ndarray, rounds: list[tuple[int, np.uint64]]) -> np.ndarray:
        out = self._network(np.asarray(x).astype(np.uint64), rounds)
        limit = np.uint64(self.n)
        outside = np.flatnonzero(out >= limit)
        while len(outside):
            again = out[outside] = self._network(out[outside], rounds)
            outside = outside[again >= limit]
        return out.astype(np.int64)

    def _network(self, x: np.ndarray, rounds: list[tuple[int, np.uint64]]) -> np.ndarray:
        halves = [x & self._masks[0], x >> self._low]
        for side, key in rounds:
            halves[side] ^= _mix(halves[1 - side] + key) & self._masks[side]
        return halves[1] << self._low | halves[0]
