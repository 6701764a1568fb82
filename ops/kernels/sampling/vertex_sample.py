"""Sampling by draws of source vertices: loops over the edges of receiving rows.

``draws`` is a tuple (first, second, cos, sin, blended): the draw of a vertex is a hash of its id
and the key ``first``, or, if ``blended``, the distribution function of a mix of two normal draws.

Edge e of row g has the inclusion probability min(1, 1 / (x[g] * rho)), where rho is ``rho[e]`` if
``by_edge`` and ``rho[index[e]]`` otherwise; ``index`` numbers the senders of the edges.

Sums are made in integers, so they are the same for every partition: a term is multiplied by the
``scale`` of its row, a power of two, and rounded.
"""

from __future__ import annotations

from math import cos, erfc, log1p, pi, sqrt

import numpy as np
from numba import njit

from ...compile.jit import jit
from ..hash import GOLDEN, draw, mix
from ..heap_sort import sort

BELOW_ONE, ONE = 1 - 2.0**-53, np.uint64(1)
# above the rounding errors of powers of numbers up to 1
MARGIN = 1e-12
# bits of a draw that decide where a probability is chosen as a multiple of 2**-UPPER_BITS
UPPER_BITS = 32
# fractional bits of each part of an exact sum of numbers from 0 to 1
PART_BITS = 31


@njit(inline="always")
def _uniform(key, i):  # type: ignore[no-untyped-def]
    return np.float64(draw(key, i) >> np.uint64(11)) * 2.0**-53


@njit(inline="always")
def _normal(key, i):  # type: ignore[no-untyped-def]
    return sqrt(-2.0 * log1p(-_uniform(key, i))) * cos(2.0 * pi * _uniform(mix(key + GOLDEN), i))


@njit(inline="always")
def vertex_draw(draws, i):  # type: ignore[no-untyped-def]
    """A uniform number in [0, 1) for the vertex i."""
    first, second, along, across, blended = draws
    if not blended:
        return _uniform(first, i)
    normal = along * _normal(first, i) + across * _normal(second, i)
    return min(0.5 * erfc(-normal / sqrt(2.0)), BELOW_ONE)


@jit()
def vertex_draws(draws, ids, out, first, last):  # type: ignore[no-untyped-def]
    """out[i] = the draw of the vertex ids[i], for some i."""
    for i in range(first, last):
        out[i] = vertex_draw(draws, ids[i])


@njit(inline="always")
def _upper(draws, i):  # type: ignore[no-untyped-def]
    return np.uint32(np.int64(vertex_draw(draws, i) * 2.0**UPPER_BITS))


@jit()
def upper_bits(draws, ids, out, first, last):  # type: ignore[no-untyped-def]
    """out[i] = the upper ``UPPER_BITS`` bits of the draw of the vertex ids[i], for some i."""
    for i in range(first, last):
        out[i] = _upper(draws, ids[i])


@jit()
def poisson(groups, draws, ids, upper, limit, first, last):  # type: ignore[no-untyped-def]
    """The edges of some groups whose senders draw a number below a limit of their row.

    Args:
        groups: (begin, end, edges, others): groups of edges, as for ``expand``.
        ids: Global id of each sender.
        upper: ``upper_bits`` of each sender; empty to draw for each edge.
        limit: Of each group, in units of the upper bits, int64; 2**UPPER_BITS keeps all edges.
        first, last: The groups.

    Returns:
        Bounds of the groups; positions, other ends and weights, the inverse probabilities, of the
        chosen edges.
    """
    begin, end, edges, others = groups
    ptr = np.zeros(last - first + 1, np.int64)
    n_edges = 0
    for g in range(first, last):
        n_edges += end[g] - begin[g]
    # memory that is not written is not used
    chosen = np.empty(n_edges, np.int32)
    n = np.uint64(0)
    for g in range(first, last):
        # unsigned numbers, since a signed index is compared with 0 first
        a = np.uint64(begin[g])
        b = np.uint64(end[g])
        below = np.uint32(limit[g])
        if limit[g] == 1 << UPPER_BITS:
            for e in range(a, b):
                chosen[n] = e
                n += ONE
        elif len(upper):
            for e in range(a, b):
                if upper[np.uint64(others[e])] < below:
                    chosen[n] = e
                    n += ONE
        else:
            for e in range(a, b):
                if _upper(draws, ids[np.uint64(others[e])]) < below:
                    chosen[n] = e
                    n += ONE
        ptr[g - first + 1] = n
    at = chosen[: ptr[-1]].copy()
    far = np.empty(ptr[-1], np.int32)
    weight = np.empty(ptr[-1], np.float64)
    for g in range(first, last):
        weight[ptr[g - first] : ptr[g - first + 1]] = 2.0**UPPER_BITS / limit[g]
    # loops of their own, so that many reads are under way at a time
    for i in range(len(at)):
        far[i] = others[at[i]]
    if len(edges):
        for i in range(len(at)):
            at[i] = edges[at[i]]
    return ptr, at, far, weight


