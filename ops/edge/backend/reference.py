"""The reference back end: NumPy over bounded chunks of edges.

It evaluates an expression primitive by primitive on a chunk, and backpropagates with the gradient
rules of the tape. It is slow and easy to verify: the oracle of the compiled back end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.typed_rows import TypedRows

from ...autodiff.expr import Expr
from ...autodiff.primitive import read_only
from ...autodiff.tape import value_of
from ...rows.bfloat16 import as_float
from ..aggregator import Segments, State
from ..program import Phase

Arrays = Mapping[str, np.ndarray]
CHUNK_BYTES = 32 << 20


@dataclass(slots=True)
class Chunk:
    """Some edges with a common kind of source and destination rows, grouped by destination.

    Attributes:
        src, dst: Rows of the source and destination columns, [n] int.
        stored: Rows of edge values kept with the partition, [n] int.
        carried: Rows of edge values made by earlier layers and of new ones, a slice.
        gid: Global edge ids, [n] int64; random draws are keyed by them.
        tie: Numbers that decide between equal messages, [n] int64: as gid, but a self loop that is
            traversed in both directions has two.
        groups: Edges grouped by the row that sums them.
        weight: Importance weight of each edge, [n], or None.
    """

    src: np.ndarray
    dst: np.ndarray
    stored: np.ndarray
    carried: slice
    gid: np.ndarray
    tie: np.ndarray
    groups: Segments
    weight: np.ndarray | None


@dataclass(slots=True)
class PhaseColumns:
    """Everything a phase reads; ``carried`` names the edge values indexed by ``Chunk.carried``.

    Node columns, ``src`` and ``dst``, are arrays or row lists; ``reversed`` is 1 where messages run
    against the edges. The same class holds gradients in backward: arrays to add to, only for what
    needs a gradient.
    """

    src: dict[str, Any]
    dst: dict[str, Any]
    edge: dict[str, np.ndarray]
    carried: frozenset[str]
    operands: dict[int, Any]
    key: int | None = None
    reversed: int = 0


def chunk_size(phase: Phase, itemsize: int) -> int:
    """Edges per chunk, so that a chunk's values stay within a fixed budget."""
    return min(max(CHUNK_BYTES // max(1, 2 * phase.width * itemsize), 256), 1 << 17)


def forward(
    phase: Phase,
    columns: PhaseColumns,
    chunks: Iterable[Chunk],
    states: dict[str, State],
    outputs: Arrays,
) -> None:
    """Sum the messages of the chunks into states and write new edge values."""
    for chunk in chunks:
        values = _evaluate(phase, columns, chunk)
        for name, agg in phase.aggregators.items():
            agg.accumulate(
                states[name],
                chunk.groups,
                [read_only(values[id(e)]) for e in phase.parts[name]],
                chunk.tie,
                read_only(chunk.weight),
            )
        for name, e in phase.outputs.items():
            outputs[name][chunk.carried] = values[id(e)]


def backward(
    phase: Phase,
    columns: PhaseColumns,
    chunks: Iterable[Chunk],
    backward_states: dict[str, State],
    output_grads: Arrays,
    grads: PhaseColumns,
) -> None:
    """Add the gradients of everything the chunks read into ``grads``."""
    for chunk in chunks:
        values = _evaluate(phase, columns, chunk)
        gradients: dict[int, np.ndarray] = {}
        for name, agg in phase.aggregators.items():
            if name not in backward_states:
                continue
            per_edge = {
                c: as_float(v[chunk.groups.of_edge]) for c, v in backward_states[name].items()
            }
            parts = [read_only(values[id(e)]) for e in phase.parts[name]]
            for e, g in zip(
                phase.parts[name],
                agg.backward(per_edge, parts, chunk.tie, read_only(chunk.weight)),
                strict=True,
            ):
                _add(gradients, e, g)
        for name, g in output_grads.items():
            _add(gradients, phase.outputs[name], g[chunk.carried])
        _backpropagate(phase, values, gradients)
        _collect(phase, gradients, chunk, grads)


def _evaluate(phase: Phase, columns: PhaseColumns, chunk: Chunk) -> dict[int, Any]:
    values: dict[int, Any] = {}
    for e in phase.order:
        if e.prim is None:
            values[id(e)] = _leaf(e, columns, chunk)
        else:
            values[id(e)] = e.prim.forward(*(values[id(a)] for a in e.args), **e.static)
    return values


def _leaf(e: Expr, columns: PhaseColumns, chunk: Chunk) -> Any:
    assert e.leaf is not None
    kind, name = e.leaf
    if kind == "src":
        return as_float(columns.src[name][chunk.src])
    if kind == "dst":
        return as_float(columns.dst[name][chunk.dst])
    if kind == "operand":
        return value_of(columns.operands[name])
    if kind == "key":
        return columns.key
    if name == "gid":
        return chunk.gid
    if name == "reversed":
        return np.full(len(chunk.gid), columns.reversed, np.int32)
    rows = columns.edge[name][chunk.carried if name in columns.carried else chunk.stored]
    return rows.toarray() if isinstance(rows, TypedRows) else rows


def _add(gradients: dict[int, np.ndarray], e: Expr, g: np.ndarray) -> None:
    if e.requires_grad:
        gradients[id(e)] = gradients[id(e)] + g if id(e) in gradients else g


def _backpropagate(phase: Phase, values: dict[int, Any], gradients: dict[int, np.ndarray]) -> None:
    for e in reversed(phase.order):
        if e.prim is None or id(e) not in gradients:
            continue
        g = gradients.pop(id(e))
        y = values[id(e)]
        args = [values[id(a)] for a in e.args]
        for i, a in enumerate(e.args):
            rule = e.prim.rule(i) if a.requires_grad else None
            if rule is not None:
                _add(gradients, a, rule(g, y, *args, **e.static))


def _collect(
    phase: Phase, gradients: dict[int, np.ndarray], chunk: Chunk, grads: PhaseColumns
) -> None:
    for e in phase.order:
        if e.leaf is None or id(e) not in gradients:
            continue
        kind, name = e.leaf
        g = gradients[id(e)]
        if kind == "src" and name in grads.src:
            add_rows(grads.src[name], chunk.src, g)
        elif kind == "dst" and name in grads.dst:
            add_rows(grads.dst[name], chunk.dst, g)
        elif kind == "operand" and name in grads.operands:
            grads.operands[name] += g
        elif kind == "edge" and name in grads.edge:
            # an edge occurs once in a pass, so plain indexing adds correctly
            grads.edge[name][chunk.carried if name in grads.carried else chunk.stored] += g


def add_rows(out: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """out[rows[i]] += values[i], rows in any order and repeated; in a fixed order of additions."""
    if len(rows) == 0:
        return
    if np.any(rows[1:] < rows[:-1]):
        order = np.argsort(rows, kind="stable")
        rows, values = rows[order], values[order]
    start = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    out[rows[start]] += np.add.reduceat(values, start, axis=0)
