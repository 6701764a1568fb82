"""The entrances of a graph, each of which takes the same values."""

from __future__ import annotations

import bz2
import gzip
import json
import sqlite3
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.graph.store.from_graph import write_store

MASKS = ("train", "val", "test")


class DGL:
    """What is read of a DGL graph."""

    def __init__(self, src, dst, n, nodes, edges):
        self.ntypes = ["_N"]
        self.canonical_etypes = [("_N", "_E", "_N")]
        self.ndata = nodes
        self.edata = edges
        self.edges = lambda: (src, dst)
        self.num_nodes = lambda: n


class TypedDGL:
    """What is read of a DGL graph of several types."""

    def __init__(self, counts, ends, nodes, edges):
        self.ntypes = list(counts)
        self.canonical_etypes = list(ends)
        self.num_nodes = lambda kind: counts[kind]
        self.edges = Relations(ends, edges)
        self.nodes = {kind: SimpleNamespace(data=nodes.get(kind, {})) for kind in counts}


class Relations:
    """``edges`` of a DGL graph of several types: called for ends, indexed for data."""

    def __init__(self, ends, data):
        self._ends = ends
        self._data = data

    def __call__(self, etype):
        return self._ends[etype]

    def __getitem__(self, relation):
        return SimpleNamespace(data=self._data.get(relation, {}))


class PyG(SimpleNamespace):
    """What is read of a ``Data`` object of PyG."""

    y = None

    def node_attrs(self):
        return list(self.of_nodes)

    def edge_attrs(self):
        return ["edge_index", *self.of_edges]

    def __getitem__(self, name):
        return getattr(self, name)


def missing(value: Any) -> bool:
    """Whether a value says that there is none."""
    return value is None or (isinstance(value, float) and value != value)


def plain(x):
    """Rows as Python values, None for an unknown label of a table."""
    return [None if missing(v) else v for v in np.asarray(x).tolist()]


def listed(x):
    """Rows as Python values."""
    return np.asarray(x).tolist()


def arrow(x):
    """Rows [n] or [n, k] as a column of pyarrow."""
    x = np.asarray(x)
    if x.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(x)), x.shape[1])
    if x.dtype.kind == "M":
        return pa.array(x)
    kind = None if x.dtype.kind == "O" else pa.from_numpy_dtype(x.dtype)
    return pa.array(plain(x), pa.string() if x.dtype.kind in "UO" and not x.size else kind)


def table(columns):
    """A pyarrow table of arrays [n] and [n, d]."""
    return pa.table({name: arrow(x) for name, x in columns.items()})


def apart(name, x):
    """A column for each number of a row."""
    return (
        {name: x}
        if np.ndim(x) == 1
        else {f"{name}{k}": np.asarray(x)[:, k] for k in range(np.shape(x)[1])}
    )


def text_of(columns, separator=",", end="\n"):
    """Columns as the bytes of a text file: texts in quotes, nothing for what is missing."""

    def cell(value):
        if missing(value):
            return ""
        if isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return str(value).lower() if isinstance(value, bool) else str(value)

    values = [
        x.astype(str) if x.dtype.kind == "M" else x for x in map(np.asarray, columns.values())
    ]
    rows = zip(*(x.tolist() for x in values), strict=True)
    return "".join(separator.join(map(cell, row)) + end for row in (list(columns), *rows)).encode()


