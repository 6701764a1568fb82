"""Gather and Sum of one phase, forward and backward, over all passes of a level.

The recipe, forward:                                   and backward:
    begin to_mirrors of the columns read                   begin to_mirrors of the backward state
    edges into mirrors that read no halo                   edges into masters from mirrors
    begin to_masters of their partial sums                 end to_mirrors; edges into mirrors
    core edges                                             begin to_masters of the halo gradients
    end to_mirrors; the other edges                        core edges
    end to_masters; finish                                 end to_masters

A sum in order takes its messages, which are edge values of the phase, after the forward recipe, and
gives them gradients before the backward one (``in_order``).

An aggregator of several passes repeats the forward recipe with the halo columns that it has: its
shared columns to mirrors, edges, partial sums to masters.

Halo columns are stored from forward to backward, where the gradient rules need them again; a
second fetch would double the bytes of a step.
"""

from __future__ import annotations

import functools
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16

from ...ops.autodiff.expr import COMPUTED
from ...ops.autodiff.space import RowSpace
from ...ops.autodiff.stored import rows_of
from ...ops.autodiff.tape import Var, current, needs_grad, value_of
from ...ops.edge.aggregator import State
from ...ops.edge.backend import fused, grouped, reference
from ...ops.edge.backend.pairs import NodeCodePairs
from ...ops.edge.backend.reference import PhaseColumns
from ...ops.edge.program import Phase
from ...ops.functions.embedding import check_range
from ...ops.parallel import buffers
from ...ops.rows.bfloat16 import as_float, shortened
from ..partition.exchange import ToMasters, add_into
from ..partition.message import as_integers
from ..partition.partition import MASTER, MIRROR
from ..view.level import Level, Pass, Selection
from .in_order import InOrder
from .product_order import ProductOrder

Arrays = dict[str, np.ndarray]


@dataclass
class Inputs:
    """Node columns (frame rows), edge values, operands by number and key of draws of a phase.

    ``short`` is whether edges read wide float32 columns, and in backward wide gradients of totals,
    as bfloat16; gradients pass the rounding unchanged.
    """

    nodes: dict[str, Any]
    edges: dict[str, Any]
    carried: frozenset[str]
    operands: dict[int, Any]
    key: int | None
    short: bool = False


def gather_sum(
    phase: Phase,
    level: Level,
    inputs: Inputs,
    in_order: InOrder,
    out_space: RowSpace,
    edge_space: RowSpace | None,
) -> tuple[dict[str, Var], dict[str, Var]]:
    """Run one phase.

    Args:
        in_order: The sums in order of its messages.
        out_space: Rows of the totals.
        edge_space: Rows of new edge values; may be None if there are none.

    Returns:
        Totals by name ([n_out, ...] over the receiving masters) and new edge values by name ([level
        edges, ...]).

    Collective: all ranks of the level's partition.
    """
    run = _PhaseRun(phase, level, inputs, in_order)
    totals, outputs = run.forward()
    total_vars = {name: Var(x, out_space) for name, x in totals.items()}
    run.totals = {
        name: total_vars[name] for name, agg in phase.aggregators.items() if agg.reads_total
    }
    output_vars = {name: Var(x, edge_space) for name, x in outputs.items()}
    # the rule must not hold the totals themselves
    names = [*total_vars], [*output_vars]

    def vjp(gs: list[Any]) -> list[Any]:
        total_grads = _wanted(names[0], gs[: len(names[0])])
        output_grads = _wanted(names[1], gs[len(names[0]) :])
        gs.clear()
        return run.backward(total_grads, output_grads)

    current().add("gather", run.sources, [*total_vars.values(), *output_vars.values()], vjp)
    return total_vars, output_vars


def _wanted(names: list[str], grads: list[Any]) -> Arrays:
    """Gradients by name, of those that have one."""
    return {n: g for n, g in zip(names, grads, strict=True) if g is not None}


def product_comes_first(phase: Phase, level: Level, inputs: Inputs) -> bool:
    """Whether a product that edges choose is computed for the senders before the sum, and not for
    the receivers after it.
    """
    form = phase.grouped
    if form is None or form.sum_first is None:
        return True
    h = inputs.nodes[form.column]
    weight = inputs.operands[form.weight]
    return (
        ProductOrder.of(h, weight, current().record).one_of(form.count).product_first(level.counts)
    )


