"""Builds networks from the design and the options of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..engine.layer.module import Module
from .decoder import DotDecoder, EdgeDecoder, HadamardDecoder, NodeHead
from .design import Design, EdgeOptions, NetworkOptions, read_options
from .mlp import MLP
from .network import Network
from .readouts import make_readout
from .registry import find_model, readers

DECODERS = ("none", "dot", "hadamard", "edge")


def build_model(
    name: str,
    d_in: int,
    d_out: int,
    d_edge: int = 0,
    *,
    relations: int = 0,
    types: int = 0,
    log_degree: float = 1.0,
    decoder: str = "none",
    **options: Any,
) -> Network:
    """Build a network of a model by name.

    Args:
        name: Name of a model in ``MODELS``.
        d_in: Width of the node features.
        d_out: Number of classes, labels or values.
        d_edge: Width of the edge attributes.
        relations, types: Number of relations of the edges and of types of the nodes.
        log_degree: Mean of log(degree + 1) over the nodes, ``graph.mean_log_degree()``.
        decoder: "none" for node tasks, "edge" for values of edges, "dot" or "hadamard" for links.
        **options: Options that the model declares; those not given have their defaults.

    Raises:
        ConfigError: Unknown name or option, a value that is not allowed, or features that the
            model needs and the graph lacks.
    """
    design = find_model(name)
    model_fields = design.options.model_fields
    for key in options:
        if key not in model_fields and readers(key):
            raise ConfigError(
                f"option {key!r} has no meaning for {name}, only for {', '.join(readers(key))};"
                " leave it out"
            )
        if key not in model_fields:
            raise ConfigError(
                f"{name} has no option {key!r}{did_you_mean(key, model_fields)}; its options are"
                f" {', '.join(model_fields)}"
            )
    return assemble(
        name=name,
        design=design,
        d_in=d_in,
        d_out=d_out,
        d_edge=d_edge,
        decoder=decoder,
        o=read_options(design.options, options),
        relations=relations,
        types=types,
        log_degree=log_degree,
    )


def assemble(
    name: str,
    design: Design,
    d_in: int,
    d_out: int,
    d_edge: int,
    decoder: str | Callable[[int], Layer],
    o: NetworkOptions,
    *,
    relations: int = 0,
    types: int = 0,
    log_degree: float = 1.0,
) -> Network:
    """Build a network of a design.

    Args:
        name: Name of the model, for messages.
        design: The design of the model.
        d_in, d_out, d_edge: Widths of node features, outputs and edge attributes.
        decoder: As in ``build_model``, or a function from the width of node values that makes it.
        o: Options, of the class that the design declares.
        relations, types, log_degree: As in ``build_model``.

    Raises:
        ConfigError: Unknown decoder, features that the model needs and the graph lacks, or a
            direction that its layers cannot have.
    """
    if isinstance(decoder, str) and decoder not in DECODERS:
        raise ConfigError(f"decoder {decoder!r} is not known; choose from {', '.join(DECODERS)}")
    if not o.layers and decoder == "none":
        raise ConfigError(
            f"layers=0 gives the features to a decoder of links, and {name} has none; give it at"
            " least 1"
        )
    _check_data(
        name=name,
        design=design,
        d_in=d_in,
        d_edge=d_edge,
        edge_attributes=isinstance(o, EdgeOptions) and o.edge_attributes,
        relations=relations,
        types=types,
    )
    sizes = {
        **({"relations": relations} if design.relational else {}),
        **({"types": types} if design.typed else {}),
        **({"log_degree": log_degree} if design.reads_degrees else {}),
    }
    end = d_out if decoder == "none" else o.hidden
    # without layers, the decoder reads the features themselves
    whole = design.whole and o.layers > 0
    head_follows = whole or o.jumping != "none" or o.readout != "none"
    embed = MLP(d_in, (), o.hidden) if whole else None
    layers = []
    widths = []
    width = o.hidden if whole else d_in
    for i in range(o.layers):
        last = i == o.layers - 1 and not head_follows
        numbered = {"number": i + 1} if design.starts else {}
        layer, width = design.layer(
            width, end if last else o.hidden, d_edge, last, o, **sizes, **numbered
        )
        layers.append(layer)
        widths.append(width)
    after = design.end(o) if design.end is not None and o.layers else None
    _turn(name, layers if after is None else [*layers, after], o.direction)
    width = sum(widths) if o.jumping == "concat" else width
    readout, width = (None, width) if o.readout == "none" else make_readout(o.readout, width)
    head = NodeHead(width, (), end) if head_follows else None
    network = Network(
        layers,
        widths,
        activation=design.activation if o.activation == "auto" else o.activation,
        dropout=o.dropout,
        norm=o.norm,
        residual=design.residual if o.residual else "none",
        jumping=o.jumping,
        embed=embed,
        readout=readout,
        head=head,
        decoder=_decoder(decoder, o.hidden if o.layers else d_in, d_out, d_edge),
        plain_end=not head_follows,
        activated=design.activated,
        starts=design.starts,
        end=after,
    )
    if o.decay_first_layer_only and o.layers:
        network.decay_first_layer_only()
    return network


def _check_data(
    name: str,
    design: Design,
    d_in: int,
    d_edge: int,
    edge_attributes: bool,
    relations: int,
    types: int,
) -> None:
    """Check that a graph has what a model reads.

    Args:
        edge_attributes: Whether the option that reads edge attributes is set.

    Raises:
        ConfigError: It has not.
    """
    if d_in < 1:
        raise ConfigError(
            f"{name} reads node features and the graph has none; give it x, for example node"
            " degrees"
        )
    if edge_attributes and d_edge < 1:
        raise ConfigError(
            f"edge_attributes=True: {name} reads edge attributes and the graph has none; give it"
            " edge_attr, or leave the option out"
        )
    if design.reads_edges and d_edge < 1:
        raise ConfigError(
            f"{name} reads edge attributes and the graph has none; give it edge_attr, or use a"
            " model such as gat"
        )
    if design.relational and relations < 1:
        raise ConfigError(
            f"{name} reads relations of edges and the graph has none; give codes,"
            " edge_columns={'relation': codes}, or use a model such as gat"
        )
    if design.typed and types < 1:
        raise ConfigError(
            f"{name} reads types of nodes and the graph has none; make it of types, "
            "gt.Graph({(src, name, dst): edges}, ...), or use rgat"
        )


def _turn(name: str, modules: Sequence[Module], direction: str) -> None:
    """Give a direction to the layers inside modules that sum messages.

    With "in", the default of a job, they keep their own.

    Raises:
        ConfigError: There are none, or one was made for another direction.
    """
    if direction == "in":
        return
    inside = [m for module in modules for m in module.modules()]
    summing = [m for m in inside if isinstance(m, Layer) and m.sum is not None]
    if not summing:
        without = f"the layers of {name} pass no messages" if modules else "there are no layers"
        raise ConfigError(f"direction={direction!r} has no effect: {without}; leave it out")
    for layer in summing:
        if layer.direction not in ("in", direction):
            raise ConfigError(
                f"direction={direction!r}: {type(layer).__name__}, a layer of {name}, was "
                f"made for direction {layer.direction!r}; leave it out"
            )
        layer.direction = direction


def _decoder(
    kind: str | Callable[[int], Layer], hidden: int, d_out: int, d_edge: int
) -> Layer | None:
    if not isinstance(kind, str):
        return kind(hidden)
    if kind == "edge":
        return EdgeDecoder(hidden, d_out, d_edge, hidden=(hidden,))
    if kind == "none":
        return None
    if d_out != 1:
        raise ConfigError(
            f"a {kind} decoder gives one score per link, but d_out is {d_out}; use decoder='edge'"
        )
    return DotDecoder() if kind == "dot" else HadamardDecoder(hidden, hidden=(hidden,))
