"""The fused back end: a generated loop per phase and direction, no arrays of edges times features.

It computes the same as ``reference``. Blocks of rows with about equally many edges run on the
threads of this process, and no two threads write the same row. Sums over all edges (gradients of
parameters) are partial sums per block, or per group of blocks that run in turn if they are large,
added in the order of blocks. So results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from graphtheta.base import rng
from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.base.rng import Purpose
from graphtheta.base.typed_rows import TypedRows

from ...autodiff.expr import COMPUTED, Expr
from ...autodiff.scope import value_scope
from ...autodiff.tape import value_of
from ...compile.generated import compiled
from ...kernels import vector_header
from ...kernels.turn import turns
from ...parallel import buffers
from ...parallel.pool import run_threads
from ...rows.row_list import RowList
from ..aggregator import State
from ..codegen import (
    FIXED,
    TABLES,
    Kernel,
    Variant,
    edges_ahead,
    generate,
    in_turn,
    lowering_of,
    numbers,
    saved_at_most,
    unsupported,
)
from ..program import EdgeProgram, Phase
from .edges import EdgeLists
from .reference import Arrays, PhaseColumns

# bytes of the partial sums of gradients of rowless values, such as large tables
MOST_PARTIAL = 1 << 27
SIDE = FIXED.index("side")
_BACKEND: ContextVar[str] = ContextVar("graphtheta_backend", default="fused")
_forced = ""


def backend() -> str:
    """Where edge programs run here and now, "fused" or "reference"."""
    return _forced or _BACKEND.get()


def backend_scope(name: str) -> value_scope:
    """Run edge programs on "fused" or "reference" inside the block."""
    return value_scope(_BACKEND, name)


def force_backend(name: str) -> str:
    """Run all edge programs of this process on one back end, whatever ``backend_scope`` chooses; ""
    for what it chooses.

    For tests of programs whose compiled kernels would say nothing new.

    Returns:
        What was forced before.
    """
    global _forced
    before = _forced
    _forced = name
    return before


def usable(phase: Phase) -> bool:
    """Whether the fused back end is chosen and has a form for everything in the phase."""
    return backend() == "fused" and not obstacle(phase)


def obstacle(phase: Phase) -> str:
    """What keeps a phase from the fused back end, and the remedy; empty if nothing does."""
    if "_obstacle" not in phase.__dict__:
        phase.__dict__["_obstacle"] = unsupported(
            phase.grouped.product_first if phase.grouped else phase
        )
    return str(phase.__dict__["_obstacle"])


def fallbacks(program: EdgeProgram) -> list[str]:
    """Why phases of a program run on the reference back end although the fused one is chosen, each
    reason once.
    """
    if backend() != "fused":
        return []
    return list(dict.fromkeys(filter(None, map(obstacle, program.phases))))


def saved_width(phase: Phase) -> int:
    """Numbers per edge that the first backward kernel saves for the second one at most."""
    if not usable(phase):
        return 0
    return saved_at_most(phase.grouped.product_first if phase.grouped else phase)


def forward(
    phase: Phase,
    columns: PhaseColumns,
    receivers: EdgeLists,
    edge_gid: np.ndarray,
    states: Mapping[str, State],
    outputs: Arrays,
    fresh: bool = False,
) -> None:
    """Sum the messages into states and write new edge values.

    If ``fresh``, all aggregators are sums, every row has edges, and the states of rows hold
    anything.
    """
    variant = replace(
        _variant(
            phase=phase,
            columns=columns,
            lists=receivers,
            mode="forward",
            wanted=frozenset(),
            with_gradient=((), ()),
        ),
        fresh=fresh,
    )
    values = _constants(phase, columns)
    arrays = {f"state_{name}_{c}": x for name, state in states.items() for c, x in state.items()}
    arrays |= {f"out_{name}": x for name, x in outputs.items()}
    spilled = {}
    hubs = receivers.traversal.hubs
    if len(hubs):
        spilled = {
            name: agg.beside(
                {c: states[name][c][hubs] for c in agg.shared},
                len(hubs),
                phase.shapes(name),
                variant.dtype,
            )
            for name, agg in phase.aggregators.items()
        }
    spill = {f"state_{name}_{c}": x for name, state in spilled.items() for c, x in state.items()}
    try:
        _run(
            phase=phase,
            variant=variant,
            columns=columns,
            lists=receivers,
            edge_gid=edge_gid,
            constants=values,
            arrays=arrays,
            spill=spill,
        )
    except IndexError:
        _name_index(phase, columns, values)
        raise
    for i, row in enumerate(hubs):
        for name, state in spilled.items():
            phase.aggregators[name].merge(
                states[name], np.array([row]), {c: x[i : i + 1] for c, x in state.items()}
            )


def backward(
    phase: Phase,
    columns: PhaseColumns,
    receivers: EdgeLists,
    senders: EdgeLists | None,
    edge_gid: np.ndarray,
    backward_states: Mapping[str, State],
    output_grads: Arrays,
    grads: PhaseColumns,
) -> None:
    """Add the gradients of all values that edges read to ``grads``.

    ``senders`` may be None if no source column requires a gradient.
    """
    values = _constants(phase, columns)
    with_gradient = (tuple(backward_states), tuple(output_grads))
    arrays = {
        f"spread_{name}_{c}": np.ascontiguousarray(x)
        for name, state in backward_states.items()
        for c, x in state.items()
    }
    arrays |= {f"gout_{name}": np.ascontiguousarray(x) for name, x in output_grads.items()}
    learned = _learned(phase, grads)
    wanted_of_receivers = (
        {("dst", n) for n in grads.dst}
        | {("edge", n) for n in grads.edge}
        | {("const", n) for n in learned}
    )
    wanted_of_senders = {("src", n) for n in grads.src}
    sweeps = [
        (
            lists,
            _variant(
                phase=phase,
                columns=columns,
                lists=lists,
                mode=mode,
                wanted=frozenset(wanted),
                with_gradient=with_gradient,
            ),
        )
        for lists, mode, wanted in (
            (receivers, "receiver", wanted_of_receivers),
            (senders, "sender", wanted_of_senders),
        )
        if wanted and lists is not None and int(lists.ptr[-1])
    ]
    variants = tuple(variant for _, variant in sweeps)
    if len(variants) == 2:
        variants = _in_turn(phase, *variants)
        saved = variants[0].residuals
        if saved:
            shape = int(receivers.ptr[-1]), numbers(phase, saved)
            arrays["kept"] = buffers.empty(shape, _saved_type(columns, variants[0].dtype))
    lists_of = {variant.mode: lists for lists, variant in sweeps}
    for variant in variants:
        _sweep_back(
            phase=phase,
            variant=variant,
            columns=columns,
            lists=lists_of[variant.mode],
            edge_gid=edge_gid,
            constants=values,
            arrays=arrays,
            learned=learned,
            grads=grads,
        )


def _saved_type(columns: PhaseColumns, dtype: str) -> Any:
    """The type of what one kernel saves for another: rounded where rows that edges read are."""
    rows = (*columns.src.values(), *columns.dst.values())
    return BFLOAT16 if any(x.dtype == BFLOAT16 for x in rows) else dtype


def _sweep_back(
    phase: Phase,
    variant: Variant,
    columns: PhaseColumns,
    lists: EdgeLists,
    edge_gid: np.ndarray,
    constants: dict[int, Any],
    arrays: Arrays,
    learned: list[int],
    grads: PhaseColumns,
) -> None:
    """Add the gradients that one sweep over the edges computes, by receiver or by sender.

    Args:
        variant: Names the values whose gradients these are.
        lists: The edges by the end whose rows the sweep takes one after another.
        constants: Values of constants and parameters.
        arrays: What the kernel reads, by name.
        learned: As of ``_learned``.
        grads: Get the gradients.
    """
    by_receiver = variant.mode == "receiver"
    into = dict(arrays)
    for i, e in enumerate(phase.order):
        if e.leaf is not None and e.leaf in variant.wanted:
            into[f"g{e.leaf[0]}{i}"] = getattr(grads, e.leaf[0])[e.leaf[1]]
    # rows of many edges are shared by threads, whose sums are added afterwards
    hubs = lists.traversal.hubs
    spill = {
        n: np.zeros((len(hubs), *x.shape[1:]), variant.dtype)
        for n, x in into.items()
        if n.startswith("gdst" if by_receiver else "gsrc")
    }
    sums = _partial_sums(phase, variant, learned, lists.traversal.n_blocks) if by_receiver else {}
    _run(
        phase=phase,
        variant=variant,
        columns=columns,
        lists=lists,
        edge_gid=edge_gid,
        constants=constants,
        arrays=into,
        partial=sums,
        spill=spill,
    )
    for i, row in enumerate(hubs):
        for name, x in spill.items():
            into[name][row] += x[i]
    _return_constants(
        phase,
        constants,
        {name: x.sum(axis=0).astype(variant.dtype) for name, x in sums.items()},
        grads,
    )


def _name_index(phase: Phase, columns: PhaseColumns, constants: dict[int, Any]) -> None:
    """Raise an error that names index and table if an index is out of range; compiled loops report
    neither.
    """
    number = {id(e): i for i, e in enumerate(phase.order)}
    for e in phase.order:
        if e.rows and (lowering := lowering_of(e)) is not None:
            lowering.check(e, lambda a: constants[number[id(a)]], lambda a: _column(a, columns))


def _column(e: Expr, columns: PhaseColumns) -> np.ndarray | None:
    """All rows of an integer column, or of a part of it; None of what is computed from several."""
    if e.leaf is not None and e.leaf[1] in COMPUTED:
        return None
    if e.leaf is not None:
        rows: np.ndarray = getattr(columns, e.leaf[0])[e.leaf[1]][:]
        return rows
    assert e.prim is not None
    below = _column(e.args[0], columns) if e.traits.structural else None
    return None if below is None else np.asarray(e.prim.forward(below, **e.static))


# ---- values without rows are computed once, by the primitives themselves


def _constants(phase: Phase, columns: PhaseColumns) -> dict[int, Any]:
    """Values of all rowless expressions, by their number."""
    number = {id(e): i for i, e in enumerate(phase.order)}
    values: dict[int, Any] = {}
    for i, e in enumerate(phase.order):
        if e.rows or (e.leaf is not None and e.leaf[0] == "key"):
            continue
        if e.leaf is not None:
            values[i] = value_of(columns.operands[e.leaf[1]])
        else:
            assert e.prim is not None
            values[i] = e.prim.forward(*(values[number[id(a)]] for a in e.args), **e.static)
    return values


def _learned(phase: Phase, grads: PhaseColumns) -> list[int]:
    """Rowless expressions that edges read directly, and that lead to gradients of operands."""
    number = {id(e): i for i, e in enumerate(phase.order)}
    leads: set[int] = set()
    for e in phase.order:
        wanted = e.leaf is not None and e.leaf[0] == "operand" and e.leaf[1] in grads.operands
        if not e.rows and (wanted or any(id(a) in leads for a in e.args)):
            leads.add(id(e))
    read = {id(a) for e in phase.order if e.rows for a in e.args}
    return sorted(number[i] for i in leads & read)


def _return_constants(
    phase: Phase, values: dict[int, Any], sums: dict[str, np.ndarray], grads: PhaseColumns
) -> None:
    """Backpropagate from rowless expressions to operands."""
    number = {id(e): i for i, e in enumerate(phase.order)}
    gradients: dict[int, np.ndarray] = {}
    for name, g in sums.items():
        transposed = name.startswith("gct")
        n = int(name[3 if transposed else 2 :])
        shape = phase.order[n].dims
        g = (g.reshape(-1, shape[0]).T if transposed else g).reshape(shape)
        gradients[n] = gradients[n] + g if n in gradients else g
    for i in range(len(phase.order) - 1, -1, -1):
        e = phase.order[i]
        if i not in gradients:
            continue
        g = gradients[i]
        if e.leaf is not None:
            if e.leaf[1] in grads.operands:
                grads.operands[e.leaf[1]] += g
            continue
        assert e.prim is not None
        args = [values[number[id(a)]] for a in e.args]
        for k, a in enumerate(e.args):
            rule = e.prim.rule(k) if a.requires_grad else None
            if rule is not None:
                part = rule(g, values[i], *args, **e.static)
                n = number[id(a)]
                gradients[n] = gradients[n] + part if n in gradients else part


# ---- running a kernel


def _partial_sums(
    phase: Phase, variant: Variant, learned: list[int], n_blocks: int
) -> dict[str, np.ndarray]:
    """Zeros for the gradients of rowless expressions, by block or by group of blocks."""
    summed = _kernel(phase, variant)[0].summed
    shapes = {
        f"{kind}{n}": _matrix(phase.order[n].dims, kind == "gct")
        for n in learned
        for kind in ("gc", "gct")
        if f"{kind}{n}" in summed
    }
    size = sum(map(prod, shapes.values())) * np.dtype(np.float64).itemsize
    count = max(1, min(n_blocks, MOST_PARTIAL // max(size, 1)))
    return {name: np.zeros((count, *shape)) for name, shape in shapes.items()}


def _variant(
    phase: Phase,
    columns: PhaseColumns,
    lists: EdgeLists,
    mode: str,
    wanted: frozenset[tuple[str, Any]],
    with_gradient: tuple[tuple[str, ...], tuple[str, ...]],
) -> Variant:
    in_place = frozenset(
        (end, name)
        for end in ("src", "dst", "edge")
        for name in phase.reads[end]
        if name not in COMPUTED and isinstance(getattr(columns, end)[name], RowList)
    )
    typed = frozenset(
        ("edge", name)
        for name in phase.reads["edge"]
        if name not in COMPUTED and isinstance(columns.edge[name], TypedRows)
    )
    return Variant(
        mode=mode,
        listed=lists.positions is not None,
        training=columns.key is not None,
        weighted=lists.weight is not None,
        carried=columns.carried,
        wanted=wanted,
        totals=with_gradient,
        dtype=phase.dtype_name,
        in_place=in_place,
        typed=typed,
        in_order=mode != "sender" or not len(lists.at),
    )


def _in_turn(phase: Phase, receiver: Variant, sender: Variant) -> tuple[Variant, Variant]:
    """The two backward kernels in the order in which they run."""
    planned: dict[tuple[Variant, Variant], tuple[Variant, Variant]]
    planned = phase.__dict__.setdefault("_in_turn", {})
    if (receiver, sender) not in planned:
        planned[receiver, sender] = in_turn(phase, receiver, sender)
    return planned[receiver, sender]


def _kernel(phase: Phase, variant: Variant) -> tuple[Kernel, Any]:
    kernels: dict[Variant, tuple[Kernel, Any]] = phase.__dict__.setdefault("_kernels", {})
    if variant not in kernels:
        kernel = generate(phase, variant)
        kernels[variant] = (kernel, compiled(kernel.source, variant.dtype, vector_header))
    return kernels[variant]


def _run(
    phase: Phase,
    variant: Variant,
    columns: PhaseColumns,
    lists: EdgeLists,
    edge_gid: np.ndarray,
    constants: dict[int, Any],
    arrays: dict[str, np.ndarray],
    partial: dict[str, np.ndarray] | None = None,
    spill: dict[str, np.ndarray] | None = None,
) -> None:
    if not int(lists.ptr[-1]):
        return
    kernel, function = _kernel(phase, variant)
    traversal = lists.traversal
    values: dict[str, Any] = {
        "ptr": traversal.ptr,
        "row": traversal.row,
        "target": traversal.row,
        "other": lists.other,
        "at": lists.at,
        "start": lists.start,
        "offset": lists.offset,
        "positions": lists.at[:0] if lists.positions is None else lists.positions,
        "tie_shift": lists.tie_shift,
        "edge_gid": edge_gid,
        "scale": lists.weight,
        "reversed": np.int32(columns.reversed),
        **kernel.maps,
    }
    values |= {name: _flat(x) for name, x in arrays.items()}
    for i, e in enumerate(phase.order):
        values |= _inputs(
            i=i, e=e, columns=columns, constants=constants, dtype=variant.dtype, kernel=kernel
        )
    values |= _tables(phase, kernel, values)
    values |= _together({name: values[name] for name in kernel.together})
    values |= partial or {}
    # later parts of a hub sum into spill rows
    spill_values = {name: _flat(x) for name, x in (spill or {}).items()}
    spill_values |= {} if traversal.spill is None else {"target": traversal.spill}
    spill_values |= _tables(phase, kernel, spill_values)
    # blocks that share partial sums run one after another
    shares = min((len(x) for x in (partial or {}).values()), default=traversal.n_blocks)
    values |= {
        "turn": turns(),
        "shares": shares,
        "blocks": traversal.blocks,
        "spilling": traversal.spilling,
        "ahead": edges_ahead(sum(values[name].nbytes for name in kernel.scattered)),
    }
    arguments = [values.get(name) for name in kernel.arguments] + [
        spill_values.get(name, values[name]) for name in kernel.spilled
    ]

    def work(place: int) -> None:
        of_thread = list(arguments)
        of_thread[SIDE] = place % 2
        for i, size, dtype in kernel.scratch:
            of_thread[i] = np.empty((1, size), dtype)
        for near, whole in kernel.near.items():
            shape = (partial or {})[whole].shape[1:]
            of_thread[kernel.arguments.index(near)] = np.zeros(shape, variant.dtype)
        function(*of_thread)

    run_threads(work, shares)


def _inputs(
    i: int, e: Expr, columns: PhaseColumns, constants: dict[int, Any], dtype: str, kernel: Kernel
) -> dict[str, Any]:
    """The arrays of one expression, by the names of the kernel's arguments."""
    if e.traits.random and columns.key is not None:
        return {f"key{i}": np.uint64(rng.key(int(columns.key), Purpose.DROPOUT, e.static["site"]))}
    if i in constants:
        value = np.asarray(constants[i])
        value = (
            value.astype(dtype, copy=False)
            if value.dtype.kind in "fb" or e.dtype.kind == "f"
            else value
        )
        if not e.dims:
            return {f"c{i}": value[()]}
        # kernels read on from one row to the next, also of a part of a parameter such as w[..., 0]
        inputs = {f"c{i}": np.ascontiguousarray(value.reshape(_matrix(e.dims)))}
        if f"ct{i}" in kernel.arguments:
            inputs[f"ct{i}"] = np.ascontiguousarray(inputs[f"c{i}"].T)
        return inputs
    if e.leaf is None or e.leaf[0] not in ("src", "dst", "edge") or e.leaf[1] in COMPUTED:
        return {}
    name = f"{e.leaf[0]}{i}"
    x = getattr(columns, e.leaf[0])[e.leaf[1]]
    if isinstance(x, TypedRows):
        data, begin = x.flat
        return {
            name: data[:, None],
            f"kind_of{i}": x.kind,
            f"at_of{i}": x.positions,
            f"width_of{i}": np.array([part.shape[1] for part in x.parts]),
            f"first_of{i}": np.array(x.first),
            f"begin_of{i}": begin,
        }
    if not isinstance(x, RowList):
        return {name: _flat(x)}
    array = _flat(x.array).view()
    # one kernel for arrays that may be changed and those that must not
    array.flags.writeable = False
    return {name: array, f"rows_{name}": x.rows}


