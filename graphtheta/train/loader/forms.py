"""The forms in which loaders give batches: arrays, data of PyTorch Geometric, blocks of DGL.

Tensors share the memory of the arrays of the batch, where these have the type and the order that
the other library wants.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows, stacked
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import RELATION, TYPE
from graphtheta.train.loader.batch import Block, LoaderBatch
from graphtheta.train.loader.layout import TypedLayout, dense

# names of PyTorch Geometric for columns of nodes and of edges
PYG_NODES = {"train": "train_mask", "val": "val_mask", "test": "test_mask", TYPE: "node_type"}
PYG_EDGES = {RELATION: "edge_type"}
# what it calls an importance weight
IMPORTANCE = "importance"


def form_of(to: str, graph: Graph, dtype: np.dtype) -> Callable[[LoaderBatch], Any]:
    """The function that gives a batch the form ``to``: "arrays", "pyg" or "dgl".

    Args:
        to: The form.
        graph: The graph.
        dtype: Type of importance weights in tensors.

    Raises:
        ConfigError: There is no such form, or the library is not installed.
    """
    if to not in FORMS:
        raise ConfigError(f"to={to!r} is no form of batches; choose from {', '.join(FORMS)}")
    return FORMS[to](TypedLayout(graph), dtype)


def _arrays(layout: TypedLayout, dtype: np.dtype) -> Callable[[LoaderBatch], LoaderBatch]:
    return lambda batch: batch


class Adjacency(NamedTuple):
    """The edges of one layer, as tensors.

    Attributes:
        edge_index: Rows of their ends among the nodes of the layer, [2, n_edges].
        e_id: Their positions in the arrays of the graph, [n_edges].
        importance: Their importance weights, [n_edges].
        size: Number of nodes that send, and of those that receive, which come first.
    """

    edge_index: Any
    e_id: Any
    importance: Any
    size: tuple[int, int]


class PyG:
    """``Data`` or ``HeteroData`` of PyTorch Geometric.

    In ``edge_index`` each node has one sample of its edges, that of the hop in which the search
    first reaches it, as in ``NeighborLoader``; edges are sorted by this hop. ``adjs`` of ``Data``
    has the edges of each layer as they are in training, an ``Adjacency`` each.
    """

    def __init__(self, layout: TypedLayout, dtype: np.dtype):
        self._dtype = dtype
        self._data = library("torch_geometric.data", "pyg", "PyTorch Geometric", "torch_geometric")
        self._layout = layout

    def __call__(self, batch: LoaderBatch) -> Any:
        edges = once(batch)
        return self._typed(batch, *edges) if self._layout.types else self._plain(batch, *edges)

    def _plain(self, batch: LoaderBatch, edges: Block, per_hop: list[int]) -> Any:
        data = self._data.Data()
        data.num_nodes = len(batch.nodes)
        for name, x in batch.columns.items():
            data[PYG_NODES.get(name, name)] = tensor(x)
        data.n_id = tensor(batch.nodes)
        data.batch_size = batch.n_targets
        data.edge_index = tensor(edges.ends)
        data.adjs = [self._adjacency(block) for block in batch.blocks]
        self._describe(data, edges.edge, edges.weight, dict(edges.columns))
        data.num_sampled_nodes = np.diff([0, *batch.sizes]).tolist()
        data.num_sampled_edges = per_hop
        return data

    def _adjacency(self, block: Block) -> Adjacency:
        return Adjacency(
            edge_index=tensor(block.ends),
            e_id=tensor(block.edge),
            importance=tensor(block.weight.astype(self._dtype)),
            size=(len(block.nodes), block.n_out),
        )

    def _typed(self, batch: LoaderBatch, edges: Block, per_hop: list[int]) -> Any:
        layout = self._layout
        data = self._data.HeteroData()
        at = np.empty(len(batch.nodes), np.int64)
        for kind, nodes in layout.nodes(batch).items():
            store = data[kind]
            at[nodes.rows] = np.arange(len(nodes.rows))
            store.num_nodes = len(nodes.rows)
            for name, x in nodes.columns.items():
                store[PYG_NODES.get(name, name)] = tensor(x)
            store.n_id = tensor(nodes.numbers)
            ends = np.searchsorted(nodes.rows, [0, *batch.sizes]).tolist()
            store.batch_size = ends[1]
            store.num_sampled_nodes = np.diff(ends).tolist()
        hops = np.cumsum([0, *per_hop])
        for relation, own in layout.edges(edges).items():
            store = data[relation]
            store.edge_index = tensor(np.stack((at[edges.src[own]], at[edges.dst[own]])))
            columns = layout.edge_columns(edges, relation, own)
            self._describe(store, edges.edge[own], edges.weight[own], columns)
            store.num_sampled_edges = np.diff(np.searchsorted(own, hops)).tolist()
        return data

    def _describe(
        self, store: Any, edge: np.ndarray, weight: np.ndarray, columns: dict[str, Any]
    ) -> None:
        store.e_id = tensor(edge)
        store[IMPORTANCE] = tensor(weight.astype(self._dtype))
        for name, x in columns.items():
            store[PYG_EDGES.get(name, name)] = tensor(x)


def once(batch: LoaderBatch) -> tuple[Block, list[int]]:
    """The edges of a batch in which each node has those of the hop that first reaches it, from the
    targets on, and their number in each hop.
    """
    parts = []
    reached = 0
    for block in reversed(batch.blocks):
        # receiving nodes ascend, and those of earlier hops come first
        parts.append((block, slice(int(np.searchsorted(block.dst, reached)), None)))
        reached = block.n_out
    columns = {
        name: _below([block.columns[name][at] for block, at in parts])
        for name in batch.blocks[0].columns
    }
    edges = Block(
        nodes=batch.nodes,
        n_out=reached,
        ends=np.concatenate([block.ends[:, at] for block, at in parts], axis=1),
        edge=np.concatenate([block.edge[at] for block, at in parts]),
        weight=np.concatenate([block.weight[at] for block, at in parts]),
        columns=columns,
    )
    return edges, [len(block.dst[at]) for block, at in parts]


def _below(parts: list[Any]) -> Any:
    """Rows of the blocks of a batch, below each other."""
    return stacked(parts) if isinstance(parts[0], TypedRows) else np.concatenate(parts)


class DGL:
    """Blocks of DGL, as its loaders give them: input nodes, output nodes, and a block for each hop,
    the hop furthest from the targets first.

    Columns of nodes are in the frames of both ends of each block, and those of edges in that of the
    edges; ``importance`` has the importance weights.
    """

    def __init__(self, layout: TypedLayout, dtype: np.dtype):
        self._dtype = dtype
        self._dgl = library("dgl", "dgl", "DGL", "dgl")
        self._layout = layout

    def __call__(self, batch: LoaderBatch) -> tuple[Any, Any, list[Any]]:
        if self._layout.types:
            return self._typed(batch)
        blocks = []
        nodes = tensor(batch.nodes)
        columns = {name: tensor(x) for name, x in batch.columns.items()}
        for block in batch.blocks:
            n_in = len(block.nodes)
            dgl_block = self._dgl.create_block(
                (tensor(block.src), tensor(block.dst)),
                num_src_nodes=n_in,
                num_dst_nodes=block.n_out,
            )
            named = columns | {self._dgl.NID: nodes}
            dgl_block.srcdata.update({name: x[:n_in] for name, x in named.items()})
            dgl_block.dstdata.update({name: x[: block.n_out] for name, x in named.items()})
            dgl_block.edata.update(self._edge_data(block.edge, block.weight, dict(block.columns)))
            blocks.append(dgl_block)
        return nodes, nodes[: batch.n_targets], blocks

    def _typed(self, batch: LoaderBatch) -> tuple[Any, Any, list[Any]]:
        of_type = self._layout.nodes(batch)
        at = np.empty(len(batch.nodes), np.int64)
        named = {}
        for kind, nodes in of_type.items():
            at[nodes.rows] = np.arange(len(nodes.rows))
            columns = {name: tensor(x) for name, x in nodes.columns.items()}
            named[kind] = columns | {self._dgl.NID: tensor(nodes.numbers)}

        def counts(n: int) -> dict[str, int]:
            return {kind: int(np.searchsorted(x.rows, n)) for kind, x in of_type.items()}

        blocks = []
        for block in batch.blocks:
            n_in, n_out = counts(len(block.nodes)), counts(block.n_out)
            own = self._layout.edges(block)
            dgl_block = self._dgl.create_block(
                {
                    relation: (tensor(at[block.src[x]]), tensor(at[block.dst[x]]))
                    for relation, x in own.items()
                },
                num_src_nodes=n_in,
                num_dst_nodes=n_out,
            )
            for kind, columns in named.items():
                dgl_block.srcnodes[kind].data.update(
                    {name: x[: n_in[kind]] for name, x in columns.items()}
                )
                dgl_block.dstnodes[kind].data.update(
                    {name: x[: n_out[kind]] for name, x in columns.items()}
                )
            for relation, x in own.items():
                columns = self._layout.edge_columns(block, relation, x)
                dgl_block.edges[relation].data.update(
                    self._edge_data(block.edge[x], block.weight[x], columns)
                )
            blocks.append(dgl_block)
        first = counts(batch.n_targets)
        inputs = {kind: columns[self._dgl.NID] for kind, columns in named.items()}
        return inputs, {kind: x[: first[kind]] for kind, x in inputs.items()}, blocks

    def _edge_data(
        self, edge: np.ndarray, weight: np.ndarray, columns: dict[str, Any]
    ) -> dict[Any, Any]:
        named = {name: tensor(x) for name, x in columns.items()}
        return named | {self._dgl.EID: tensor(edge), IMPORTANCE: tensor(weight.astype(self._dtype))}


FORMS: dict[str, Callable[[TypedLayout, np.dtype], Callable[[LoaderBatch], Any]]] = {
    "pyg": PyG,
    "dgl": DGL,
    "arrays": _arrays,
}


def library(module: str, to: str, name: str, package: str) -> Any:
    """A module of a library that is not a dependency.

    Raises:
        ConfigError: It cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"to={to!r} needs {name}, which cannot be imported ({error}); pip install {package},"
            " or give to='arrays'"
        ) from error


def tensor(x: Any) -> Any:
    """A tensor of values, in the same memory unless they are sparse, or integers other than int64,
    which labels and indices are in PyTorch.
    """
    import torch

    x = dense(x) if is_sparse(x) else np.ascontiguousarray(x)
    if x.dtype.kind in "iu":
        x = x.astype(np.int64, copy=False)
    return torch.from_numpy(x if x.flags.writeable else x.copy())
