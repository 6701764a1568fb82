"""Edges with the same ends and relation, and edges without their reverse, found by the worker that
the two ends hash to.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphtheta.base.rng import bits
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError
from graphtheta.importing.ingest.ids import Routes
from graphtheta.importing.ingest.spool import in_step

# nodes up to which two numbers make one key of 64 bits
MOST_NODES = 3_037_000_499


# number of the first edge, sources, destinations and, where edges have relations, codes of these
Block = tuple[int, np.ndarray, np.ndarray, np.ndarray | None]


def mark(
    comm: Comm, blocks: Iterator[Block], n_nodes: int, relations: bool = False
) -> list[np.ndarray]:
    """Mark the edges of this worker; holds up to 85 bytes for each edge of its share, and 40 more
    with relations.

    Args:
        comm: The workers.
        blocks: The edges of this worker; sources and destinations are -1 for edges that are left
            out.
        n_nodes: Number of nodes.
        relations: Whether edges have relations, on all workers; edges of different relations are no
            duplicates of each other.

    Returns:
        For each block of this worker, [n, 2] bool: whether an edge repeats an earlier one, and
        whether it is the first of its ends and relation and has no reverse of this relation.

    Raises:
        ConfigError: There are too many nodes.

    Collective: all ranks of comm.
    """
    if n_nodes > MOST_NODES:
        raise ConfigError(
            f"{n_nodes:,} nodes are more than the {MOST_NODES:,} for which edges are compared; use"
            " duplicates=keep and reverse=keep"
        )
    empty = np.empty(0, np.int64)
    keys = [empty]
    rows = [empty]
    codes = [empty]
    rounds = list[list[int]]()
    sent: list[tuple[Routes, np.ndarray, int]] = []
    for block in in_step(comm, blocks):
        begin, src, dst, code = (0, empty, empty, empty) if block is None else block
        present = np.flatnonzero(src >= 0)
        a, b = src[present], dst[present]
        routes = Routes(comm, bits(0, np.minimum(a, b) * n_nodes + np.maximum(a, b)))
        arrived = comm.all_to_all(routes.parts(a * n_nodes + b))
        keys += arrived
        rows += comm.all_to_all(routes.parts(begin + present))
        if relations:
            assert code is not None
            codes += comm.all_to_all(routes.parts(code[present].astype(np.int64)))
        rounds.append([len(part) for part in arrived])
        sent.append((routes, present, len(src) if block is not None else -1))
    all_keys = np.concatenate(keys)
    # comparing takes most memory
    del keys
    all_rows = np.concatenate(rows)
    del rows
    compared = _compare(all_keys, all_rows, np.concatenate(codes) if relations else None, n_nodes)
    del all_keys, all_rows, codes
    marks = list[np.ndarray]()
    at = 0
    for counts, (routes, present, n) in zip(rounds, sent, strict=True):
        parts = np.split(compared[at : at + sum(counts)], np.cumsum(counts)[:-1])
        at += sum(counts)
        flags = np.zeros((max(n, 0), 2), bool)
        flags[present] = routes.back(comm.all_to_all(parts))
        if n >= 0:
            marks.append(flags)
    return marks


def _compare(
    keys: np.ndarray, rows: np.ndarray, codes: np.ndarray | None, n_nodes: int
) -> np.ndarray:
    """Whether an edge repeats an earlier one; and whether it is the first of its kind and no edge
    of its relation is its reverse, [n, 2] bool.
    """
    marks = np.zeros((len(keys), 2), bool)
    reverse = keys % n_nodes * n_nodes + keys // n_nodes
    if codes is not None:
        # numbers of the pairs that occur leave room for that of a relation
        pairs, keys = np.unique(keys, return_inverse=True)
        at = np.minimum(np.searchsorted(pairs, reverse), max(len(pairs) - 1, 0))
        there = pairs[at] == reverse
        relations, codes = np.unique(codes, return_inverse=True)
        keys = keys * len(relations) + codes
        reverse = np.where(there, at * len(relations) + codes, -1)
    order = np.lexsort((rows, keys))
    ordered = keys[order]
    is_first = np.ones(len(keys), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    different = ordered[is_first]
    reverse = reverse[order[is_first]]
    at = np.minimum(np.searchsorted(different, reverse), len(different) - 1)
    marks[order[~is_first], 0] = True
    marks[order[is_first], 1] = different[at] != reverse
    return marks
