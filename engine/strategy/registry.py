"""Strategies by name."""

from __future__ import annotations

from graphtheta.base.registry import Registry, named_class
from graphtheta.errors import ConfigError

from .own import OwnStrategy
from .strategy import ClusterBatch, GlobalBatch, MiniBatch, Strategy

BUILT_IN = (GlobalBatch, MiniBatch, ClusterBatch)
# in a job, leaves the choice among those of the package to it
AUTO = "auto"
STRATEGIES: Registry[type[Strategy]] = Registry(
    "strategy", named_class(OwnStrategy), (AUTO,), BUILT_IN
)


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
