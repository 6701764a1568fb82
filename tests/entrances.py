"""The entrances of a graph, each of which takes the same arrays."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.store.from_graph import write_store


class DGL:
    """What is read of a DGL graph."""

    def __init__(self, src, dst, n, nodes, edges):
        self.ntypes = ["_N"]
        self.canonical_etypes = [("_N", "_E", "_N")]
        self.ndata = nodes
        self.edata = edges
        self.edges = lambda: (src, dst)
        self.num_nodes = lambda: n


class PyG(SimpleNamespace):
    """What is read of a ``Data`` object of PyG."""

    y = None

    def node_attrs(self):
        return list(self.of_nodes)

    def edge_attrs(self):
        return ["edge_index", *self.of_edges]

    def __getitem__(self, name):
        return getattr(self, name)


def plain(x):
    """Rows as Python values, None for an unknown label of a table."""
    return [None if isinstance(v, float) and v != v else v for v in np.asarray(x).tolist()]


def table(columns):
    """A pyarrow table of arrays [n] and [n, d]."""
    return pa.table(
        {
            name: pa.array(plain(x))
            if np.ndim(x) == 1
            else pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(x)), np.shape(x)[1])
            for name, x in columns.items()
        }
    )


def apart(name, x):
    """A column for each number of a row."""
    return (
        {name: x}
        if np.ndim(x) == 1
        else {f"{name}{k}": np.asarray(x)[:, k] for k in range(np.shape(x)[1])}
    )


def csv(path, columns):
    """Write columns as text."""
    rows = zip(*(plain(x) for x in columns.values()), strict=True)
    path.write_text(
        "\n".join(
            ",".join("" if v is None else str(v) for v in row) for row in (list(columns), *rows)
        )
        + "\n"
    )
    return path


class Given:
    """A graph of four nodes in a ring, to be given in every form.

    Args:
        folder: For files.
        y: Labels.
        ids: Ids of the nodes; None for their numbers.
    """

    def __init__(self, folder, y, ids=None):
        self.folder = folder
        self.y = np.asarray(y)
        self.ids = ids
        self.src = np.arange(4)
        self.dst = (self.src + 1) % 4

    def imported(self, *source, **options):
        return gt.load(
            gt.import_graph(*source, to=self.folder / "imported.store", **options), split="stored"
        )

    def tables(self, one_column=True):
        y = {"y": self.y} if one_column else apart("y", self.y)
        ids = np.arange(4) if self.ids is None else self.ids
        return {"src": ids[self.src], "dst": ids[self.dst]}, {"id": ids, **y}, list(y)

    def arrays(self):
        return gt.Graph((self.src, self.dst), 4, y=self.y, node_ids=self.ids)

    def npz(self):
        np.savez(
            self.folder / "g.npz", edge_index=np.stack((self.src, self.dst)), y=self.y, n_nodes=4
        )
        return gt.load(str(self.folder / "g.npz"), split="stored")

    def npz_imported(self):
        self.npz()
        return self.imported(self.folder / "g.npz")

    def store(self):
        write_store(self.arrays(), self.folder / "s.store", SerialComm())
        return gt.load(self.folder / "s.store", split="stored")

    def graph_imported(self):
        return self.imported(self.arrays())

    def csv(self):
        edges, nodes, label = self.tables(one_column=False)
        return self.imported(
            csv(self.folder / "e.csv", edges), csv(self.folder / "n.csv", nodes), label=label
        )

    def parquet(self):
        edges, nodes, label = self.tables()
        for name, columns in (("e", edges), ("n", nodes)):
            pq.write_table(table(columns), self.folder / f"{name}.parquet")
        return self.imported(self.folder / "e.parquet", self.folder / "n.parquet", label=label)

    def lists(self):
        edges, nodes, label = self.tables()
        return self.imported(
            table(edges), pa.table({"id": nodes["id"], "y": pa.array(plain(self.y))}), label=label
        )

    def columns(self):
        edges, nodes, label = self.tables()
        return self.imported(edges, nodes, label=label)

    def pandas(self):
        pandas = pytest.importorskip("pandas")
        edges, nodes, label = self.tables(one_column=False)
        return self.imported(pandas.DataFrame(edges), pandas.DataFrame(nodes), label=label)

    def polars(self):
        polars = pytest.importorskip("polars")
        edges, nodes, label = self.tables()
        return self.imported(polars.DataFrame(edges), polars.DataFrame(nodes), label=label)

    def duckdb(self):
        duckdb = pytest.importorskip("duckdb")
        edges, nodes, label = self.tables()
        connection = duckdb.connect()
        for name, columns in (("e", edges), ("n", nodes)):
            connection.register("given", table(columns))
            connection.execute(f"create table {name} as select * from given")
        return self.imported(
            gt.Query(connection, "select * from e"),
            gt.Query(connection, "select * from n"),
            label=label,
        )

    def networkx(self):
        return self.imported(self._networkx(), label="y")

    def from_networkx(self):
        return gt.Graph.from_networkx(self._networkx(), y="y")

    def _networkx(self):
        g = nx.DiGraph()
        ids = range(4) if self.ids is None else self.ids.tolist()
        for i, y in zip(ids, self.y.tolist(), strict=True):
            g.add_node(i, y=y)
        g.add_edges_from((ids[a], ids[b]) for a, b in zip(self.src, self.dst, strict=True))
        return g

    def pyg(self):
        return self.imported(
            PyG(
                edge_index=np.stack((self.src, self.dst)),
                num_nodes=4,
                y=self.y,
                of_nodes=["y"],
                of_edges=[],
            )
        )

    def real_pyg(self):
        torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
        return self.imported(
            data.Data(
                edge_index=torch.tensor(np.stack((self.src, self.dst))),
                num_nodes=4,
                y=torch.tensor(self.y),
            )
        )

    def dgl(self):
        return self.imported(DGL(self.src, self.dst, 4, {"label": self.y}, {}))

    def typed(self):
        return gt.Graph(
            {("other", "to", "node"): ([0, 1], [0, 1])}, {"node": 4, "other": 2}, y={"node": self.y}
        )

    def typed_first(self):
        return gt.Graph(
            {("other", "to", "node"): ([0, 1], [0, 1])}, {"other": 2, "node": 4}, y={"node": self.y}
        )

    def typed_imported(self):
        return self.imported(self.typed())

    def whole(self):
        return gt.whole_graphs([gt.Graph([[0], [1]], 2)] * 4, self.y)


EVERY = [
    name for name in vars(Given) if not name.startswith("_") and name not in ("imported", "tables")
]
