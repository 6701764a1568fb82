"""Settings of a run for the forward passes of a model.

They are not attributes of the model, so that runs with different settings can share one model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ...ops.autodiff.scope import value_scope
from ...ops.autodiff.tape import Parameter, frozen_scope
from .ingredients import Ingredients


@dataclass(frozen=True)
class PassSettings:
    """Settings of one run.

    Attributes:
        recomputed: ``id`` of each module that is a checkpoint segment, recomputed in backward.
        precomputed: The layer with a precomputed total, and what that was computed from; None if
            there is none.
        frozen: Parameters that this run does not train.
        evaluate: Computes the totals and the new edge values of a layer, given its opened gather
            and sums, its node columns, the graph and the level, in place of an edge program; None
            for the edge program.
    """

    recomputed: frozenset[int] = frozenset()
    precomputed: tuple[Any, Ingredients] | None = None
    frozen: frozenset[Parameter] = frozenset()
    evaluate: (
        Callable[[Any, dict[str, Any], Any, Any], tuple[dict[str, Any], dict[str, Any]]] | None
    ) = None

    def ingredients(self, layer: Any) -> Ingredients | None:
        """What the precomputed total of a layer was computed from; None if it has none."""
        return (
            self.precomputed[1]
            if self.precomputed is not None and self.precomputed[0] is layer
            else None
        )


_SETTINGS: ContextVar[PassSettings | None] = ContextVar("graphtheta_pass_settings", default=None)


def pass_settings() -> PassSettings:
    """The settings of the enclosing ``pass_scope``; outside of any, nothing is recomputed,
    precomputed or frozen.
    """
    return _SETTINGS.get() or PassSettings()


@contextmanager
def pass_scope(settings: PassSettings) -> Iterator[None]:
    """Forward and backward passes inside follow ``settings``."""
    with value_scope(_SETTINGS, settings), frozen_scope(settings.frozen):
        yield
