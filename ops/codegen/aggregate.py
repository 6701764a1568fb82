"""How kernels compute aggregators: one lowering for each, registered by aggregator.

An aggregator without a lowering runs on the reference back end.
"""
from __future__ import annotations

from typing import Any

from ..autodiff.expr import Expr
from ..edge.aggregator import Aggregator


class AggregateLowering:
    """Of one aggregator; without state, so that one object serves every kernel.

    Attributes:
        ties: It decides between equal messages by the number of the edge, ``tie`` in the kernel.
        softmax: Its gradient reads the softmax weights of the first part of the message.
    """

    ties = False
    softmax = False

    def forward(self, m: Any, name: str, parts: list[Expr]) -> None:
        """Add the message of an edge to the state of its destination.

        Args:
            m: ``Messages`` of the kernel.
            name: Of the total.
            parts: Of the message.
        """
        raise NotImplementedError

    def backward(self, m: Any, name: str, parts: list[Expr]) -> None:
        """Give the parts of the message their gradients; arguments as for ``forward``."""
        raise NotImplementedError


AGGREGATES: dict[Aggregator, AggregateLowering] = {}


def register_aggregate(aggregator: Aggregator, lowering: AggregateLowering) -> None:
    """Give an aggregator its lowering."""
    AGGREGATES[aggregator] = lowering
