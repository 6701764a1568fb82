"""``gt.transform_store``: a store made of some nodes and edges of another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.typed_rows import TypedRows
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.start import start
from graphtheta.errors import ConfigError, DataError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.store.manifest import PARTS, is_store
from graphtheta.graph.store.reader import StoreColumns
from graphtheta.graph.store.writer import StoreWriter
from graphtheta.importing.ingest.write import write_once, write_runs
from graphtheta.importing.rewriting.columns import RunBlocks, write_lists, write_rows
from graphtheta.importing.rewriting.edges import RewrittenEdges
from graphtheta.importing.rewriting.nodes import NodeSubset, chosen, largest_component

CHOICES = {
    "component": ("all", "largest"),
    "self_loops": ("keep", "drop"),
    "duplicates": ("keep", "drop"),
    "reverse": ("keep", "add"),
}
# columns that change with the numbers of nodes, even if all edges stay
ENDS = (("edge", "src"), ("edge", "dst"))
# columns of rows of different lengths: the ending of their bounds, and those of their entries
LISTS = {".indptr": (".data", ".indices"), ".offsets": (".bytes",)}


@checked
def transform_store(
    store: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str],
    nodes: str | np.ndarray | None = None,
    component: str = "all",
    self_loops: str = "keep",
    duplicates: str = "keep",
    reverse: str = "keep",
    comm: Comm | None = None,
) -> Path:
    """Make a store of some nodes and edges of another one, in this order of steps: nodes, self
    loops, duplicates, reverse edges.

    Nodes and edges keep their order, and nodes their original ids; they are numbered anew from 0.
    Each worker reads and writes a slice. Columns that do not change are not copied: both stores
    share their files.

    Args:
        store: The folder of the store.
        to: The folder to make; it must be missing or empty.
        nodes: The nodes that are kept, with the edges between them: a mask [n_nodes] bool, the same
            on every rank, a .npy file of one, or "train", "val" or "test"; None for all.
        component: "largest" keeps the largest weakly connected component; of several, that with the
            lowest node.
        self_loops: "drop" leaves out edges from a node to itself.
        duplicates: "drop" keeps the first of several edges with the same ends and relation, with
            its values.
        reverse: "add" adds the reverse of each edge that has none of its relation, behind all
            others, with a copy of the values of the first edge with these ends.
        comm: The workers; by default those that mpiexec started.

    Returns:
        The folder.

    Raises:
        ConfigError: An option has no such value; options do not fit together or the store; the
            folder has content.
        DataError: ``nodes`` is no mask of the nodes, or no node is left.
        FormatError: The store is damaged, or the new one cannot be written.

    Collective: all ranks of comm.
    """
    comm = start() if comm is None else comm
    options = {
        "component": component,
        "self_loops": self_loops,
        "duplicates": duplicates,
        "reverse": reverse,
    }
    mask = None
    with comm.agreed():
        _check(Path(store), options, nodes)
        columns = StoreColumns(Path(store))
        graph = columns.graph()
        fewer_nodes = nodes is not None or component == "largest"
        other_edges = fewer_nodes or (self_loops, duplicates, reverse) != ("keep", "keep", "keep")
        _check_types(columns, graph, fewer_nodes, other_edges)
        if nodes is not None:
            mask = chosen(graph, nodes, comm)
    if component == "largest":
        mask = largest_component(graph, comm)
    subset = NodeSubset(comm, mask, graph.n_nodes)
    if not subset.total:
        raise DataError(f"{store}: nodes leaves no node; give a mask with true values")
    edges = RewrittenEdges(
        graph=graph,
        comm=comm,
        nodes=subset,
        self_loops=self_loops,
        duplicates=duplicates,
        reverse=reverse,
    )
    with StoreWriter(to, comm) as writer:
        _write(columns=columns, graph=graph, nodes=subset, edges=edges, writer=writer, comm=comm)
        classes = graph.label_kind in ("none", "classes")
        meta = {
            **columns.manifest.meta,
            "transform": {"nodes_dropped": graph.n_nodes - subset.total, **edges.counts},
        }
        writer.finish(
            subset.total,
            edges.total,
            meta,
            name=graph.name,
            n_classes=graph.n_classes if classes else None,
            multilabel=graph.multilabel,
        )
    return writer.folder


def _check(store: Path, options: dict[str, str], nodes: Any) -> None:
    for key, value in options.items():
        if value not in CHOICES[key]:
            raise ConfigError(
                f"transform_store: {key} is {' or '.join(CHOICES[key])}, got {value!r}"
            )
    if nodes is not None and options["component"] == "largest":
        raise ConfigError(
            "transform_store: component=largest is that of the whole graph; choose the nodes in one"
            " step and the component in the next"
        )
    if not is_store(store):
        raise FormatError(f"{store} is no store; make one with graphtheta import")


def _check_types(columns: StoreColumns, graph: Graph, fewer_nodes: bool, other_edges: bool) -> None:
    """Refuse what does not regard types."""
    store = columns.folder
    # in stores of earlier versions the attributes of all relations are one array
    if other_edges and any(c.name == "attr.type" for c in columns.manifest.columns):
        raise ConfigError(
            f"{store}: the attributes of each relation are stored apart, and edges cannot be left"
            " out or added in the store; change the graph, with without_self_loops() or"
            " keep_edges() for example, and import that"
        )
    if isinstance(graph.x, TypedRows) and fewer_nodes:
        raise ConfigError(
            f"{store}: the features of each type are stored apart, and nodes cannot be left out in"
            " the store; use subset() or largest_component() of the graph, and import that"
        )


def _write(
    columns: StoreColumns,
    graph: Graph,
    nodes: NodeSubset,
    edges: RewrittenEdges,
    writer: StoreWriter,
    comm: Comm,
) -> None:
    """Write all columns.

    Collective: all ranks of comm.
    """
    sides: dict[str, tuple[bool, RunBlocks, int]] = {
        "node": (nodes.all, nodes.runs, nodes.total),
        "edge": (edges.same, edges.runs, edges.total),
    }
    same_ends = nodes.all and edges.same
    for c in columns.manifest.columns:
        if (c.group, c.name) in ENDS and not same_ends:
            continue
        same, blocks, n = sides[c.group]
        ending = (
            ""
            if c.name.startswith("columns.")
            else next((part for part in PARTS if c.name.endswith(part)), "")
        )
        if same or ending in (".scale", ".zero"):
            writer.link(columns.folder / c.file, c)
        elif ending == ".shape":
            write_once(
                writer=writer,
                comm=comm,
                group=c.group,
                name=c.name,
                values=np.array([n, _values(columns, c.group, c.name)[1]], np.int64),
            )
        elif ending in LISTS:
            base = c.name.removesuffix(ending)
            parts = [
                (base + part, _values(columns, c.group, base + part)) for part in LISTS[ending]
            ]
            write_lists(
                writer=writer,
                comm=comm,
                group=c.group,
                bounds=(c.name, _values(columns, c.group, c.name)),
                parts=parts,
                blocks=blocks,
                n=n,
            )
        elif not ending:
            write_rows(
                writer=writer,
                comm=comm,
                group=c.group,
                name=c.name,
                values=_values(columns, c.group, c.name),
                blocks=blocks,
                n=n,
            )
    if not same_ends:
        _write_ends(edges, writer, comm)
    if not nodes.all and graph.node_ids is None:
        _write_numbers(nodes, writer, comm)


def _write_numbers(nodes: NodeSubset, writer: StoreWriter, comm: Comm) -> None:
    """Write the old numbers of the nodes as their ids.

    Collective: all ranks of comm.
    """
    ids = writer.column("node", "ids", nodes.total, (), np.int64)
    with comm.agreed():
        for rows, runs in nodes.runs():
            write_runs(ids, np.arange(rows.start, rows.stop), runs)


def _write_ends(edges: RewrittenEdges, writer: StoreWriter, comm: Comm) -> None:
    """Write the new numbers of the ends of the edges.

    Collective: all ranks of comm.
    """
    src, dst = (writer.column("edge", name, edges.total, (), np.int64) for name in ("src", "dst"))
    with comm.agreed():
        for rows, runs in edges.runs():
            ends = edges.ends(rows)
            for (begin, picked), values in zip(runs, (ends, reversed(ends)), strict=True):
                for column, numbers in zip((src, dst), values, strict=True):
                    column.write(begin, numbers[picked])


def _values(columns: StoreColumns, group: str, name: str) -> np.ndarray:
    values = columns.array(group, name)
    assert values is not None
    return values
