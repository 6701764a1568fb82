"""``gt.per_relation``: a layer for each relation of a graph, and their results combined.

Every layer runs over the edges of its own relation, in the same hop. A layer counts only at nodes
of the types that its relation leads to: others get no message of it, and neither its bias nor
another term of their own.

Source of the attention: HAN, https://arxiv.org/abs/1903.07293, section 4.2, but with weights for
each node; those of the paper are means over all nodes, which a batch does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from ..engine.layer.context import ActiveGraph
from ..engine.layer.layer import Layer
from ..engine.layer.module import Module
from ..ops.autodiff.tape import Parameter
from ..ops.functions.comparison import where
from ..ops.functions.dense import matmul
from ..ops.functions.elementwise import add, maximum, mul, tanh
from ..ops.functions.embedding import embedding
from ..ops.functions.shape import softmax_over, stack

# a relation by its code, its name, or the types of its ends and its name
Relation = int | str | tuple[str, str, str]
COMBINE = ("sum", "mean", "max", "attention")


class Attention(Module):
    """Weights of the relations at each node: the softmax of ``tanh(h W + b) q``.

    Args:
        width: Width of the results of the layers.
        hidden: Width of the hidden values.
    """

    def __init__(self, width: int, hidden: int = 128):
        self.weight = Parameter.glorot(width, hidden)
        self.bias = Parameter.zeros(hidden)
        self.query = Parameter.glorot(hidden, 1)

    def scores(self, h: Any) -> Any:
        """The score of one result, [n, 1]."""
        return matmul(tanh(add(matmul(h, self.weight), self.bias)), self.query)


class PerRelation(Module):
    """Layers by relation; call it as a layer, ``self.layer(graph, h)``."""

    def __init__(
        self,
        layers: dict[int, Layer],
        ends: list[tuple[int, int]],
        types: int,
        relations: int,
        combine: str,
        attention: Attention | None,
    ):
        self.layers = layers
        self.combine = combine
        self.attention = attention
        self.ends = ends
        self.types = types
        self.relations = relations

    @property
    def applies(self) -> np.ndarray | None:
        """Whether relations of layers lead to types, [layers, types] bool; None without types."""
        if not self.types:
            return None
        table = np.zeros((len(self.layers), self.types), bool)
        layers = zip(self.layers.values(), self.ends, strict=True)
        for i, (layer, (source, destination)) in enumerate(layers):
            # the direction may have been set after the layer was made
            receiving = {"in": [destination], "out": [source], "both": [source, destination]}
            table[i, receiving[layer.direction]] = True
        return table

    def __call__(self, graph: ActiveGraph, h: Any = None, **columns: Any) -> Any:
        """Node values, [n, ...]; 0 at nodes of types that no relation leads to.

        Collective: all ranks of the view's partition.
        """
        results = []
        for code, layer in self.layers.items():
            with graph.relation(code, 1 / self.relations):
                results.append(layer(graph, h, **columns))
        masks = None
        applies = self.applies
        if applies is not None:
            types = graph.node("type", results[0].shape[0])
            masks = [embedding(row.astype(results[0].dtype), types) for row in applies]
        return self._combined(results, masks)

    def _combined(self, results: list[Any], masks: list[Any] | None) -> Any:
        if self.combine == "sum":
            return _sum(results, masks)
        if self.combine == "mean":
            count = len(results) if masks is None else maximum(reduce(add, masks), 1)
            return _sum(results, masks) / _beside(count, results[0])
        if self.combine == "max":
            return self._largest(results, masks)
        assert self.attention is not None
        scores = stack([self.attention.scores(h)[..., 0] for h in results])
        if masks is not None:
            # finite, so that a node without relations has weights too, of results that count as 0
            scores = where(stack(masks) > 0, scores, np.finfo(scores.dtype).min / 2)
        weights = softmax_over(scores)
        return _sum(
            results,
            [
                weights[..., i] if masks is None else mul(weights[..., i], masks[i])
                for i in range(len(results))
            ],
        )

    @staticmethod
    def _largest(results: list[Any], masks: list[Any] | None) -> Any:
        if masks is None:
            return reduce(maximum, results)
        least = np.finfo(results[0].dtype).min
        largest = reduce(
            maximum,
            [where(_beside(m, h) > 0, h, least) for h, m in zip(results, masks, strict=True)],
        )
        return where(_beside(reduce(add, masks), largest) > 0, largest, 0)


@checked
def per_relation(
    layers: Callable[[Any], Layer] | Mapping[Any, Layer],
    relations: int | Sequence[Relation],
    types: Sequence[str] = (),
    *,
    combine: str = "sum",
    width: int = 0,
) -> PerRelation:
    """A layer for each relation, and their results combined at each node.

    Args:
        layers: Layers by relation, without those that carry no messages; or a function that makes
            the layer of a relation. All have results of the same width.
        relations: All relations in the order of their codes: (source type, name, destination type),
            or other names; or how many there are. The constructor of a model is given them if it
            names ``relation_names``.
        types: Names of the types in the order of their codes, for relations that name types; the
            constructor of a model is given them if it names ``type_names``. Without them every
            layer counts at every node.
        combine: "sum", "mean" or "max" of the results of the relations that lead to a node's type,
            or "attention", their mean with learned weights.
        width: Width of the results, for attention.

    Raises:
        ConfigError: A relation or combination is not known, two layers are one object, a layer has
            no sum, or attention has no width.
    """
    names: list[Any] = (
        list(relations) if isinstance(relations, Sequence) else list(range(relations))
    )
    if combine not in COMBINE:
        raise ConfigError(f"per_relation: combine is {combine!r}; choose from {', '.join(COMBINE)}")
    if combine == "attention" and not width:
        raise ConfigError(
            "per_relation: combine='attention' needs width, the width of the results of the layers"
        )
    if isinstance(layers, Mapping):
        given = {_code(key, names): layer for key, layer in layers.items()}
    else:
        given = {code: layers(name) for code, name in enumerate(names)}
    if not given or len({id(layer) for layer in given.values()}) < len(
        layers if isinstance(layers, Mapping) else names
    ):
        raise ConfigError(
            "per_relation: each relation needs a layer of its own, and there is at least one; a"
            " layer that several relations share reads edge.relation instead"
        )
    for code, layer in given.items():
        if not isinstance(layer, Layer) or layer.sum is None:
            raise ConfigError(
                f"per_relation: relation {names[code]!r} has {type(layer).__name__}; expected a"
                " gt.Layer that sums messages"
            )
    given = dict(sorted(given.items()))
    ends = [_ends(names[code], list(types)) for code in given] if types else []
    attention = Attention(width) if combine == "attention" else None
    return PerRelation(
        layers=given,
        ends=ends,
        types=len(types),
        relations=len(names),
        combine=combine,
        attention=attention,
    )


def _code(key: Any, names: list[Any]) -> int:
    """Code of a relation that is named in full, by the middle of its name, or by its code."""
    codes = [
        code
        for code, name in enumerate(names)
        if key in (name, code) or (isinstance(name, tuple) and key == name[1])
    ]
    if len(codes) != 1:
        raise ConfigError(
            f"per_relation: relation {key!r} is {'not unique' if codes else 'not known'}; the"
            f" relations are {', '.join(map(repr, names))}"
        )
    return codes[0]


def _ends(name: Any, types: list[str]) -> tuple[int, int]:
    """Codes of the types at the source and at the destination of a relation."""
    if not (isinstance(name, tuple) and len(name) == 3 and {name[0], name[2]} <= set(types)):
        raise ConfigError(
            f"per_relation: relation {name!r} does not name two of the types {', '.join(types)}; "
            "leave out types, so that every layer counts at every node"
        )
    return types.index(name[0]), types.index(name[2])


def _beside(x: Any, h: Any) -> Any:
    """A number for each row, shaped to multiply the trailing axes of h."""
    return x if isinstance(x, int) else x[(..., *[None] * (len(h.shape) - 1))]


def _sum(results: list[Any], weights: list[Any] | None) -> Any:
    return reduce(
        add,
        (
            results
            if weights is None
            else [mul(h, _beside(w, h)) for h, w in zip(results, weights, strict=True)]
        ),
    )
