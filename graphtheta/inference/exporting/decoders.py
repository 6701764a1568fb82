"""Decoders of pairs: their weights as modules of torch or DGL, and the scores that are computed
with these.

A model of learned features and a decoder, without an encoder, is also one of
``torch_geometric.nn.kge``: ``with_nodes``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from graphtheta.engine.layer.module import Module
from graphtheta.errors import ConfigError, DataError, ShapeError
from graphtheta.inference.exporting.calls import checked_codes
from graphtheta.inference.exporting.counterpart import Counterpart, State, array_of
from graphtheta.models.decoder import DotDecoder, EdgeDecoder, HadamardDecoder
from graphtheta.models.triples import ComplEx, DistMult, RotatE, TransE
from graphtheta.models.triples.decoders import TINY
from graphtheta.ops.autodiff.tape import Parameter


@dataclass(frozen=True)
class TensorPairs:
    """Pairs to be scored, as tensors.

    Attributes:
        src, dst: Values of the ends, [pairs, d].
        attr: Edge attributes, [pairs, d_edge], or None.
        relation: Codes of relations, [pairs], or None.
    """

    src: Any
    dst: Any
    attr: Any = None
    relation: Any = None

    def codes(self, relations: int) -> Any:
        """Codes of relations, checked; DataError if they are missing or too large."""
        return checked_codes(
            codes=self.relation,
            n=relations,
            name="edge_label_type",
            reader="the decoder",
            kinds="relations",
        )


def score(layer: Module, module: Any, pairs: TensorPairs) -> Any:
    """What a decoder returns for pairs, [pairs] or [pairs, values].

    Args:
        layer: Our decoder, one of ``SCORES``.
        module: Its counterpart.
        pairs: The pairs.

    Raises:
        DataError: They lack what the decoder reads.
    """
    return SCORES[type(layer)](layer, module, pairs)


# ---- counterparts


def edge(layer: EdgeDecoder, mlp: Counterpart) -> Counterpart:
    """The perceptron, whose first map reads the values of source, destination and edge side by
    side.

    Args:
        layer: The decoder.
        mlp: Counterpart of its perceptron.
    """
    parts = [
        array_of(p)
        for p in (layer.mlp.weights[0], layer.weight_dst, layer.weight_edge)
        if p is not None
    ]
    weight = np.concatenate(parts).T
    first, *others = mlp.options["*"]
    first = replace(
        first,
        options={**first.options, "in_features": weight.shape[1]},
        state={**first.state, "weight": weight},
    )
    return replace(mlp, options={"*": [first, *others]}, state={**mlp.state, "0.weight": weight})


def transe(layer: TransE, library: str) -> Counterpart:
    """The vectors of relations, in DGL those of ``TransE``, which scores by negative distance."""
    if library != "dgl":
        return vectors(layer.relation)
    relations, width = layer.relation.shape
    return Counterpart(
        library,
        "TransE",
        {"num_rels": relations, "feats": width, "p": layer.norm},
        {"rel_emb.weight": array_of(layer.relation)},
    )


def vectors(*parts: Parameter) -> Counterpart:
    """Rows of relations, of parts side by side."""
    weight = np.concatenate([array_of(p) for p in parts], axis=1)
    return Counterpart(
        "torch",
        "Embedding",
        {"num_embeddings": weight.shape[0], "embedding_dim": weight.shape[1]},
        {"weight": weight},
    )


# ---- models of PyTorch Geometric with the features of nodes

# decoders whose model of that name computes something else
OTHERS = {
    TransE: "whose TransE divides the vectors of nodes by their norms",
    RotatE: (
        "whose RotatE takes one Euclidean norm of all components, not the sum of the moduli of the"
        " complex numbers"
    ),
}


def with_nodes(layer: Any, library: str, nodes: np.ndarray) -> Counterpart:
    """A decoder of triples with the features of all nodes, as a model of
    ``torch_geometric.nn.kge``.

    Args:
        layer: The decoder.
        library: "pyg".
        nodes: Features that the decoder reads, [n_nodes, width].

    Raises:
        ConfigError: There is no model that computes the same.
        ShapeError: The width is not that of the decoder.
    """
    kind = type(layer)
    if library != "pyg" or kind not in (DistMult, ComplEx):
        reason = (
            OTHERS.get(kind, "which has models of triples for DistMult and ComplEx only")
            if library == "pyg"
            else "which has no models that hold the features of nodes"
        )
        raise ConfigError(
            f"{kind.__name__} with nodes has no counterpart in {library}, {reason}; leave out"
            " nodes, and give the network to gt.to_torch"
        )
    relations: State = (
        {"": array_of(layer.relation)}
        if kind is DistMult
        else {"": array_of(layer.real), "_im": array_of(layer.imaginary)}
    )
    count, k = relations[""].shape
    nodes = np.asarray(nodes)
    if nodes.ndim != 2 or nodes.shape[1] != k * len(relations):
        raise ShapeError(
            f"nodes has shape {list(nodes.shape)}; {kind.__name__} reads a row of"
            f" {k * len(relations)} numbers for each node"
        )
    state: State = {f"rel_emb{part}.weight": x for part, x in relations.items()}
    state |= {
        f"node_emb{part}.weight": nodes[:, i * k : (i + 1) * k] for i, part in enumerate(relations)
    }
    return Counterpart(
        library,
        kind.__name__,
        {"num_nodes": len(nodes), "num_relations": count, "hidden_channels": k},
        state,
    )


# ---- scores


def _dot(layer: DotDecoder, module: Any, pairs: TensorPairs) -> Any:
    return (pairs.src * pairs.dst).sum(-1)


def _hadamard(layer: HadamardDecoder, module: Any, pairs: TensorPairs) -> Any:
    return module(pairs.src * pairs.dst)[..., 0]


def _edge(layer: EdgeDecoder, module: Any, pairs: TensorPairs) -> Any:
    parts = [pairs.src, pairs.dst]
    if layer.weight_edge is not None:
        if pairs.attr is None:
            raise DataError(
                "the decoder reads edge attributes; give edge_label_attr, a row for each pair"
            )
        parts.append(pairs.attr)
    out = module(_beside(parts))
    return out[..., 0] if layer.single else out


def _distmult(layer: DistMult, module: Any, pairs: TensorPairs) -> Any:
    return (pairs.src * module(pairs.codes(layer.relation.shape[0])) * pairs.dst).sum(-1)


def _transe(layer: TransE, module: Any, pairs: TensorPairs) -> Any:
    relation = pairs.codes(layer.relation.shape[0])
    if type(module).__name__ == "TransE":
        return layer.margin + module(pairs.src, pairs.dst, relation)
    off = pairs.src + module(relation) - pairs.dst
    return layer.margin - (off.abs().sum(-1) if layer.norm == 1 else _root((off**2).sum(-1)))


def _complex(layer: ComplEx, module: Any, pairs: TensorPairs) -> Any:
    real, imaginary = module(pairs.codes(layer.real.shape[0])).chunk(2, -1)
    return (_beside(_turned(pairs, real, imaginary)) * pairs.dst).sum(-1)


def _rotate(layer: RotatE, module: Any, pairs: TensorPairs) -> Any:
    phase = module(pairs.codes(layer.phase.shape[0]))
    off = _beside(_turned(pairs, phase.cos(), phase.sin())) - pairs.dst
    a, b = off.chunk(2, -1)
    return layer.margin - _root(a**2 + b**2).sum(-1)


def _turned(pairs: TensorPairs, real: Any, imaginary: Any) -> list[Any]:
    """Real and imaginary part of the products of sources and relations; those of a row are side by
    side.
    """
    a, b = pairs.src.chunk(2, -1)
    return [a * real - b * imaginary, a * imaginary + b * real]


def _beside(parts: list[Any]) -> Any:
    return import_module("torch").cat(parts, -1)


def _root(x: Any) -> Any:
    return (x + TINY).sqrt()


SCORES: dict[type, Callable[[Any, Any, TensorPairs], Any]] = {
    DotDecoder: _dot,
    HadamardDecoder: _hadamard,
    EdgeDecoder: _edge,
    DistMult: _distmult,
    TransE: _transe,
    ComplEx: _complex,
    RotatE: _rotate,
}