@dataclass
class Given:
    """Values of a graph, to be given in every form; by default those of a ring of four nodes.

    Attributes:
        folder: For files.
        y: Labels, [n] or [n, C]; texts or None where there is none. None for no labels.
        ids: Ids of the nodes; None for their numbers.
        n: Number of nodes.
        src, dst: Numbers of the ends of the edges.
        x, edge_attr, edge_weight: Values [n, d], [e, a] and [e], or None.
        masks: Masks by name.
        node_columns, edge_columns: Named columns: numbers, bools, texts or times.
    """

    folder: Path
    y: Any = None
    ids: Any = None
    n: int = 4
    src: Any = None
    dst: Any = None
    x: Any = None
    edge_attr: Any = None
    edge_weight: Any = None
    masks: dict[str, Any] = field(default_factory=dict)
    node_columns: dict[str, Any] = field(default_factory=dict)
    edge_columns: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        self.y = None if self.y is None else np.asarray(self.y)
        if self.src is None:
            self.src = np.arange(4)
            self.dst = (self.src + 1) % 4
        self._made = 0

    def kinds(self):
        """What the values have that not every entrance carries."""
        columns = [*self.node_columns.values(), *self.edge_columns.values()]
        letters = {np.asarray(x).dtype.kind for x in columns}
        rows = [self.x, self.y, *self.masks.values(), *self.node_columns.values()]
        found = {
            "ids": self.ids is not None,
            "names": self.y is not None and self.y.dtype.kind in "UO",
            "texts": bool(letters & set("UO")),
            "times": "M" in letters,
            "nodes": any(value is not None for value in rows),
            "edge values": self.edge_attr is not None or bool(self.edge_columns),
            "lists": any(np.ndim(x) > 1 for x in columns),
            "values of edges, and none": (
                not len(self.src)
                and (
                    self.edge_attr is not None
                    or self.edge_weight is not None
                    or bool(self.edge_columns)
                )
            ),
            "as many edges as nodes": bool(columns) and len(self.src) == self.n,
            "no weight but 1": (
                self.edge_weight is not None and (np.asarray(self.edge_weight) == 1).all()
            ),
        }
        return {kind for kind, has in found.items() if has}

    def entrances(self):
        """The entrances that carry these values."""
        return [name for name in EVERY if not self.kinds() & LACKS.get(name, set())]

    def fields(self):
        """The arguments of ``gt.Graph``."""
        meta: dict[str, Any] = {}
        y = self.y
        if y is not None and y.dtype.kind in "UO":
            meta["class_names"] = sorted({v for v in y.tolist() if v is not None})
            y = np.array([-1 if v is None else meta["class_names"].index(v) for v in y.tolist()])
        out = {
            "edge_index": (self.src, self.dst),
            "n_nodes": self.n,
            "x": self.x,
            "y": y,
            "node_ids": self.ids,
            "edge_attr": self.edge_attr,
            "edge_weight": self.edge_weight,
            **self.masks,
        }
        for group, columns in (("node", self.node_columns), ("edge", self.edge_columns)):
            out[f"{group}_columns"] = {}
            for name, x in columns.items():
                x = np.asarray(x)
                if x.dtype.kind == "U":
                    texts, x = np.unique(x, return_inverse=True)
                    meta.setdefault(f"{group}_categories", {})[name] = texts.tolist()
                elif x.dtype.kind == "M":
                    meta.setdefault(f"{group}_units", {})[name] = np.datetime_data(x.dtype)[0]
                    x = x.astype(np.int64)
                out[f"{group}_columns"][name] = x
        return {**out, "meta": meta}

    def tables(self, separate=False):
        """Columns of edges and nodes, and the options that name them.

        Args:
            separate: Whether each number of a row has a column of its own.
        """
        ids = np.arange(self.n) if self.ids is None else np.asarray(self.ids)
        edges = {"src": ids[self.src], "dst": ids[self.dst]}
        nodes: dict[str, Any] = {"id": ids}
        options: dict[str, Any] = {}

        def put(columns, option, name, x):
            if x is not None:
                new = apart(name, x) if separate else {name: np.asarray(x)}
                columns |= new
                options[option] = list(new)

        put(nodes, "features", "x", self.x)
        put(nodes, "label", "y", self.y)
        put(edges, "edge_attr", "attr", self.edge_attr)
        if self.edge_weight is not None:
            edges["w"] = self.edge_weight
            options["edge_weight"] = "w"
        nodes |= {**self.masks, **self.node_columns}
        edges |= self.edge_columns
        options |= {
            "split": list(self.masks),
            "node_columns": list(self.node_columns),
            "edge_columns": list(self.edge_columns),
        }
        return edges, nodes, options

    def at(self, name):
        """A new path."""
        self._made += 1
        return self.folder / f"{self._made}-{name}"

    def imported(self, *source, **options):
        made = gt.import_graph(*source, to=self.at("imported.store"), **options)
        return gt.load(made, split="stored")

    def arrays(self):
        return gt.Graph(**self.fields())

    def _npz(self):
        fields = self.fields()
        fields["edge_index"] = np.stack(fields["edge_index"])
        fields["meta"] = json.dumps(fields["meta"])
        for group in ("node_columns", "edge_columns"):
            fields |= {f"{group}.{name}": x for name, x in fields.pop(group).items()}
        path = self.at("g.npz")
        np.savez(path, **{name: x for name, x in fields.items() if x is not None})
        return path

    def npz(self):
        return gt.load(str(self._npz()), split="stored")

    def npz_imported(self):
        return self.imported(self._npz())

    def store(self):
        path = self.at("s.store")
        write_store(self.arrays(), path, SerialComm())
        return gt.load(path, split="stored")

    def graph_imported(self):
        return self.imported(self.arrays())

    def _text(self, name, pack=lambda data: data, **form):
        edges, nodes, options = self.tables(separate=True)
        paths = [self.at(name), self.at(name)]
        for path, columns in zip(paths, (edges, nodes), strict=True):
            path.write_bytes(pack(text_of(columns, **form)))
        texts = {
            name: "text"
            for name, x in (edges | nodes).items()
            if np.asarray(x).dtype.kind in "UO" and name not in ("src", "dst", "id")
        }
        kind = "text" if nodes["id"].dtype.kind == "U" else "int"
        return self.imported(*paths, types=texts, id_type=kind, **options)

    def csv(self):
        return self._text("t.csv")

    def csv_of_windows(self):
        return self._text("t.csv", lambda data: b"\xef\xbb\xbf" + data, end="\r\n")

    def tsv_gz(self):
        return self._text("t.tsv.gz", gzip.compress, separator="\t")

    def csv_bz2(self):
        return self._text("t.csv.bz2", bz2.compress)

    def _tables(self, convert, separate=False):
        edges, nodes, options = self.tables(separate)
        return self.imported(convert(table(edges)), convert(table(nodes)), **options)

    def arrow(self):
        return self._tables(lambda x: x)

    def parquet(self):
        return self._tables(partial(self._file, "t.parquet", pq.write_table))

    def feather(self):
        return self._tables(partial(self._file, "t.feather", feather.write_feather))

    def arrow_stream_file(self):
        return self._tables(partial(self._file, "t.arrow", write_stream))

    def reader(self):
        return self._tables(lambda x: pa.RecordBatchReader.from_batches(x.schema, x.to_batches()))

    def _file(self, name, write, columns):
        path = self.at(name)
        write(columns, str(path))
        return path

    def lists(self):
        edges, nodes, options = self.tables()
        listed = pa.table(
            {key: pa.array(plain(x), None if len(x) else pa.int64()) for key, x in nodes.items()}
        )
        return self.imported(table(edges), listed, **options)

    def columns(self):
        edges, nodes, options = self.tables()
        if self.y is not None and self.y.dtype.kind == "O":
            nodes["y"] = self.y.tolist()
        return self.imported(edges, nodes, **options)

    def pandas(self):
        pandas = pytest.importorskip("pandas")
        return self._tables(
            lambda x: pandas.DataFrame(x.to_pandas(types_mapper=nullable)), separate=True
        )

    def polars(self):
        return self._tables(pytest.importorskip("polars").from_arrow)

    def polars_file(self):
        polars = pytest.importorskip("polars")
        write = lambda x, path: polars.from_arrow(x).write_ipc(path)
        return self._tables(partial(self._file, "t.arrow", write))

    def polars_codes(self):
        polars = pytest.importorskip("polars")
        coded = polars.selectors.string().cast(polars.Categorical)
        return self._tables(lambda x: polars.from_arrow(x).with_columns(coded))

    def duckdb(self):
        connection = pytest.importorskip("duckdb").connect()

        def query(x):
            name = f"t{self.at('').name[:-1]}"
            connection.register("given", x)
            connection.execute(f"create table {name} as select * from given")
            return gt.Query(connection, f"select * from {name}")

        return self._tables(query)

    def sqlite(self):
        connection = sqlite3.connect(":memory:")

        def query(x):
            name = f"t{self.at('').name[:-1]}"
            connection.execute(f"create table {name} ({', '.join(map(repr, x.column_names))})")
            rows = zip(*(column.to_pylist() for column in x.columns), strict=True)
            marks = ", ".join("?" * x.num_columns)
            connection.executemany(f"insert into {name} values ({marks})", rows)
            return gt.Query(connection, f"select * from {name}")

        return self._tables(query, separate=True)

    def networkx(self):
        _, _, options = self.tables()
        edges, nodes, _ = self.tables()
        return self.imported(self._networkx(edges, nodes), **options)

    def from_networkx(self):
        fields = self.fields()
        edges = {
            name: x
            for name, x in (("attr", self.edge_attr), ("w", self.edge_weight))
            if x is not None
        }
        nodes = {name: fields[name] for name in "xy" if fields[name] is not None}
        ids = np.arange(self.n) if self.ids is None else np.asarray(self.ids)
        ends = {"src": ids[self.src], "dst": ids[self.dst]}
        g = self._networkx(
            ends | edges | fields["edge_columns"], {"id": ids} | nodes | fields["node_columns"]
        )
        return gt.Graph.from_networkx(
            g,
            x="x" if "x" in nodes else None,
            y="y" if "y" in nodes else None,
            edge_attr="attr" if "attr" in edges else None,
            edge_weight="w" if "w" in edges else None,
            node_columns=list(self.node_columns),
            edge_columns=list(self.edge_columns),
            meta=fields["meta"],
            **self.masks,
        )

    def _networkx(self, edges, nodes):
        g = nx.MultiDiGraph()
        rows = [
            dict(zip(nodes, row, strict=True))
            for row in zip(*map(listed, nodes.values()), strict=True)
        ]
        for row in rows:
            g.add_node(row.pop("id"), **row)
        for row in zip(*map(listed, edges.values()), strict=True):
            values = dict(zip(edges, row, strict=True))
            g.add_edge(values.pop("src"), values.pop("dst"), **values)
        return g

    def scipy(self):
        return self.imported(self._matrix())

    def from_scipy(self):
        return gt.Graph.from_scipy(self._matrix())

    def matrix_market(self):
        path = self.at("g.mtx")
        mmwrite(path, self._matrix(), symmetry="general")
        return self.imported(path)

    def _matrix(self):
        weight = np.ones(len(self.src)) if self.edge_weight is None else self.edge_weight
        return sp.coo_array((weight, (self.src, self.dst)), (self.n, self.n))

    def _values(self, nodes, edges):
        """Values of nodes and edges by the names that a library has for them."""
        fields = self.fields()
        own = {
            nodes.get(key, key): fields[key]
            for key in ("x", "y", *MASKS)
            if fields.get(key) is not None
        }
        of_edges = {
            edges.get(key, key): fields[key]
            for key in ("edge_attr", "edge_weight")
            if fields[key] is not None
        }
        return own | fields["node_columns"], of_edges | fields["edge_columns"]

    def pyg(self):
        return self.imported(self._pyg())

    def from_pyg(self):
        return gt.from_pyg(self._pyg())

    def _pyg(self):
        nodes, edges = self._values({mask: f"{mask}_mask" for mask in MASKS}, {})
        ends = np.stack((self.src, self.dst))
        names = {"of_nodes": list(nodes), "of_edges": list(edges)}
        return PyG(edge_index=ends, num_nodes=self.n, **names, **nodes, **edges)

    def real_pyg(self):
        return self.imported(self._real_pyg())

    def from_real_pyg(self):
        return gt.from_pyg(self._real_pyg())

    def _real_pyg(self):
        torch = pytest.importorskip("torch")
        data = pytest.importorskip("torch_geometric.data")
        nodes, edges = self._values({mask: f"{mask}_mask" for mask in MASKS}, {})
        values = {name: torch.tensor(np.asarray(x)) for name, x in (nodes | edges).items()}
        ends = torch.tensor(np.stack((self.src, self.dst)))
        return data.Data(edge_index=ends, num_nodes=self.n, **values)

    def dgl(self):
        return self.imported(self._dgl())

    def from_dgl(self):
        return gt.from_dgl(self._dgl())

    def _dgl(self):
        nodes, edges = self._values(
            {"x": "feat", "y": "label", **{mask: f"{mask}_mask" for mask in MASKS}},
            {"edge_attr": "feat", "edge_weight": "weight"},
        )
        return DGL(self.src, self.dst, self.n, nodes, edges)


