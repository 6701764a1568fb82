"""Our layers with the options of layers of PyTorch Geometric, DGL and torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from graphtheta.engine.layer.module import Module
from graphtheta.errors import ConfigError
from graphtheta.models.appnp import APPNP
from graphtheta.models.gat import GAT
from graphtheta.models.gat_e import GATE
from graphtheta.models.gatv2 import GATv2
from graphtheta.models.gcn import GCN
from graphtheta.models.gcnii import GCNII
from graphtheta.models.gin import GIN
from graphtheta.models.gine import GINE
from graphtheta.models.mlp import MLP, Linear
from graphtheta.models.norm import BatchNorm, LayerNorm
from graphtheta.models.pna import PNA
from graphtheta.models.recurrent import GRUCell
from graphtheta.models.sage import SAGE
from graphtheta.models.transformer import Transformer

Maker = Callable[[Any], Module]
# activations of torch by the names of ours, and their options, of which we have one value only
ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {}),
    "ELU": ("elu", {"alpha": 1.0}),
    "LeakyReLU": ("leaky_relu", {"negative_slope": 0.01}),
    "Tanh": ("tanh", {}),
    "GELU": ("gelu", {"approximate": "none"}),
    "Identity": ("none", {}),
}
# norms of torch by the names of ours
NORMS = {"BatchNorm1d": "batch", "LayerNorm": "layer"}


def _refuse(theirs: Any, what: str) -> ConfigError:
    return ConfigError(
        f"gt.from_torch: {type(theirs).__name__} with {what} has no counterpart among our layers"
    )


def _plain(theirs: Any, **expected: Any) -> None:
    """Refuse options of which we have one value only.

    Raises:
        ConfigError: An attribute has another value than the expected one.
    """
    for name, value in expected.items():
        given = getattr(theirs, name, value)
        if given != value:
            raise _refuse(theirs, f"{name}={given!r}")


def _sums(theirs: Any) -> None:
    """Refuse a layer of PyTorch Geometric whose messages are not summed, along the edges.

    Raises:
        ConfigError: It has another aggregator, or messages against the edges.
    """
    _plain(theirs, flow="source_to_target")
    if theirs.aggr not in ("add", "sum"):
        raise _refuse(theirs, f"aggr={theirs.aggr!r}")


def _with_loops(layer: Any, theirs: Any) -> Any:
    """The layer, with the rule of the other one for self loops."""
    layer.self_loops = bool(getattr(theirs, "add_self_loops", False))
    return layer


def _width(theirs: Any) -> int:
    """Width of the input, which is the same at both ends.

    Raises:
        ConfigError: It is not.
    """
    d = theirs.in_channels
    if not isinstance(d, int):
        raise _refuse(theirs, f"in_channels={d!r}")
    if d < 1:
        raise _refuse(theirs, f"in_channels={d!r}, before its first call,")
    return d


def _gcn(theirs: Any) -> Module:
    _sums(theirs)
    _plain(theirs, improved=False)
    norm = "sym" if theirs.normalize else "none"
    layer = GCN(_width(theirs), theirs.out_channels, norm=norm, bias=theirs.bias is not None)
    return _with_loops(layer, theirs)


def _sage(theirs: Any) -> Module:
    _plain(theirs, flow="source_to_target", normalize=False, project=False, root_weight=True)
    aggregator = {"mean": "mean", "max": "max", "add": "sum", "sum": "sum"}.get(str(theirs.aggr))
    if aggregator is None:
        raise _refuse(theirs, f"aggr={theirs.aggr!r}")
    return SAGE(
        _width(theirs),
        theirs.out_channels,
        aggregator=aggregator,
        bias=theirs.lin_l.bias is not None,
    )


def _gat(theirs: Any) -> Module:
    _sums(theirs)
    options = {
        "d_in": _width(theirs),
        "d_out": theirs.out_channels,
        "heads": theirs.heads,
        "concat": theirs.concat,
        "slope": theirs.negative_slope,
        "attention_dropout": theirs.dropout,
        "bias": theirs.bias is not None,
    }
    if theirs.edge_dim is None:
        if getattr(theirs, "res", None) is not None:
            raise _refuse(theirs, "residual=True and no edge_dim")
        return _with_loops(GAT(**options), theirs)
    _mean_loops(theirs)
    residual = getattr(theirs, "res", None) is not None
    return _with_loops(GATE(**options, d_edge=theirs.edge_dim, residual=residual), theirs)


def _mean_loops(theirs: Any) -> None:
    """Refuse other attributes of self loops than those that ``with_self_loops`` gives them.

    Raises:
        ConfigError: They are not the mean of a node's edges.
    """
    if theirs.add_self_loops and theirs.edge_dim is not None:
        _plain(theirs, fill_value="mean")


def _gatv2(theirs: Any) -> Module:
    _sums(theirs)
    _mean_loops(theirs)
    layer = GATv2(
        _width(theirs),
        theirs.out_channels,
        theirs.heads,
        d_edge=theirs.edge_dim or 0,
        concat=theirs.concat,
        share=theirs.share_weights,
        attention_dropout=theirs.dropout,
        slope=theirs.negative_slope,
        residual=getattr(theirs, "res", None) is not None,
        projection_bias=theirs.lin_l.bias is not None,
        bias=theirs.bias is not None,
    )
    return _with_loops(layer, theirs)


def _gin(theirs: Any) -> Module:
    _sums(theirs)
    return GIN(_perceptron(theirs.nn), train_eps=theirs.eps.requires_grad)


def _gine(theirs: Any) -> Module:
    _sums(theirs)
    if theirs.lin is None:
        raise _refuse(theirs, "edge_dim=None")
    width, d_edge = theirs.lin.weight.shape
    return GINE(
        _perceptron(theirs.nn), width, d_edge, train_eps=theirs.eps.requires_grad, edge_bias=True
    )


def _transformer(theirs: Any) -> Module:
    _sums(theirs)
    biased = theirs.lin_query.bias is not None
    return Transformer(
        _width(theirs),
        theirs.out_channels,
        theirs.heads,
        d_edge=theirs.edge_dim or 0,
        concat=theirs.concat,
        skip=theirs.root_weight,
        beta=theirs.lin_beta is not None,
        attention_dropout=theirs.dropout,
        query_bias=biased,
        bias=biased,
    )


def _appnp(theirs: Any) -> Module:
    _sums(theirs)
    _plain(theirs, normalize=True)
    layer = APPNP(theirs.K, theirs.alpha, edge_drop=theirs.dropout)
    _with_loops(layer.step, theirs)
    return layer


def _gcnii(theirs: Any) -> Module:
    _sums(theirs)
    _plain(theirs, normalize=True)
    layer = GCNII(
        theirs.channels,
        alpha=theirs.alpha,
        beta=theirs.beta,
        shared=theirs.weight2 is None,
    )
    return _with_loops(layer, theirs)


def _pna(theirs: Any) -> Module:
    _plain(theirs, flow="source_to_target")
    if theirs.divide_input and theirs.towers > 1:
        raise _refuse(theirs, "divide_input=True")
    if len(theirs.pre_nns[0]) > 1 or len(theirs.post_nns[0]) > 1:
        raise _refuse(theirs, "more than one of pre_layers or post_layers")
    inner = theirs.aggr_module
    names = {
        "MeanAggregation": "mean",
        "MinAggregation": "min",
        "MaxAggregation": "max",
        "StdAggregation": "std",
        "SumAggregation": "sum",
        "VarAggregation": "var",
    }
    aggregators = getattr(inner.aggr, "aggrs", [inner.aggr])
    unknown = [type(a).__name__ for a in aggregators if type(a).__name__ not in names]
    if unknown:
        raise _refuse(theirs, f"the aggregator {unknown[0]}")
    return PNA(
        _width(theirs),
        theirs.out_channels,
        float(inner.avg_deg_log),
        d_edge=theirs.edge_dim or 0,
        towers=theirs.towers,
        aggregators=tuple(names[type(a).__name__] for a in aggregators),
        scalers=tuple(inner.scaler),
    )


def _dgl_graph_conv(theirs: Any) -> Module:
    norms = {"both": "both", "right": "row", "none": "none"}
    if theirs._norm not in norms:
        raise _refuse(theirs, f"norm={theirs._norm!r}")
    _plain(theirs, _activation=None)
    if theirs.weight is None:
        raise _refuse(theirs, "weight=False")
    return _with_loops(
        GCN(
            theirs._in_feats,
            theirs._out_feats,
            norm=norms[theirs._norm],
            bias=theirs.bias is not None,
        ),
        theirs,
    )


def _dgl_sage(theirs: Any) -> Module:
    _plain(theirs, _aggre_type="mean", norm=None, activation=None)
    return SAGE(_dgl_width(theirs), theirs._out_feats, bias=theirs.fc_self.bias is not None)


def _dgl_gat(theirs: Any) -> Module:
    _plain(theirs, activation=None, res_fc=None)
    layer = GAT(
        _dgl_width(theirs),
        theirs._out_feats,
        theirs._num_heads,
        slope=theirs.leaky_relu.negative_slope,
        attention_dropout=theirs.attn_drop.p,
        bias=theirs.bias is not None,
    )
    return _with_loops(layer, theirs)


def _dgl_gatv2(theirs: Any) -> Module:
    _plain(theirs, activation=None, res_fc=None)
    layer = GATv2(
        _dgl_width(theirs),
        theirs._out_feats,
        theirs._num_heads,
        share=theirs.share_weights,
        slope=theirs.leaky_relu.negative_slope,
        attention_dropout=theirs.attn_drop.p,
        projection_bias=theirs.fc_src.bias is not None,
        bias=False,
    )
    return _with_loops(layer, theirs)


def _dgl_gin(theirs: Any) -> Module:
    _plain(theirs, _aggregator_type="sum", activation=None)
    if theirs.apply_func is None:
        raise _refuse(theirs, "apply_func=None")
    return GIN(_perceptron(theirs.apply_func), train_eps=theirs.eps.requires_grad)


def _dgl_width(theirs: Any) -> int:
    """As ``_width``, of DGL."""
    if theirs._in_src_feats != theirs._in_dst_feats:
        raise _refuse(theirs, f"in_feats={(theirs._in_src_feats, theirs._in_dst_feats)}")
    return int(theirs._in_src_feats)


def _linear(theirs: Any) -> Module:
    return Linear(theirs.in_features, theirs.out_features, bias=theirs.bias is not None)


def _perceptron(theirs: Any) -> MLP:
    """A ``Sequential`` of linear maps, norms and one kind of activation.

    Raises:
        ConfigError: It is something else.
    """
    parts = list(theirs) if type(theirs).__name__ == "Sequential" else [theirs]
    names = [type(part).__name__ for part in parts]
    norm, activation = _form(theirs, names)
    for part, kind in zip(parts, names, strict=True):
        if kind in ACTIVATIONS:
            _plain(part, **ACTIVATIONS[kind][1])
        elif kind in NORMS:
            # a norm alone is refused for the same options
            MAKERS["torch", kind](part)
    maps = [part for part, kind in zip(parts, names, strict=True) if kind == "Linear"]
    *inner, last_bias = [one.bias is not None for one in maps]
    # a bias in front of batch norm becomes part of its running mean
    bias = any(inner) or (last_bias and (norm == "batch" or not inner))
    if norm != "batch" and (len(set(inner)) > 1 or (last_bias and not bias)):
        raise _refuse(theirs, "biases in some of its linear maps only")
    return MLP(
        maps[0].in_features,
        [one.out_features for one in maps[:-1]],
        maps[-1].out_features,
        activation=activation,
        norm=norm,
        bias=bias,
        last_bias=last_bias,
    )


def _form(theirs: Any, names: list[str]) -> tuple[str, str]:
    """Norm and activation of linear maps, between any two of which stand the same parts: a norm or
    none, and an activation.

    Args:
        theirs: The module, for messages.
        names: Classes of its parts.

    Raises:
        ConfigError: The parts are others.
    """
    maps = [i for i, name in enumerate(names) if name == "Linear"]
    between = {tuple(names[a + 1 : b]) for a, b in pairwise(maps)}
    same = between.pop() if between else ()
    norm = NORMS[same[0]] if len(same) == 2 and same[0] in NORMS else "none"
    acts = same if norm == "none" else same[1:]
    regular = (
        maps[:1] == [0]
        and maps[-1] == len(names) - 1
        and not between
        and (len(maps) == 1 or (len(acts) == 1 and acts[0] in ACTIVATIONS))
    )
    if not regular:
        raise _refuse(theirs, f"the parts {', '.join(names)}")
    return norm, ACTIVATIONS[acts[0]][0] if acts else "relu"


def _batch_norm(theirs: Any) -> Module:
    _plain(theirs, affine=True, track_running_stats=True, eps=1e-5)
    return BatchNorm(theirs.num_features)


def _layer_norm(theirs: Any) -> Module:
    _plain(theirs, elementwise_affine=True, eps=1e-5)
    if len(theirs.normalized_shape) != 1:
        raise _refuse(theirs, f"normalized_shape={theirs.normalized_shape}")
    return LayerNorm(theirs.normalized_shape[0])


def _gru_cell(theirs: Any) -> Module:
    _plain(theirs, bias=True)
    return GRUCell(theirs.input_size, theirs.hidden_size)


# by the first part of the module that defines a class, and its name
MAKERS: dict[tuple[str, str], Maker] = {
    ("torch_geometric", "GCNConv"): _gcn,
    ("torch_geometric", "SAGEConv"): _sage,
    ("torch_geometric", "GATConv"): _gat,
    ("torch_geometric", "GATv2Conv"): _gatv2,
    ("torch_geometric", "GINConv"): _gin,
    ("torch_geometric", "GINEConv"): _gine,
    ("torch_geometric", "TransformerConv"): _transformer,
    ("torch_geometric", "APPNP"): _appnp,
    ("torch_geometric", "GCN2Conv"): _gcnii,
    ("torch_geometric", "PNAConv"): _pna,
    ("dgl", "GraphConv"): _dgl_graph_conv,
    ("dgl", "SAGEConv"): _dgl_sage,
    ("dgl", "GATConv"): _dgl_gat,
    ("dgl", "GATv2Conv"): _dgl_gatv2,
    ("dgl", "GINConv"): _dgl_gin,
    ("torch", "Linear"): _linear,
    ("torch", "Sequential"): _perceptron,
    ("torch", "BatchNorm1d"): _batch_norm,
    ("torch", "LayerNorm"): _layer_norm,
    ("torch", "GRUCell"): _gru_cell,
}
