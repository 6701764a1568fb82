"""One superstep of NN-TGAR: transform, gather, sum, apply over the active rows and edges of one
level.

The columns that move are derived from what the traced gather reads and from where edges are
stored. Messages about a user's functions name the layer, the stage and the remedy.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from graphtheta.errors import ColumnError, UserFunctionError

from ...ops.autodiff.checkpoint import run_on_read_rows
from ...ops.autodiff.expr import COMPUTED, Expr, ordered
from ...ops.autodiff.naming import naming
from ...ops.autodiff.stored import StoredRows
from ...ops.autodiff.tape import Parameter, Var, current, needs_grad
from ...ops.edge.backend.fused import fallbacks
from ...ops.edge.hoist import is_singular
from ...ops.edge.plan import evaluate
from ...ops.edge.program import EdgeProgram, normaliser
from ...ops.edge.program_cache import ProgramCache
from ...ops.edge.symbolic import SymbolicTrace, record
from ...ops.functions.rows import prefix
from ..comm.ledger import REST
from ..view.level import Level
from ..view.view import PRECOMPUTED
from .context import ActiveGraph, Superstep, check_direction
from .edge_stage import Inputs, gather_sum
from .in_order import InOrder
from .ingredients import Ingredients
from .opened import Opened, Totals
from .product_order import ProductOrder
from .stages import Stages
from .traffic import Traffic

# the watchdog gives steps less time than other code
RUNS_STEPS = True

LOG = logging.getLogger("graphtheta")
PROGRAMS = ProgramCache()
_REPORTED: set[tuple[str, str]] = set()


class NodeColumns:
    """The argument of transform and apply: the columns of the active nodes as attributes.

    Attributes:
        precomputed: Whether the total of the layer's messages was precomputed
            (``engine.layer.precompute``). A layer that can multiply by its weights before or after
            the sum must then do so after; ``product_first`` says so.
    """

    def __init__(
        self,
        layer: Stages,
        stage: str,
        columns: dict[str, Any],
        graph: ActiveGraph,
        n: int,
        step: Superstep,
    ):
        self.precomputed = graph.settings.ingredients(layer) is not None
        self._step = step
        self._owner = type(layer).__name__
        self._stage = stage
        self._columns = columns
        self._graph = graph
        self._n = n

    def product_first(self, weight: Any, column: str = "h") -> bool:
        """Whether a product with a weight is cheaper before a linear sum than after it.

        A layer asks in transform and, with the same arguments, in apply; the answer is the same in
        both and on all workers, and may be another one in the next batch.

        Args:
            weight: The second factor, [d, ...].
            column: Name of the first factor, a column that transform reads, [n, d].
        """
        key = column, tuple(weight.shape)
        if key not in self._step.orders:
            self._step.orders[key] = ProductOrder.of(
                getattr(self, column), weight, current().record
            )
        return not self.precomputed and self._step.orders[key].product_first(self._step.counts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._columns:
            x = self._columns[name]
            return prefix(x, self._n) if x.shape[0] > self._n else x
        try:
            return self._graph.node(name, self._n)
        except KeyError:
            raise ColumnError(
                f"{self._stage} of {self._owner} reads node.{name}, which does not exist; "
                f"there are {', '.join([*self._columns, *self._graph.node_names()])}"
            ) from None


def run_superstep(layer: Stages, graph: ActiveGraph, h: Any, extra: dict[str, Any]) -> Any:
    """Run a layer over the next level of the graph's view.

    Args:
        layer: The layer with the user's functions.
        graph: The current forward pass.
        h: Node values, [n, ...]; rows beyond those the level needs are cut off.
        extra: Further node columns by name.

    Returns:
        New node values for the rows after the level; or, for a layer without a sum, the value of
        each edge.

    Collective: all ranks of the view's partition.
    """
    tape = current()
    ledger = graph.ledger
    name = f"{len(graph.supersteps) + 1} {type(layer).__name__}"
    tape.at_this_point(partial(ledger.switch, REST))
    with ledger.part((name, "forward")), tape.storing(graph.short):
        out = _superstep(layer, graph, h, extra)
    tape.at_this_point(partial(ledger.switch, (name, "backward")))
    return out


def _superstep(layer: Stages, graph: ActiveGraph, h: Any, extra: dict[str, Any]) -> Any:
    owner = type(layer).__name__
    ledger = graph.ledger
    current().dtype = graph.dtype
    if (ingredients := graph.settings.ingredients(layer)) is not None:
        return _apply_precomputed(
            layer=layer, ingredients=ingredients, owner=owner, graph=graph, h=h
        )
    level = graph.next_level(layer)
    step = Superstep(
        owner, layer.direction, made_by=layer, counts=graph.counts(level), along=graph.along
    )
    graph.supersteps.append(step)
    n = min(level.n_in, graph.n)
    given = {
        name: _as_rows(owner=owner, name=name, x=x, graph=graph, n=n)
        for name, x in {"h": h, **extra}.items()
    }
    columns = _transformed(layer=layer, graph=graph, n=n, step=step, given=given)
    step.stored = {n: n for n in graph.node_names() if n not in columns}
    step.stored |= {
        n: x.name.removeprefix("node.") for n, x in columns.items() if isinstance(x, StoredRows)
    }
    opened = step.opened = Opened(layer, owner)
    if graph.settings.evaluate is not None and layer.sum is not None:
        with naming(f"gather of {owner}"):
            totals, outputs = graph.settings.evaluate(opened, columns, graph, level)
    else:
        traced = step.traced = _traced(opened, owner, columns, graph, level)
        program = step.program = _planned(owner, traced, graph)
        key = current().random_key() if current().training else None
        with naming(f"gather of {owner}"):
            if layer.sum is None:
                return level.swept(
                    lambda part: _run_decoder(
                        program=program, columns=columns, graph=graph, level=part, key=key
                    )
                )
            totals, outputs = _run_phases(
                program=program,
                columns=columns,
                graph=graph,
                level=level,
                key=key,
                step=step,
            )
    graph.carry(outputs, level)
    node = NodeColumns(
        layer=layer, stage="apply", columns=columns, graph=graph, n=level.n_out, step=step
    )
    with ledger.stage("apply"), naming(f"apply of {owner}"):
        out = layer.apply(node, opened.total(node, totals))
    return _check_apply(owner, out, level.n_out)


def _run_decoder(
    program: EdgeProgram, columns: dict[str, Any], graph: ActiveGraph, level: Level, key: int | None
) -> Var:
    outputs = _run_phases(program=program, columns=columns, graph=graph, level=level, key=key)[1]
    value = outputs.pop("")
    graph.carry(outputs, level)
    return value


def _apply_precomputed(
    layer: Stages, ingredients: Ingredients, owner: str, graph: ActiveGraph, h: Any
) -> Any:
    """Apply to precomputed totals; the layer uses no level of the view."""
    n = graph.n
    check_direction(layer, 0, ingredients.direction)
    step = Superstep(owner, layer.direction, made_by=layer)
    graph.supersteps.append(step)
    given = {"h": h}
    if h is not graph.x:
        raise UserFunctionError(
            f"{owner} has a precomputed total, but is called with other values than graph.x, such"
            " as its dropout; set dropout to 0, disable precompute, or call the layer with graph.x"
        )
    columns = _transformed(layer=layer, graph=graph, n=n, step=step, given=given)
    ingredients.check(
        owner,
        _traced(Opened(layer, owner), owner, columns, graph, level=None),
        columns,
        graph.space(n).gid,
    )
    node = NodeColumns(layer=layer, stage="apply", columns=columns, graph=graph, n=n, step=step)
    with graph.ledger.stage("apply"), naming(f"apply of {owner}"):
        total = Var(graph.view.node.read(PRECOMPUTED, n), graph.space(n))
        return _check_apply(owner, layer.apply(node, total), n)


def total_of(layer: Stages, graph: ActiveGraph) -> tuple[Var, SymbolicTrace, dict[str, Any]]:
    """The total of a layer's messages over raw features, its traced gather, and the node columns
    that may be read.

    Collective: all ranks of the view's partition.
    """
    owner = type(layer).__name__
    level = graph.next_level(layer)
    current().dtype = graph.dtype
    given = {"h": graph.x}
    step = Superstep(owner, layer.direction, made_by=layer, counts=level.counts)
    columns = _transformed(layer=layer, graph=graph, n=level.n_in, step=step, given=given)
    traced = _traced(Opened(layer, owner), owner, columns, graph, level)
    if list(traced.sums) != [""]:
        raise UserFunctionError(f"the total of {owner} is not that of one aggregator")
    return (
        _run_phases(
            program=PROGRAMS.planned(traced), columns=columns, graph=graph, level=level, key=None
        )[0][""],
        traced,
        columns,
    )


def _run_phases(
    program: EdgeProgram,
    columns: dict[str, Any],
    graph: ActiveGraph,
    level: Level,
    key: int | None,
    step: Superstep | None = None,
) -> tuple[dict[str, Var], dict[str, Var]]:
    out_space = graph.space(level.n_out)
    totals: dict[str, Var] = {}
    outputs: dict[str, Var] = {}
    hoisted = _Hoisted(program, key)
    # columns that neither transform nor the planner has made are stored
    graph.read_begin(
        (
            n
            for phase in program.phases
            for kind in ("src", "dst")
            for n in phase.reads[kind]
            if n not in columns
        ),
        level.n_in,
    )
    columns = {**columns, **hoisted.columns(columns, graph, level)}
    columns = graph.sent(
        columns,
        [n for n in columns if any(n in phase.reads["src"] for phase in program.phases)],
        level,
    )
    for phase in program.phases:
        nodes = {
            n: columns[n] if n in columns else graph.node(n, level.n_in)
            for kind in ("src", "dst")
            for n in phase.reads[kind]
        }
        edges, carried = graph.edges([n for n in phase.reads["edge"] if n not in COMPUTED], level)
        inputs = Inputs(
            nodes=nodes,
            edges=edges,
            carried=carried,
            operands={i: hoisted.operand(i) for i in phase.operands},
            key=key,
            short=graph.view.partition.short,
        )
        in_order = InOrder(
            sums={} if step is None else step.in_order(phase),
            phase=phase,
            level=level,
            draws=key,
            gid=out_space.gid,
            exact=graph.exact,
        )
        graph.traffic.append(
            Traffic.of(
                phase=phase,
                level=level,
                inputs=inputs,
                in_order=in_order,
                superstep=len(graph.supersteps) - 1,
            )
        )
        # global ids take a pass over the edges, so they are looked up only for new edge values
        totals, outputs = gather_sum(
            phase=phase,
            level=level,
            inputs=inputs,
            in_order=in_order,
            out_space=out_space,
            edge_space=graph.edge_space(level) if phase.outputs else None,
        )
        if phase.result is not None:
            columns |= normaliser(phase.result, totals[""])
    if program.after:
        with graph.ledger.stage("apply"):
            totals |= {name: hoisted.after(e, totals[name]) for name, e in program.after.items()}
    return totals, outputs


class _Hoisted:
    """Expressions that the planner hoisted off the edges, evaluated on the tape, each once."""

    def __init__(self, program: EdgeProgram, key: int | None):
        self._program = program
        self._key = key
        self._values: dict[Expr, Any] = {}

    def columns(self, given: dict[str, Any], graph: ActiveGraph, level: Level) -> dict[str, Any]:
        """The hoisted columns; those read at destinations only have the receiving rows only."""
        wanted = self._program.columns
        n_in = min(level.n_in, graph.n)
        if not wanted:
            return {}
        for e in ordered(wanted.values()):
            if e.leaf is not None and e.leaf[0] == "node":
                self._values[e] = (
                    given[e.leaf[1]] if e.leaf[1] in given else graph.node(e.leaf[1], n_in)
                )
        sent = {n for phase in self._program.phases for n in phase.reads["src"]}
        with graph.ledger.stage("transform"):
            # columns with more rows first, so that values read at both ends are computed once
            return {
                name: self._column(wanted[name], n_in if name in sent else level.n_out)
                for name in sorted(wanted, key=lambda n: n not in sent)
            }

    def _column(self, e: Expr, n: int) -> Any:
        """A hoisted column of n rows, of which edges may read some only."""
        if not is_singular(e):
            return self._value(e, self._values, n)
        below = ordered([e])
        leaves = [x for x in below if x.leaf is not None and x.leaf[0] == "node"]
        shared = [
            self._program.operands[x.leaf[1]] for x in below if x.leaf and x.leaf[0] == "operand"
        ]
        return run_on_read_rows(
            run=lambda values: self._value(
                e, dict(zip(leaves, values, strict=True)), values[0].shape[0]
            ),
            leaves=[prefix(self._values[x], n) for x in leaves],
            shared=[x for x in shared if needs_grad(x)],
        )

    def operand(self, number: int) -> Any:
        """A parameter, a constant, or the value of an expression of them."""
        x = self._program.operands[number]
        return self._value(x, self._values, 0) if isinstance(x, Expr) else x

    def after(self, e: Expr, total: Var) -> Any:
        """The hoisted expression of a total."""
        (leaf,) = (x for x in ordered([e]) if x.leaf is not None and x.leaf[0] == "total")
        return self._value(e, {**self._values, leaf: total}, total.shape[0])

    def _value(self, e: Expr, values: dict[Expr, Any], n: int) -> Any:
        return evaluate(e, self._program.operands, values, n, self._key)


def _planned(owner: str, traced: SymbolicTrace, graph: ActiveGraph) -> EdgeProgram:
    """The gather of this pass, which is traced anew and planned once for each structure."""
    program = PROGRAMS.planned(traced)
    _report_fallbacks(owner, program, graph)
    return program


def _traced(
    opened: Opened, owner: str, columns: dict[str, Any], graph: ActiveGraph, level: Level | None
) -> SymbolicTrace:
    schemas = graph.node_schema(columns)
    sparse, stored = ([n for n, schema in schemas.items() if schema[at]] for at in (3, 4))
    nodes = {n: schema[:3] for n, schema in schemas.items() if n not in sparse}
    return record(
        gather=opened.gather,
        nodes=nodes,
        edges=graph.edge_schema(level),
        sums=opened.sums,
        owner=owner,
        sparse=sparse,
        stored=stored,
    )


def _report_fallbacks(owner: str, program: EdgeProgram, graph: ActiveGraph) -> None:
    """Log once in a process, on rank 0, that a layer runs on the reference back end."""
    partition = graph.view.partition
    # a dry run has no nodes and runs on every rank
    for reason in fallbacks(program) if partition.n_nodes and partition.halo_comm.rank == 0 else ():
        if (owner, reason) not in _REPORTED:
            _REPORTED.add((owner, reason))
            LOG.warning(fallback_text(owner, reason))


def fallback_text(owner: str, reason: str) -> str:
    """Warning about a layer that runs on the reference back end."""
    return (
        f"{owner} runs on the reference back end, which is many times slower than the fused one:"
        f" {reason}"
    )


def _as_rows(owner: str, name: str, x: Any, graph: ActiveGraph, n: int) -> Any:
    if not isinstance(x, Var) or x.space is None:
        kind = "a parameter" if isinstance(x, Parameter) else type(x).__name__
        raise UserFunctionError(
            f"{owner} was called with {kind} as {name}; expected node values such as graph.x or the"
            " result of a layer"
        )
    if not x.space.nested_with(graph.space(n)):
        raise UserFunctionError(
            f"{owner} was called with {name} from another forward pass; keep values within one call"
            " of forward"
        )
    if x.space.n < n:
        raise UserFunctionError(
            f"{owner} was called with {name} of a later layer, which has too few rows; call layers"
            " in the order in which values flow, and in the same order in every forward pass"
        )
    return graph.given(x, n)


def _transformed(
    layer: Stages, graph: ActiveGraph, n: int, step: Superstep, given: dict[str, Any]
) -> dict[str, Any]:
    """The node columns that gather may read: those given, and those of transform."""
    owner = step.layer
    node = NodeColumns(layer=layer, stage="transform", columns=given, graph=graph, n=n, step=step)
    with graph.ledger.stage("transform"), naming(f"transform of {owner}"):
        transformed = layer.transform(node)
    if not isinstance(transformed, dict):
        kind = "Var" if isinstance(transformed, Var) else type(transformed).__name__
        raise UserFunctionError(
            f"transform of {owner} returned {kind}; expected a dict of node columns, such as"
            " dict(z=...)"
        )
    for name, x in transformed.items():
        if not isinstance(x, Var) or x.space is None or x.shape[0] != n:
            got = f"{list(x.shape)}" if hasattr(x, "shape") else type(x).__name__
            raise UserFunctionError(
                f"transform of {owner} returned {name} = {got}; expected {_row_each(n)}"
            )
    return {**given, **transformed}


def _check_apply(owner: str, out: Any, n: int) -> Any:
    if isinstance(out, Totals):
        raise UserFunctionError(
            f"apply of {owner} returned all totals at once; join them, as in gt.concat([total.mean,"
            " total.max])"
        )
    if not isinstance(out, Var) or out.space is None or out.shape[0] != n:
        got = f"{list(out.shape)}" if hasattr(out, "shape") else type(out).__name__
        raise UserFunctionError(f"apply of {owner} returned {got}; expected {_row_each(n)}")
    return out


def _row_each(n: int) -> str:
    # most mistakes are found by a dry run, which has no nodes
    return (
        f"one row for each of the {n} nodes"
        if n
        else "one row for each node, computed from the columns of node"
    )
