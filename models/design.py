"""``gt.Design``: what a model declares, which is its options and a function that makes a layer.

An option is a field of a class: its type, bounds and default are those of the field, and the text
below it is its line of help. Keys of jobs, flags, checks and messages are derived from these
fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from graphtheta.base.wording import explain, literals
from graphtheta.errors import ConfigError

from ..engine.layer.module import Module

AnyOptions = TypeVar("AnyOptions", bound="Options")


@dataclass(frozen=True)
class Common:
    """Beside the type of a key: ``--help`` shows it, and not only ``--help-all``."""


COMMON = Common()


class Options(BaseModel):
    """Values that are checked when they are given, and cannot be changed afterwards."""

    # most classes only lend their fields to others, and need no checks of their own
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, protected_namespaces=()
    )


def read_options(kind: type[AnyOptions], values: Mapping[str, Any]) -> AnyOptions:
    """Options from values, which may be text.

    Args:
        kind: Class of the options.
        values: By name; the class has a field for each.

    Raises:
        ConfigError: A value is not allowed.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        allowed = {key: literals(field.annotation) for key, field in kind.model_fields.items()}
        raise ConfigError(
            "\n".join(explain(e, allowed.__getitem__) for e in error.errors(include_url=False))
        ) from None


class NetworkOptions(Options):
    """Options of every network; a model with options of its own derives a class from this one."""

    layers: Annotated[int, COMMON] = Field(2, ge=0, le=10_000)
    """Number of layers; with 0, a decoder of links reads the features themselves, after dropout."""
    hidden: Annotated[int, COMMON] = Field(16, ge=1)
    """Width of the hidden layers; for attention models, width of each head."""
    dropout: Annotated[float, COMMON] = Field(0.5, ge=0, lt=1)
    """Dropout probability for the inputs of each layer, and for what a readout or a head reads."""
    residual: bool = False
    """Residual connection: add the input of each hidden layer to its output."""
    norm: Literal["none", "batch", "layer"] = "none"
    """Normalisation after each hidden layer; batch norm uses statistics over all workers."""
    jumping: Literal["none", "concat", "max"] = "none"
    """Jumping knowledge: a final linear layer reads the concatenation (concat) or elementwise
    maximum (max) of all layers' outputs.
    """
    readout: Literal["none", "sum", "mean", "max", "attention", "set2set"] = "none"
    """For labels of whole graphs: how their values are made from those of their nodes."""
    activation: Literal["auto", "relu", "elu", "leaky_relu", "tanh", "gelu"] = "auto"
    """Activation of the embedding and between layers; auto uses that of the published model."""
    direction: Literal["in", "out", "both"] = "in"
    """Edges along which a node aggregates messages: incoming (in), outgoing (out), or both."""
    decay_first_layer_only: bool = False
    """Apply weight decay to the first layer only, as in the original GCN."""

    def has_bias(self, last: bool) -> bool:
        """Whether a layer ends by adding a bias: not in front of batch norm, which follows every
        layer but the last.
        """
        return last or self.norm != "batch"

    @classmethod
    def own(cls) -> dict[str, FieldInfo]:
        """The options that this class adds to those of every network."""
        return {
            name: field
            for name, field in cls.model_fields.items()
            if name not in NetworkOptions.model_fields
        }


class EdgeOptions(NetworkOptions):
    """Options of models that may read edge attributes."""

    edge_attributes: bool = False
    """Messages read edge attributes, too (gatv2, transformer, pna)."""


class EdgeDropOptions(NetworkOptions):
    """Options of models that drop edges."""

    edge_drop: float = Field(0.0, ge=0, lt=1)
    """Probability of dropping an edge in each training step (gipa), or in each propagation of one
    (appnp).
    """


class TeleportOptions(NetworkOptions):
    """Options of models whose layers read the first value again."""

    alpha: float = Field(0.1, ge=0, le=1)
    """Share of the first value in each propagation (appnp) or layer (gcnii)."""


@dataclass(frozen=True)
class Design:
    """A model, as a network of one kind of layer.

    Attributes:
        layer: Function (d_in, d_out, d_edge, last, options) that returns a layer and the width of
            its output. The layer is a ``Layer`` or a module called as ``layer(graph, h)``.
            ``last`` is True if the layer makes the outputs of the network; ``options`` is an
            object of the class below.
        options: Class of its options, derived from ``NetworkOptions``.
        activation: Published activation of the embedding and between layers.
        activated: Layers that the activation follows: "all", also the last one where a head reads
            it; "inner", all but the last; or "none", so that it follows the embedding only.
        whole: Whether it was published with an embedding before and a head after its layers.
        residual: Where the network adds a residual, if the option is set: "before" or "after" norm
            and activation; "none" if the layer adds it itself.
        reads_edges: Whether it needs edge attributes.
        relational: Whether it needs relations of edges; its function then has the keyword
            ``relations``, their number.
        typed: Whether it needs types of nodes; its function then has the keyword ``types``, their
            number.
        reads_degrees: Whether it needs degrees of the training graph; its function then has the
            keyword ``log_degree``, the mean of log(degree + 1) over the nodes.
        starts: Whether its layers also read the value in front of the first of them: they are
            called as ``layer(graph, h, start=value)``, and its function has the keyword
            ``number``, that of the layer from 1 on.
        hops: Name of the option that is the number of its hops.
        end: Function (options) that returns a module called as ``end(graph, h)`` after the last
            layer, with a result of the same width; None for no such module.
    """

    layer: Callable[..., tuple[Module, int]]
    options: type[NetworkOptions] = NetworkOptions
    activation: str = "relu"
    whole: bool = False
    residual: str = "after"
    reads_edges: bool = False
    relational: bool = False
    typed: bool = False
    activated: str = "all"
    reads_degrees: bool = False
    starts: bool = False
    hops: str = "layers"
    end: Callable[..., Module] | None = None
