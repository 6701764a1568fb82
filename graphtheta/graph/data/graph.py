"""``gt.Graph``: a graph with its transformations and conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphtheta.base.arguments import checked
from graphtheta.graph.data import interop, transform
from graphtheta.graph.data.arrays import GraphArrays

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
