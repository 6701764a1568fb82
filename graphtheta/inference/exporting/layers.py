"""Layers of PyTorch Geometric and DGL that compute what a published layer computes, with its
weights by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.layer.module import Module
from graphtheta.errors import ConfigError
from graphtheta.inference.exporting.counterpart import (
    LIBRARIES,
    Counterpart,
    array_of,
    filled,
    linear,
    refusal,
)
from graphtheta.inference.exporting.decoders import edge, transe, vectors, with_nodes
from graphtheta.inference.exporting.published import (
    appnp,
    gat_conv,
    gat_e,
    gatv2,
    gcnii,
    pna,
    transformer,
)
from graphtheta.inference.exporting.readouts import readout, set2set
from graphtheta.inference.exporting.relational import (
    Metadata,
    hgt,
    per_relation,
    rgat,
    rgcn,
    simple_hgn,
)
from graphtheta.models.appnp import APPNP
from graphtheta.models.decoder import DotDecoder, EdgeDecoder, HadamardDecoder, NodeHead
from graphtheta.models.gat import GAT
from graphtheta.models.gat_e import GATE
from graphtheta.models.gatv2 import GATv2
from graphtheta.models.gcn import GCN
from graphtheta.models.gcnii import GCNII
from graphtheta.models.gin import GIN
from graphtheta.models.gine import GINE
from graphtheta.models.hgt import HGT
from graphtheta.models.mlp import MLP, Dense
from graphtheta.models.norm import BatchNorm, LayerNorm
from graphtheta.models.per_relation import PerRelation
from graphtheta.models.pna import PNA
from graphtheta.models.readouts import Readout, Set2Set
from graphtheta.models.rgat import RGAT
from graphtheta.models.rgcn import RGCN
from graphtheta.models.sage import SAGE
from graphtheta.models.simple_hgn import SimpleHGN
from graphtheta.models.transformer import Transformer
from graphtheta.models.triples import ComplEx, DistMult, RotatE, TransE
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.edge.aggregator import Accumulator

# activations as modules of torch.nn
ACTIVATIONS = {
    "relu": "ReLU",
    "elu": "ELU",
    "leaky_relu": "LeakyReLU",
    "tanh": "Tanh",
    "gelu": "GELU",
    "none": "Identity",
}


@checked
def counterpart(
    layer: Module, library: str, metadata: Metadata | None = None, nodes: np.ndarray | None = None
) -> Counterpart:
    """The layer of another library that computes what a layer computes.

    Args:
        layer: A published layer, readout, decoder, ``MLP`` or norm. For a decoder it is its
            weights.
        library: "pyg" or "dgl".
        metadata: Names of node types and relations, ``(graph.node_types, graph.relations)``, by
            which ``HGTConv`` and ``HeteroConv`` have weights.
        nodes: For a decoder of triples, features of all nodes, [n_nodes, width], such as
            ``trainer.learned()``; the result is then a model of ``torch_geometric.nn.kge``, which
            holds them too.

    Raises:
        ConfigError: The library is unknown, or has no such layer, or ``metadata`` does not fit it.
        ShapeError: The width of ``nodes`` is not that of the decoder.
    """
    if library not in LIBRARIES:
        raise ConfigError(f"library {library!r} is not known; choose from {', '.join(LIBRARIES)}")
    if nodes is not None:
        return with_nodes(layer, library, nodes)
    # a class that is derived from a published one may compute something else
    of = CONVERTERS.get(type(layer))
    if of is None:
        raise ConfigError(
            f"{type(layer).__name__} has no counterpart in {library}; layers with one are "
            f"{', '.join(kind.__name__ for kind in CONVERTERS)}"
        )
    if library != "pyg" and type(layer) in ONLY_PYG:
        raise ConfigError(
            f"{type(layer).__name__} has no counterpart in {library}, {ONLY_PYG[type(layer)]};"
            " choose pyg"
        )
    for part in layer.modules():
        if isinstance(part, Layer) and part.direction != "in":
            raise ConfigError(
                f"{type(layer).__name__} runs along {part.direction} edges, layers of {library}"
                " along in-edges only"
            )
    return (
        of(layer, library, metadata)
        if isinstance(layer, (HGT, PerRelation))
        else of(layer, library)
    )


def _gcn(layer: GCN, library: str) -> Counterpart:
    d_in, d_out = layer.weight.shape
    options: dict[str, Any]
    bias = {} if layer.bias is None else {"bias": array_of(layer.bias)}
    if library == "pyg":
        options = {
            "in_channels": d_in,
            "out_channels": d_out,
            "normalize": False,
            "bias": bool(bias),
        }
        return Counterpart(library, "GCNConv", options, linear("lin.", layer.weight) | bias)
    options = {
        "in_feats": d_in,
        "out_feats": d_out,
        "norm": "none",
        "bias": bool(bias),
        "allow_zero_in_degree": True,
    }
    return Counterpart(library, "GraphConv", options, {"weight": array_of(layer.weight), **bias})


def _sage(layer: SAGE, library: str) -> Counterpart:
    d_in, d_out = layer.root.shape
    options: dict[str, Any]
    if isinstance(layer.sum, Accumulator):
        raise refusal(layer, f"aggregator={layer.sum.name!r}", library)
    if library == "pyg":
        options = {
            "in_channels": d_in,
            "out_channels": d_out,
            "aggr": layer.sum,
            "bias": layer.bias is not None,
        }
        return Counterpart(
            library,
            "SAGEConv",
            options,
            linear("lin_l.", layer.neighbour, layer.bias) | linear("lin_r.", layer.root),
        )
    if layer.sum != "mean":
        raise refusal(layer, f"aggregator={layer.sum!r}", library)
    options = {
        "in_feats": d_in,
        "out_feats": d_out,
        "aggregator_type": "mean",
        "bias": layer.bias is not None,
    }
    return Counterpart(
        library,
        "SAGEConv",
        options,
        linear("fc_neigh.", layer.neighbour) | linear("fc_self.", layer.root, layer.bias),
    )


def _gin(layer: GIN, library: str) -> Counterpart:
    inner = counterpart(layer.mlp, library)
    trained = isinstance(layer.eps, Parameter)
    eps = np.asarray(
        array_of(layer.eps) if trained else layer.eps, array_of(layer.mlp.weights[0]).dtype
    ).reshape(1)
    name, at, options = (
        ("GINConv", "nn", {"eps": float(eps[0]), "train_eps": trained})
        if library == "pyg"
        else (
            "GINConv",
            "apply_func",
            {"aggregator_type": "sum", "init_eps": float(eps[0]), "learn_eps": trained},
        )
    )
    state = {f"{at}.{key}": x for key, x in inner.state.items()} | {"eps": eps}
    return Counterpart(library, name, {at: inner, **options}, state)


def _gine(layer: GINE, library: str) -> Counterpart:
    inner = counterpart(layer.mlp, library)
    trained = isinstance(layer.eps, Parameter)
    eps = np.asarray(
        array_of(layer.eps) if trained else layer.eps, array_of(layer.weight_edge).dtype
    ).reshape(1)
    state = (
        {f"nn.{key}": x for key, x in inner.state.items()}
        | {"eps": eps}
        | filled("lin.", layer.weight_edge, layer.bias_edge, True)
    )
    return Counterpart(
        library,
        "GINEConv",
        {
            "nn": inner,
            "eps": float(eps[0]),
            "train_eps": trained,
            "edge_dim": layer.weight_edge.shape[0],
        },
        state,
    )


def _gat(layer: GAT, library: str) -> Counterpart:
    if layer.weight_dst is not None:
        raise refusal(layer, "separate=True", library)
    if library == "pyg":
        return gat_conv(layer, {})
    heads, width = layer.att_src.shape
    state = linear("fc.", layer.weight)
    state |= {"attn_l": array_of(layer.att_src)[None], "attn_r": array_of(layer.att_dst)[None]}
    if layer.bias is not None:
        # DGL adds it before heads are averaged
        state["bias"] = np.tile(array_of(layer.bias), 1 if layer.concat else heads)
    options = {
        "in_feats": layer.weight.shape[0],
        "out_feats": width,
        "num_heads": heads,
        "negative_slope": layer.slope,
        "allow_zero_in_degree": True,
        "bias": layer.bias is not None,
    }
    return Counterpart(library, "GATConv", options, state)


def _mlp(layer: MLP, library: str) -> Counterpart:
    parts: list[Counterpart] = []
    for i, (weight, bias) in enumerate(zip(layer.weights, layer.biases, strict=True)):
        d_in = weight.shape[0]
        d_out = int(np.prod(weight.shape[1:]))
        parts.append(
            Counterpart(
                "torch",
                "Linear",
                {"in_features": d_in, "out_features": d_out, "bias": bias is not None},
                linear("", weight, bias),
            )
        )
        if i < len(layer.norms):
            norm = layer.norms[i]
            parts += [] if norm is None else [counterpart(norm, library)]
            parts.append(Counterpart("torch", ACTIVATIONS[layer.activation], {}, {}))
    state = {f"{i}.{name}": x for i, part in enumerate(parts) for name, x in part.state.items()}
    return Counterpart("torch", "Sequential", {"*": parts}, state)


def _batch_norm(layer: BatchNorm, library: str) -> Counterpart:
    stats = layer.stats
    state = {
        "weight": array_of(layer.gamma),
        "bias": array_of(layer.beta),
        "running_mean": np.asarray(stats.mean),
        "running_var": np.asarray(stats.var),
        "num_batches_tracked": np.asarray(0),
    }
    return Counterpart("torch", "BatchNorm1d", {"num_features": layer.gamma.shape[0]}, state)


def _layer_norm(layer: LayerNorm, library: str) -> Counterpart:
    state = {"weight": array_of(layer.gamma), "bias": array_of(layer.beta)}
    return Counterpart("torch", "LayerNorm", {"normalized_shape": layer.gamma.shape[0]}, state)


# layers without a counterpart in DGL, and why
ONLY_PYG: dict[type, str] = {
    GINE: "whose GINEConv does not project edge attributes",
    GATE: "whose EdgeGATConv also adds edge attributes to messages",
    GATv2: "whose GATv2Conv adds no bias to the sum and reads no attributes",
    Transformer: "which has no such layer",
    APPNP: "whose APPNPConv divides by out-degrees of sources",
    GCNII: "whose GCN2Conv divides by out-degrees of sources",
    PNA: "whose PNAConv scales and drops otherwise",
    RGAT: "which has no attention with a matrix for each relation",
    SimpleHGN: "whose EdgeGATConv also adds edge attributes to messages",
    HGT: "whose HGTConv has no gelu and no biases",
    PerRelation: "whose HeteroGraphConv has no converter",
}
CONVERTERS: dict[type, Callable[..., Counterpart]] = {
    GCN: _gcn,
    SAGE: _sage,
    GIN: _gin,
    GINE: _gine,
    GAT: _gat,
    GATE: gat_e,
    GATv2: gatv2,
    Transformer: transformer,
    APPNP: appnp,
    GCNII: gcnii,
    PNA: pna,
    RGCN: rgcn,
    RGAT: rgat,
    SimpleHGN: simple_hgn,
    HGT: hgt,
    PerRelation: lambda layer, library, metadata: per_relation(
        layer, metadata, lambda part: counterpart(part, library)
    ),
    MLP: _mlp,
    NodeHead: _mlp,
    Dense: lambda layer, library: _mlp(layer.mlp, library),
    BatchNorm: _batch_norm,
    LayerNorm: _layer_norm,
    Readout: readout,
    Set2Set: set2set,
    DotDecoder: lambda layer, library: Counterpart("torch", "Identity", {}, {}),
    HadamardDecoder: lambda layer, library: _mlp(layer.mlp, library),
    EdgeDecoder: lambda layer, library: edge(layer, _mlp(layer.mlp, library)),
    DistMult: lambda layer, library: vectors(layer.relation),
    TransE: transe,
    ComplEx: lambda layer, library: vectors(layer.real, layer.imaginary),
    RotatE: lambda layer, library: vectors(layer.phase),
}
