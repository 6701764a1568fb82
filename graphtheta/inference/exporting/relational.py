"""Counterparts of layers that read relations of edges and types of nodes: R-GCN, R-GAT, Simple-HGN,
HGT, and layers by relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from graphtheta.engine.layer.layer import Layer
from graphtheta.errors import ConfigError
from graphtheta.inference.exporting.counterpart import Counterpart, State, array_of, linear, refusal
from graphtheta.inference.exporting.published import gat_conv
from graphtheta.models.gat import GAT
from graphtheta.models.gat_e import GATE
from graphtheta.models.gin import GIN
from graphtheta.models.gine import GINE
from graphtheta.models.hgt import HGT
from graphtheta.models.per_relation import PerRelation
from graphtheta.models.rgat import RGAT
from graphtheta.models.rgcn import RGCN
from graphtheta.models.sage import SAGE
from graphtheta.models.simple_hgn import SimpleHGN

# names of node types, and of relations as (source type, name, destination type), in the order of
# their codes
Metadata = tuple[Sequence[str], Sequence[tuple[str, str, str]]]

# layers that read the values of both ends and of the edge, and nothing else of the graph
BY_ENDS = (SAGE, GIN, GINE, GAT, GATE)


def rgcn(layer: RGCN, library: str) -> Counterpart:
    """``RGCNConv`` of PyTorch Geometric; ``RelGraphConv`` of DGL, which is given the mean of each
    relation as norms of edges.
    """
    weight = array_of(layer.weight)
    blocks = layer.blocks
    bases = 0 if layer.comp is None else layer.comp.shape[1]
    relations = layer.weight.shape[1] if layer.comp is None else layer.comp.shape[0]
    d_in = weight.shape[0] * max(blocks, 1)
    d_out = prod(weight.shape[2:])
    if not blocks:
        weight = weight.transpose(1, 0, 2)
    elif weight.shape[-1] == blocks:
        weight = weight.transpose(1, 3, 0, 2)
    else:
        weight = weight.transpose(1, 2, 0, 3)
    options: dict[str, Any]
    if library == "pyg":
        options = {
            "in_channels": d_in,
            "out_channels": d_out,
            "num_relations": relations,
            "num_bases": bases or None,
            "num_blocks": blocks or None,
            "aggr": layer.aggregator,
            "root_weight": layer.root is not None,
            "bias": layer.bias is not None,
        }
        name = "RGCNConv"
        names = ("weight", "comp", "root", "bias")
    else:
        options = {
            "in_feat": d_in,
            "out_feat": d_out,
            "num_rels": relations,
            "num_bases": bases or blocks or None,
            "regularizer": "basis" if bases else "bdd" if blocks else None,
            "self_loop": layer.root is not None,
            "bias": layer.bias is not None,
        }
        name = "RelGraphConv"
        names = ("linear_r.W", "linear_r.coeff", "loop_weight", "h_bias")
        weight = weight.reshape(relations, -1) if blocks else weight
    others = zip(names[1:], (layer.comp, layer.root, layer.bias), strict=True)
    return Counterpart(
        library,
        name,
        options,
        {names[0]: weight} | {key: array_of(p) for key, p in others if p is not None},
    )


def rgat(layer: RGAT, library: str) -> Counterpart:
    """``RGATConv`` of PyTorch Geometric."""
    d_in, count, heads, width = layer.weight.shape
    weight = array_of(layer.weight).transpose(1, 0, 2, 3).reshape(count, d_in, -1)
    options = {
        "in_channels": d_in,
        "out_channels": width,
        "num_relations": count,
        "heads": heads,
        "concat": layer.concat,
        "negative_slope": layer.slope,
        "bias": layer.bias is not None,
    }
    state: State = {
        "q": _mixing(layer, array_of(layer.query)),
        "k": _mixing(layer, array_of(layer.key)),
    }
    if layer.comp is None:
        state["weight"] = weight
    else:
        options |= {"num_relations": layer.comp.shape[0], "num_bases": count}
        state |= {"basis": weight, "att": array_of(layer.comp)}
    if layer.bias is not None:
        state["bias"] = array_of(layer.bias)
    # weights of other modes of attention, which are not read here: with their first values
    ones = np.ones((1, width), weight.dtype)
    zeros = np.zeros((1, width), weight.dtype)
    state |= {
        "w": ones[0],
        "l1": ones,
        "b1": zeros,
        "l2": np.full((width, width), 1 / width, weight.dtype),
        "b2": zeros,
    }
    return Counterpart(library, "RGATConv", options, state)


def _mixing(layer: RGAT, vectors: np.ndarray) -> np.ndarray:
    """Attention vectors as a matrix over all heads, [heads * width, heads], in which a head reads
    its own values only.
    """
    if layer.mixed_heads:
        return vectors
    heads, width = vectors.shape
    matrix = np.zeros((heads, width, heads), vectors.dtype)
    matrix[np.arange(heads), :, np.arange(heads)] = vectors
    return matrix.reshape(-1, heads)


def simple_hgn(layer: SimpleHGN, library: str) -> Counterpart:
    """``GATConv`` of PyTorch Geometric, whose edge attributes are the relations one-hot.

    The term of a relation in the score of a head is one number, t_r . W_edge a_edge. It is stored
    in the first of the columns that the layer has for each head.
    """
    if layer.beta:
        raise refusal(
            layer, f"beta={layer.beta}, which reads attention weights of an earlier layer,", library
        )
    heads, width = layer.att_src.shape
    relations = layer.relations.shape[0]
    term = array_of(layer.relations) @ (array_of(layer.weight_edge) * array_of(layer.att_edge)).sum(
        -1
    )
    columns = np.zeros((heads, width, relations), term.dtype)
    first = np.zeros((1, heads, width), term.dtype)
    columns[:, 0] = term.T
    first[..., 0] = 1
    of_edges: State = {"lin_edge.weight": columns.reshape(-1, relations), "att_edge": first}
    of_edges |= {} if layer.root is None else linear("res.", layer.root)
    return gat_conv(layer, of_edges, edge_dim=relations, residual=layer.root is not None)


def hgt(layer: HGT, library: str, metadata: Metadata | None) -> Counterpart:
    """``HGTConv`` of PyTorch Geometric, whose weights have the names of types and relations."""
    types, relations = _named(
        "HGT", "HGTConv", (layer.weight.shape[0], layer.prior.shape[0]), metadata
    )
    # HGTConv has no values for types without messages, so each gets a relation, which has no edges
    silent = [(t, "none", t) for t in types if t not in {r[2] for r in relations}]
    options = {
        "in_channels": layer.weight.shape[1],
        "out_channels": layer.out.shape[1],
        "heads": layer.prior.shape[1],
        "metadata": (types, relations + silent),
    }
    weight, bias, out = (array_of(p) for p in (layer.weight, layer.bias, layer.out))
    # HGTConv always has these biases
    out_bias = (
        np.zeros(out.shape[:2], out.dtype) if layer.out_bias is None else array_of(layer.out_bias)
    )
    skip = np.ones(len(types), weight.dtype) if layer.skip is None else array_of(layer.skip)
    state: State = {
        "k_rel.weight": _by_head(layer.key, len(silent)),
        "v_rel.weight": _by_head(layer.value, len(silent)),
    }
    for i, name in enumerate(types):
        state |= {
            f"kqv_lin.lins.{name}.weight": weight[i].reshape(weight.shape[1], -1).T,
            f"kqv_lin.lins.{name}.bias": bias[i].reshape(-1),
            f"out_lin.lins.{name}.weight": out[i].T,
            f"out_lin.lins.{name}.bias": out_bias[i],
            f"skip.{name}": skip[i : i + 1],
        }
    prior = np.concatenate(
        [array_of(layer.prior), np.ones((len(silent), layer.prior.shape[1]), weight.dtype)]
    )
    # names of parameters have no dots
    state |= {
        f"p_rel.{'__'.join(name).replace('.', '#')}": row[None]
        for name, row in zip(relations + silent, prior, strict=True)
    }
    return Counterpart(library, "HGTConv", options, state)


def _by_head(p: Any, silent: int) -> np.ndarray:
    """Matrices [heads, d, relations, d] as [heads * relations, d, d], with zeros for further
    relations.
    """
    x = np.pad(array_of(p).transpose(0, 2, 1, 3), ((0, 0), (0, silent), (0, 0), (0, 0)))
    return x.reshape(-1, *x.shape[2:])


def per_relation(
    layer: PerRelation, metadata: Metadata | None, convert: Callable[[Layer], Counterpart]
) -> Counterpart:
    """``HeteroConv`` of PyTorch Geometric.

    Args:
        layer: Layers by relation.
        metadata: Names of types and relations.
        convert: Gives the counterpart of one of the layers.
    """
    if layer.combine == "attention":
        raise refusal(layer, "combine='attention'", "pyg")
    n_types = None if layer.applies is None else layer.applies.shape[1]
    types, relations = _named("PerRelation", "HeteroConv", (n_types, layer.relations), metadata)
    own = {relations[code]: part for code, part in layer.layers.items()}
    leads = np.array([[name[2] == t for t in types] for name in own])
    if not np.array_equal(leads, np.ones_like(leads) if layer.applies is None else layer.applies):
        raise ConfigError(
            "PerRelation: layers of HeteroConv count at the nodes that their relation in metadata"
            " leads to, those of this module at others; give types to gt.per_relation, and metadata"
            " in the order of their codes"
        )
    for part in own.values():
        if not isinstance(part, BY_ENDS):
            raise ConfigError(
                f"PerRelation with {type(part).__name__} has no counterpart in pyg: HeteroConv"
                " gives layers the features of two types and edge attributes; layers with which it"
                f" has one are {', '.join(x.__name__ for x in BY_ENDS)}"
            )
    convs = {name: convert(part) for name, part in own.items()}
    # as ``ModuleDict`` of PyTorch Geometric names its modules
    state = {
        f"convs.<{'___'.join(name).replace('.', '#')}>.{key}": x
        for name, conv in convs.items()
        for key, x in conv.state.items()
    }
    return Counterpart("pyg", "HeteroConv", {"convs": convs, "aggr": layer.combine}, state)


def _named(
    of: str, other: str, sizes: tuple[int | None, int], metadata: Metadata | None
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Names of types and relations, checked.

    Args:
        of, other: Names of the layer and its counterpart.
        sizes: Numbers of types and relations; None for any number of types.
        metadata: The names.
    """
    if metadata is None:
        raise ConfigError(
            f"{of}: {other} of PyTorch Geometric has weights by names of types and relations; give "
            "metadata=(graph.node_types, graph.relations)"
        )
    types = list(metadata[0])
    relations = [tuple(name) for name in metadata[1]]
    n_types = len(types) if sizes[0] is None else sizes[0]
    if (
        (len(types), len(relations)) != (n_types, sizes[1])
        or len(set(types)) < n_types
        or len(set(relations)) < sizes[1]
        or any(len(name) != 3 or not {name[0], name[2]} <= set(types) for name in relations)
    ):
        raise ConfigError(
            f"{of} has {n_types} types and {sizes[1]} relations; metadata must have distinct names"
            f" of as many, relations as (source type, name, destination type), but is {types},"
            f" {relations}"
        )
    if any("." in name for name in types):
        raise ConfigError(
            f"{of}: names of types in PyTorch Geometric have no dots; give others in metadata, in"
            f" the order of {', '.join(types)}"
        )
    return types, relations  # type: ignore[return-value]
