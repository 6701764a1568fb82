"""Groups of parameters with their own settings, and frozen parameters, by name or module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from graphtheta.base.wording import did_you_mean
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.module import Module
from graphtheta.errors import ConfigError
from graphtheta.ops.autodiff.tape import Parameter

# a pattern of parameter names ("layers.0.*"), or a module of the model
Choice = str | Module
Groups = Mapping[Choice, Mapping[str, float]]
SETTINGS = ("lr", "weight_decay")


def chosen(model: Model, choice: Choice, what: str) -> set[Parameter]:
    """The parameters of a model that match a pattern of names or belong to a module.

    Args:
        model: The model.
        choice: The pattern or the module.
        what: Argument that gave the choice, for the error.

    Raises:
        ConfigError: There are none.
    """
    named = dict(model.named_parameters())
    if isinstance(choice, Module):
        inside = (
            {p for _, p in choice.named_parameters()} if choice in list(model.modules()) else set()
        )
        wanted = f"the {type(choice).__name__} given in {what}"
    else:
        inside = {p for name, p in named.items() if fnmatchcase(name, choice)}
        wanted = f"{what}: the pattern {choice!r}"
    if not inside:
        raise ConfigError(
            f"{wanted} matches no parameter of {type(model).__name__}; its parameters are"
            f" {', '.join(named)}"
        )
    return inside


def frozen_parameters(model: Model, freeze: Iterable[Choice]) -> frozenset[Parameter]:
    """The parameters that are not trained: without ``requires_grad``, or chosen by ``freeze``.

    Raises:
        ConfigError: A choice matches no parameter.
    """
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return frozenset(frozen).union(*(chosen(model, choice, "freeze") for choice in freeze))


def rates(
    model: Model, parameters: Iterable[Parameter], groups: Groups, default: Mapping[str, float]
) -> dict[str, list[float]]:
    """The settings of each parameter: those of its first group; defaults for those not given.

    Args:
        model: The model.
        parameters: In order.
        groups: Settings by choice of parameters.
        default: A number for each of ``SETTINGS``.

    Returns:
        For each setting a number per parameter.

    Raises:
        ConfigError: A group matches no parameter, or has an unknown setting.
    """
    for choice, given in groups.items():
        for name in given:
            if name not in SETTINGS:
                raise ConfigError(
                    f"groups: {choice!r} sets {name!r}{did_you_mean(name, SETTINGS)}; choose from"
                    f" {', '.join(SETTINGS)}"
                )
    members = [(chosen(model, choice, "groups"), given) for choice, given in groups.items()]
    of = [next((given for inside, given in members if p in inside), {}) for p in parameters]
    return {name: [float(given.get(name, default[name])) for given in of] for name in SETTINGS}
