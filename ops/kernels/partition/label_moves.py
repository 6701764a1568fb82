"""Labels of nodes, such as clusters or workers, of limited size: moves between them, and the graph
of labels.

A graph is given as nodes and their neighbours: ``ptr`` [n + 1] bounds the neighbours of each node,
``near`` [ptr[n]] lists them, and ``weight`` [ptr[n]] has the weights of these edges. Neighbours are
numbers of the nodes themselves, from 0 on, and of further ones behind. ``mass`` [n] are the weights
of the nodes.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit
from ..hash import draw, mix
from ..heap_sort import sort


@jit()
def _count_labels(  # type: ignore[no-untyped-def]
    v, begin, end, near, weight, label, weight_of, seen
):
    """Add the weights of the edges of node v to ``weight_of`` by label, list these labels in
    ``seen``, and return their number.
    """
    n_seen = 0
    for e in range(begin, end):
        u = near[e]
        if u != v and weight[e] > 0:
            if weight_of[label[u]] == 0:
                seen[n_seen] = label[u]
                n_seen += 1
            weight_of[label[u]] += weight[e]
    return n_seen


@jit()
def move_nodes(  # type: ignore[no-untyped-def]
    first, ptr, near, weight, mass, label, names, left, key
):
    """Move each node to the label with room of most edge weight among its neighbours; returns the
    number of moves.

    Ties are broken by a hash of node and label. Loops and edges of weight 0 are not counted.

    Args:
        first: Id of the first node, for the hash.
        ptr, near, weight, mass: See above.
        label: Label of each node and of the further ones, numbers; those of the nodes are changed.
        names: Ids of the labels, for the hash, [n_labels].
        left: What each label can still take, [n_labels] int64; changed.
        key: Key of ties.
    """
    weight_of = np.zeros(len(left), np.int64)
    seen = np.empty(len(left), np.int64)
    moves = 0
    for v in range(len(ptr) - 1):
        old = label[v]
        n_seen = _count_labels(
            v=v,
            begin=ptr[v],
            end=ptr[v + 1],
            near=near,
            weight=weight,
            label=label,
            weight_of=weight_of,
            seen=seen,
        )
        drawn = draw(key, first + v)
        best = old
        most = weight_of[old]
        tie = mix(drawn ^ np.uint64(names[old]))
        for s in range(n_seen):
            p = seen[s]
            if p != old and weight_of[p] >= most and left[p] >= mass[v]:
                of = mix(drawn ^ np.uint64(names[p]))
                if weight_of[p] > most or of > tie:
                    best = p
                    most = weight_of[p]
                    tie = of
        for s in range(n_seen):
            weight_of[seen[s]] = 0
        if best != old:
            left[old] += mass[v]
            left[best] -= mass[v]
            label[v] = best
            moves += 1
    return moves


@jit()
def favourites(first, ptr, near, weight, label, names, key, out):  # type: ignore[no-untyped-def]
    """The id of the label of most edge weight among the neighbours of each node, with room or
    without; -1 if there is none.

    Args:
        first, ptr, near, weight, label, names, key: As of ``move_nodes``; nothing is changed.
        out: [n]; changed.
    """
    weight_of = np.zeros(len(names), np.int64)
    seen = np.empty(len(names), np.int64)
    for v in range(len(ptr) - 1):
        n_seen = _count_labels(
            v=v,
            begin=ptr[v],
            end=ptr[v + 1],
            near=near,
            weight=weight,
            label=label,
            weight_of=weight_of,
            seen=seen,
        )
        drawn = draw(key, first + v)
        out[v] = -1
        most = np.int64(0)
        tie = np.uint64(0)
        for s in range(n_seen):
            p = seen[s]
            of = mix(drawn ^ np.uint64(names[p]))
            if weight_of[p] > most or (weight_of[p] == most and of > tie):
                out[v] = names[p]
                most = weight_of[p]
                tie = of
            weight_of[p] = 0


@jit()
def join_nodes(  # type: ignore[no-untyped-def]
    ptr, near, weight, mass, within, order, label, load, room
):
    """Join each node that is alone in its label to that of the highest weight^2 / (mass of node *
    load of label) with room.

    If none has room, or it has no neighbours, it joins a node with the same first choice. Of equal
    scores the lowest label decides.

    Args:
        ptr, near, weight, mass: A whole graph. Edges of weight 0 are not counted.
        within: Nodes that wait for each other have the same number, [n_nodes].
        order: Order of the nodes, [n_nodes].
        label: Label of each node, at first its own number, [n_nodes]; changed.
        load: Mass of each label, [n_nodes] int64; changed.
        room: The most mass of a label.
    """
    n = len(load)
    weight_of = np.zeros(n, np.int64)
    seen = np.empty(n, np.int64)
    waiting = np.full(n + 1, -1, np.int64)
    for v in order:
        if label[v] != v or load[v] != mass[v]:
            continue
        n_seen = _count_labels(
            v=v,
            begin=ptr[v],
            end=ptr[v + 1],
            near=near,
            weight=weight,
            label=label,
            weight_of=weight_of,
            seen=seen,
        )
        best = v
        highest = 0.0
        first = n
        first_score = 0.0
        for s in range(n_seen):
            p = seen[s]
            score = float(weight_of[p]) * weight_of[p] / load[p]
            if (score > highest or (score == highest and p < best)) and load[p] + mass[v] <= room:
                best, highest = p, score
            if score > first_score or (score == first_score and p < first):
                first, first_score = p, score
            weight_of[p] = 0
        if best == v:
            w = waiting[first]
            if w >= 0 and within[w] == within[v] and load[label[w]] + mass[v] <= room:
                best = label[w]
            else:
                waiting[first] = v
        if best != v:
            load[v] -= mass[v]
            load[best] += mass[v]
            label[v] = best


@jit()
def contract(  # type: ignore[no-untyped-def]
    of_row, ptr, near, weight, label, n_labels, order, out_label, out_ptr, out_near, out_weight
):
    """Sum the weights of rows by pairs of different labels; returns the number of rows and of
    entries made.

    Args:
        of_row: Label of each row, [n].
        ptr, near, weight: Entries of the rows; see above.
        label: Label of what ``near`` names, [any].
        n_labels: Number of labels.
        order: The rows by label, [n].
        out_label, out_ptr: Label of each row made, and the bounds of its entries; changed.
        out_near, out_weight: Label at the other end, and sum, of each entry made; changed.
    """
    weight_of = np.zeros(n_labels, np.int64)
    seen = np.empty(n_labels, np.int64)
    row = 0
    end = 0
    n_seen = 0
    out_ptr[0] = 0
    for k in range(len(order)):
        i = order[k]
        own_label = of_row[i]
        for e in range(ptr[i], ptr[i + 1]):
            p = label[near[e]]
            if p != own_label:
                if weight_of[p] == 0:
                    seen[n_seen] = p
                    n_seen += 1
                weight_of[p] += weight[e]
        if k + 1 == len(order) or of_row[order[k + 1]] != own_label:
            for s in range(n_seen):
                out_near[end], out_weight[end] = seen[s], weight_of[seen[s]]
                weight_of[seen[s]] = 0
                end += 1
            n_seen = 0
            out_label[row] = own_label
            row += 1
            out_ptr[row] = end
    return row, end


@jit()
def merge_rows(ptr, near, weight, out_ptr):  # type: ignore[no-untyped-def]
    """Sort the neighbours of each node and add up the weights of equal ones, in place; returns the
    number of entries left.

    Args:
        ptr, near, weight: See above; near and weight are changed.
        out_ptr: Bounds of the entries left, [n + 1]; changed.
    """
    end = 0
    out_ptr[0] = 0
    for v in range(len(ptr) - 1):
        sort(near[ptr[v] : ptr[v + 1]], weight[ptr[v] : ptr[v + 1]])
        for e in range(ptr[v], ptr[v + 1]):
            if e > ptr[v] and near[e] == near[e - 1]:
                weight[end - 1] += weight[e]
            else:
                near[end], weight[end] = near[e], weight[e]
                end += 1
        out_ptr[v + 1] = end
    return end
