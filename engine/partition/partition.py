"""Partitions: the masters, mirrors and edges of one worker.

Local rows are masters [0, n_masters), then mirrors grouped by owner; ids ascend within a group, so
that a receive lands in place. Mirrors are placeholders: they have a row number and no values.

Edges are stored in up to four blocks, by whether source and destination are masters or mirrors
here. The first block (both masters) is the core, which can be computed without waiting for
messages; in each block every end lies in one kind of row, so a kernel reads one array per end. A
block is compressed by destination (CSC) and by source (CSR) over one storage order, in which edge
values are stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from graphtheta.base.bfloat16 import is_wide
from graphtheta.errors import PartitionError

from ...ops.parallel.buffers import full, taken
from ..comm.communicator import Comm
from ..comm.serial import SerialComm
from ..store.column import Column, Role, RoundedColumn, is_column
from ..store.memory import MemoryColumn
from ..store.selected import SelectedColumn
from ..store.short import short_column
from ..store.store import ColumnStore
from .directory import DenseDirectory, Directory
from .division import divide
from .edge_source import EdgeSource
from .exchange import NOTHING, MovePlan, plan_requests
from .partitioner import DEFAULT_PLACEMENT, assign
from .relation import EDGE, RELATION, Served, StoredRelation
from .rows import MakeDirectory, PartRows, whole_rows
from .sliced import sliced_rows
from .table import occurrences_of

MASTER, MIRROR = 0, 1
# on one rank
NO_MIRRORS = Served(
    MovePlan(
        n_rows=0,
        rows=NOTHING,
        send_ptr=np.zeros(2, np.int64),
        recv_ptr=np.zeros(2, np.int64),
        anywhere=False,
    ),
    NOTHING,
)
# roles of columns of a graph; all others are features
ROLES = {"y": Role.TARGET, "train": Role.MASK, "val": Role.MASK, "test": Role.MASK}


@dataclass
class Partition:
    """This worker's masters, mirrors and edges.

    Attributes:
        halo_comm: The workers that share views, for halo moves, sampling and expansion.
        job_comm: The workers that share parameters, for sums of gradients and metrics. It contains
            those of ``halo_comm``; today both are the same.
        n_nodes, n_edges: Size of the whole graph.
        gid: Global ids of local rows, masters then mirrors, [n_local] int64.
        directory: Owner of every node and its master row there.
        relations: The stored kinds of edges by name; there is one, "edge".
        node: Columns of the masters in the order of their rows; ``x`` may be sparse.
        edge: Columns of the edges of the relation "edge" in storage order.
        short: Whether edges read wide float32 values of nodes as bfloat16, as features are stored.
    """

    halo_comm: Comm
    n_nodes: int
    n_edges: int
    gid: np.ndarray
    n_masters: int
    directory: Directory
    relations: dict[str, StoredRelation]
    node: ColumnStore
    edge: ColumnStore
    job_comm: Comm = field(kw_only=True)
    short: bool = field(kw_only=True, default=False)

    @cached_property
    def spare(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Arrays for numbering masters, int32, all -1, and for lines of these, uint8, all 0;
        expanding a view takes both.
        """
        return []

    @property
    def n_mirrors(self) -> int:
        return len(self.gid) - self.n_masters

    @property
    def masters(self) -> np.ndarray:
        """Global ids of the masters in the order of their rows, [n_masters]."""
        return self.gid[: self.n_masters]

    @property
    def edge_gid(self) -> np.ndarray:
        """Global ids of the edges in storage order, [n_local_edges] int64."""
        return self.relations[EDGE].gid

    @property
    def n_local_edges(self) -> int:
        return len(self.edge_gid)

    def overlay(self, node: Mapping[str, Any], edge: Mapping[str, Any]) -> Partition:
        """The same masters, mirrors and edges with other columns on top; see
        ``ColumnStore.overlay``.

        Args:
            node: Columns or arrays by name, [n_masters, ...].
            edge: The same of the edges in storage order, [n_local_edges, ...].
        """
        return replace(self, node=self.node.overlay(node), edge=self.edge.overlay(edge))

    def edge_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Local rows of the sources and destinations of the local edges in storage order,
        [n_local_edges] int64 each.
        """
        src = np.empty(self.n_local_edges, np.int64)
        dst = np.empty(self.n_local_edges, np.int64)
        for b in self.relations[EDGE].blocks:
            at = slice(b.start, b.start + b.n_edges)
            src[at] = b.in_src + b.src_kind * self.n_masters
            dst[at] = (
                np.repeat(np.arange(len(b.in_indptr) - 1), np.diff(b.in_indptr))
                + b.dst_kind * self.n_masters
            )
        return src, dst

    def edge_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Global ids of the sources and destinations of the local edges in storage order."""
        src, dst = self.edge_rows()
        return self.gid[src], self.gid[dst]

    def ends_of(self, stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Global ids of the sources and destinations of some local edges, [n] int64 each.

        Args:
            stored: Storage positions, [n].
        """
        src = np.empty(len(stored), np.int64)
        dst = np.empty(len(stored), np.int64)
        for b in self.relations[EDGE].blocks:
            at = np.flatnonzero((stored >= b.start) & (stored < b.start + b.n_edges))
            edges = stored[at] - b.start
            src[at] = b.in_src[edges] + b.src_kind * self.n_masters
            dst[at] = (
                np.searchsorted(b.in_indptr, edges, side="right") - 1 + b.dst_kind * self.n_masters
            )
        return self.gid[src], self.gid[dst]

    def report(self) -> dict[str, float]:
        """Balance and replication over all workers.

        Collective: all ranks of halo_comm.
        """
        border = sum(b.n_edges for b in self.relations[EDGE].blocks[1:])
        mine = np.array([self.n_masters, self.n_local_edges, self.n_mirrors, border], np.int64)
        total = self.halo_comm.all_sum(mine)
        top = self.halo_comm.all_max(mine)
        share = self.halo_comm.size / np.maximum(total, 1)
        return {
            "replication": 1 + total[2] / max(self.n_nodes, 1),
            "border_edges": total[3] / max(total[1], 1),
            "node_imbalance": float(top[0] * share[0]),
            "edge_imbalance": float(top[1] * share[1]),
        }

    def nbytes(self) -> int:
        """Bytes of topology, features and plans held by this worker."""
        arrays = [self.gid]
        for r in self.relations.values():
            arrays += [r.gid, r.sources.plan.rows, r.destinations.plan.rows]
            arrays += [
                a
                for b in r.blocks
                for a in (b.in_indptr, b.in_src, b.out_indptr, b.out_dst, b.out_edge)
            ]
            arrays += [a for degree in r.degrees.values() for a in degree.values()]
        positions = sum(x.nbytes for r in self.relations.values() for x in r.positions.values())
        return (
            self.directory.nbytes
            + int(sum(a.nbytes for a in arrays))
            + positions
            + self.node.nbytes
            + self.edge.nbytes
        )


def empty_partition(partition: Partition) -> Partition:
    """A partition of the empty graph on one rank, with the same columns."""
    none = np.zeros(0, np.int64)
    edges = StoredRelation(
        EDGE, none, True, n_edges=0, blocks=[], sources=NO_MIRRORS, destinations=NO_MIRRORS
    )
    comm = SerialComm()
    return Partition(
        halo_comm=comm,
        n_nodes=0,
        n_edges=0,
        gid=none,
        n_masters=0,
        directory=DenseDirectory(none, none),
        relations={EDGE: edges},
        node=partition.node.empty(),
        edge=partition.edge.empty(),
        job_comm=comm,
        short=partition.short,
    )


def build_partition(
    graph: Any,
    comm: Comm,
    edge_placement: str = DEFAULT_PLACEMENT,
    node_partitioner: str = "hash",
    seed: int = 0,
    dtype: Any = np.float32,
    directory: MakeDirectory | None = None,
    *,
    job_comm: Comm | None = None,
    short: bool = False,
) -> Partition:
    """Build this worker's part of a graph.

    If the edges are mapped from files and rules divide the graph, no worker has an array over all
    nodes or edges: each reads a slice of the edges and sends them to their workers.

    Args:
        graph: The whole graph, the same on every rank.
        edge_placement: Which worker keeps an edge: a name in ``EDGE_PLACEMENTS``, or FILE.py:NAME;
            options of both follow as ":field=value,...".
        node_partitioner: Which worker owns a node: a name in ``PARTITIONERS``, or FILE.py:NAME.
        seed: Seed of the node partitioner.
        dtype: Floating type of features and edge values.
        directory: Makes the directory from comm and the masters of this worker in the order of
            their rows, such as ``TableDirectory``; None chooses one.
        job_comm: The workers that share parameters; by default those of comm, which share the
            graph.
        short: Whether wide node columns are stored, and read by edges, as bfloat16; with float32
            only.

    Raises:
        ConfigError: Unknown name or option.
        PartitionError: More ranks than nodes, or the partitioner did not give each node and edge
            one worker.

    Collective: all ranks of comm.
    """
    source = EdgeSource(graph)
    if comm.size > graph.n_nodes:
        raise PartitionError(
            f"the graph has {graph.n_nodes} nodes and the job {comm.size} ranks; start at most"
            f" {graph.n_nodes} ranks"
        )
    how = (source, comm, edge_placement, node_partitioner, seed)
    rows = (
        sliced_rows(source, comm, divide(*how), directory)
        if source.mapped
        else whole_rows(graph, source, comm, *assign(*how), directory)
    )
    assigned = comm.all_sum(np.array([len(rows.masters), len(rows.edges)]))
    if list(assigned) != [graph.n_nodes, graph.n_edges]:
        raise PartitionError(
            f"masters={node_partitioner}: {assigned[0]} of {graph.n_nodes} nodes have an owner and"
            f" {assigned[1]} of {graph.n_edges} edges a worker; assign must return the same on"
            " every rank"
        )
    ends = (
        (rows.blocks[1].out_indptr, rows.blocks[3].out_indptr),
        (rows.blocks[2].in_indptr, rows.blocks[3].in_indptr),
    )
    used = [np.flatnonzero(np.diff(a) + np.diff(b)).astype(np.int32) for a, b in ends]
    sources, destinations = (_build_plan(comm, rows, mirrors) for mirrors in used)
    edges = StoredRelation(
        EDGE,
        rows.edges,
        True,
        n_edges=graph.n_edges,
        blocks=rows.blocks,
        sources=sources,
        destinations=destinations,
    )
    return Partition(
        halo_comm=comm,
        n_nodes=graph.n_nodes,
        n_edges=graph.n_edges,
        gid=np.concatenate((rows.masters, rows.mirrors)),
        n_masters=len(rows.masters),
        directory=rows.directory,
        relations={EDGE: edges},
        node=_node_columns(graph, rows, dtype, short),
        edge=_edge_columns(graph, comm, rows.edges, dtype),
        job_comm=comm if job_comm is None else job_comm,
        short=short,
    )


def _build_plan(comm: Comm, rows: PartRows, used: np.ndarray) -> Served:
    """The plan for some mirrors, with these mirrors."""
    bounds = np.searchsorted(rows.owner[used], np.arange(comm.size + 1))
    return Served(
        plan_requests(comm, len(rows.masters), [rows.row[used[a:b]] for a, b in pairwise(bounds)]),
        used,
    )


def _node_columns(graph: Any, rows: PartRows, dtype: Any, short: bool) -> ColumnStore:
    columns = {name: degree.astype(dtype) for name, degree in rows.degrees.items()}
    return _store(
        computed=columns,
        given={name: getattr(graph, name) for name in ("x", *ROLES)} | graph.node_columns,
        rows=rows.masters,
        dtype=dtype,
        short=short,
    )


def _edge_columns(graph: Any, comm: Comm, edge_ids: np.ndarray, dtype: Any) -> ColumnStore:
    columns = {} if graph.edge_weight is not None else {"weight": full((len(edge_ids),), 1, dtype)}
    if RELATION in graph.edge_columns:
        # the edges of the same relation at the same node
        codes = graph.edge_columns[RELATION][edge_ids].astype(np.int64)
        span = graph.n_nodes
        ends = {"in_degree": graph.dst[edge_ids], "out_degree": graph.src[edge_ids]}
        columns |= {
            name: occurrences_of(comm, codes * span + end).astype(dtype)
            for name, end in ends.items()
        }
    given = {name: getattr(graph, f"edge_{name}") for name in ("weight", "attr", *ROLES)}
    return _store(columns, given | graph.edge_columns, edge_ids, dtype)


def _store(
    computed: dict[str, np.ndarray],
    given: dict[str, Any],
    rows: np.ndarray,
    dtype: Any,
    short: bool = False,
) -> ColumnStore:
    """Columns made for these rows, and the rows of those given with the graph; wide features as
    bfloat16 if ``short``.
    """
    columns: dict[str, Column] = {name: MemoryColumn(x) for name, x in computed.items()}
    for name, x in given.items():
        if x is not None:
            column = _column(x, rows, dtype)
            is_short = short and name not in ROLES and _may_be_short(column)
            columns[name] = short_column(column) if is_short else column
    return ColumnStore(
        len(rows),
        {name: (ROLES.get(name, Role.FEATURE), column) for name, column in columns.items()},
    )


def _may_be_short(column: Column) -> bool:
    """Whether rows of a column may be rounded: wide and dense, and as wide for all types."""
    several_types = isinstance(column, MemoryColumn) and column.widths is not None
    return not column.sparse and not several_types and is_wide(column.shape[1:], column.dtype)


def _column(given: Any, rows: np.ndarray, dtype: Any) -> Column:
    """Rows of a column, floating values in the job's type; masks, labels and other integers as they
    are.
    """
    type_ = np.dtype(dtype) if given.dtype.kind == "f" else given.dtype
    if is_column(given):
        return SelectedColumn(given, rows, type_)
    if (
        type(given) is np.ndarray
        and given.ndim > 1
        and len(rows) == len(given)
        and given.dtype == type_
        and given.flags.c_contiguous
    ):
        # one worker has all rows: those of a batch are read where they are
        return MemoryColumn(given, None if np.array_equal(rows, np.arange(len(rows))) else rows)
    mine = taken(given, rows) if isinstance(given, np.ndarray) else given[rows]
    if len(given.shape) == 1 and given.dtype.itemsize > type_.itemsize:
        # of a named column: samplers compare its values as they are, models read them in the job's
        # type
        return RoundedColumn(MemoryColumn(mine), type_)
    return MemoryColumn(mine.astype(type_, copy=False))
