"""How kernels compute aggregators: one lowering for each, registered by aggregator.

An aggregator without a lowering runs on the reference back end.
"""

from __future__ import annotations

from typing import Any

from ...autodiff.expr import Expr
from ..aggregator import Aggregator


class AggregateLowering:
    """How one aggregator is compiled; without state, so that one object serves all kernels.

    Attributes:
        ties: Whether equal messages are compared by ``tie``, the number of the edge.
        softmax: Whether its gradient reads the softmax weights of the first part of the message.
        reads_message: Whether its gradient reads the message.
    """

    ties = False
    softmax = False
    reads_message = False

    def forward(self, m: Any, name: str, parts: list[Expr]) -> None:
        """Add the message of an edge to the state of its destination.

        Args:
            m: ``Messages`` of the kernel.
            name: Name of the total.
            parts: Parts of the message.
        """
        raise NotImplementedError

    def backward(self, m: Any, name: str, parts: list[Expr]) -> None:
        """Add the gradients of the parts of the message; arguments as for ``forward``."""
        raise NotImplementedError


_LOWERINGS: dict[Aggregator, AggregateLowering] = {}


def register_aggregate(aggregator: Aggregator, lowering: AggregateLowering) -> None:
    """Register the lowering of an aggregator."""
    _LOWERINGS[aggregator] = lowering


def aggregate_of(aggregator: Aggregator) -> AggregateLowering | None:
    """The lowering of an aggregator; None if it has no compiled form."""
    return _LOWERINGS.get(aggregator)


def compiled_form(aggregator: Aggregator) -> AggregateLowering:
    """The lowering of an aggregator of a phase that can be compiled."""
    lowering = aggregate_of(aggregator)
    assert lowering is not None, aggregator.name
    return lowering
