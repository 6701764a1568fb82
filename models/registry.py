"""The registry of models."""

from __future__ import annotations

from inspect import isclass

from graphtheta.base.arguments import checked
from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError

from . import (
    appnp,
    gat,
    gat_e,
    gatv2,
    gcn,
    gcnii,
    gin,
    gine,
    gipa,
    hgt,
    mlp,
    pna,
    rgat,
    rgcn,
    sage,
    simple_hgn,
    transformer,
)
from .design import Design, NetworkOptions

PUBLISHED: dict[str, Design] = {
    "gcn": gcn.DESIGN,
    "sage": sage.DESIGN,
    "gin": gin.DESIGN,
    "gine": gine.DESIGN,
    "gat": gat.DESIGN,
    "gatv2": gatv2.DESIGN,
    "gat_e": gat_e.DESIGN,
    "gipa": gipa.DESIGN,
    "transformer": transformer.DESIGN,
    "appnp": appnp.DESIGN,
    "gcnii": gcnii.DESIGN,
    "pna": pna.DESIGN,
    "rgcn": rgcn.DESIGN,
    "rgat": rgat.DESIGN,
    "simple_hgn": simple_hgn.DESIGN,
    "hgt": hgt.DESIGN,
    "mlp": mlp.DESIGN,
}
# the published models and those of users
MODELS = dict(PUBLISHED)


@checked
def register_model(name: str, design: Design) -> None:
    """Register a model under a name, by which jobs choose it and set its options.

    A name may be registered again, as when a notebook cell is run twice; names of published models
    may not.

    Args:
        name: An identifier.
        design: The model.

    Raises:
        ConfigError: The name is that of a published model or no identifier, or ``design`` is no
            ``Design``.
    """
    if not isclass(design.options) or not issubclass(design.options, NetworkOptions):
        raise ConfigError(
            f"register_model({name!r}, ...): the options of the design are no class derived from"
            " gt.NetworkOptions"
        )
    if not name.isidentifier():
        raise ConfigError(
            f"register_model({name!r}, ...): expected letters, digits and _ as the name"
        )
    if name in PUBLISHED:
        raise ConfigError(
            f"register_model({name!r}, ...): that is a published model; choose another name"
        )
    MODELS[name] = design


def find_model(name: str) -> Design:
    """The model of that name.

    Raises:
        ConfigError: There is none.
    """
    if name.endswith(".py"):
        raise ConfigError(
            f"model {name!r} is a file; name its class too, as {name}:Net (the class in it)"
        )
    if name not in MODELS:
        raise ConfigError(
            f"model {name!r} is not known{did_you_mean(name, MODELS)}; choose from"
            f" {', '.join(MODELS)}, or give your own as FILE.py:Class"
        )
    return MODELS[name]


def readers(option: str) -> tuple[str, ...]:
    """Names of the models that have an option."""
    return tuple(name for name, design in MODELS.items() if option in design.options.model_fields)