class _PhaseRun:
    """One execution of a phase; stores what backward needs."""

    def __init__(self, phase: Phase, level: Level, inputs: Inputs, in_order: InOrder):
        self.phase = phase
        self.level = level
        self.inputs = inputs
        self.in_order = in_order
        self.node_names = list(dict.fromkeys((*phase.reads["src"], *phase.reads["dst"])))
        self.edge_names = [n for n in phase.reads["edge"] if n not in COMPUTED]
        self.sources = [inputs.nodes[n] for n in self.node_names] + [
            inputs.edges[n] for n in self.edge_names
        ]
        self.sources += [inputs.operands[i] for i in phase.operands]
        self.sources += in_order.parameters
        self.dtype = phase.dtype
        self.fused = fused.usable(phase)
        self.nodes: Arrays = {n: self._stored(rows_of(inputs.nodes[n])) for n in self.node_names}
        self.edges: Arrays = {n: value_of(inputs.edges[n]) for n in self.edge_names}
        # a form whose edges are in another order cannot read edge values that are in the order of
        # the level
        self.product_first = bool(inputs.carried) or product_comes_first(phase, level, inputs)
        self.pair_values: dict[int, np.ndarray] = {}
        self.limit = reference.chunk_size(phase, self.dtype.itemsize)
        self.halos: list[tuple[Arrays, Arrays]] = []
        self.states: dict[str, State] = {}
        # what backward reads; a total is rounded when it is read by what follows
        self.totals: dict[str, Var] = {}

    def _stored(self, x: Any) -> Any:
        """A column of nodes as edges read it."""
        x = shortened(x) if self.inputs.short else x
        # the loops over pairs of a node and a code read float32
        return as_float(x[:]) if x.dtype == BFLOAT16 and self.phase.grouped else x

    # ---- forward

    def forward(self) -> tuple[Arrays, Arrays]:
        phase = self.phase
        ledger = self.level.passes[0].senders.comm.ledger
        self.states = {
            name: agg.start(self.level.n_out, phase.shapes(name), self.dtype)
            for name, agg in phase.aggregators.items()
        }
        outputs = self._edge_values()
        for p in self.level.passes:
            with ledger.stage("move"):
                moves = (
                    p.senders.to_mirrors_begin(self._read("src")),
                    p.receivers.to_mirrors_begin(self._read("dst")),
                )
            partial = {
                name: agg.start(p.receivers.plan.n_halo, phase.shapes(name), self.dtype)
                for name, agg in phase.aggregators.items()
            }
            early = [s for s in p.selections if s.kinds[1] == MIRROR and not self._reads_halo(s)]
            core = [s for s in p.selections if s.kinds[1] == MASTER and not self._reads_halo(s)]
            late = [s for s in p.selections if self._reads_halo(s)]
            self._sweep(p=p, selections=early, halo=({}, {}), partial=partial, outputs=outputs)
            returning = (
                None if any(s.kinds[1] == MIRROR for s in late) else self._send_partial(p, partial)
            )
            self._sweep(p=p, selections=core, halo=({}, {}), partial=partial, outputs=outputs)
            with ledger.stage("move"):
                halo = (moves[0].end(), moves[1].end())
            self._sweep(p=p, selections=late, halo=halo, partial=partial, outputs=outputs)
            self._merge_partial(returning or self._send_partial(p, partial), p)
            self.halos.append(halo)
        for one in phase.further:
            self._of(one)._refine()
        with ledger.stage("gather"):
            totals = {
                name: agg.finish(self.states[name]) for name, agg in phase.aggregators.items()
            }
            self.states = {
                name: agg.saved_state(self.states[name]) for name, agg in phase.aggregators.items()
            }
            taken = self.in_order.totals(outputs)
        return totals | taken, outputs

    def _edge_values(self) -> Arrays:
        """Arrays for the new edge values."""
        return {
            name: buffers.empty((self.level.n_edges, *e.dims), e.dtype)
            for name, e in self.phase.outputs.items()
        }

    def _messages_again(self) -> Arrays:
        """The edge values that sums in order take, computed again."""
        part = self._of(self.phase.values(self.in_order.messages))
        messages = part._edge_values()
        for p, halo in zip(self.level.passes, self.halos, strict=True):
            part._sweep(p=p, selections=p.selections, halo=halo, partial={}, outputs=messages)
        return messages

    def _of(self, phase: Phase) -> _PhaseRun:
        """The same run for a part of its phase, with the same states and halo columns."""
        part = copy(self)
        part.phase = phase
        part.fused = fused.usable(phase)
        part.limit = reference.chunk_size(phase, self.dtype.itemsize)
        return part

    def _refine(self) -> None:
        """The further passes over the edges of an aggregator that takes several."""
        ((name, agg),) = self.phase.aggregators.items()
        state = self.states[name]
        ledger = self.level.passes[0].senders.comm.ledger
        for number in range(1, agg.passes(self.dtype)):
            with ledger.stage("gather"):
                agg.refine(state, number)
            for p, halo in zip(self.level.passes, self.halos, strict=True):
                with ledger.stage("move"):
                    move = p.receivers.to_mirrors_begin(
                        {c: as_integers(state[c]) for c in agg.shared}
                    )
                self._sweep(
                    p=p,
                    selections=[s for s in p.selections if s.kinds[1] == MASTER],
                    halo=halo,
                    partial={},
                    outputs={},
                )
                with ledger.stage("move"):
                    shared = {c: x.view(state[c].dtype) for c, x in move.end().items()}
                partial = {
                    name: agg.beside(
                        shared, p.receivers.plan.n_halo, self.phase.shapes(name), self.dtype
                    )
                }
                self._sweep(
                    p=p,
                    selections=[s for s in p.selections if s.kinds[1] == MIRROR],
                    halo=halo,
                    partial=partial,
                    outputs={},
                )
                self._merge_partial(self._send_partial(p, partial), p)

    def _read(self, end: str) -> Arrays:
        return {n: self.nodes[n] for n in self.phase.reads[end]}

    def _reads_halo(self, s: Selection) -> bool:
        return (s.kinds[0] == MIRROR and bool(self.phase.reads["src"])) or (
            s.kinds[1] == MIRROR and bool(self.phase.reads["dst"])
        )

    def _sweep(
        self,
        p: Pass,
        selections: list[Selection],
        halo: tuple[Arrays, Arrays],
        partial: dict[str, State],
        outputs: Arrays,
    ) -> None:
        for s in selections:
            states = self.states if s.kinds[1] == MASTER else partial
            columns = self._columns(p, s, halo)
            with p.senders.comm.ledger.stage("gather"):
                if self.fused and self.phase.grouped:
                    self.pair_values[id(s)] = grouped.forward(
                        phase=self.phase,
                        columns=columns,
                        pairs=self._pairs(s),
                        product_first=self.product_first,
                        edge_gid=s.gid,
                        states=states,
                    )
                elif self.fused:
                    fused.forward(
                        phase=self.phase,
                        columns=columns,
                        receivers=s.by_receiver,
                        edge_gid=s.gid,
                        states=states,
                        outputs=outputs,
                    )
                else:
                    reference.forward(self.phase, columns, s.chunks(self.limit), states, outputs)

    def _pairs(self, s: Selection) -> NodeCodePairs:
        """The pairs that products are computed for."""
        form = self.phase.grouped
        assert form is not None

        codes = self.edges[form.code]

        def at() -> np.ndarray:
            codes_of_edges: np.ndarray = (
                codes[s.offset : s.offset + s.n_edges]
                if form.code in self.inputs.carried
                else codes[s.stored]
            )
            check_range(codes_of_edges, form.count, **form.chosen.static)
            return codes_of_edges

        return s.pairs(form.code, codes, at, form.count, self.product_first)

    def _columns(self, p: Pass, s: Selection, halo: tuple[Arrays, Arrays]) -> PhaseColumns:
        """The arrays that the ends of a selection's edges lie in."""
        src = self.nodes if s.kinds[0] == MASTER else halo[0]
        dst = self.nodes if s.kinds[1] == MASTER else halo[1]
        return PhaseColumns(
            src=src,
            dst=dst,
            edge=self.edges,
            carried=self.inputs.carried,
            operands=self.inputs.operands,
            key=self.inputs.key,
            reversed=int(p.reverse),
        )

    def _send_partial(self, p: Pass, partial: dict[str, State]) -> ToMasters:
        returned = {
            name: self.phase.aggregators[name].returned(state) for name, state in partial.items()
        }
        with p.senders.comm.ledger.stage("move"):
            return p.receivers.to_masters_begin(
                {
                    f"{name}/{column}": x
                    for name, state in returned.items()
                    for column, x in state.items()
                }
            )

    def _merge_partial(self, move: ToMasters, p: Pass) -> None:
        def merge(rows: np.ndarray, columns: Arrays) -> None:
            for name, agg in self.phase.aggregators.items():
                agg.merge(
                    self.states[name],
                    rows,
                    {c: columns[f"{name}/{c}"] for c in agg.returned(self.states[name])},
                )

        with p.senders.comm.ledger.stage("move"):
            move.end(merge)

    # ---- backward

    def backward(self, total_grads: Arrays, output_grads: Arrays) -> list[Any]:
        """One gradient for each value that the phase reads, None where none is needed.

        It empties ``total_grads`` when edges have what they read of them.
        """
        phase = self.phase
        ledger = self.level.passes[0].senders.comm.ledger
        learned: list[Any] = []
        with ledger.stage("gather"):
            at_masters = {
                n: {
                    c: self._stored(x)
                    for c, x in agg.backward_state(
                        self.states[n],
                        self._total(n),
                        total_grads[n],
                    ).items()
                }
                for n, agg in phase.aggregators.items()
                if n in total_grads
            }
            if self.in_order.messages:
                of_messages, learned = self.in_order.backward(total_grads, self._messages_again())
                output_grads = output_grads | of_messages
            total_grads.clear()
        grads = self._zero_grads()
        for p, halo in zip(self.level.passes, self.halos, strict=True):
            with ledger.stage("move"):
                move = p.receivers.to_mirrors_begin(
                    {f"{n}/{c}": x for n, s in at_masters.items() for c, x in s.items()}
                )
            halo_grads = (self._zeros(halo[0]), self._zeros(halo[1]))
            sweep = functools.partial(
                self._sweep_back,
                p=p,
                halo=halo,
                output_grads=output_grads,
                grads=grads,
                halo_grads=halo_grads,
            )
            into_masters = [s for s in p.selections if s.kinds == (MIRROR, MASTER)]
            into_mirrors = [s for s in p.selections if s.kinds[1] == MIRROR]
            core = [s for s in p.selections if s.kinds == (MASTER, MASTER)]
            sweep(selections=into_masters, backward_states=at_masters)
            with ledger.stage("move"):
                flat = move.end()
            at_mirrors = {n: {c: flat[f"{n}/{c}"] for c in s} for n, s in at_masters.items()}
            sweep(selections=into_mirrors, backward_states=at_mirrors)
            with ledger.stage("move"):
                returning = (
                    p.senders.to_masters_begin(halo_grads[0]),
                    p.receivers.to_masters_begin(halo_grads[1]),
                )
            sweep(selections=core, backward_states=at_masters)
            with ledger.stage("move"):
                returning[0].end(lambda rows, part: add_into(grads.src, rows, part))
                returning[1].end(lambda rows, part: add_into(grads.dst, rows, part))
        return [*self._as_sources(grads), *learned]

    def _total(self, name: str) -> Any:
        """A total as backward reads it; None if it does not."""
        return self.totals[name].value if name in self.totals else None

    def _zero_grads(self) -> PhaseColumns:
        """Arrays to add gradients to, only for what needs one."""
        edges = {
            n: buffers.full(x.shape, 0, x.dtype)
            for n, x in self.edges.items()
            if needs_grad(self.inputs.edges[n])
        }
        operands = {
            i: np.zeros_like(value_of(x)) for i, x in self.inputs.operands.items() if needs_grad(x)
        }
        return PhaseColumns(
            self._zeros(self._read("src")),
            self._zeros(self._read("dst")),
            edges,
            self.inputs.carried,
            operands,
        )

    def _zeros(self, columns: Arrays) -> Arrays:
        return {
            n: buffers.full(x.shape, 0, np.float32 if x.dtype == BFLOAT16 else x.dtype)
            for n, x in columns.items()
            if needs_grad(self.inputs.nodes[n])
        }

    def _sweep_back(
        self,
        p: Pass,
        selections: list[Selection],
        halo: tuple[Arrays, Arrays],
        backward_states: dict[str, State],
        output_grads: Arrays,
        grads: PhaseColumns,
        halo_grads: tuple[Arrays, Arrays],
    ) -> None:
        for s in selections:
            into = PhaseColumns(
                grads.src if s.kinds[0] == MASTER else halo_grads[0],
                grads.dst if s.kinds[1] == MASTER else halo_grads[1],
                grads.edge,
                grads.carried,
                grads.operands,
            )
            columns = self._columns(p, s, halo)
            with p.senders.comm.ledger.stage("gather"):
                if self.fused and self.phase.grouped:
                    grouped.backward(
                        phase=self.phase,
                        columns=columns,
                        pairs=self._pairs(s),
                        product_first=self.product_first,
                        edge_gid=s.gid,
                        pair_values=self.pair_values[id(s)],
                        backward_states=backward_states,
                        grads=into,
                    )
                elif self.fused:
                    # without a gradient at the sending end the edges by sender are not needed
                    lists = s.by_receiver, s.by_sender if into.src else None
                    fused.backward(
                        self.phase, columns, *lists, s.gid, backward_states, output_grads, into
                    )
                else:
                    reference.backward(
                        phase=self.phase,
                        columns=columns,
                        chunks=s.chunks(self.limit),
                        backward_states=backward_states,
                        output_grads=output_grads,
                        grads=into,
                    )

    def _as_sources(self, grads: PhaseColumns) -> list[Any]:
        """One gradient for each value that the phase reads, None where none is needed."""
        gradients: list[Any] = []
        for n in self.node_names:
            parts = [g[n] for g in (grads.src, grads.dst) if n in g]
            gradients.append(sum(parts[1:], parts[0]) if parts else None)
        gradients += [grads.edge.get(n) for n in self.edge_names]
        return gradients + [grads.operands.get(i) for i in self.phase.operands]
