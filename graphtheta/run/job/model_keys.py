"""The keys of the section Model: the name of the model, and options of the published models."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from graphtheta.models.design import COMMON, NetworkOptions, Options
from graphtheta.models.registry import PUBLISHED
from graphtheta.run.job.rules import OnlyWith

# order in the help and in job files; other keys follow
ORDER = (
    "model",
    "layers",
    "hidden",
    "heads",
    "out_heads",
    "dropout",
    "attention_dropout",
    "residual",
    "norm",
    "jumping",
    "aggregator",
    "neighbours",
    "neighbour_order",
    "activation",
    "feature_dropout",
    "edge_drop",
    "edge_attributes",
    "share",
    "skip",
    "beta",
    "alpha",
    "propagations",
    "theta",
    "shared_weights",
    "towers",
    "normalisation",
    "separate",
    "train_eps",
    "reduce",
    "direction",
    "decoder",
    "margin",
    "reciprocal",
)
# options of networks that belong to another section
ELSEWHERE = ("decay_first_layer_only",)


class Choice(Options):
    """The keys of this section that no model declares."""

    model: Annotated[str, COMMON] = Field(
        "gcn",
        description=f"A published model ({', '.join(PUBLISHED)}), or your own as FILE.py:Class.",
    )
    decoder: Literal["auto", "dot", "hadamard", "distmult", "transe", "complex", "rotate"] = "auto"
    """How the score of a link is made from its two ends: dot or hadamard for links, distmult,
    transe, complex or rotate for triples; auto is the first of them."""
    margin: Annotated[float, OnlyWith("decoder", ("transe", "rotate"))] = Field(
        9.0, gt=0, allow_inf_nan=False
    )
    """Score of a triple without distance, with transe and rotate."""
    reciprocal: bool = False
    """Give each relation of a triple another vector for its head: (?, r, t) is answered as the tail
    of (t, r + R, ?), where R is the number of relations. Each triple is two targets then."""


def _published() -> Any:
    """The section of the model: a class with a field for each option of a published model."""
    options = dict(Choice.model_fields)
    for design in PUBLISHED.values():
        options |= design.options.model_fields
    names = sorted(
        (name for name in options if name not in ELSEWHERE),
        key=lambda name: (*ORDER, name).index(name),
    )
    fields: dict[str, Any] = {
        name: (options[name].annotation, copy(options[name])) for name in names
    }
    return create_model("ModelKeys", __base__=Options, __doc__="Model", **fields)


if TYPE_CHECKING:

    class ModelKeys(NetworkOptions, Choice):
        """For type checkers: the options that every model has."""

else:
    ModelKeys = _published()

# the keys that a job offers to every model
OPTIONS = tuple(
    key for key in (*ModelKeys.model_fields, *ELSEWHERE) if key not in Choice.model_fields
)