@jit()
def vertices(edges, senders, ids, number, stride, out, first, last):  # type: ignore[no-untyped-def]
    """out[e] = id of the sender of edge e, plus ``stride`` for each edge before it with the same
    ends, for some edges.

    Args:
        edges: Position of each edge.
        senders: Sender of each edge.
        ids: Global id of each sender.
        number: Number of edges with the same ends before the one at each position; empty for none.
        first, last: The edges.
    """
    for e in range(first, last):
        out[e] = ids[senders[e]]
        if len(number):
            out[e] += stride * number[edges[e]]


@njit(inline="always")
def _next_draw(draws, vertex, j, k, n_ids, rest):  # type: ignore[no-untyped-def]
    """One minus the j-th smallest of k uniform numbers, given one minus the one before it."""
    u = vertex_draw(draws, vertex + j * n_ids)
    return rest * (1.0 - u) ** (1.0 / (k - j))


@jit()
def sorted_draws(ptr, edges, vertex, draws, n_ids, k):  # type: ignore[no-untyped-def]
    """The smallest of k sorted draws of each vertex, for edges that are listed once for each.

    Entry j of consecutive equal edges gets the j-th smallest of k uniform numbers that belong to
    its vertex.

    Args:
        vertex: Id of each entry's vertex.
        n_ids: Number of vertices; draw j of a vertex is keyed by its id + j * n_ids.
    """
    out = np.empty(ptr[-1], np.float64)
    for g in range(len(ptr) - 1):
        j = 0
        rest = 1.0
        for e in range(ptr[g], ptr[g + 1]):
            if e == ptr[g] or edges[e] != edges[e - 1]:
                j = 0
                rest = 1.0
            rest = _next_draw(draws=draws, vertex=vertex[e], j=j, k=k, n_ids=n_ids, rest=rest)
            out[e] = 1.0 - rest
            j += 1
    return out


@jit()
def lowest_repeated(ptr, edges, others, vertex, draws, n_ids, k):  # type: ignore[no-untyped-def]
    """The edges of each group with the k lowest of all sorted draws, each as often as it has draws
    among them.

    Args:
        ptr, edges, others: Groups of edges; ``ptr`` may start anywhere.
        vertex, n_ids: As for ``sorted_draws``.

    Returns:
        Bounds of the groups, and positions and other ends of their entries, k per group that has an
        edge.
    """
    bounds = np.zeros(len(ptr), np.int64)
    for g in range(len(ptr) - 1):
        bounds[g + 1] = bounds[g] + (k if ptr[g + 1] > ptr[g] else 0)
    at = np.empty(bounds[-1], np.int32)
    far = np.empty(bounds[-1], np.int32)
    low = np.empty(k, np.float64)
    which = np.empty(k, np.int64)
    for g in range(len(ptr) - 1):
        if ptr[g + 1] == ptr[g]:
            continue
        low[:], which[:] = 2.0, ptr[g + 1]
        bound = 1.0
        for e in range(ptr[g], ptr[g + 1]):
            # most edges are left out by their first number alone, without a power
            if vertex_draw(draws, vertex[e]) > bound:
                continue
            rest = 1.0
            for j in range(k):
                rest = _next_draw(draws=draws, vertex=vertex[e], j=j, k=k, n_ids=n_ids, rest=rest)
                x = 1.0 - rest
                if x >= low[-1]:
                    break
                i = k - 1
                while i > 0 and low[i - 1] > x:
                    low[i], which[i] = low[i - 1], which[i - 1]
                    i -= 1
                low[i], which[i] = x, e
            if low[-1] < 1.0:
                # of a first number above it, the smallest of k is above low[-1] also with rounding
                bound = 1.0 - (1.0 - low[-1]) ** k + MARGIN
        sort(which, which)
        for i in range(k):
            at[bounds[g] + i], far[bounds[g] + i] = edges[which[i]], others[which[i]]
    return bounds, at, far


