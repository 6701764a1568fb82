"""Counterparts in PyTorch Geometric of GAT with edge attributes, GATv2, graph transformer, APPNP,
GCNII and PNA.
"""

from __future__ import annotations

from math import expm1
from typing import Any

import numpy as np

from graphtheta.inference.exporting.counterpart import (
    Counterpart,
    State,
    array_of,
    filled,
    linear,
    refusal,
)
from graphtheta.models.appnp import APPNP
from graphtheta.models.gat_e import GATE
from graphtheta.models.gatv2 import GATv2
from graphtheta.models.gcnii import GCNII
from graphtheta.models.pna import PNA
from graphtheta.models.transformer import Transformer
from graphtheta.ops.autodiff.tape import Parameter


def gat_conv(layer: Any, of_edges: State, **more: Any) -> Counterpart:
    """``GATConv``.

    Args:
        layer: An attention layer with one matrix and two vectors for each head.
        of_edges: Weights of the attributes of edges, by name.
        more: Further arguments of the constructor.
    """
    heads, width = layer.att_src.shape
    state = linear("lin.", layer.weight) | of_edges
    state |= {"att_src": array_of(layer.att_src)[None], "att_dst": array_of(layer.att_dst)[None]}
    if layer.bias is not None:
        state["bias"] = array_of(layer.bias)
    options = {
        "in_channels": layer.weight.shape[0],
        "out_channels": width,
        "heads": heads,
        "concat": layer.concat,
        "negative_slope": layer.slope,
        "add_self_loops": False,
        "bias": layer.bias is not None,
    }
    return Counterpart("pyg", "GATConv", options | more, state)


def gat_e(layer: GATE, library: str) -> Counterpart:
    """``GATConv`` with ``edge_dim``."""
    of_edges = linear("lin_edge.", layer.weight_edge)
    of_edges |= {"att_edge": array_of(layer.att_edge)[None]}
    of_edges |= {} if layer.root is None else linear("res.", layer.root)
    return gat_conv(
        layer, of_edges, edge_dim=layer.weight_edge.shape[0], residual=layer.root is not None
    )


def gatv2(layer: GATv2, library: str) -> Counterpart:
    """``GATv2Conv``."""
    d_in, heads, width = layer.weight.shape
    biased = layer.bias is not None or layer.bias_src is not None
    state = {"att": array_of(layer.att)[None]}
    state |= filled("lin_l.", layer.weight, layer.bias_src, biased)
    state |= (
        filled("lin_r.", layer.weight, layer.bias_src, biased)
        if layer.weight_dst is None
        else filled("lin_r.", layer.weight_dst, layer.bias_dst, biased)
    )
    if layer.weight_edge is not None:
        state |= linear("lin_edge.", layer.weight_edge)
    if layer.root is not None:
        state |= linear("res.", layer.root)
    if biased:
        total = heads * width if layer.concat else width
        state["bias"] = (
            np.zeros(total, state["att"].dtype) if layer.bias is None else array_of(layer.bias)
        )
    options = {
        "in_channels": d_in,
        "out_channels": width,
        "heads": heads,
        "concat": layer.concat,
        "negative_slope": layer.slope,
        "add_self_loops": False,
        "edge_dim": None if layer.weight_edge is None else layer.weight_edge.shape[0],
        "bias": biased,
        "share_weights": layer.weight_dst is None,
        "residual": layer.root is not None,
    }
    return Counterpart(library, "GATv2Conv", options, state)


def transformer(layer: Transformer, library: str) -> Counterpart:
    """``TransformerConv``."""
    d_in, heads, width = layer.query.shape
    biased = layer.query_bias is not None or layer.value_bias is not None
    state = filled("lin_query.", layer.query, layer.query_bias, biased)
    state |= filled("lin_key.", layer.key, None, biased)
    state |= filled("lin_value.", layer.value, layer.value_bias, biased)
    total = heads * width if layer.concat else width
    dtype = array_of(layer.query).dtype
    # the module has these weights also where it does not read them
    root = Parameter(np.zeros((d_in, total), dtype)) if layer.root is None else layer.root
    state |= filled("lin_skip.", root, layer.bias, biased)
    if layer.weight_edge is not None:
        state |= linear("lin_edge.", layer.weight_edge)
    if layer.gate is not None:
        state["lin_beta.weight"] = array_of(layer.gate).reshape(1, -1)
    options = {
        "in_channels": d_in,
        "out_channels": width,
        "heads": heads,
        "concat": layer.concat,
        "beta": layer.gate is not None,
        "edge_dim": None if layer.weight_edge is None else layer.weight_edge.shape[0],
        "bias": biased,
        "root_weight": layer.root is not None,
    }
    return Counterpart(library, "TransformerConv", options, state)