@dataclass
class GivenTypes:
    """Values of a graph of several types, to be given in every form.

    Attributes:
        folder: For files.
        counts: Number of nodes of each type.
        ends: Numbers of the ends of the edges of each relation, within their types.
        x, y: Features and labels by type.
        masks, node_columns: Values by name and then by type.
        edge_columns: Values by name and then by relation.
    """

    folder: Path
    counts: dict[str, int]
    ends: dict[Any, Any]
    x: dict[str, Any] = field(default_factory=dict)
    y: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, Any] = field(default_factory=dict)
    node_columns: dict[str, Any] = field(default_factory=dict)
    edge_columns: dict[str, Any] = field(default_factory=dict)

    at = Given.at
    imported = Given.imported
    _made = 0

    def entrances(self):
        """The entrances that carry these values."""
        several = len(self.counts) > 1 or len(self.ends) > 1
        every = ["store", "graph_imported", "pyg", "from_pyg", "real_pyg", "from_real_pyg"]
        return [*every, *["dgl", "from_dgl"] * several]

    def arrays(self):
        values = {"x": self.x or None, "y": self.y or None, **self.masks}
        columns = {"node_columns": self.node_columns, "edge_columns": self.edge_columns}
        return gt.Graph(self.ends, self.counts, **values, **columns)

    store = Given.store
    graph_imported = Given.graph_imported

    def _of_nodes(self, x, y):
        """Values of the nodes of each type, by the names that a library has for them."""
        named = {
            x: self.x,
            y: self.y,
            **{f"{mask}_mask": rows for mask, rows in self.masks.items()},
            **self.node_columns,
        }
        return {
            kind: {name: np.asarray(rows[kind]) for name, rows in named.items() if kind in rows}
            for kind in self.counts
        }

    def _of_edges(self):
        """Values of the edges of each relation."""
        return {
            key: {name: rows[key] for name, rows in self.edge_columns.items() if key in rows}
            for key in self.ends
        }

    pyg = Given.pyg
    from_pyg = Given.from_pyg
    real_pyg = Given.real_pyg
    from_real_pyg = Given.from_real_pyg
    dgl = Given.dgl
    from_dgl = Given.from_dgl

    def _pyg(self):
        return TypedPyG(self.counts, self.ends, self._of_nodes("x", "y"), self._of_edges())

    def _real_pyg(self):
        torch = pytest.importorskip("torch")
        data = pytest.importorskip("torch_geometric.data")
        found = data.HeteroData()
        for kind, values in self._of_nodes("x", "y").items():
            found[kind].num_nodes = self.counts[kind]
            for name, rows in values.items():
                found[kind][name] = torch.tensor(rows)
        for key, pair in self.ends.items():
            found[key].edge_index = torch.tensor(np.stack(pair))
            for name, rows in self._of_edges()[key].items():
                found[key][name] = torch.tensor(rows)
        return found

    def _dgl(self):
        return TypedDGL(self.counts, self.ends, self._of_nodes("feat", "label"), self._of_edges())