@jit()
def thinned(begin, end, index, edges, others, r, rho, by_edge, x):  # type: ignore[no-untyped-def]
    """The edges whose senders draw a number below the inclusion probability.

    Args:
        begin, end, edges, others: Groups of edges.
        r: Draw of each sender.

    Returns:
        Bounds of the groups, positions and other ends of the chosen edges, and the inverse of their
        probabilities.
    """
    ptr = np.zeros(len(begin) + 1, np.int64)
    room = 1024
    at = np.empty(room, np.int32)
    far = np.empty(room, np.int32)
    weight = np.empty(room, np.float64)
    n = 0
    for g in range(len(begin)):
        short = n + end[g] - begin[g] - len(at)
        if short > 0:
            more = short + len(at)
            at = np.concatenate((at, np.empty(more, np.int32)))
            far = np.concatenate((far, np.empty(more, np.int32)))
            weight = np.concatenate((weight, np.empty(more, np.float64)))
        for e in range(begin[g], end[g]):
            y = max(1.0, x[g] * rho[e if by_edge else index[e]])
            # without a branch: the next edge overwrites one that is not chosen
            at[n], far[n], weight[n] = edges[e], others[e], y
            n += r[index[e]] * y < 1.0
        ptr[g + 1] = n
    return ptr, at[:n], far[:n], weight[:n]


@jit()
def largest(ptr, index, rho, by_edge, a, out):  # type: ignore[no-untyped-def]
    """out[g] = the largest of out[g] and rho times a of the edges of row g; empty ``a`` is 1."""
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            y = rho[e if by_edge else index[e]]
            out[g] = max(out[g], y * a[e] if len(a) else y)


@jit()
def smallest(ptr, index, rho, by_edge, x, out):  # type: ignore[no-untyped-def]
    """out[t] = the smallest of out[t] and x times rho of the edges from sender t."""
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            t = index[e]
            out[t] = min(out[t], x[g] * rho[e if by_edge else t])


@jit()
def moments(ptr, a, scale, out):  # type: ignore[no-untyped-def]
    """out[g] += (number, sum, sum of squares) of the values of row g, [n, 3] int64."""
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            y = a[e] * scale[g]
            out[g, 0] += 1
            out[g, 1] += np.int64(np.rint(y))
            out[g, 2] += np.int64(np.rint(a[e] * y * scale[g] * 2.0**-32))


@jit()
def saturation(ptr, index, rho, by_edge, a, x, done, scale, out):  # type: ignore[no-untyped-def]
    """out[g] += (number of edges with probability below 1, sum of a of the others, sum of a * rho
    of these).

    Args:
        a: Weight of each edge; empty for 1.
        done: Rows to leave out.
        scale: Scales of the two sums, [n, 2].
    """
    for g in range(len(ptr) - 1):
        if done[g]:
            continue
        for e in range(ptr[g], ptr[g + 1]):
            y = rho[e if by_edge else index[e]]
            weight = a[e] if len(a) else 1.0
            if y * x[g] > 1.0:
                out[g, 0] += 1
                out[g, 2] += np.int64(np.rint(weight * y * scale[g, 1]))
            else:
                out[g, 1] += np.int64(np.rint(weight * scale[g, 0]))


@jit()
def squares(ptr, index, a, total, out):  # type: ignore[no-untyped-def]
    """Add the square of each edge's share of its row to its sender.

    Args:
        a: Value of each edge; empty for 1.
        total: Sum of the values of each row.
        out: Sums by sender in two parts of ``PART_BITS`` fractional bits each, [n_senders, 2]
            int64; changed.
    """
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            share = (a[e] if len(a) else 1.0) / total[g]
            y = share * share * 2.0**PART_BITS
            whole = np.floor(y)
            out[index[e], 0] += np.int64(whole)
            out[index[e], 1] += np.int64(np.rint((y - whole) * 2.0**PART_BITS))
