"""Models by name: the published layers, each in the network it was published in."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from graphtheta.errors import ConfigError

from ..engine.layer.layer import DIRECTIONS, Layer
from .decoder import DotDecoder, EdgeDecoder, HadamardDecoder, NodeHead
from .gat import GAT
from .gat_e import GATE
from .gcn import GCN
from .gin import GIN
from .gipa import GIPA
from .mlp import MLP
from .network import Dense, Network
from .sage import SAGE

DECODERS = ("none", "dot", "hadamard", "edge")


@dataclass(frozen=True)
class Options:
    """Choices of a network; each model reads those that concern it.

    Attributes:
        layers: Number of layers.
        hidden: Width of a hidden layer; of each head for attention models.
        heads, out_heads: Attention heads of hidden layers (side by side) and of the last (averaged).
        dropout: On the input of every layer.
        attention_dropout: On attention weights (gipa: inside the attention perceptrons).
        feature_dropout: On projected features in messages (gat, gat_e), inside the other perceptrons (gipa).
        activation: Between layers; "auto" is what the model was published with.
        norm: "none", "batch" or "layer".
        residual: Add the input of a layer to its output where the widths agree (gat_e: through W_root).
        jumping: "none", "concat" or "max".
        aggregator: Of sage: "mean", "max" or "sum".
        normalisation: Of gcn: "sym" or "row".
        separate: Of gat: the layer of DistGNN-MB.
        train_eps: Of gin.
        reduce: Of gipa: "sum", "mean" or "max".
        edge_drop: Of gipa: share of the edges taken out of each step.
        direction: "in", "out" or "both": which edges carry messages.
        decoder: "none" for node tasks, "edge" for values of edges, "dot" or "hadamard" for links.
        decay_first_layer_only: Weight decay on the first layer only.
    """

    layers: int = 2
    hidden: int = 16
    heads: int = 8
    out_heads: int = 1
    dropout: float = 0.5
    attention_dropout: float = 0.0
    feature_dropout: float = 0.0
    activation: str = "auto"
    norm: str = "none"
    residual: bool = False
    jumping: str = "none"
    aggregator: str = "mean"
    normalisation: str = "sym"
    separate: bool = False
    train_eps: bool = False
    reduce: str = "sum"
    edge_drop: float = 0.0
    direction: str = "in"
    decoder: str = "none"
    decay_first_layer_only: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "out_heads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("dropout", "attention_dropout", "feature_dropout", "edge_drop"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        for name, allowed in (("direction", DIRECTIONS), ("decoder", DECODERS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} {getattr(self, name)!r} is not known; choose from {', '.join(allowed)}")


@dataclass(frozen=True)
class Design:
    """What a model is, beside its layer.

    Attributes:
        layer: (d_in, d_out, d_edge, last, options) to the layer and the width it gives.
        activation: Published activation between layers.
        whole: Published with an embedding before and a head after its layers, and the residual before the norm.
        reads_edges: Whether it needs edge attributes.
    """

    layer: Callable[[int, int, int, bool, Options], tuple[Layer | Dense, int]]
    activation: str = "relu"
    whole: bool = False
    reads_edges: bool = False


def _bias(last: bool, o: Options) -> bool:
    """Whether a layer ends by adding a bias: not in front of batch norm, which follows every layer but the last."""
    return last or o.norm != "batch"


def _gat(d_in: int, d_out: int, d_edge: int, last: bool, o: Options) -> tuple[Layer, int]:
    heads = o.out_heads if last else o.heads
    # the bias of the separate form is inside the activation
    made = GAT(d_in, d_out, heads, concat=not last, dropout=o.feature_dropout, attention_dropout=o.attention_dropout, separate=o.separate,
               activation="none" if last else "relu", bias=o.separate or _bias(last, o))
    return made, d_out if last else heads * d_out


def _gat_e(d_in: int, d_out: int, d_edge: int, last: bool, o: Options) -> tuple[Layer, int]:
    heads = o.out_heads if last else o.heads
    made = GATE(d_in, d_out, d_edge, heads, concat=not last, dropout=o.feature_dropout, attention_dropout=o.attention_dropout,
                residual=o.residual, bias=_bias(last, o))
    return made, d_out if last else heads * d_out


def _gipa(d_in: int, d_out: int, d_edge: int, last: bool, o: Options) -> tuple[Layer, int]:
    made = GIPA(d_in, d_out, d_edge, o.heads, attention_hidden=(o.hidden,), reduce=o.reduce, dropout=o.feature_dropout,
                attention_dropout=o.attention_dropout, edge_drop=o.edge_drop, bias=_bias(last, o))
    return made, o.heads * d_out


def _gin(d_in: int, d_out: int, d_edge: int, last: bool, o: Options) -> tuple[Layer, int]:
    return GIN(MLP(d_in, (o.hidden,), d_out, norm=o.norm, last_bias=_bias(last, o)), train_eps=o.train_eps), d_out


MODELS: dict[str, Design] = {
    "gcn": Design(lambda d_in, d_out, d_edge, last, o: (GCN(d_in, d_out, norm=o.normalisation, bias=_bias(last, o)), d_out)),
    "sage": Design(lambda d_in, d_out, d_edge, last, o: (SAGE(d_in, d_out, aggregator=o.aggregator, bias=_bias(last, o)), d_out)),
    "gin": Design(_gin),
    "gat": Design(_gat, activation="elu"),
    "gat_e": Design(_gat_e, activation="elu", reads_edges=True),
    "gipa": Design(_gipa, whole=True, reads_edges=True),
    "mlp": Design(lambda d_in, d_out, d_edge, last, o: (Dense(d_in, d_out, bias=_bias(last, o)), d_out)),
}


# options that only some models make use of; all others concern every network
READ_BY: dict[str, tuple[str, ...]] = {
    "heads": ("gat", "gat_e", "gipa"), "out_heads": ("gat", "gat_e"), "attention_dropout": ("gat", "gat_e", "gipa"),
    "feature_dropout": ("gat", "gat_e", "gipa"), "edge_drop": ("gipa",), "reduce": ("gipa",), "separate": ("gat",),
    "aggregator": ("sage",), "normalisation": ("gcn",), "train_eps": ("gin",),
}


def build_model(name: str, d_in: int, d_out: int, d_edge: int = 0, **options: Any) -> Network:
    """A network of a published layer.

    Args:
        name: Key of ``MODELS``.
        d_in: Width of the node features.
        d_out: Number of classes, labels or values.
        d_edge: Width of the edge attributes.
        **options: Fields of ``Options``.

    Raises:
        ConfigError: Unknown name or option, or a model whose needs the graph does not meet.
    """
    if name not in MODELS:
        raise ConfigError(f"model {name!r} is not known{_close(name, MODELS)}; choose from {', '.join(MODELS)}, "
                          "or give your own as FILE.py:Class")
    known = [f.name for f in fields(Options)]
    for key in options:
        if key not in known:
            raise ConfigError(f"models have no option {key!r}{_close(key, known)}; there are {', '.join(known)}")
    design, o = MODELS[name], Options(**options)
    if d_in < 1:
        raise ConfigError(f"{name} reads node features and the graph has none; give it x, for example node degrees")
    if design.reads_edges and d_edge < 1:
        raise ConfigError(f"{name} reads edge attributes and the graph has none; give it edge_attr, or use a model such as gat")
    return _assemble(design, d_in, d_out, d_edge, o)


def _assemble(design: Design, d_in: int, d_out: int, d_edge: int, o: Options) -> Network:
    end = d_out if o.decoder == "none" else o.hidden
    head_follows = design.whole or o.jumping != "none"
    embed = MLP(d_in, (), o.hidden) if design.whole else None
    layers, widths, width = [], [], o.hidden if design.whole else d_in
    for i in range(o.layers):
        last = i == o.layers - 1 and not head_follows
        layer, width = design.layer(width, end if last else o.hidden, d_edge, last, o)
        if isinstance(layer, Layer):
            layer.direction = o.direction
        layers.append(layer)
        widths.append(width)
    head = NodeHead(sum(widths) if o.jumping == "concat" else width, (), end) if head_follows else None
    residual = "none" if not o.residual or design.layer is _gat_e else "before" if design.whole else "after"
    chosen = design.activation if o.activation == "auto" else o.activation
    made = Network(layers, widths, activation=chosen, dropout=o.dropout, norm=o.norm, residual=residual, jumping=o.jumping, embed=embed,
                   head=head, decoder=_decoder(o, d_out, d_edge), plain_end=not head_follows)
    if o.decay_first_layer_only:
        made.decay_first_layer_only()
    return made


def _decoder(o: Options, d_out: int, d_edge: int) -> Layer | None:
    if o.decoder == "edge":
        return EdgeDecoder(o.hidden, d_out, d_edge, hidden=(o.hidden,))
    if o.decoder == "none":
        return None
    if d_out != 1:
        raise ConfigError(f"a {o.decoder} decoder gives one score per link, but {d_out} outputs are wanted; use decoder='edge'")
    return DotDecoder() if o.decoder == "dot" else HadamardDecoder(o.hidden, hidden=(o.hidden,))


def _close(word: str, known: Any) -> str:
    found = get_close_matches(word, list(known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""