class TypedPyG:
    """What is read of a ``HeteroData`` object of PyG."""

    def __init__(self, counts, ends, nodes, edges):
        self.node_types = list(counts)
        self.edge_types = list(ends)
        self._parts = {
            kind: PyG(num_nodes=n, of_nodes=list(nodes[kind]), **nodes[kind])
            for kind, n in counts.items()
        }
        for key, pair in ends.items():
            self._parts[key] = PyG(
                edge_index=np.stack(pair), of_edges=list(edges[key]), **edges[key]
            )

    def __getitem__(self, key):
        return self._parts[key]


def nullable(kind):
    """The type of pandas for a column that may lack values."""
    import pandas

    return pandas.Int64Dtype() if pa.types.is_integer(kind) else None


def write_stream(columns, path):
    """Write a table in the stream format of Arrow."""
    with pa.ipc.new_stream(path, columns.schema) as stream:
        stream.write_table(columns)


# entrances that differ from another one in the form of the file or object alone
FORMS = (
    "csv_of_windows",
    "csv_bz2",
    "tsv_gz",
    "reader",
    "polars_codes",
    "arrow_stream_file",
    "npz_imported",
    "columns",
)
EVERY = [
    name
    for name, member in vars(Given).items()
    if callable(member)
    and not name.startswith("_")
    and name not in ("imported", "tables", "kinds", "entrances", "fields", "at")
]
# what an entrance cannot say
MATRIX = {"ids", "nodes", "edge values", "no weight but 1"}
TENSORS = {"ids", "names", "texts", "times"}
LACKS = {
    "csv": {"lists"},
    "csv_of_windows": {"lists"},
    "csv_bz2": {"lists"},
    "tsv_gz": {"lists"},
    "sqlite": {"times", "lists"},
    "networkx": {"values of edges, and none"},
    "from_networkx": {"values of edges, and none"},
    "scipy": MATRIX,
    "from_scipy": MATRIX,
    "matrix_market": MATRIX,
    "pyg": TENSORS,
    # PyG knows columns of edges and of nodes by their lengths
    "real_pyg": TENSORS | {"as many edges as nodes"},
    "dgl": TENSORS,
    "from_pyg": TENSORS,
    "from_real_pyg": TENSORS | {"as many edges as nodes"},
    "from_dgl": TENSORS,
}


