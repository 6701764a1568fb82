"""Sorts the edges of a worker into blocks, by destination and by source, on all threads."""

from __future__ import annotations

import numpy as np

from graphtheta.errors import PartitionError

from ...ops.kernels.partition import pairs
from ...ops.kernels.partition.edge_order import end_keys
from ...ops.parallel.buffers import by_blocks, empty
from .relation import EdgeBlock

# of a worker: positions of edges are int32, and so are keys of ends, up to twice the rows
MOST_EDGES = (1 << 31) - 1
MOST_ROWS = 1 << 30


def edge_blocks(
    src: np.ndarray,
    dst: np.ndarray,
    edges: np.ndarray,
    row_of: np.ndarray,
    n_masters: int,
    n_mirrors: int,
) -> tuple[list[EdgeBlock], np.ndarray]:
    """The edges of a worker in the blocks core, (mirror, master), (master, mirror), (mirror,
    mirror).

    In each block, edges are stored by destination, source and id.

    Args:
        src, dst: Ids of the ends of all edges of the graph, integers.
        edges: Ids of this worker's edges, ascending, [m] integers.
        row_of: Local row of each node, int32; masters first.

    Returns:
        The blocks, and the edge ids in storage order, [m] int64.

    Raises:
        PartitionError: There are too many edges or rows for numbers of 32 bits.
    """
    if len(edges) > MOST_EDGES:
        raise PartitionError(
            f"{len(edges)} edges on one worker, whose positions have 32 bits, are more than"
            f" {MOST_EDGES}; use more workers"
        )
    n = n_masters + n_mirrors
    if n > MOST_ROWS:
        raise PartitionError(
            f"{n} nodes on one worker, whose ends of edges have keys of 32 bits, are more than"
            f" {MOST_ROWS}; use more workers"
        )
    sizes = (n_masters, n_mirrors)
    # what is dealt is not stored elsewhere, so that its memory serves what follows
    in_bounds, in_src, ids = pairs.sorted_pairs(
        pairs.dealt_pairs(*_keys(src=src, dst=dst, edges=edges, row_of=row_of, sizes=sizes), 2 * n),
        2 * n,
    )
    gid = _widened(ids)
    del ids
    out_bounds, out_dst, out_edge = pairs.sorted_pairs(
        pairs.dealt_pairs(in_src, *_rows(in_bounds), 2 * n), 1
    )
    blocks = []
    # where the keys of each block begin; see end_keys
    for number, (src_begin, dst_begin) in enumerate(
        zip(
            (0, n_masters, n, n + n_masters),
            (0, n_masters, 2 * n_masters, n + n_masters),
            strict=True,
        )
    ):
        src_kind = number & 1
        dst_kind = number >> 1
        in_ptr = in_bounds[dst_begin : dst_begin + sizes[dst_kind] + 1]
        out_ptr = out_bounds[src_begin : src_begin + sizes[src_kind] + 1]
        start = int(in_ptr[0])
        part = slice(in_ptr[0], in_ptr[-1])
        for x, lowest in (
            ((in_src, src_begin), (out_dst, dst_begin), (out_edge, start)) if number else ()
        ):
            x[part] -= lowest
        blocks.append(
            EdgeBlock(
                src_kind=src_kind,
                dst_kind=dst_kind,
                start=start,
                in_indptr=in_ptr - start,
                in_src=in_src[part],
                out_indptr=out_ptr - start,
                out_dst=out_dst[part],
                out_edge=out_edge[part],
            )
        )
    return blocks, gid


def _keys(
    src: np.ndarray, dst: np.ndarray, edges: np.ndarray, row_of: np.ndarray, sizes: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of the destinations and sources of some edges, [m] int32 each, and their ids; see
    ``end_keys``.
    """
    by_src, by_dst = empty(edges.shape, np.int32), empty(edges.shape, np.int32)
    ids = edges.astype(np.int32 if len(src) <= pairs.WIDEST else np.int64, copy=False)
    by_blocks(
        lambda b, begin, end: end_keys(
            src=src,
            dst=dst,
            edges=ids,
            row_of=row_of,
            sizes=sizes,
            by_src=by_src,
            by_dst=by_dst,
            first=begin,
            last=end,
        ),
        len(edges),
        1,
    )
    return by_dst, by_src, ids


def _widened(ids: np.ndarray) -> np.ndarray:
    """Ids as int64: one more pass takes less time than to compile the sort for such ids, too."""
    if ids.dtype == np.int64:
        return ids
    out = empty(ids.shape, np.int64)
    by_blocks(lambda b, begin, end: np.copyto(out[begin:end], ids[begin:end]), len(ids), 1)
    return out


def _rows(bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The key of each pair in order, [m] int32, and its number, [m] int32."""
    rows = empty((int(bounds[-1]),), np.int32)
    n = len(bounds) - 1

    def write(b: int, begin: int, end: int) -> None:
        rows[bounds[begin] : bounds[end]] = np.repeat(
            np.arange(begin, end, dtype=np.int32), np.diff(bounds[begin : end + 1])
        )

    by_blocks(write, n, max(len(rows) // max(n, 1), 1))
    return rows, pairs.numbered(len(rows), len(rows))
