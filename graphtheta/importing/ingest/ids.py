"""Ids of nodes: a directory that is distributed over the workers by a hash of the ids.

Ids are pyarrow arrays, of int64 or of texts.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.base.rng import bits
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.table import Route
from graphtheta.importing.tables.arrow import TEXT, WHOLE, flags, integers

# an odd number, so that its powers have inverses modulo 2^64
BASE = 0x9E3779B97F4A7C15
INVERSE = pow(BASE, -1, 1 << 64)
TEXTS_AT_ONCE = 1 << 15


def hashes(ids: Any) -> np.ndarray:
    """64 bits for each id, the same in every process; different for different integers.

    Args:
        ids: [n].

    Returns:
        [n] uint64.
    """
    if ids.type == WHOLE:
        return bits(0, integers(ids))
    return np.concatenate(
        [
            np.empty(0, np.uint64),
            *(_text_hashes(ids.slice(a, TEXTS_AT_ONCE)) for a in range(0, len(ids), TEXTS_AT_ONCE)),
        ]
    )


def _text_hashes(ids: Any) -> np.ndarray:
    """The bytes of each text as digits of a number, modulo 2^64; mixed with its length."""
    data, bounds = text_parts(ids)
    size = 1 << len(data).bit_length()
    sums = np.concatenate(
        (
            np.zeros(1, np.uint64),
            np.cumsum((data + np.uint64(1)) * _powers(BASE, size)[: len(data)], dtype=np.uint64),
        )
    )
    return bits(
        0,
        (sums[bounds[1:]] - sums[bounds[:-1]]) * _powers(INVERSE, size)[bounds[:-1]]
        + np.diff(bounds).astype(np.uint64),
    )


@lru_cache(4)
def _powers(base: int, n: int) -> np.ndarray:
    """base^0, base^1, ... modulo 2^64, [n] uint64."""
    factors = np.full(n, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


def text_parts(ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of texts, [n_bytes] uint8, and the bounds of each, [n + 1] int64 from 0."""
    if not len(ids):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = ids.buffers()
    bounds = np.frombuffer(offsets, np.int64)[ids.offset : ids.offset + len(ids) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return raw[bounds[0] : bounds[-1]], bounds - bounds[0]


def texts_of(data: np.ndarray, lengths: np.ndarray) -> Any:
    """Texts of their bytes and lengths."""
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    return pa.LargeStringArray.from_buffers(len(lengths), pa.py_buffer(bounds), pa.py_buffer(data))


def empty(kind: Any) -> Any:
    """No ids."""
    return pa.array([], kind)


def exchange(comm: Comm, parts: list[Any]) -> list[Any]:
    """Send ids to each worker.

    Args:
        comm: The workers.
        parts: Ids for each worker, of one type on all workers.

    Returns:
        What each worker sent here.

    Collective: all ranks of comm.
    """
    if parts[0].type == WHOLE:
        return [pa.array(part) for part in comm.all_to_all([integers(part) for part in parts])]
    halves = [text_parts(part) for part in parts]
    lengths = comm.all_to_all([np.diff(bounds) for _, bounds in halves])
    return [
        texts_of(data, n)
        for data, n in zip(comm.all_to_all([data for data, _ in halves]), lengths, strict=True)
    ]


class Routes(Route):
    """Which worker each of some ids belongs to.

    Args:
        comm: The workers.
        id_hashes: Hash of each id, [n] uint64.
    """

    def __init__(self, comm: Comm, id_hashes: np.ndarray):
        super().__init__(
            ((id_hashes >> np.uint64(32)) % np.uint64(comm.size)).astype(np.int32), comm.size
        )

    def ids(self, ids: Any) -> list[Any]:
        """The ids of each worker."""
        moved = ids.take(pa.array(self.order))
        return [moved.slice(a, b - a) for a, b in pairwise(self.bounds.tolist())]


class IdDirectory:
    """Numbers of nodes by id. A worker holds the ids whose hash is its own.

    Args:
        comm: The workers.
        ids: The different ids of this worker, [n].
        numbers: Their numbers, [n] int64.
    """

    def __init__(self, comm: Comm, ids: Any, numbers: np.ndarray):
        id_hashes = hashes(ids)
        order = np.argsort(id_hashes, kind="stable")
        self._comm = comm
        self._hashes = id_hashes[order]
        self._ids = ids.take(pa.array(order))
        self._numbers = numbers[order]

    def find(self, ids: Any) -> np.ndarray:
        """Numbers of ids; -1 for ids that are not known.

        Args:
            ids: [n].

        Returns:
            [n] int64.

        Collective: all ranks of comm.
        """
        coded = ids.dictionary_encode()
        different = coded.dictionary
        routes = Routes(self._comm, hashes(different))
        answers = self._comm.all_to_all(
            [self._here(part) for part in exchange(self._comm, routes.ids(different))]
        )
        numbers = routes.back(answers)
        return numbers[coded.indices.to_numpy()] if len(ids) else np.empty(0, np.int64)

    def but_for_zeros(self, ids: list[str]) -> dict[str, str]:
        """Known ids that are whole numbers and equal some ids but for zeros in front, as ids have
        that were numbers once; by the other id.

        Args:
            ids: A few ids of this worker, texts.

        Collective: all ranks of comm.
        """
        numbers = {text.lstrip("0") for text in ids if text.isdecimal()}
        wanted = sorted(set().union(*self._comm.all_gather(sorted(numbers))))
        plain = pc.utf8_ltrim(self._ids, "0")
        same = self._ids.filter(pc.is_in(plain, pa.array(wanted, TEXT))).to_pylist()
        id_of_number = {
            text.lstrip("0"): text for part in self._comm.all_gather(same) for text in sorted(part)
        }
        return {
            text: id_of_number[text.lstrip("0")] for text in ids if text.lstrip("0") in id_of_number
        }

    def _here(self, ids: Any) -> np.ndarray:
        """Numbers of ids that belong to this worker."""
        out = np.full(len(ids), -1, np.int64)
        if not len(self._hashes) or not len(ids):
            return out
        wanted = hashes(ids)
        at = np.searchsorted(self._hashes, wanted)
        left = np.arange(len(ids))
        while len(left):
            # of several ids with one hash, the next
            left = left[at[left] < len(self._hashes)]
            left = left[self._hashes[at[left]] == wanted[left]]
            same = flags(pc.equal(self._ids.take(pa.array(at[left])), ids.take(pa.array(left))))
            out[left[same]] = self._numbers[at[left[same]]]
            left = left[~same]
            at[left] += 1
        return out
