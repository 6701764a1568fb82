"""``gt.explain``: the execution plan of a job, with communication, operations and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.base.console import amount, in_unit, table
from graphtheta.engine.layer.context import Superstep
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.in_order import turns_of
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.opened import message_of, order_of
from graphtheta.engine.layer.ordered import Ordered
from graphtheta.engine.layer.traffic import Widths
from graphtheta.engine.partition.partition import MIRROR, Partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.view.level import NO_ROWS
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.ops.autodiff.expr import Expr
from graphtheta.ops.autodiff.primitive import PRIMITIVES
from graphtheta.ops.edge.backend.fused import backend_scope, obstacle, usable
from graphtheta.ops.edge.cost import Cost, edge_cost, most_pairs, node_cost, pair_cost, widths
from graphtheta.ops.edge.plan import planner_notes, written
from graphtheta.ops.edge.program import EdgeProgram, Phase
from graphtheta.ops.parallel.buffers import LINE
from graphtheta.ops.rows.products import multiplied_by
from graphtheta.train.loop.level_work import reads_features
from graphtheta.train.loop.trainer import Trainer

Row = tuple[str, str, str, str, str]
HEADER = ("stage", "rows", "each", "read and written", "flops")


@dataclass
class Sizes:
    """Nodes and edges of the whole graph, mirror rows communicated at either end of edges, and
    edges at other workers than the masters of their ends.
    """

    nodes: int
    edges: int
    src_moved: int
    dst_moved: int
    edges_to_src: int
    edges_to_dst: int

    @classmethod
    def of(cls, partition: Partition) -> Sizes:
        """Summed over all workers. Collective."""
        edges = partition.relations[EDGE]
        moved = [len(x.plan.rows) for x in (edges.sources, edges.destinations)]
        crossing = [
            sum(block.n_edges for block in edges.blocks if block.kinds(reverse)[1] == MIRROR)
            for reverse in (True, False)
        ]
        counts = partition.halo_comm.all_sum(np.array(moved + crossing)).tolist()
        return cls(partition.n_nodes, partition.n_edges, *counts)


@checked
def explain(
    model: Trainer | str | Model | Callable[..., Model] | None = None,
    graph: Graph | None = None,
    **keys: Any,
) -> str:
    """Describe the forward pass of a job over all nodes, as text.

    Args:
        model: A trainer; or a model, which with the other arguments makes a ``Trainer``.
        graph: A graph, or by default the job's dataset.
        **keys: Keys of the job.

    Returns:
        For each layer the order of its product and sum (in a mini-batch job, that of the first
        batch), what computes each product over a worker's share of all nodes and why, the phases
        of its gather with the planner's rewrites, the columns communicated, the back end, and bytes
        and operations of every stage; then an upper bound of a worker's memory.

    Raises:
        ConfigError: A trainer was given together with a graph or keys.
        GraphThetaError: The job does not fit.

    Collective: all ranks.
    """
    if isinstance(model, Trainer) and (graph is not None or keys):
        raise ConfigError(
            "gt.explain(TRAINER) takes no graph or keys: the trainer has them already; drop them"
        )
    trainer = model if isinstance(model, Trainer) else Trainer(model, graph, **keys)
    sizes = Sizes.of(trainer.partition)
    dry_run = trainer.probe
    peak = trainer.comm.all_gather(trainer.predicted_peak())
    job = trainer.job
    parts = [
        f"{type(trainer.model).__name__} over {sizes.nodes:,} nodes and {sizes.edges:,} edges,"
        f" {trainer.comm.size} worker(s), {job.dtype}"
    ]
    titles = _titles(dry_run)
    orders = _orders(trainer)
    with backend_scope(job.backend):
        parts += [
            _layer(
                i=i,
                title=titles[i],
                step=step,
                trainer=trainer,
                sizes=sizes,
                order=orders.get(id(step), []),
            )
            for i, step in enumerate(dry_run.supersteps)
        ]
    between = sum((_dense(trainer, i, "other") for i in range(-1, len(dry_run.supersteps))), Cost())
    if between.flops:
        numbers = range(-1, len(dry_run.supersteps))
        lines = [line for i in numbers for line in _products(trainer, i, ("other",))]
        lines.append(table(HEADER, [_row("dense", sizes.nodes, "nodes", between)]))
        parts.append("\n".join(["between layers", *lines]))
    twice = "runs most of it twice (recompute) and " if job.recompute else ""
    parts.append(
        "bytes and operations of one forward pass over the whole graph; "
        f"a training step {twice}adds the backward pass, about twice as much\n"
        + f"{trainer.setup.strategy_line}\n" * bool(trainer.setup.strategy_line)
        + f"{trainer.setup.pair.reason}\n" * bool(trainer.setup.pair.reason)
        + f"{trainer.setup.mode_line}\n" * bool(trainer.setup.mode_line)
        + f"memory: at most {amount(max(peak))} a worker"
    )
    return "\n\n".join(parts)


def _titles(dry_run: Probe) -> list[str]:
    """Name, direction and hop of each superstep; decoders and precomputed totals take no hop."""
    hops = iter(dry_run.layers)
    titles = []
    for i, step in enumerate(dry_run.supersteps):
        if step.program is not None and _decodes(step.program):
            titles.append(f"decoder: {step.layer}")
        else:
            hop = (
                "" if step.program is None else f", hop {next(hops).from_end + 1} from the targets"
            )
            titles.append(f"layer {i + 1}: {step.layer}, direction {step.direction}{hop}")
    return titles


def _orders(trainer: Trainer) -> dict[int, list[str]]:
    """Lines about the order of products and sums in each superstep, by its id. Collective."""
    steps = [step for step in trainer.probe.summing if step.orders]
    lines = {id(step): [f"order    {line}" for line in step.order(NO_ROWS)] for step in steps}
    if trainer.job.strategy == "mini" and steps:
        for step, level in zip(
            trainer.probe.summing, trainer.strategy.batch(0, 0).levels, strict=True
        ):
            n = level.counts
            lines[id(step)] = [
                f"order    first batch: {line}, {n.rows_in:,} nodes to {n.rows_out:,} along"
                f" {n.edges:,} edges"
                for line in step.order(n)
            ]
    return lines


def _decodes(program: EdgeProgram) -> bool:
    return "" in program.phases[-1].outputs


def _layer(
    i: int, title: str, step: Superstep, trainer: Trainer, sizes: Sizes, order: list[str]
) -> str:
    program = step.program
    if program is None:
        dense = [
            _row(stage, sizes.nodes, "nodes", _dense(trainer, i, stage))
            for stage in ("transform", "apply")
        ]
        return "\n".join(
            [
                title,
                f"  {trainer.setup.saving}",
                *(f"  {line}" for line in _products(trainer, i)),
                *(f"  {line}" for line in table(HEADER, dense).splitlines()),
            ]
        )
    decodes = _decodes(program)
    notes = [
        *order,
        *(f"planned  {note}" for note in planner_notes(program)),
        *_products(trainer, i),
    ]
    lines = [title, *(f"  {note}" for note in notes)]
    rows = [_row("transform", sizes.nodes, "nodes", _dense(trainer, i, "transform"))]
    sent = [entry.widths for entry in trainer.probe.traffic if entry.superstep == i]
    passes = 2 if step.direction == "both" else 1
    for number, phase in enumerate(program.phases):
        which = f" {number + 1}" if len(program.phases) > 1 else ""
        lines += [
            f"  phase{which}",
            *(
                f"    {line}"
                for line in [*_phase(phase, program, step), *_rows(phase, step, trainer)]
            ),
        ]
        rows += _moves(sent[number], which, step.direction, sizes)
        if decodes:
            rows.append(_row("gather", sizes.edges, "pairs", edge_cost(phase)))
        else:
            if phase.grouped:
                rows.append(
                    _row(
                        "products, at most",
                        passes * int(most_pairs(phase, sizes.nodes, sizes.edges)),
                        "pairs",
                        pair_cost(phase),
                    )
                )
            rows.append(
                _row(f"gather and sum{which}", passes * sizes.edges, "edges", edge_cost(phase))
            )
            rows += [
                _row(
                    f"steps of {a.name}", passes * sizes.edges, "edges", _turn_cost(a, name, phase)
                )
                for name, a in step.in_order(phase).items()
            ]
    if not decodes:
        rows.append(_row("apply", sizes.nodes, "nodes", _dense(trainer, i, "apply")))
    return "\n".join([*lines, *(f"  {line}" for line in table(HEADER, rows).splitlines())])


def _phase(phase: Phase, program: EdgeProgram, step: Superstep) -> list[str]:
    """Lines about what a phase computes and reads, and its back end."""
    lines = []
    outputs = dict(phase.outputs)
    for name, a in step.in_order(phase).items():
        message = written(outputs.pop(message_of(name)), program.operands)
        key = outputs.pop(order_of(name), None)
        by = "the ids of edges" if key is None else written(key, program.operands)
        lines.append(f"in order {a.name} of {message}, by {by}")
    if phase.message:
        into = f" -> dst.{phase.result.replace(' ', '_')}" if phase.result is not None else ""
        groups: dict[tuple[Expr, ...], list[str]] = {}
        for name, parts in phase.parts.items():
            groups.setdefault(tuple(parts), []).append(phase.aggregators[name].name)
        lines += [
            f"sum      {' and '.join(names)} of"
            f" {', '.join(written(e, program.operands) for e in parts)}{into}"
            for parts, names in groups.items()
        ]
    lines += [
        f"new      {f'edge.{n}' if n else 'value'} = {written(e, program.operands)}"
        for n, e in outputs.items()
    ]
    reads = [
        f"{end}.{name.replace(' ', '_')} [{width}]"
        for end in ("src", "dst", "edge")
        for name, width in widths(phase, end).items()
    ]
    lines.append(f"reads    {', '.join(reads)}")
    reason = obstacle(phase)
    return [
        *lines,
        (
            "back end fused"
            if usable(phase)
            else f"back end reference{f', many times slower: {reason}' if reason else ''}"
        ),
    ]


def _turn_cost(a: Ordered, name: str, phase: Phase) -> Cost:
    """Cost of a step of a sum in order."""
    return sum(
        (
            node_cost(PRIMITIVES.get(o.name), o.inputs, o.outputs, phase.dtype.itemsize)
            for o in turns_of(a, name, phase).called
        ),
        Cost(),
    )


def _rows(phase: Phase, step: Superstep, trainer: Trainer) -> list[str]:
    """Where a batch reads the rows of wide stored columns; nothing if all rows take part, or are
    fetched for each batch.
    """
    lines: list[str] = []
    node = trainer.partition.node
    if trainer.job.strategy == "global" or trainer.setup.independent:
        return lines
    for end in ("src", "dst"):
        for name, width in widths(phase, end).items():
            column = node.column(step.stored[name]) if name in step.stored else None
            if column is not None and width * column.dtype.itemsize >= LINE:
                place = (
                    "copied for each batch, since their column is in a file, cached, compressed or"
                    " of another type"
                )
                if node.listed(step.stored[name], np.zeros(0, np.int64)) is not None:
                    place = "read where they are stored"
                lines.append(f"rows     of {end}.{name} = node.{step.stored[name]}: {place}")
    return lines


def _moves(each: Widths, which: str, direction: str, sizes: Sizes) -> list[Row]:
    """Rows of the table for the columns communicated for mirrors, and for messages to masters; none
    on one worker.
    """
    ends = {"in": ("src", "dst"), "out": ("dst", "src"), "both": ("src", "dst")}[direction]
    moved = {"src": sizes.src_moved, "dst": sizes.dst_moved}
    crossing = {"src": sizes.edges_to_src, "dst": sizes.edges_to_dst}
    if direction == "both":
        moved = dict.fromkeys(moved, sizes.src_moved + sizes.dst_moved)
        crossing = dict.fromkeys(crossing, sizes.edges_to_src + sizes.edges_to_dst)
    columns = (
        ("src", ends[0], each.src + each.exact),
        ("dst", ends[1], each.dst),
        ("totals", ends[1], each.partial),
        ("of further passes", ends[1], each.shared + each.returned),
    )
    return [
        _row(f"move {what}{which}", moved[end], "mirrors", Cost(width))
        for what, end, width in columns
        if width and moved[end]
    ] + [
        _row(f"move messages{which}", n, "edges", Cost(each.message))
        for n in [crossing[ends[1]]]
        if n and each.message
    ]


def _dense(trainer: Trainer, superstep: int, stage: str) -> Cost:
    """Cost per node of the node operations in a stage."""
    itemsize = np.dtype(trainer.job.dtype).itemsize
    operations = [
        o
        for o in trainer.probe.operations
        if o.superstep == superstep and o.stage == stage and o.name != "gather"
    ]
    return sum(
        (node_cost(PRIMITIVES.get(o.name), o.inputs, o.outputs, itemsize) for o in operations),
        Cost(),
    )


def _products(
    trainer: Trainer, superstep: int, stages: Sequence[str] = ("transform", "apply")
) -> list[str]:
    """Lines about what computes the products of stages over a worker's share of all nodes, and
    those of the gradients of their rows.
    """
    lines = []
    for o in trainer.probe.operations:
        if (o.superstep, o.name) != (superstep, "matmul") or o.stage not in stages:
            continue
        rows = -(-trainer.partition.n_nodes // trainer.comm.size) * prod(o.inputs[0][:-1])
        inner = o.inputs[1][0]
        columns = prod(o.inputs[1][1:])
        features = reads_features(trainer.probe, o)
        node = trainer.partition.node
        if features and "x" in node and node.column("x").sparse:
            lines.append(f"product  [{rows:,}, {inner}] @ [{inner}, {columns}]: loops, sparse rows")
            continue
        shapes = [(inner, columns)] if features else [(inner, columns), (columns, inner)]
        short = features and "x" in node and node.coded("x").column.dtype == BFLOAT16
        dtype = BFLOAT16 if short else trainer.job.dtype
        of = [
            f"[{rows:,}, {a}] @ [{a}, {b}]: {multiplied_by(rows, a, b, dtype)}" for a, b in shapes
        ]
        lines.append(f"product  {'; gradient '.join(of)}")
    return lines


def _row(stage: str, n: int, of: str, each: Cost) -> Row:
    total = each.times(n)
    return (
        stage,
        f"{n:,} {of}",
        f"{each.bytes} B, {each.flops} flops",
        amount(total.bytes),
        _count(total.flops),
    )


def _count(flops: int) -> str:
    """A number of operations in a unit that fits."""
    value, unit = in_unit(flops, 1000, ("", "k", "M", "G", "T"))
    return f"{value:.3g} {unit}".strip()
