"""Edges as lists of their ends, by receiving row and id."""

from __future__ import annotations

from ...compile.jit import jit

# gaps of Shell's sort: few edges of a row are moved one by one, many first over longer ways
GAPS = (1750, 701, 301, 132, 57, 23, 10, 4, 1)


@jit()
def list_edges(  # type: ignore[no-untyped-def]
    groups, receiver, ptr, sender, new, ids, order, src, dst
):
    """List groups of edges one after another, the edges of each by id.

    Args:
        groups: The groups in the order in which they are listed, each once, [n_groups] int64.
        receiver, ptr: Receiving row and bounds of each group.
        sender: Sending row of each edge, [n_edges].
        new: New number of each row.
        ids: Id of each edge, [n_edges] int64.
        order, src, dst: Position of each listed edge and new numbers of its ends, [n_edges] int64;
            changed.
    """
    k = 0
    for g in groups:
        begin = ptr[g]
        n = ptr[g + 1] - begin
        for e in range(n):
            order[k + e] = begin + e
        for gap in GAPS:
            for e in range(gap, n):
                moved = order[k + e]
                i = e
                while i >= gap and ids[order[k + i - gap]] > ids[moved]:
                    order[k + i] = order[k + i - gap]
                    i -= gap
                order[k + i] = moved
        to = new[receiver[g]]
        for e in range(k, k + n):
            src[e] = new[sender[order[e]]]
            dst[e] = to
        k += n
