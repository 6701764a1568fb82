"""Edge columns that samplers read: which edges may be chosen, and checks of the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from graphtheta.errors import ConfigError, DataError

from ...ops.kernels.sampling import allowed
from ..partition.partition import Partition
from ..partition.relation import EdgeBlock
from .candidates import Candidates, Frontier

# by kind of dtype, the time of an edge that is known at any time: no cutoff is lower
ALWAYS = {"i": int(np.iinfo(np.int64).min), "f": float(np.finfo(np.float32).min)}
NO_EDGE = np.iinfo(np.int64).max
# the smallest and the largest weight that float32 holds; further ones would become 0 or infinite,
# or have no quotient in float64
SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
LARGEST = float(np.finfo(np.float32).max)
ADD_LOOPS = "add self loops beforehand with graph.with_self_loops(columns={{{!r}: VALUE}})"


def in_block(values: np.ndarray, block: EdgeBlock) -> np.ndarray:
    """The values of a block's edges."""
    return values[block.start : block.start + block.n_edges]


def masked(frontier: Frontier, name: str) -> Frontier:
    """The edges of a frontier for which a column of the option ``mask`` is True; all for an empty
    name.
    """
    return _selected(frontier, frontier.partition.edge.read(name), None) if name else frontier


def positive(frontier: Frontier, name: str) -> Frontier:
    """The edges of a frontier with a positive value in a column."""
    values = frontier.partition.edge.read(name)
    # most weights are positive: no list is copied then
    every = all(
        allowed.all_positive(c.begin, c.end, c.edges, in_block(values, c.block))
        for c in frontier.candidates
    )
    return replace(frontier, complete=False) if every else _selected(frontier, values, None)


def up_to(frontier: Frontier, name: str, limits: dict[int, np.ndarray]) -> Frontier:
    """The edges of a frontier with a value, as it was given, up to the limit of their receiving
    row.

    Args:
        limits: By kind of row, [n_groups].
    """
    return _selected(frontier, frontier.partition.edge.exact(name), limits)


def _selected(
    frontier: Frontier, values: np.ndarray, limits: dict[int, np.ndarray] | None
) -> Frontier:
    def of(c: Candidates) -> Candidates:
        x = in_block(values, c.block)
        return c.of(
            *allowed.allowed(
                begin=c.begin,
                end=c.end,
                edges=c.edges,
                others=c.senders,
                values=x,
                limits=x[:0] if limits is None else limits[c.kinds[1]],
            )
        )

    return replace(frontier, candidates=[of(c) for c in frontier.candidates], complete=False)


def check_column(partition: Partition, what: str, option: str, name: str) -> None:
    """Check that there is a column with one number per row.

    Args:
        what: "node" or "edge".
        option: The option that names the column, for messages.
        name: The column.

    Raises:
        ConfigError: There is none.
    """
    store = partition.node if what == "node" else partition.edge
    if name not in store:
        names = ", ".join(n for n in store.names() if len(store.column(n).shape) == 1)
        raise ConfigError(
            f"{option}={name}: there is no {what} column {name!r}; choose from {names}, or add it"
            f" with graph.replace({what}_columns={{{name!r}: values}})"
        )
    if len(store.column(name).shape) != 1:
        raise ConfigError(
            f"{option}={name}: the {what} column {name!r} has {store.column(name).shape[1]} numbers"
            f" per {what}; expected one, so copy one of them into a column of its own"
        )


def check_edges(
    partition: Partition,
    option: str,
    name: str,
    wrong: Callable[[np.ndarray], np.ndarray],
    expected: str,
) -> None:
    """Check an edge column on all workers.

    Args:
        option: The option that names the column, for messages.
        name: The column.
        wrong: Which of the values, as they were given, cannot be used, [n] bool.
        expected: What is expected, for messages.

    Raises:
        ConfigError: There is no such column with one number per edge.
        DataError: A value cannot be used; of several, the message has that of the edge of the
            lowest number.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    with comm.agreed():
        check_column(partition, "edge", option, name)
    values = partition.edge.exact(name)
    bad = np.flatnonzero(wrong(values))
    ids = partition.edge_gid[bad]
    own = ids.min() if len(ids) else NO_EDGE
    # one worker has the first wrong edge of all
    first = comm.all_min(np.array(own, np.int64))
    with comm.agreed():
        if len(ids) and own == first:
            at = bad[np.argmin(ids)]
            src, dst = (int(ends[at]) for ends in partition.edge_ends())
            added = (
                f" or, if the job has added this self loop, {ADD_LOOPS.format(name)}"
                if src == dst
                else ""
            )
            raise DataError(
                f"{option}={name}: edge {own} (from node {src} to node {dst})"
                f" has the value {values[at]}, expected {expected}; change the value in"
                f" edge_columns or edge_weight{added}"
            )


def check_weights(partition: Partition, name: str) -> None:
    """Check the column of the option ``weight``: numbers that are not negative, and that float32
    holds.

    Raises:
        ConfigError, DataError: As ``check_edges``.

    Collective: all ranks of the partition.
    """
    check_edges(
        partition=partition,
        option="weight",
        name=name,
        wrong=lambda x: ~((x == 0) | ((x >= SMALLEST) & (x <= LARGEST))),
        expected=f"0, or a number from {SMALLEST:.2g} to {LARGEST:.2g}",
    )


def check_mask(partition: Partition, name: str) -> None:
    """Check the column of the option ``mask``; an empty name is no mask.

    Raises:
        ConfigError, DataError: As ``check_edges``.

    Collective: all ranks of the partition.
    """
    if name:
        check_edges(
            partition=partition,
            option="mask",
            name=name,
            wrong=lambda x: (x != 0) & (x != 1),
            expected="True or False",
        )
