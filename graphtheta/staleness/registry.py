"""Halo exchanges by name, and by the text that describes them."""
from __future__ import annotations

from inspect import isclass
from typing import Any

from graphtheta.described import name_and_options, options_of
from graphtheta.models.user import accepted
from graphtheta.registry import Registry
from graphtheta.staleness.bns import Bns
from graphtheta.staleness.exchange import HaloExchange
from graphtheta.staleness.pipegcn import PipeGcn
from graphtheta.staleness.skip import Skip

EXACT = "exact"


def is_exchange(x: Any) -> bool:
    """Whether x is a class of halo exchanges."""
    return isclass(x) and isinstance(getattr(x, "name", None), str) and callable(getattr(x, "view", None))


# the constructor of an exchange receives ``seed`` if it names it
EXCHANGES: Registry[type[HaloExchange]] = Registry("halo exchange", is_exchange, (EXACT,), (Bns, PipeGcn, Skip))


def make_exchange(text: str, seed: int) -> HaloExchange | None:
    """The halo exchange that a text describes; None for the exact one.

    Args:
        text: ``NAME:field=value,...``, with a name in ``EXCHANGES`` or FILE.py:NAME.
        seed: Seed of draws.

    Raises:
        ConfigError: Unknown name, unknown option, or a value that is not allowed.
    """
    return None if text == EXACT else _made(EXCHANGES, text, "exchange", {"seed": seed})


def _made(registry: Registry[Any], text: str, key: str, offered: dict[str, Any]) -> Any:
    name, written = name_and_options(text)
    made = registry.find(name)
    taken = accepted(f"the {registry.what} {made.name}", made, offered)
    return made(**taken, **options_of(made, text, key, written, tuple(offered)))