def content(graph, ordered=True):
    """All values of a graph under the original ids, as plain Python values.

    Args:
        graph: The graph.
        ordered: Whether the order of the edges counts.
    """
    ids = graph.original_ids.tolist()
    x = graph.x
    if x is not None:
        x = x.read_begin(np.arange(graph.n_nodes)).end() if hasattr(x, "read_begin") else x
        x = x.toarray() if hasattr(x, "toarray") else np.asarray(x)
    nodes = {"x": x, "y": graph.y, **{mask: getattr(graph, mask) for mask in MASKS}}
    edges = {"edge_attr": graph.edge_attr, "edge_weight": graph.edge_weight}
    rows = [
        values(graph, "node", {**nodes, **graph.node_columns}),
        values(graph, "edge", {**edges, **graph.edge_columns}),
    ]
    ends = [(ids[a], ids[b]) for a, b in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]
    links = [
        (end, *row)
        for end, row in zip(
            ends, zip(*rows[1].values(), strict=True) if rows[1] else [()] * len(ends), strict=True
        )
    ]
    return {
        "ids": ids,
        **rows[0],
        "edges": links if ordered else sorted(links, key=repr),
        "edge values": sorted(rows[1]),
        "labels": graph.label_kind,
        # several columns of labels have names, which arrays have not
        "names": graph.class_names if graph.label_kind == "classes" else (),
    }


def values(graph, group, columns):
    """Columns that a graph has as lists, with texts for their codes and the text nan for what is
    unknown.
    """
    out = {}
    for name, x in sorted(columns.items()):
        if x is None or (name in MASKS and not np.asarray(x).any()):
            continue
        texts = graph.categories(group, name)
        x = np.asarray(x)
        unit = graph.meta.get(f"{group}_units", {}).get(name)
        x = x if unit is None else x.astype(f"M8[{unit}]").astype("M8[ns]").astype(np.int64)
        out[name] = [texts[code] for code in x.tolist()] if texts else repr_nan(x)
    return out


def repr_nan(x):
    """Rows as Python values that can be compared."""
    rows = np.asarray(x, np.float64 if x.dtype.kind == "f" else np.int64)
    return [tuple(map(str, row)) if rows.ndim > 1 else str(row) for row in rows.tolist()]