def appnp(layer: APPNP, library: str) -> Counterpart:
    """``APPNP``, with normalised edge weights."""
    options = {
        "K": layer.steps,
        "alpha": layer.step.alpha,
        "add_self_loops": False,
        "normalize": False,
    }
    return Counterpart(library, "APPNP", options, {})


def gcnii(layer: GCNII, library: str) -> Counterpart:
    """``GCN2Conv``, with normalised edge weights."""
    state = {"weight1": array_of(layer.weight)}
    if layer.weight_start is not None:
        state["weight2"] = array_of(layer.weight_start)
    options = {
        "channels": layer.weight.shape[0],
        "alpha": layer.alpha,
        # beta is log(theta / layer + 1)
        "theta": expm1(layer.beta),
        "layer": 1,
        "shared_weights": layer.weight_start is None,
        "add_self_loops": False,
        "normalize": False,
    }
    return Counterpart(library, "GCN2Conv", options, state)


def pna(layer: PNA, library: str) -> Counterpart:
    """``PNAConv``."""
    d_in, towers, width = layer.root.shape
    dtype = array_of(layer.mix).dtype
    state: State = {
        "aggr_module.avg_deg_log": array_of(layer.log_degree).reshape(1),
        # no scaler reads it
        "aggr_module.avg_deg_lin": np.ones(1, dtype),
    }
    state |= filled("lin.", layer.mix, layer.bias, True)
    ends = [array_of(layer.weight_dst), array_of(layer.weight_src)]
    d_edge = 0
    if layer.weight_edge is not None:
        d_edge = layer.weight_edge.shape[0]
        encoder, of_towers = _encoded(layer)
        state |= {"edge_encoder.weight": encoder, "edge_encoder.bias": np.zeros(d_in, dtype)}
        ends.append(of_towers)
    for i in range(towers):
        state[f"pre_nns.{i}.0.weight"] = np.concatenate([w[:, i] for w in ends]).T
        state[f"pre_nns.{i}.0.bias"] = array_of(layer.message_bias)[i]
        # by scaler, aggregator and column there
        of_totals = array_of(layer.weight)[i].transpose(1, 0, 2).reshape(-1, width)
        state[f"post_nns.{i}.0.weight"] = np.concatenate([array_of(layer.root)[:, i], of_totals]).T
        state[f"post_nns.{i}.0.bias"] = (
            np.zeros(width, dtype) if layer.tower_bias is None else array_of(layer.tower_bias)[i]
        )
    options: dict[str, Any] = {
        "in_channels": d_in,
        "out_channels": towers * width,
        "aggregators": list(layer.sum),
        "scalers": list(layer.scalers),
        # the state has the means of degrees
        "deg": np.ones(1, np.int64),
        "edge_dim": d_edge or None,
        "towers": towers,
    }
    return Counterpart(library, "PNAConv", options, state)


def _encoded(layer: PNA) -> tuple[np.ndarray, np.ndarray]:
    """The encoder of edges of ``PNAConv``, [d_in, d_edge], and what towers multiply its result by,
    [d_in, towers, d_in].

    Raises:
        ConfigError: There is none, because several towers read more attributes than it returns.
    """
    assert layer.weight_edge is not None
    weight = array_of(layer.weight_edge)
    d_edge, towers, d_in = weight.shape
    if d_edge <= d_in:
        of_towers = np.zeros((d_in, towers, d_in), weight.dtype)
        of_towers[:d_edge] = weight
        return np.eye(d_in, d_edge, dtype=weight.dtype), of_towers
    if towers > 1:
        raise refusal(layer, f"{towers} towers and more edge attributes than columns", "pyg")
    return weight[:, 0].T, np.eye(d_in, dtype=weight.dtype)[:, None]
