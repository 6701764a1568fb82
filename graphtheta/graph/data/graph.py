"""``gt.Graph``: a graph with its transformations, conversions and descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.html import html_table
from graphtheta.graph.data import interop, transform
from graphtheta.graph.data.arrays import COLUMNS, EDGE_MASKS, NODE_MASKS, GraphArrays
from graphtheta.graph.data.columns import described, listed
from graphtheta.graph.data.validation import splits_of

if TYPE_CHECKING:
    import networkx as nx
    import scipy.sparse as sp


class Graph(GraphArrays):
    """A directed graph with features, labels and splits; an undirected edge is two edges.

    The graph has its own, read-only arrays: those that could be written to are copied.
    Floating-point inputs of any width are stored as float32 and ids as int64. Integers that
    float32 would round raise an error, except in named columns, which store integers and float64.
    Duplicate edges and self loops are allowed.

    A heterogeneous graph is given as dicts: ``edge_index`` by (source type, name, destination type)
    in the numbers of each type, other edge arrays by the same keys, and ``n_nodes`` and node arrays
    by type; named columns are dicts of such dicts. See :mod:`graphtheta.graph.data.typed`.

    Args:
        edge_index: [2, n_edges] integers, row 0 sources and row 1 destinations; or the pair (src,
            dst).
        n_nodes: Number of nodes; by default the rows of the node arrays, else the largest id + 1.
        x: Node features, [n_nodes, d] array or scipy sparse matrix (kept as CSR below a density of
            0.25); or a column whose rows are read when they are needed, such as
            ``gt.MappedColumn("x.npy")``. Values of a column are not checked.
        y: Node labels: [n_nodes] or [n_nodes, 1] integers are classes with -1 for unlabelled.
            [n_nodes, C] numbers are several labels a node if all are 0 or 1, anything else is for
            regression, as floats are; NaN for unknown. See :mod:`graphtheta.graph.data.labels`.
        n_classes: Number of classes; by default the largest label + 1.
        multilabel: Whether y holds several 0/1 labels a node; by default found from its values.
        edge_attr: Edge attributes, [n_edges, a].
        edge_weight: Edge weights, [n_edges].
        edge_y: Edge targets, [n_edges] or [n_edges, k], NaN for unknown.
        train, val, test: Node masks, [n_nodes] bool; or [n_nodes, S] for S splits, of which
            training uses one (``split_index``). A mask without columns then belongs to all splits.
        edge_train, edge_val, edge_test: Edge masks for edge tasks, [n_edges] or [n_edges, S] bool.
        node_ids: Original ids, [n_nodes] unique integers or strings; results are reported under
            them.
        node_columns: Further values of the nodes by name, [n_nodes] or [n_nodes, k]; models read
            them as ``node.NAME`` and ``edge.src.NAME``. Integers stay integers: types that int32
            holds become int32, others int64; bools become 0 and 1 (int32). Columns [n_nodes] of
            float64 stay exact, and models read them in the float type of the job; other floats
            become float32.
        edge_columns: Further values of the edges by name, [n_edges] or [n_edges, k]; models read
            them as ``edge.NAME``.
        name: Name for reports.
        meta: Anything else worth keeping (source, class names, ...).
        where: Where the arrays come from, such as a file; put in front of error messages.
        folder: The store that edges are mapped from, beside which clusters are kept; empty if there
            is none.

    Raises:
        ShapeError: Arrays do not fit together.
        DataError: Ids out of range, values that are not finite, integers that would be rounded,
            labels outside the classes, overlapping masks, ids that are not unique, names that
            columns cannot have.
    """

    __slots__ = ()
    as_argument = (
        "a gt.Graph, such as gt.load('sbm'), gt.Graph(edge_index, x=...) or, for a graph of another"
        " library, gt.load(gt.import_graph(graph, to='my.store'))"
    )

    @checked
    def with_self_loops(
        self, fill: str = "mean", columns: Mapping[str, Any] | None = None
    ) -> Graph:
        """Add missing self loops; see :func:`graphtheta.graph.data.transform.add_self_loops`."""
        return transform.add_self_loops(self, fill, columns)

    def without_self_loops(self) -> Graph:
        """Drop all self loops."""
        return transform.drop_self_loops(self)[0]

    def symmetrised(self) -> Graph:
        """Add the missing reverse edges, with the attributes of the edge they reverse
        (``graph/data/transform.py``).
        """
        return transform.symmetrise(self)

    def with_inverse_relations(self) -> Graph:
        """Add the reverse of every edge as another relation; see
        :func:`graphtheta.graph.data.transform.add_inverse_relations`.
        """
        return transform.add_inverse_relations(self)

    def deduplicated(self) -> Graph:
        """Keep the first of several edges with the same ends and relation."""
        return transform.deduplicate(self)

    def reversed(self) -> Graph:
        """Reverse every edge, and the types of each relation."""
        return transform.reverse(self)

    def largest_component(self) -> Graph:
        """The largest weakly connected component; see
        :func:`graphtheta.graph.data.transform.largest_component`.
        """
        return transform.largest_component(self)

    def subset(self, nodes: Any) -> Graph:
        """Some nodes and the edges between them; see
        :func:`graphtheta.graph.data.transform.subset`.
        """
        return transform.subset(self, nodes)

    def keep_edges(self, keep: Any) -> Graph:
        """Some edges, given by a mask or by their numbers, and all nodes."""
        return transform.keep_edges(self, keep)

    def with_row_normalised_features(self) -> Graph:
        """Divide each row of x by the sum of its absolute values; rows of zeros stay."""
        return transform.row_normalise(self)

    def with_standardised_features(self) -> Graph:
        """Give each column of x mean 0 and deviation 1 over the training nodes, all nodes without
        any; see :func:`graphtheta.graph.data.transform.standardise_features`."""
        return transform.standardise_features(self)

    def with_standardised_edge_attr(self) -> Graph:
        """Give each column of edge_attr mean 0 and deviation 1 over the training edges (all edges
        without a training mask).
        """
        return transform.standardise_edge_attr(self)

    @classmethod
    @checked
    def from_scipy(cls, matrix: Any, **fields: Any) -> Graph:
        """From a square sparse matrix: entry [i, j] is the edge from i to j; see
        :func:`graphtheta.graph.data.interop.from_scipy`.
        """
        return cls(**interop.from_scipy(matrix, fields))

    def to_scipy(self) -> sp.csr_array:
        """The [n_nodes, n_nodes] CSR matrix of edge weights (1 without), row = source; duplicate
        edges add up.
        """
        return interop.to_scipy(self)

    @classmethod
    @checked
    def from_networkx(
        cls,
        g: Any,
        *,
        x: str | Sequence[str] | None = None,
        y: str | None = None,
        edge_attr: str | Sequence[str] | None = None,
        edge_weight: str | None = None,
        edge_y: str | None = None,
        node_columns: str | Sequence[str] = (),
        edge_columns: str | Sequence[str] = (),
        **fields: Any,
    ) -> Graph:
        """From a networkx graph and the names of its attributes; see
        :func:`graphtheta.graph.data.interop.from_networkx`.
        """
        return cls(
            **interop.from_networkx(
                g=g,
                x=x,
                y=y,
                edge_attr=edge_attr,
                edge_weight=edge_weight,
                edge_y=edge_y,
                node_columns=node_columns,
                edge_columns=edge_columns,
                fields=fields,
            )
        )

    def to_networkx(self) -> nx.MultiDiGraph:
        """A networkx graph under the original ids, with attributes x, y, edge_attr, edge_weight,
        edge_y and those of named columns.
        """
        return interop.to_networkx(self)

    def summary(self) -> dict[str, Any]:
        """Figures for a report, in the order to print them; plain Python values."""
        masks = {
            field: None if getattr(self, field) is None else _sizes(getattr(self, field))
            for field in (*NODE_MASKS, *EDGE_MASKS)
        }
        out_degree, in_degree = (
            np.bincount(ends, minlength=self.n_nodes) for ends in (self.src, self.dst)
        )
        return {
            "name": self.name,
            "nodes": self.n_nodes,
            "edges": self.n_edges,
            "features": self.n_features,
            "sparse features": self.has_sparse_features,
            "edge attributes": self.n_edge_features,
            **{
                field.replace("_", " "): described(
                    getattr(self, field), partial(self.categories, field.partition("_")[0])
                )
                for field in COLUMNS
                if getattr(self, field)
            },
            "labels": self.label_kind,
            "classes": self.n_classes,
            **({"class names": listed(self.class_names)} if self.class_names else {}),
            **({"splits": self.n_splits} if self.n_splits > 1 else {}),
            "self loops": int((self.src == self.dst).sum()),
            "isolated nodes": int(((in_degree + out_degree) == 0).sum()),
            "mean degree": self.n_edges / self.n_nodes,
            "largest in-degree": int(in_degree.max()),
            "largest out-degree": int(out_degree.max()),
            **{mask: count for mask, count in masks.items() if count is not None},
            "bytes": self.nbytes,
            "digest": self.digest(),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {', '.join(self._parts())})"

    def _repr_html_(self) -> str:
        kind = type(self).__name__
        # a graph that was given no name is called a graph
        title = kind if self.name == kind.lower() else f"{kind} {self.name}"
        return html_table(title, (), [(part,) for part in self._parts()])

    def _parts(self) -> list[str]:
        """What the graph consists of, a short text each."""
        parts = [f"{self.n_nodes:,} nodes", f"{self.n_edges:,} edges"]
        parts += (
            [
                f"{self.n_features} {'sparse ' if self.has_sparse_features else ''}"
                f"feature{'s' * (self.n_features != 1)}"
            ]
            if self.n_features
            else []
        )
        if n := self.n_edge_features:
            parts.append(f"{n} edge attribute{'s' * (n != 1)}")
        parts += [
            f"{field.replace('_', ' ')} {listed(list(getattr(self, field)))}"
            for field in COLUMNS
            if getattr(self, field)
        ]
        parts += (
            [f"{self.n_classes} {'labels' if self.multilabel else 'classes'}"]
            if self.n_classes
            else []
        )
        if self.train is not None:
            first = [
                None if m is None else splits_of(m)[:, 0] for m in (self.train, self.val, self.test)
            ]
            sizes = "/".join("-" if m is None else str(int(m.sum())) for m in first)
            parts.append(
                f"split {sizes}"
                if self.n_splits == 1
                else f"{self.n_splits} splits, the first {sizes}"
            )
        return parts


def _sizes(mask: np.ndarray) -> int | list[int]:
    """Number of rows in a mask, in each of its splits."""
    sizes: int | list[int] = mask.sum(axis=0).tolist()
    return sizes
