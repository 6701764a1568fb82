"""A hand-written Numba kernel for the gated sum, sigmoid(src.s + dst.t + attr @ W) * src.z.

    PYTHONPATH=bench python bench/own/handwritten.py GRAPH.npz TIMES CASE...

The forward pass saves the gate of every edge (edges x heads). The backward pass runs over the
in-edges of each node, for the gradients of t, W and, edge by edge, of the score; then over its
out-edges, for those of z and s. Blocks of rows with about equal numbers of edges run in parallel;
sums over all edges are stored per block.
"""

from __future__ import annotations

import math
import sys
from time import perf_counter

import numba
import numpy as np
from contender import (
    EDGE_ATTRIBUTES,
    HEADS,
    Input,
    drawn,
    repeat,
    report,
    row_shape,
    size_of,
    width_of,
)

BLOCKS = 256
jit = numba.njit(parallel=True, nogil=True, cache=True, fastmath=True, error_model="numpy")


@jit
def forward(ptr, src, cuts, s, t, attr, matrix, z, gate, out):
    heads = z.shape[1]
    width = z.shape[2]
    attributes = attr.shape[1]
    for b in numba.prange(len(cuts) - 1):
        for v in range(cuts[b], cuts[b + 1]):
            for h in range(heads):
                for d in range(width):
                    out[v, h, d] = 0
            for e in range(ptr[v], ptr[v + 1]):
                u = src[e]
                for h in range(heads):
                    score = s[u, h] + t[v, h]
                    for k in range(attributes):
                        score += attr[e, k] * matrix[k, h]
                    a = np.float32(1) / (np.float32(1) + np.float32(math.exp(-score)))
                    gate[e, h] = a
                    for d in range(width):
                        out[v, h, d] += a * z[u, h, d]


@jit
def receivers(ptr, src, cuts, attr, z, gate, g, gs_edge, gt, gm):
    heads = z.shape[1]
    width = z.shape[2]
    attributes = attr.shape[1]
    for b in numba.prange(len(cuts) - 1):
        for v in range(cuts[b], cuts[b + 1]):
            for h in range(heads):
                gt[v, h] = 0
            for e in range(ptr[v], ptr[v + 1]):
                u = src[e]
                for h in range(heads):
                    dot = np.float32(0)
                    for d in range(width):
                        dot += g[v, h, d] * z[u, h, d]
                    a = gate[e, h]
                    slope = dot * a * (np.float32(1) - a)
                    gs_edge[e, h] = slope
                    gt[v, h] += slope
                    for k in range(attributes):
                        gm[b, k, h] += slope * attr[e, k]


@jit
def senders(ptr, dst, at, cuts, gate, g, gs_edge, gz, gs):
    heads, width = g.shape[1], g.shape[2]
    for b in numba.prange(len(cuts) - 1):
        for u in range(cuts[b], cuts[b + 1]):
            for h in range(heads):
                gs[u, h] = 0
                for d in range(width):
                    gz[u, h, d] = 0
            for i in range(ptr[u], ptr[u + 1]):
                v, e = dst[i], at[i]
                for h in range(heads):
                    gs[u, h] += gs_edge[e, h]
                    a = gate[e, h]
                    for d in range(width):
                        gz[u, h, d] += a * g[v, h, d]


def cuts_of(ptr: np.ndarray) -> np.ndarray:
    """Bounds of blocks of rows with about equally many edges."""
    inside = np.searchsorted(ptr, np.arange(1, BLOCKS) * (ptr[-1] / BLOCKS))
    return np.unique(np.concatenate(([0], inside, [len(ptr) - 1])))


def main(graph: str, times: str, *cases: str) -> None:
    z = Input.read(graph, features=False)
    ends = z.destinations().astype(np.int32)
    at = np.argsort(z.indices, kind="stable").astype(np.int32)
    out_ptr = np.concatenate(([0], np.cumsum(np.bincount(z.indices, minlength=z.n))))
    dst = ends[at]
    cuts, out_cuts = cuts_of(z.indptr), cuts_of(out_ptr)
    attr, matrix = drawn(z.n_edges, EDGE_ATTRIBUTES), drawn(EDGE_ATTRIBUTES, HEADS)
    s, t = drawn(z.n, HEADS), drawn(z.n, HEADS)[::-1].copy()
    seconds: dict[str, list[float]] = {}
    checks: dict[str, list[float]] = {}
    for case in cases:
        shape = row_shape(*width_of(case))
        h, g = drawn(z.n, *shape), drawn(z.n, 1, *shape)[:, 0].copy()
        sizes: list[float] = []

        def run(h=h, g=g, sizes=sizes) -> tuple[float, float]:
            began = perf_counter()
            gate = np.empty((z.n_edges, HEADS), np.float32)
            out = np.empty_like(h)
            forward(
                ptr=z.indptr,
                src=z.indices,
                cuts=cuts,
                s=s,
                t=t,
                attr=attr,
                matrix=matrix,
                z=h,
                gate=gate,
                out=out,
            )
            middle = perf_counter()
            gs_edge = np.empty_like(gate)
            gs = np.empty_like(s)
            gt = np.empty_like(t)
            gz = np.empty_like(h)
            gm = np.zeros((len(cuts) - 1, *matrix.shape), np.float32)
            receivers(
                ptr=z.indptr,
                src=z.indices,
                cuts=cuts,
                attr=attr,
                z=h,
                gate=gate,
                g=g,
                gs_edge=gs_edge,
                gt=gt,
                gm=gm,
            )
            senders(
                ptr=out_ptr,
                dst=dst,
                at=at,
                cuts=out_cuts,
                gate=gate,
                g=g,
                gs_edge=gs_edge,
                gz=gz,
                gs=gs,
            )
            gm = gm.sum(axis=0)
            ended = perf_counter()
            if not sizes:
                sizes.extend(size_of(x) for x in (out, gz, gs, gt, gm))
            return middle - began, ended - middle

        repeat(seconds, case, run, int(times))
        checks[case] = sizes
    report(seconds, checks, f"numba {numba.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
