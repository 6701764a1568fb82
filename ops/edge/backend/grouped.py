"""The fused back end for messages with one of several products, in both forms of
``ops.edge.grouped``.

Products run once for each pair of a node and a code, code by code, in blocks of pairs
(``pair_kernels``). A thread takes all codes of a part of the rows, so that no two threads add to
the same row and the rows stay in its cache. The parts depend on the pairs alone, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from ...autodiff.expr import COMPUTED
from ...autodiff.tape import value_of
from ...parallel import buffers
from ...rows.row_list import ArrayOrList, located
from ..aggregator import State
from ..program import PRODUCT, Grouped, Phase
from . import fused
from .pair_kernels import outer_sums, times
from .pairs import NodeCodePairs
from .reference import PhaseColumns


def forward(
    phase: Phase,
    columns: PhaseColumns,
    pairs: NodeCodePairs,
    product_first: bool,
    edge_gid: np.ndarray,
    states: Mapping[str, State],
) -> np.ndarray:
    """Sum the messages into states.

    Args:
        phase: A phase with ``grouped``.
        columns: What it reads.
        pairs: Those of senders if the product is first, otherwise of receivers.
        product_first: Which form to compute.
        edge_gid: Global ids of the edges by storage position.
        states: By name of the total; changed.

    Returns:
        A value of each pair, which ``backward`` needs: the products, or the sums.
    """
    form = _form(phase)
    weight = _matrices(form, columns)
    if product_first:
        products = _rows_times(columns.src[form.column], pairs, weight).reshape(
            pairs.n, *form.shape
        )
        fused.forward(
            phase=form.product_first,
            columns=replace(columns, src={PRODUCT: products}),
            receivers=pairs.receivers,
            edge_gid=edge_gid,
            states=states,
            outputs={},
        )
        return products
    assert form.sum_first is not None
    (name,) = states
    # every pair has an edge, so its sum needs no zeros to begin with
    sums = buffers.empty((pairs.n, *form.sum_first.shapes(name)[0]), form.sum_first.dtype)
    # edges are in the order of pairs, in which their values would be read at scattered positions
    copied = _may_be_copied(form.sum_first, columns)
    lists = pairs.in_order("receivers") if copied else pairs.receivers
    fused.forward(
        phase=form.sum_first,
        columns=_ordered(form.sum_first, columns, pairs, "receivers") if copied else columns,
        receivers=lists,
        edge_gid=edge_gid,
        states={name: {"sum": sums}},
        outputs={},
        fresh=True,
    )
    _times_onto(sums, pairs, weight, states[name]["sum"])
    return sums


def backward(
    phase: Phase,
    columns: PhaseColumns,
    pairs: NodeCodePairs,
    product_first: bool,
    edge_gid: np.ndarray,
    pair_values: np.ndarray,
    backward_states: Mapping[str, State],
    grads: PhaseColumns,
) -> None:
    """Add the gradients of all values that edges read to ``grads``; ``pair_values`` is what
    ``forward`` returned.
    """
    form = _form(phase)
    into = grads.src.get(form.column)
    weight = _matrices(form, columns)
    rest = {n: g for n, g in grads.operands.items() if n != form.weight}
    learned = grads.operands.get(form.weight)
    if product_first:
        products = (
            {}
            if into is None and learned is None
            else {PRODUCT: buffers.full(pair_values.shape, 0, pair_values.dtype)}
        )
        _backward_to_products(
            phase=form.product_first,
            columns=replace(columns, src={PRODUCT: pair_values}),
            pairs=pairs,
            edge_gid=edge_gid,
            backward_states=backward_states,
            grads=replace(grads, src=products, operands=rest),
        )
        if not products:
            return
        g = products[PRODUCT].reshape(pairs.n, weight.shape[2])
        if learned is not None:
            _add_matrices(learned, pairs, g, columns.src[form.column], g_of_rows=False)
        if into is not None:
            _times_onto(g, pairs, weight.transpose(0, 2, 1), into)
        return
    assert form.sum_first is not None
    ((name, state),) = backward_states.items()
    if learned is not None:
        _add_matrices(learned, pairs, pair_values, state["g"], g_of_rows=True)
    if into is not None or grads.edge or rest:
        sums = {name: {"g": _rows_times(state["g"], pairs, weight.transpose(0, 2, 1))}}
        fused.backward(
            phase=form.sum_first,
            columns=columns,
            receivers=pairs.receivers,
            senders=pairs.senders if into is not None else None,
            edge_gid=edge_gid,
            backward_states=sums,
            output_grads={},
            grads=replace(grads, dst={}, operands=rest),
        )


def _backward_to_products(
    phase: Phase,
    columns: PhaseColumns,
    pairs: NodeCodePairs,
    edge_gid: np.ndarray,
    backward_states: Mapping[str, State],
    grads: PhaseColumns,
) -> None:
    """Add the gradients of the products, and of all else that edges read."""
    alone = not (grads.dst or grads.edge or grads.operands)
    if (
        alone
        and all(a.linear for a in phase.aggregators.values())
        and _may_be_copied(phase, columns)
    ):
        fused.backward(
            phase=phase,
            columns=_ordered(phase, columns, pairs, "senders"),
            receivers=pairs.receivers,
            senders=pairs.in_order("senders"),
            edge_gid=edge_gid,
            backward_states=backward_states,
            output_grads={},
            grads=grads,
        )
    else:
        fused.backward(
            phase=phase,
            columns=columns,
            receivers=pairs.receivers,
            senders=pairs.senders if grads.src else None,
            edge_gid=edge_gid,
            backward_states=backward_states,
            output_grads={},
            grads=grads,
        )


def _may_be_copied(phase: Phase, columns: PhaseColumns) -> bool:
    """Whether all edge values that a phase reads are stored in arrays, so that they can be copied
    into another order.
    """
    read = phase.reads["edge"]
    return not COMPUTED.intersection(read) and all(
        isinstance(columns.edge[n], np.ndarray) for n in read
    )


def _ordered(phase: Phase, columns: PhaseColumns, pairs: NodeCodePairs, end: str) -> PhaseColumns:
    """Columns with the edge values in the order of senders or receivers, which are read one after
    another.
    """
    ordered = {
        n: pairs.ordered(end, n, columns.edge[n], n in columns.carried) for n in phase.reads["edge"]
    }
    return replace(columns, edge=ordered, carried=frozenset())


def _form(phase: Phase) -> Grouped:
    assert phase.grouped is not None
    return phase.grouped


def _matrices(form: Grouped, columns: PhaseColumns) -> np.ndarray:
    """The matrices, [k, d, numbers of a product]."""
    weight = value_of(columns.operands[form.weight])
    return np.ascontiguousarray(
        weight.reshape(form.width, form.count, prod(form.shape)).transpose(1, 0, 2)
    )


def _rows_times(x: ArrayOrList, pairs: NodeCodePairs, weight: np.ndarray) -> np.ndarray:
    """The row of each pair times the matrix of its code, [n_pairs, ...]."""
    out = buffers.empty((pairs.n, weight.shape[2]), weight.dtype)
    times(*located(x, pairs.row), weight, pairs.by_row, out, None)
    return out


def _times_onto(x: np.ndarray, pairs: NodeCodePairs, weight: np.ndarray, into: np.ndarray) -> None:
    """Add the value of each pair times the matrix of its code to its row of ``into``."""
    times(x=x, at=pairs.numbers, weight=weight, blocks=pairs.by_row, out=into, to=pairs.row)


def _add_matrices(
    into: np.ndarray, pairs: NodeCodePairs, x: np.ndarray, rows: ArrayOrList, *, g_of_rows: bool
) -> None:
    """Add the gradient of the matrices, the sum over the pairs of a code of value times gradient,
    to [d, k, ...].

    Args:
        into: Gradient of the matrices; changed.
        x: A value of each pair: what was multiplied, or the gradient of the product.
        rows: The other of both, for each node.
        g_of_rows: Whether the gradients are those of the nodes.
    """
    value = (x, pairs.numbers)
    g = located(rows, pairs.row)
    value, g = (value, g) if g_of_rows else (g, value)
    swap = value[0].shape[1] > g[0].shape[1]
    products = (
        outer_sums(*g, *value, pairs.by_code) if swap else outer_sums(*value, *g, pairs.by_code)
    )
    # in the order of the blocks; a code without pairs has none
    codes = pairs.by_code.codes
    first = pairs.by_code.first
    total = np.add.reduceat(products, first, axis=0) if len(first) < len(codes) else products
    into = into.reshape(value[0].shape[1], len(pairs.bounds) - 1, g[0].shape[1])
    total = total.transpose((2, 0, 1) if swap else (1, 0, 2))
    if len(first) == into.shape[1]:
        into += total
    else:
        into[:, codes[first]] += total
