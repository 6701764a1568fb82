"""``gt.import_graph``: tables of edges and nodes into a store, by all workers together.

Steps: each worker reads its share of the tables into a spool; nodes are numbered; ends of edges
become numbers; duplicates and missing reverse edges are found; everything is written. Between
reading and writing, a worker holds its share of the ids and a few blocks of rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.base.arguments import checked
from graphtheta.base.atomic import remove_folder
from graphtheta.base.console import say
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.start import start
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.typed import RELATION, relation_of_columns
from graphtheta.graph.store.writer import StoreWriter
from graphtheta.importing.fields.base import Field
from graphtheta.importing.fields.named import require, word_of
from graphtheta.importing.fields.one_hot import merged
from graphtheta.importing.fields.sparse import SparseRows
from graphtheta.importing.ingest.ids import IdDirectory, empty
from graphtheta.importing.ingest.nodes import NodeTable, NumberedNodes, SortedIds
from graphtheta.importing.ingest.opening import Tables, open_tables
from graphtheta.importing.ingest.options import (
    OF_EDGES,
    OF_NODES,
    ImportOptions,
    checked_types,
    edge_fields,
    id_kind,
    node_fields,
)
from graphtheta.importing.ingest.pairs import mark
from graphtheta.importing.ingest.recipe import (
    KEY,
    Recipe,
    of_recipe,
    options_like,
    recipe_of,
    used_columns,
)
from graphtheta.importing.ingest.spool import Spool, begins, in_step
from graphtheta.importing.ingest.tables import ReadTable
from graphtheta.importing.ingest.write import (
    FieldWriter,
    TypedPart,
    dense_parts,
    sparse_parts,
    write_ids,
    write_runs,
    write_sparse,
    write_typed,
)
from graphtheta.importing.tables.arrow import TEXT, integers, one
from graphtheta.importing.tables.faults import SHOWN
from graphtheta.importing.tables.progress import ReadProgress
from graphtheta.importing.tables.source import Source

# files of rows that wait
WAITING = re.compile(r"\w+")


@checked
def import_graph(
    edges: Any,
    nodes: Any = None,
    *,
    to: str | os.PathLike[str],
    like: str | os.PathLike[str] | None = None,
    comm: Comm | None = None,
    separator: str | None = None,
    header: bool = True,
    progress: bool = False,
    **options: Any,
) -> Path:
    """Import tables of edges and nodes as a store, which ``gt.load`` reads.

    Args:
        edges: CSV, TSV, Parquet, Arrow or Feather files: a path, a folder, a pattern such as
            ``part-*.csv.gz`` or a list of paths; a table of pyarrow, pandas or Polars, or a dict of
            arrays; it may have no rows, if there are nodes; ``gt.Query``, an executed cursor, a
            relation of DuckDB, or anything else that gives Arrow batches; or a whole graph: an npz
            or Matrix Market file, a SciPy matrix, a networkx graph, a ``Data`` or ``Batch`` object
            of PyG, a DGL graph, or the raw folder of an OGB dataset.
        nodes: A table of the nodes, of the same kinds; without it, nodes are the ids that edges
            have.
        to: The folder to make; it must be missing or empty.
        like: A store of other tables, or the folder of a run that was trained on one: options are
            those of its import, and names, classes, scales and what stands for missing values are
            taken and not found anew. Names that it does not know are of its category "(other)" if
            it has one, and else rows of zeros.
        comm: The workers; by default those that mpiexec started.
        separator: Character between columns of text files; by default found in the first line.
        header: Whether the first line of text files names the columns; otherwise their names are 0,
            1, 2, ...
        progress: Whether to show progress and a summary on rank 0.
        **options: The flags of ``graphtheta import --edges`` (page Importing tables) with _ for -.
            Columns by name: src, dst, id ("src", "dst", "id"; with ``id=None``, row i is node i),
            features, one_hot, or sparse_features (and n_features), label, split, node_columns,
            edge_attr, edge_weight, edge_label, edge_split, edge_columns. n_nodes: ids are the
            numbers 0..n_nodes-1. id_type: "int" or "text". types: "int", "float", "text", "bool" or
            "time" by column. scale: "none" or "standard". missing: "error", "mean", "mode", "zero"
            or "own", for all columns or by column. missing_indicator: whether missing values are
            marked by features of 0 and 1. rename: new names of columns by the old ones. duplicates,
            self_loops: "keep" or "drop". reverse: "keep" or "add". on_bad_row: "fail" or "skip".
            name: name of the graph.

    Returns:
        The folder.

    Raises:
        ConfigError: Unknown options, or other ones than ``like`` decides; the folder has content;
            ``like`` is no store of tables, or one of an earlier version.
        DataError, ShapeError: Bad rows, with their files and lines; columns that are missing or do
            not fit.
        FormatError: A file is missing, damaged or of another format, which is named, or the store
            cannot be written.

    Collective: all ranks of comm.
    """
    comm = start() if comm is None else comm
    unknown = sorted(set(options) - set(ImportOptions.__dataclass_fields__))
    if unknown:
        raise ConfigError(
            f"import_graph has no option '{unknown[0]}'; it has"
            f" {', '.join(ImportOptions.__dataclass_fields__)}"
        )
    with comm.agreed():
        recipe, store = (None, "") if like is None else recipe_of(like)
        tables = open_tables(
            edges=edges,
            nodes=nodes,
            options=ImportOptions(**options)
            if recipe is None
            else options_like(options, recipe, store),
            separator=separator,
            header=header,
            only_tables=recipe is not None,
        )
        lacking = list[str]()
        if recipe is not None:
            tables, lacking = of_recipe(tables, options, recipe)
    with StoreWriter(to, comm) as writer:
        folder = writer.waiting_folder()
        try:
            _Import(
                tables=tables,
                writer=writer,
                comm=comm,
                folder=folder,
                progress=ReadProgress(progress and comm.rank == 0),
                like=(recipe, store, lacking),
            ).run()
        finally:
            _remove_waiting(folder)
    return writer.folder


class _Import:
    """One import.

    Args:
        tables: The tables, and what to do with them.
        writer: The store.
        comm: The workers.
        folder: Folder for rows that wait.
        progress: Shows how far it is.
        like: The recipe of another import, if its fields are taken; its store; and the labels and
            splits that the tables lack.
    """

    def __init__(
        self,
        tables: Tables,
        writer: StoreWriter,
        comm: Comm,
        folder: Path,
        progress: ReadProgress,
        like: tuple[Recipe | None, str, list[str]],
    ):
        self._recipe, self._store, self._lacking = like
        # words of the types of columns, by table
        self._words: dict[str, dict[str, str]] = {}
        self._tables = tables
        self._options = tables.options
        self._writer = writer
        self._comm = comm
        self._progress = progress
        self._folder = folder
        self._counts: dict[str, int] = {}

    def run(self) -> None:
        """All steps.

        Collective: all ranks of comm.
        """
        with self._comm.agreed():
            edges, nodes = self._open()
        numbered = self._number(edges, nodes)
        numbers = self._resolve(edges, numbered.directory)
        if not numbered.n:
            raise DataError(
                f"{edges.name}: there are no rows; check the file, or give a table of the nodes"
                " (--nodes) or their number (--n-nodes)"
            )
        self._write_nodes(numbered)
        n_edges = self._write_edges(edges, numbers, numbered.n)
        fields = [*edges.fields, *numbered.fields]
        meta: dict[str, Any] = {
            **self._tables.meta,
            "source": self._tables.source,
            "import": self._counts
            | counted("edge", edges.fields)
            | counted("node", numbered.fields),
        }
        labels = dict(self._tables.labels)
        if self._tables.of_tables:
            learnt = {
                table: {
                    field.key: field.learnt() for field in of_table if field.key and field.learnt()
                }
                for table, of_table in (("edges", edges.fields), ("nodes", numbered.fields))
            }
            meta[KEY] = Recipe.of(self._options, self._words, learnt).model_dump()
        for field in fields:
            for key, value in field.meta().items():
                meta[key] = (
                    {**meta[key], **value} if isinstance(value, dict) and key in meta else value
                )
            labels |= field.labels()
        name = self._options.name or self._tables.name
        _remove_waiting(self._folder)
        self._writer.finish(numbered.n, n_edges, meta, name=name, **labels)
        if self._progress.shown:
            counts = "".join(
                f", {n:,} {what.replace('_', ' ')}" for what, n in self._counts.items() if n
            )
            say(f"{numbered.n:,} nodes, {n_edges:,} edges{counts}; in {self._writer.folder}")
            for line in self._told(edges.fields, numbered.fields):
                say(line)

    def _open(self) -> tuple[ReadTable, ReadTable | None]:
        options = self._options
        source = self._tables.edges
        nodes = self._tables.nodes
        if options.scale != "none" and (nodes is None or not options.features):
            raise ConfigError(
                f"scale={options.scale} (--scale) scales features, but none are named; name them"
                " with --features"
            )
        names = [name for table in (source, nodes) if table is not None for name in table.types()]
        require(list(options.types), dict.fromkeys(names, TEXT), self._tables.source, "--types")
        self._kind = id_kind(options, source, nodes)
        edges = self._table("edges", source, OF_EDGES, edge_fields)
        if nodes is None:
            return edges, None
        return edges, self._table("nodes", nodes, OF_NODES, node_fields)

    def _table(
        self, table: str, source: Source, keys: Sequence[str], make: Callable[..., list[Field]]
    ) -> ReadTable:
        """A table that is to be read, with its fields, which take what those of the other import
        learnt.

        Args:
            table: "edges" or "nodes".
            source: The table.
            keys: Options that name its columns.
            make: Makes its fields.
        """
        options = self._options
        may_be_empty = table == "edges"
        types = checked_types(
            options,
            source,
            keys,
            may_be_empty=may_be_empty,
            words={} if self._recipe is None else self._recipe.types.get(table),
            store=self._store,
        )
        words = {column: word_of(types[column]) for column in used_columns(options, table)}
        self._words[table] = {column: word for column, word in words.items() if word}
        fields = make(options, source, types, self._kind, self._recipe is not None)
        if self._recipe is not None:
            for field in fields:
                if learnt := self._recipe.fields[table].get(field.key):
                    field.take(learnt, self._store)
        return ReadTable(source, fields, self._folder / table, may_be_empty=may_be_empty)

    def _told(self, edges: list[Field], nodes: list[Field]) -> list[str]:
        """What became of values that the tables do not have, or that the other store does not know,
        a line each.
        """
        counts = counted("edge", edges) | counted("node", nodes)
        lines = [
            f"{what.replace('_', ' ')}: " + ", ".join(f"{name} {n:,}" for name, n in of.items())
            for what, of in counts.items()
        ]
        for table, fields in (("edges", edges), ("nodes", nodes)):
            lines += [
                f"means and most frequent values of {table} are those of {rows} rows"
                for rows in sorted({rows for field in fields for rows in field.over()})
            ]
        if self._recipe is not None:
            lines.append(f"columns, names, scale and missing values are those of {self._store}")
        if self._lacking:
            lines.append(f"without {', '.join(self._lacking)}, which {self._store} has")
        return lines

    def _number(self, edges: ReadTable, nodes: ReadTable | None) -> NumberedNodes:
        """Read the tables and number the nodes.

        Collective: all ranks of comm.
        """
        comm = self._comm
        options = self._options
        numbered: NumberedNodes | None = None
        if nodes is not None:
            nodes.read(comm, self._progress, options.skip and options.id is not None)
            table = NodeTable(comm, nodes, options, self._kind)
            self._counts["bad_node_rows"] = table.bad
            numbered = table
        edges.read(comm, self._progress, options.skip)
        if numbered is None and options.n_nodes is not None:
            return NumberedNodes(options.n_nodes)
        if numbered is None:
            self._progress.step("numbering nodes")
            ends = (
                pa.concat_arrays([one(table.column(options.src)), one(table.column(options.dst))])
                for table in edges.spool.blocks()
            )
            return SortedIds(comm, ends, self._kind)
        return numbered

    def _resolve(self, edges: ReadTable, directory: NumberedNodes | IdDirectory) -> Spool:
        """Numbers of the ends of edges, -1 for edges that are left out.

        Collective: all ranks of comm.
        """
        comm = self._comm
        options = self._options
        self._progress.step("resolving ends of edges")
        numbers = Spool(self._folder / "numbers")
        loops = 0
        for i, table in enumerate(in_step(comm, edges.spool.blocks())):
            both = (
                empty(self._kind)
                if table is None
                else pa.concat_arrays(
                    [one(table.column(name)) for name in (options.src, options.dst)]
                )
            )
            src, dst = np.split(directory.find(both), 2)
            near = self._but_for_zeros(directory, both, src, dst)
            with comm.agreed():
                if table is not None:
                    for name, ends in ((options.src, src), (options.dst, dst)):
                        first = ends < 0 if name == options.src else (ends < 0) & (src >= 0)
                        edges.add_fault(
                            i,
                            np.flatnonzero(first),
                            lambda row, name=name, table=table, near=near: no_node(
                                name, table.column(name)[row].as_py(), near
                            ),
                        )
                    gone = (src < 0) | (dst < 0)
                    if options.self_loops == "drop":
                        loops += int((~gone & (src == dst)).sum())
                        gone |= src == dst
                    numbers.add(
                        edges.spool.at[i],
                        pa.table({"src": np.where(gone, -1, src), "dst": np.where(gone, -1, dst)}),
                    )
        numbers.close()
        self._counts["bad_edge_rows"] = edges.finish(
            comm,
            options.skip,
            lambda: (
                (table, _ends(pair)[0] >= 0)
                for table, pair in zip(edges.spool.blocks(), numbers.blocks(), strict=True)
            ),
        )
        self._counts["self_loops_dropped"] = int(comm.all_sum(np.array([loops]))[0])
        return numbers

    def _but_for_zeros(
        self, directory: NumberedNodes | IdDirectory, both: Any, src: np.ndarray, dst: np.ndarray
    ) -> dict[str, str]:
        """Ids of nodes that the first unknown ids are but for zeros in front, for messages.

        Args:
            directory: Finds nodes.
            both: Ids of sources, then of destinations, [2 n].
            src, dst: What it found, [n] each.

        Collective: all ranks of comm.
        """
        if self._options.skip or self._kind != TEXT or not isinstance(directory, IdDirectory):
            return {}
        first = [np.flatnonzero(ends < 0)[:SHOWN] for ends in (src, dst)]
        unknown = both.take(pa.array(np.concatenate((first[0], len(src) + first[1]))))
        if not self._comm.all_max(np.array([len(unknown)]))[0]:
            return {}
        return directory.but_for_zeros(unknown.to_pylist())

    def _write_nodes(self, numbered: NumberedNodes) -> None:
        """Write ids and fields of the nodes.

        Collective: all ranks of comm.
        """
        write_ids(self._writer, self._comm, numbered.n, numbered.ids, self._kind)
        fields = FieldWriter(self._writer, "node", numbered.n, numbered.fields)
        with self._comm.agreed():
            for table, begin, stay in numbered.blocks():
                fields.write(table, [(begin, stay)])
        for field in numbered.fields:
            if isinstance(field, SparseRows) and self._tables.widths:
                write_typed(
                    writer=self._writer,
                    comm=self._comm,
                    column=("node", "x"),
                    n=numbered.n,
                    parts=partial(sparse_parts, numbered.blocks, field, self._tables.widths),
                    widths=self._tables.widths,
                )
            elif isinstance(field, SparseRows):
                write_sparse(
                    writer=self._writer,
                    comm=self._comm,
                    n=numbered.n,
                    blocks=numbered.blocks,
                    field=field,
                )

    def _write_edges(self, edges: ReadTable, numbers: Spool, n_nodes: int) -> int:
        """Write ends and fields of the edges; returns their number.

        Collective: all ranks of comm.
        """
        comm = self._comm
        stay, added = self._runs(edges, numbers, n_nodes)
        at = edges.spool.at
        first, n = begins(comm, at, [int(rows.sum()) for rows in stay])
        more, extra = begins(comm, at, [int(rows.sum()) for rows in added])
        self._counts["reverse_added"] = extra
        self._progress.step(f"writing {n + extra:,} edges")
        src, dst = (
            self._writer.column("edge", name, n + extra, (), np.int64) for name in ("src", "dst")
        )
        apart = [f for f in edges.fields if self._tables.edge_widths and f.key == "attr"]
        rest = [f for f in edges.fields if f not in apart]
        fields = FieldWriter(self._writer, "edge", n + extra, rest)
        with comm.agreed():
            for i, (table, pair) in enumerate(
                zip(edges.spool.blocks(), numbers.blocks(), strict=True)
            ):
                runs = [(first[i], stay[i]), (n + more[i], added[i])]
                fields.write(table, runs)
                ends = _ends(pair)
                for column, there, back in ((src, *ends), (dst, *reversed(ends))):
                    write_runs(column, there, runs[:1])
                    write_runs(column, back, runs[1:])

        def parts(field: Field) -> Iterator[TypedPart]:
            widths, loops = self._tables.edge_widths, self._tables.loop_width
            n_relations = len(self._tables.meta.get("relations", ())) or len(widths)
            for i, table in enumerate(edges.spool.blocks()):
                (rows,) = field.rows(table)
                codes = integers(one(table.column(RELATION)))
                kind = relation_of_columns(codes, n_relations, len(widths))
                for begin, picked in ((first[i], stay[i]), (n + more[i], added[i])):
                    yield dense_parts(begin, rows[picked], kind[picked], widths, loops)

        for field in apart:
            write_typed(
                writer=self._writer,
                comm=comm,
                column=("edge", "attr"),
                n=n + extra,
                parts=partial(parts, field),
                widths=self._tables.edge_widths,
                rest=self._tables.loop_width,
            )
        return n + extra

    def _runs(
        self, edges: ReadTable, numbers: Spool, n_nodes: int
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """For each block which rows are written, and which reversed rows, [n] bool each.

        Collective: all ranks of comm.
        """
        options = self._options
        stay = [_ends(table)[0] >= 0 for table in numbers.blocks()]
        one_way = [np.broadcast_to(np.False_, len(rows)) for rows in stay]
        if options.duplicates == "drop" or options.reverse == "add":
            self._progress.step("comparing edges")
            coded = [field for field in edges.fields if field.key == f"columns.{RELATION}"]
            codes = (coded[0].rows(table)[0] if coded else None for table in edges.spool.blocks())
            blocks = (
                (begin, *_ends(table), code)
                for begin, table, code in zip(edges.begins, numbers.blocks(), codes, strict=True)
            )
            marks = mark(self._comm, blocks, n_nodes, bool(coded))
            if options.duplicates == "drop":
                stay = [rows & ~flags[:, 0] for rows, flags in zip(stay, marks, strict=True)]
                again = sum(int(flags[:, 0].sum()) for flags in marks)
                self._counts["duplicates_dropped"] = int(self._comm.all_sum(np.array([again]))[0])
            if options.reverse == "add":
                one_way = [flags[:, 1] for flags in marks]
        return stay, one_way


def no_node(column: str, value: Any, near: dict[str, str]) -> str:
    """What is wrong with an end of an edge that is no node.

    Args:
        column: The column of the end.
        value: Its id.
        near: Ids of nodes that unknown ids are but for zeros in front.
    """
    other = f", but one has '{near[value]}'" if value in near else ""
    return f"column '{column}': no node has the id '{value}'{other}"


def counted(table: str, fields: list[Field]) -> dict[str, dict[str, int]]:
    """What fields count of a table, as ``missing_node_values`` and ``unknown_node_names``."""
    counts = merged([field.counts() for field in fields])
    return {what.replace("_", f"_{table}_"): of for what, of in counts.items()}


def _remove_waiting(folder: Path) -> None:
    """Remove the files of rows that waited."""
    with suppress(OSError):
        remove_folder(folder, WAITING)


def _ends(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of sources and destinations."""
    return integers(one(table.column("src"))), integers(one(table.column("dst")))
