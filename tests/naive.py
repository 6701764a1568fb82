"""Slow twins: what fast code promises, written as plainly as possible."""

from __future__ import annotations

import numpy as np


def _segments(values, indptr):
    return [values[indptr[i] : indptr[i + 1]] for i in range(len(indptr) - 1)]


def segment_sum(values, indptr):
    return np.array([s.sum(axis=0) for s in _segments(values, indptr)]).reshape(
        -1, *values.shape[1:]
    )


def segment_mean(values, indptr):
    empty = np.zeros(values.shape[1:])
    return np.array(
        [s.mean(axis=0) if len(s) else empty for s in _segments(values, indptr)]
    ).reshape(-1, *values.shape[1:])


def segment_max(values, indptr):
    empty = np.zeros(values.shape[1:])
    return np.array(
        [s.max(axis=0) if len(s) else empty for s in _segments(values, indptr)]
    ).reshape(-1, *values.shape[1:])


def segment_min(values, indptr):
    return -segment_max(-values, indptr)


def segment_softmax(values, indptr):
    parts = [np.exp(s) / np.exp(s).sum(axis=0) for s in _segments(values, indptr)]
    return np.concatenate([np.zeros((0, *values.shape[1:])), *parts])


def total(messages, dst, n, how):
    """Sum, mean, max or min of the messages of each node, node by node; 0 where there are none."""
    out = np.zeros((n, *messages.shape[1:]))
    for v in range(n):
        mine = messages[dst == v]
        if len(mine):
            out[v] = getattr(mine, how)(axis=0)
    return out


def edge_softmax(score, dst):
    """Softmax of scores over the edges with one destination, node by node."""
    out = np.zeros(score.shape)
    for v in np.unique(dst):
        e = np.exp(score[dst == v] - score[dst == v].max(axis=0))
        out[dst == v] = e / e.sum(axis=0)
    return out