def _tables(phase: Phase, kernel: Kernel, values: dict[str, Any]) -> dict[str, Any]:
    """Columns whose rows are tables, as the matrix of all rows of all tables."""
    if not kernel.tables:
        return {}
    columns = {name: name.removesuffix(TABLES) for name in kernel.tables}
    width = {
        name: prod(phase.order[int(column.lstrip("gsrcdte"))].dims[1:])
        for name, column in columns.items()
    }
    return {
        name: values[column].reshape(-1, width[name])
        for name, column in columns.items()
        if column in values
    }


def _together(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same rows side by side, so that an edge reads a single cache line of them all."""
    if not arrays:
        return {}
    (dtype,) = {x.dtype for x in arrays.values()}
    ends = np.cumsum([x.shape[1] for x in arrays.values()])
    # rows of a power of two begin with a line or lie in one
    width = 1 << int(ends[-1] - 1).bit_length()
    n = min(map(len, arrays.values()))
    rows = buffers.empty((n, width), dtype)
    parts = {
        name: rows[:, end - x.shape[1] : end]
        for (name, x), end in zip(arrays.items(), ends, strict=True)
    }

    def copy(b: int, begin: int, end: int) -> None:
        for name, part in parts.items():
            part[begin:end] = arrays[name][begin:end]

    buffers.by_blocks(copy, n, width)
    return parts


def _matrix(shape: tuple[int, ...], transposed: bool = False) -> tuple[int, int]:
    """A value without rows as kernels see it: its first axis against the others."""
    matrix = (shape[0] if shape else 1, prod(shape[1:]))
    return matrix[::-1] if transposed else matrix


def _flat(x: np.ndarray) -> np.ndarray:
    """Rows with one trailing axis; a view of contiguous arrays."""
    x = x if x.flags.c_contiguous else np.ascontiguousarray(x)
    # booleans are bytes in memory and bits in registers; numbers of 16 bits are read as float32
    for kind, bits in ((np.dtype(bool), np.uint8), (BFLOAT16, np.uint16)):
        x = x.view(bits) if x.dtype == kind else x
    return x.reshape(len(x), prod(x.shape[1:]))
