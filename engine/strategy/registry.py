"""Strategies by name."""

from __future__ import annotations

from inspect import isclass
from typing import Any

from graphtheta.base.registry import Registry
from graphtheta.errors import ConfigError

from .own import OwnStrategy
from .strategy import ClusterBatch, GlobalBatch, MiniBatch, Strategy


def is_strategy(x: Any) -> bool:
    """Whether x is a class of strategies that has a name."""
    return isclass(x) and issubclass(x, OwnStrategy) and isinstance(getattr(x, "name", None), str)


BUILT_IN = (GlobalBatch, MiniBatch, ClusterBatch)
# in a job, leaves the choice among those of the package to it
AUTO = "auto"
STRATEGIES: Registry[type[Strategy]] = Registry("strategy", is_strategy, (AUTO,), BUILT_IN)


def check_complete(strategy: type[Strategy]) -> None:
    """Check that a class has all methods of a strategy.

    Raises:
        ConfigError: It lacks some.
    """
    missing = sorted(getattr(strategy, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(
            f"strategy={strategy.name}: {strategy.__name__} has no method"
            f" {' and no '.join(missing)}; docs/extending.md shows what a strategy must have"
        )
