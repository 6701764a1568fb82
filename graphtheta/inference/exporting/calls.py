"""How the layers of other libraries are called, each with what it reads of the graph, and results
in the shape of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from graphtheta.engine.layer.layer import Layer
from graphtheta.errors import DataError
from graphtheta.models.appnp import APPNP
from graphtheta.models.gat import GAT
from graphtheta.models.gat_e import GATE
from graphtheta.models.gatv2 import GATv2
from graphtheta.models.gcn import GCN, NORMALISATIONS
from graphtheta.models.gcnii import GCNII
from graphtheta.models.gine import GINE
from graphtheta.models.hgt import HGT
from graphtheta.models.per_relation import PerRelation
from graphtheta.models.pna import PNA
from graphtheta.models.readouts import Readout, Set2Set
from graphtheta.models.rgat import RGAT
from graphtheta.models.rgcn import RGCN
from graphtheta.models.simple_hgn import SimpleHGN
from graphtheta.models.transformer import Transformer


@dataclass(frozen=True)
class GraphTensors:
    """A graph as tensors.

    Attributes:
        graph: What layers are given: the ends of the edges, [2, edges], or a ``DGLGraph``. None for
            a network without edges.
        ends: Sources and destinations.
        edge_weight, edge_attr: [edges] and [edges, d], or None.
        edge_type: Codes of relations, [edges], or None.
        node_type: Codes of types, [nodes], or None.
        batch: Number of the graph of each node, [nodes], for readouts of PyTorch Geometric; None if
            all are of one graph.
        batch_size: Number of graphs; None for the largest number + 1.
        start: The value in front of the first layer.
    """

    graph: Any
    ends: Any
    edge_weight: Any = None
    edge_attr: Any = None
    edge_type: Any = None
    node_type: Any = None
    batch: Any = None
    batch_size: int | None = None
    start: Any = None

    @property
    def pyg(self) -> bool:
        """Whether the layers are those of PyTorch Geometric."""
        return self.graph is self.ends

    def relation(self, relations: int) -> Any:
        """Codes of relations, checked; DataError if they are missing or too large."""
        return checked_codes(
            codes=self.edge_type,
            n=relations,
            name="edge_type",
            reader="the network",
            kinds="relations",
        )

    def types(self, types: int) -> Any:
        """Codes of types, checked; DataError if they are missing or too large."""
        return checked_codes(
            codes=self.node_type, n=types, name="node_type", reader="the network", kinds="types"
        )

    def of_edges(self, chosen: Any) -> GraphTensors:
        """The graph with some edges, for layers of PyTorch Geometric; chosen: [edges] bool."""
        ends = self.graph[:, chosen]
        weight, attr = (
            None if x is None else x[chosen] for x in (self.edge_weight, self.edge_attr)
        )
        return replace(self, graph=ends, ends=ends, edge_weight=weight, edge_attr=attr)


def checked_codes(codes: Any, n: int, name: str, reader: str, kinds: str) -> Any:
    """Codes of relations or types as integers of 64 bits.

    Args:
        codes: [edges] or [nodes], or None.
        n: Number of relations or types.
        name: The argument that has them, for messages.
        reader: What reads them, for messages.
        kinds: "relations" or "types", for messages.

    Raises:
        DataError: They are missing or out of range.
    """
    if codes is None:
        raise DataError(f"{reader} reads {kinds}; give {name}, their codes")
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < n:
        raise DataError(
            f"{name} has codes from {int(codes.min())} to {int(codes.max())}; {reader} has {n}"
            f" {kinds}"
        )
    return codes.long()


def call(layer: Any, module: Any, h: Any, given: GraphTensors) -> Any:
    """The result of a layer of another library.

    Args:
        layer: Our layer.
        module: Its counterpart.
        h: The node values.
        given: The graph.

    Raises:
        DataError: It lacks what the layer reads.
    """
    if type(layer) not in CALLS and not isinstance(layer, Layer):
        return module(h)
    return CALLS.get(type(layer), _plain)(layer, module, h, given)


def _plain(layer: Any, module: Any, h: Any, given: GraphTensors) -> Any:
    return module(h, given.graph) if given.pyg else module(given.graph, h)


def _gcn(layer: GCN, module: Any, h: Any, given: GraphTensors) -> Any:
    """With weights of edges after normalisation by numbers of in-edges, as ``models/gcn.py``
    describes it.
    """
    weight = _normalised(h, given, layer.norm)
    return (
        module(h, given.graph, weight) if given.pyg else module(given.graph, h, edge_weight=weight)
    )


def _normalised(h: Any, given: GraphTensors, norm: str) -> Any:
    """Weights of edges after normalisation, [edges]."""
    src, dst = given.ends
    sends, receives = NORMALISATIONS[norm]
    weight = _powers(h, dst, receives)[dst]
    weight = weight * _powers(h, src if norm == "both" else dst, sends)[src]
    return weight if given.edge_weight is None else weight * given.edge_weight


def _powers(h: Any, ends: Any, exponent: float) -> Any:
    """A power of how often each node is an end, 0 where it is none and the power is negative."""
    degree = h.new_zeros(len(h)).index_add(0, ends, h.new_ones(len(ends)))
    return degree.clamp(min=1) ** exponent * (degree.clamp(max=1) if exponent else 1)


def _appnp(layer: APPNP, module: Any, h: Any, given: GraphTensors) -> Any:
    return module(h, given.graph, _normalised(h, given, "sym"))


def _gcnii(layer: GCNII, module: Any, h: Any, given: GraphTensors) -> Any:
    return module(h, given.start, given.graph, _normalised(h, given, "sym"))


def _gat(layer: GAT, module: Any, h: Any, given: GraphTensors) -> Any:
    out = _plain(layer, module, h, given)
    if given.pyg:
        return out
    # attention of DGL returns heads, [n, heads, d]
    return out.flatten(1) if layer.concat else out.mean(1)


def _with_attributes(layer: Any, module: Any, h: Any, given: GraphTensors) -> Any:
    return module(h, given.graph, None if layer.weight_edge is None else given.edge_attr)


def _rgcn(layer: RGCN, module: Any, h: Any, given: GraphTensors) -> Any:
    if given.pyg:
        if given.edge_weight is not None and bool((given.edge_weight != 1).any()):
            raise DataError(
                "RGCNConv of PyTorch Geometric reads no edge weights, by which rgcn multiplies"
                " messages; export to dgl"
            )
        backend = import_module("torch_geometric.backend")
        # with pyg-lib, a product over segments takes one mean over the edges of all relations
        before = backend.use_segment_matmul
        backend.use_segment_matmul = False  # type: ignore[attr-defined]
        try:
            return module(h, given.graph, given.relation(module.num_relations))
        finally:
            backend.use_segment_matmul = before  # type: ignore[attr-defined]
    relations = module.linear_r.num_types
    relation = given.relation(relations)
    norm = given.edge_weight
    if layer.aggregator == "mean":
        _, pair, counts = (given.ends[1] * relations + relation).unique(
            return_inverse=True, return_counts=True
        )
        norm = (1 if norm is None else norm) / counts[pair].to(h.dtype)
    return module(given.graph, h, relation, None if norm is None else norm[:, None])


def _rgat(layer: RGAT, module: Any, h: Any, given: GraphTensors) -> Any:
    return module(h, given.graph, given.relation(module.num_relations))


def _simple_hgn(layer: SimpleHGN, module: Any, h: Any, given: GraphTensors) -> Any:
    one_hot = import_module("torch").nn.functional.one_hot
    return module(
        h, given.graph, one_hot(given.relation(module.edge_dim), module.edge_dim).to(h.dtype)
    )


def _hgt(layer: HGT, module: Any, h: Any, given: GraphTensors) -> Any:
    """With the nodes of each type and the edges of each relation by name, in the numbers of each
    type.
    """
    relation = given.relation(layer.prior.shape[0])
    node_type = given.types(len(module.node_types))
    codes = {name: i for i, name in enumerate(module.node_types)}
    leads = relation.new_tensor([[codes[name[0]], codes[name[2]]] for name in module.edge_types])
    if bool((node_type[given.graph] != leads[relation].T).any()):
        raise DataError(
            "an edge has ends of other types than its relation in metadata; give names of types and"
            " relations in the order of their codes"
        )
    rows = {name: (node_type == i).nonzero().ravel() for name, i in codes.items()}
    number = relation.new_zeros(len(h))
    for nodes in rows.values():
        number[nodes] = relation.new_ones(len(nodes)).cumsum(0) - 1
    edges = {
        name: number[given.graph[:, relation == i]] for i, name in enumerate(module.edge_types)
    }
    values = module({name: h[nodes] for name, nodes in rows.items()}, edges)
    out = h.new_zeros(len(h), module.out_channels)
    for name, nodes in rows.items():
        out[nodes] = values[name]
    return out


def _per_relation(layer: PerRelation, module: Any, h: Any, given: GraphTensors) -> Any:
    """The layers of ``HeteroConv`` on the nodes of all types, each at those that its relation leads
    to.
    """
    torch = import_module("torch")
    relation = given.relation(layer.relations)
    columns = _own_columns(layer, given.edge_attr)
    counts = []
    results = []
    for i, ((code, part), conv) in enumerate(
        zip(layer.layers.items(), module.convs.values(), strict=True)
    ):
        counts.append(h.new_ones(len(h), dtype=torch.bool))
        if layer.applies is not None:
            counts[i] = torch.as_tensor(layer.applies[i], device=h.device)[
                given.types(layer.applies.shape[1])
            ]
        own = given.of_edges(relation == code)
        if code in columns:
            own = replace(own, edge_attr=own.edge_attr[:, columns[code]])
        results.append(call(part, conv, h, own))
    stacked = torch.stack(results)
    counts = torch.stack(counts)[..., None]
    if layer.combine == "max":
        return torch.where(counts.any(0), torch.where(counts, stacked, -torch.inf).amax(0), 0)
    total = torch.where(counts, stacked, 0).sum(0)
    return total / counts.sum(0).clamp(min=1) if layer.combine == "mean" else total


def _own_columns(layer: PerRelation, attr: Any) -> dict[int, slice]:
    """The columns of the attributes of edges that belong to each relation whose layer reads
    attributes, by its code; empty if they read all columns.

    Raises:
        DataError: There are other columns than those that the layers read.
    """
    matrices = {
        code: getattr(part, "weight_edge", None) for code, part in sorted(layer.layers.items())
    }
    widths = {code: matrix.shape[0] for code, matrix in matrices.items() if matrix is not None}
    if attr is None or set(widths.values()) <= {attr.shape[1]}:
        return {}
    ends = np.cumsum([*widths.values()]).tolist()
    if ends[-1] != attr.shape[1]:
        read = ", ".join(f"{width} of relation {code}" for code, width in widths.items())
        raise DataError(
            f"edge_attr has {attr.shape[1]} columns, but layers of relations read {read}; give"
            " these columns side by side, in the order of the codes, and no others"
        )
    return {
        code: slice(end - width, end)
        for (code, width), end in zip(widths.items(), ends, strict=True)
    }


def _readout(layer: Readout | Set2Set, module: Any, h: Any, given: GraphTensors) -> Any:
    if not given.pyg:
        if given.batch is not None or given.batch_size is not None:
            raise DataError(
                "a DGLGraph knows the graph of each node; give one of dgl.batch, without batch and"
                " batch_size"
            )
        return module(given.graph, h)
    batch = given.ends.new_zeros(len(h)) if given.batch is None else given.batch
    # the module finds the number of graphs in the numbers that are given
    size = 1 if given.batch is None and given.batch_size is None else given.batch_size
    return module(h, batch, dim_size=size)


CALLS: dict[type, Callable[[Any, Any, Any, GraphTensors], Any]] = {
    GCN: _gcn,
    GAT: _gat,
    GATE: _with_attributes,
    GATv2: _with_attributes,
    Transformer: _with_attributes,
    PNA: _with_attributes,
    APPNP: _appnp,
    GCNII: _gcnii,
    GINE: _with_attributes,
    RGCN: _rgcn,
    RGAT: _rgat,
    SimpleHGN: _simple_hgn,
    HGT: _hgt,
    PerRelation: _per_relation,
    Readout: _readout,
    Set2Set: _readout,
}
