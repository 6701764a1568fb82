"""Edges with the same ends, and edges without their reverse, found by the worker that the two ends hash to."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError
from graphtheta.ingest.ids import Routes
from graphtheta.ingest.spool import in_step
from graphtheta.rng import bits

# nodes up to which two numbers make one key of 64 bits
MOST_NODES = 3_037_000_499


class Marked:
    """What is known of the edges of a worker.

    Attributes:
        again: For each block, whether an edge repeats an earlier one, [n] bool.
        one_way: For each block, whether an edge is the first of its ends and has no reverse, [n] bool.
    """

    def __init__(self) -> None:
        self.again: list[np.ndarray] = []
        self.one_way: list[np.ndarray] = []


def mark(comm: Comm, blocks: Iterator[tuple[int, np.ndarray, np.ndarray]], n_nodes: int) -> Marked:
    """Mark the edges of this worker; holds up to 85 bytes for each edge of its share.

    Args:
        comm: The workers.
        blocks: Number of the first edge, sources and destinations (-1 for edges that are left out), for each block of this
            worker.
        n_nodes: Number of nodes.

    Raises:
        ConfigError: There are too many nodes.

    Collective: all ranks of comm.
    """
    if n_nodes > MOST_NODES:
        raise ConfigError(f"{n_nodes:,} nodes are more than the {MOST_NODES:,} for which edges are compared; use duplicates=keep and "
                          "reverse=keep")
    empty = np.empty(0, np.int64)
    keys, rows, rounds = [empty], [empty], list[list[int]]()
    sent: list[tuple[Routes, np.ndarray, int]] = []
    for block in in_step(comm, blocks):
        begin, src, dst = (0, empty, empty) if block is None else block
        kept = np.flatnonzero(src >= 0)
        a, b = src[kept], dst[kept]
        routes = Routes(comm, bits(0, np.minimum(a, b) * n_nodes + np.maximum(a, b)))
        arrived = comm.all_to_all(routes.parts(a * n_nodes + b))
        keys += arrived
        rows += comm.all_to_all(routes.parts(begin + kept))
        rounds.append([len(part) for part in arrived])
        sent.append((routes, kept, len(src) if block is not None else -1))
    all_keys = np.concatenate(keys)
    # comparing takes most memory
    del keys
    all_rows = np.concatenate(rows)
    del rows
    again, one_way = _compare(all_keys, all_rows, n_nodes)
    del all_keys, all_rows
    found, at = Marked(), 0
    for counts, (routes, kept, n) in zip(rounds, sent, strict=True):
        parts = np.split(np.stack((again, one_way), axis=1)[at: at + sum(counts)], np.cumsum(counts)[:-1])
        at += sum(counts)
        flags = np.zeros((max(n, 0), 2), bool)
        flags[kept] = routes.back(comm.all_to_all(parts))
        if n >= 0:
            found.again.append(flags[:, 0])
            found.one_way.append(flags[:, 1])
    return found


def _compare(keys: np.ndarray, rows: np.ndarray, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether an edge repeats an earlier one; and whether it is the first of its ends and no edge is its reverse."""
    order = np.lexsort((rows, keys))
    ordered = keys[order]
    is_first = np.ones(len(keys), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    different = ordered[is_first]
    reverse = different % n_nodes * n_nodes + different // n_nodes
    at = np.minimum(np.searchsorted(different, reverse), len(different) - 1)
    again, one_way = np.zeros(len(keys), bool), np.zeros(len(keys), bool)
    again[order[~is_first]] = True
    one_way[order[is_first]] = different[at] != reverse
    return again, one_way
