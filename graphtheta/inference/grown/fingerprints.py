"""Fingerprints of nodes: 64-bit hashes of what a model reads at a node, and of the edges at it.

Two graphs are compared by them without the first one. A fingerprint depends on original ids and
values alone: not on the order of edges, numbers of nodes, partition or number of workers. The hash
of a row is multilinear, the sum of its words times random odd numbers, and then mixed; that of the
edges of a node is the sum of theirs.

Source: Dietzfelbinger, Universal hashing and k-wise independent random variables via integer
arithmetic without primes, STACS 1996.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from graphtheta.base.rng import Purpose, bits, key
from graphtheta.base.sparse import is_sparse
from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.partition import MASTER, MIRROR, Partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.store.store import ColumnStore
from graphtheta.engine.view.level import halo_map
from graphtheta.ops.kernels.fingerprint import hash_edges, hash_placed, hash_rows, take_checked
from graphtheta.ops.parallel.buffers import by_blocks, empty

# rows of edges and nodes that are read at a time
BLOCK = 1 << 14
WORD, WORDS = np.dtype(np.uint32), np.dtype(np.uint64)
IN_ORDER = np.zeros(0, np.int32)


def row_hashes(x: Any, name: str = "") -> np.ndarray:
    """A hash of each row, [n] uint64.

    Args:
        x: [n, ...] numbers of 32 or 64 bits, or texts; or scipy CSR, or ``TypedRows``.
        name: Rows of columns with other names have other hashes.
    """
    seed = key(0, Purpose.CHECK, crc32(name.encode()))
    if is_sparse(x):
        x = x.tocsr()
        # zeros that are stored are those of other forms of the matrix that are not
        hashes = row_hashes(x.data, name) * (x.data != 0)
        return _sums(hashes * bits(seed, x.indices), x.indptr)
    if not x.size:
        return np.zeros(len(x), np.uint64)
    out = empty((len(x),), np.uint64)
    words = _words(np.ascontiguousarray(x))
    hash_rows(words, _odd(seed, words), out)
    return out


def array_hash(hashes: np.ndarray, places: np.ndarray, n: int) -> str:
    """A hash of an array of n rows, from those of rows, [m] uint64, that have a place in it: a
    number below n, [m] int64.
    """
    return f"{int(hash_placed(hashes, places, n)):016x}"


def take_rows_checked(
    x: np.ndarray, rows: np.ndarray, hashes: np.ndarray, out: np.ndarray
) -> int | None:
    """Copy rows of an array on all threads, and compare them with their hashes on the way.

    Args:
        x: [n, ...], contiguous, of a type that ``row_hashes`` takes.
        rows: [m] int64, each at least 0 and below n.
        hashes: What ``row_hashes`` returned for all rows, [n] uint64.
        out: [m, ...], contiguous; changed.

    Returns:
        A row with another hash; None if all are right.
    """
    if not out.size:
        return None
    words = _words(x)
    to = _words(out)
    hashes = hashes[:]
    odd = _odd(key(0, Purpose.CHECK, crc32(b"")), words)
    wrong = list[int]()
    for each in (words, hashes):
        # one kernel for arrays that may be changed and those that must not
        each.flags.writeable = False

    def copied(_: int, begin: int, end: int) -> None:
        at = begin + take_checked(
            words=words, rows=rows[begin:end], odd=odd, hashes=hashes, out=to[begin:end]
        )
        if at < end:
            wrong.append(int(rows[at]))

    by_blocks(copied, len(rows), words.shape[1])
    return min(wrong, default=None)


def column_hashes(store: ColumnStore, names: Iterable[str]) -> np.ndarray:
    """A hash of the rows of some columns together, [n_rows] uint64."""
    names = list(names)
    out = np.empty(store.n_rows, np.uint64)
    for a in range(0, store.n_rows, BLOCK):
        rows = np.arange(a, min(a + BLOCK, store.n_rows))
        block = np.zeros(len(rows), np.uint64)
        for name in names:
            block += row_hashes(store.read(name, rows), name)
        out[a : a + BLOCK] = bits(0, block)
    return out


def edge_hashes(
    partition: Partition,
    names: Iterable[str],
    ids: Callable[[np.ndarray], np.ndarray],
    reverse: bool,
) -> np.ndarray:
    """A hash of the in-edges of each master, or with ``reverse`` of its out-edges, [n_masters]
    uint64; 0 without any.

    Args:
        partition: The partition.
        names: The edge columns that count.
        ids: From numbers of nodes to original ids.
        reverse: Whether they are out-edges.

    Collective: all ranks of the partition.
    """
    relation = partition.relations[EDGE]
    of_node = row_hashes(ids(partition.gid))
    names = list(names)
    columns = column_hashes(partition.edge, names) if names else np.zeros(0, np.uint64)
    hashes = {
        MASTER: np.zeros(partition.n_masters, np.uint64),
        MIRROR: np.zeros(partition.n_mirrors, np.uint64),
    }
    for block in relation.blocks:
        sender, receiver = block.kinds(reverse)
        ptr, others, edges = (
            (block.out_indptr, block.out_dst, block.out_edge)
            if reverse
            else (block.in_indptr, block.in_src, IN_ORDER)
        )
        hash_edges(
            ptr=ptr,
            others=others,
            edges=edges,
            start=block.start,
            of_node=of_node[sender * partition.n_masters :],
            of_edge=columns,
            out=hashes[receiver],
        )
    plan, mirrors = relation.served(reverse)[1]
    lookup = halo_map(partition, mirrors)
    halo = hashes[MIRROR] if lookup is None else hashes[MIRROR][mirrors]
    # sums of integers wrap around, with or without a sign
    total = {"hash": hashes[MASTER].view(np.int64)}
    Exchange(partition.halo_comm, plan).to_masters_add({"hash": halo.view(np.int64)}, total)
    return total["hash"].view(np.uint64)


def _sums(x: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """Sums of groups of hashes that lie one after another, [n_groups] uint64."""
    total = np.zeros(len(x) + 1, np.uint64)
    np.cumsum(x, out=total[1:])
    return total[ptr[1:]] - total[ptr[:-1]]


def _words(x: np.ndarray) -> np.ndarray:
    """The rows of a contiguous array that is not empty, as words of 32 or 64 bits, [n, m]."""
    flat = x.reshape(len(x), prod(x.shape[1:]))
    # longer texts elsewhere in the array, which pad a text with zeros, do not change its hash
    short = flat.shape[1] * flat.dtype.itemsize % WORDS.itemsize or flat.dtype.kind == "U"
    return flat.view(WORD if short else WORDS)


def _odd(seed: int, words: np.ndarray) -> np.ndarray:
    """A random odd number for each word of a row."""
    return bits(seed, np.arange(words.shape[1])) | np.uint64(1)
