"""Sorts the edges of a worker into blocks, by destination and by source, with counting sorts on all threads."""
from __future__ import annotations

import numpy as np

from ...ops.autodiff.buffers import by_blocks, empty
from ...ops.kernels.sort import end_keys
from ...ops.partition.counting_sort import counting_sort
from .relation import EdgeBlock

# most edges of a graph whose ids fit into int32
WIDEST = 1 << 31


def edge_blocks(src: np.ndarray, dst: np.ndarray, edges: np.ndarray, row_of: np.ndarray, n_masters: int,
                n_mirrors: int) -> tuple[list[EdgeBlock], np.ndarray]:
    """The edges of a worker in the blocks core, (mirror, master), (master, mirror), (mirror, mirror).

    In each block, edges are stored by destination, source and id.

    Args:
        src, dst: Ids of the ends of all edges of the graph, int64.
        edges: Ids of this worker's edges, ascending, [m] int64.
        row_of: Local row of each node, int32; masters first.

    Returns:
        The blocks, and the edge ids in storage order, [m] int64.
    """
    m, n, sizes = len(edges), n_masters + n_mirrors, (n_masters, n_mirrors)
    by_src, by_dst = empty((m,), np.int32), empty((m,), np.int32)
    by_blocks(lambda b, begin, end: end_keys(src, dst, edges, row_of, sizes, by_src, by_dst, begin, end), m, 1)
    keys = np.arange(2 * n, dtype=np.int32)
    # half as many bytes are moved if ids fit into 32 bits
    bounds, by_dst, gid = counting_sort(by_src, 2 * n, by_dst, edges.astype(np.int32 if len(src) <= WIDEST else np.int64))
    in_bounds, in_src, gid = counting_sort(by_dst, 2 * n, np.repeat(keys, np.diff(bounds)), gid)
    out_bounds, out_dst, out_edge = counting_sort(in_src, 2 * n, np.repeat(keys, np.diff(in_bounds)), np.arange(m, dtype=np.int32))
    blocks = []
    # where the keys of each block begin; see end_keys
    for number, (a, b) in enumerate(zip((0, n_masters, n, n + n_masters), (0, n_masters, 2 * n_masters, n + n_masters), strict=True)):
        src_kind, dst_kind = number & 1, number >> 1
        in_ptr, out_ptr = in_bounds[b: b + sizes[dst_kind] + 1], out_bounds[a: a + sizes[src_kind] + 1]
        start, part = int(in_ptr[0]), slice(in_ptr[0], in_ptr[-1])
        for x, lowest in ((in_src, a), (out_dst, b), (out_edge, start)) if number else ():
            x[part] -= lowest
        blocks.append(EdgeBlock(src_kind, dst_kind, start, in_ptr - start, in_src[part], out_ptr - start, out_dst[part], out_edge[part]))
    return blocks, gid.astype(np.int64)
