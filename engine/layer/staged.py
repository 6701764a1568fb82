"""Accumulators with stages of their own, which may read parameters: what a layer may give as
``sum`` besides the aggregators of ``ops.edge.aggregator``.

    message -> before -> sums, or steps in the order of the edges -> after -> total

``before`` is traced together with the gather of the layer, and ``after`` runs ahead of its apply,
so gradients, the planner and both back ends treat them as parts of the layer.
"""

from __future__ import annotations

from typing import Any

from ...ops.edge.aggregator import Accumulator
from .module import Module


class Staged(Accumulator, Module):
    """An accumulator that computes something before and after it sums.

    It is a module: keep it as an attribute of its layer, so that its parameters are found.
    """

    def before(self, edge: Any, message: Any) -> Any:
        """What is accumulated, from the message of an edge, and from whatever gather may read."""
        return message

    def after(self, node: Any, total: Any) -> Any:
        """The total that apply receives, from what was accumulated, which is 0 at nodes without
        messages, and from the columns of the receiving nodes.
        """
        return total


class Pooling(Staged):
    """Sums that do not depend on the order of messages, of functions of them.

    The softmax of ``gt.softmax`` may be used in ``before``, as in a gather.

    Attributes:
        sum: The aggregator, or several, of what ``before`` returns; as the ``sum`` of a layer, of
            which it has all forms but None. ``before`` may return a dict with a message for each,
            and ``after`` receives several totals by name.
    """

    sum: Any = "sum"
