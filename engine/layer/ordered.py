"""Sums that take the messages of a node one after another, in an order of its edges."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from ...ops.edge.aggregator import Shape
from ...ops.functions.recurrence import FirstMessages, Recurrence, Turns
from .staged import Staged


class Ordered(Staged):
    """A sum that depends on the order in which a node takes its messages.

    All messages of a node are brought to the worker that has it. Importance weights of sampled
    edges do not count: the edges of a sample are taken as if there were no others.

    Args:
        order: Name of an edge column whose values the edges of a node are sorted by, "time", or of
            a column of the node at the sending end, "src.time"; by default edges are taken in the
            order in which the graph has them, which also decides between equal values.

    Attributes:
        most: Number of messages that a node takes at most; None for all.
    """

    most: int | None = None

    def __init__(self, order: str | None = None):
        self.by = order

    def order(self, edge: Any) -> Any:
        """What the edges of a node are sorted by, one number of each; None for their ids."""
        if self.by is None:
            return None
        end, _, column = self.by.rpartition(".")
        return getattr(getattr(edge, end) if end else edge, column)

    @abstractmethod
    def turns(self, dims: Shape, dtype: np.dtype, key: int) -> Turns:
        """How messages [rows, *dims] are taken in the current pass; ``key`` is that of its random
        draws.
        """


class Recurrent(Ordered):
    """A recurrence: a state of each node that changes with each of its messages.

    The last state of a node is what ``after`` receives; values of a dict by name. Define ``step``,
    and ``before`` for what can be computed of the messages alone.
    """

    def turns(self, dims: Shape, dtype: np.dtype, key: int) -> Turns:
        return Recurrence.of(
            step=self.step, owner=type(self).__name__, dims=dims, dtype=dtype, key=key
        )

    @abstractmethod
    def step(self, state: Any, message: Any) -> Any:
        """The next state of nodes that take a message.

        Args:
            state: Their states, a value with one row for each node, or a dict of such values; None
                for the first message.
            message: What ``before`` returned, [nodes, ...].

        Returns:
            States of the same shapes and types in every step; integers and masks reach ``after``
            as what they are.
        """


class Concat(Ordered):
    """The first k messages of each node, side by side, [n, k, ...]; 0 where there are fewer.

    Args:
        k: Number of messages, at least 1.
        order: As that of ``gt.Ordered``.

    Raises:
        ConfigError: k is below 1.
    """

    name = "concat"

    @checked
    def __init__(self, k: int, order: str | None = None):
        if k < 1:
            raise ConfigError(f"gt.Concat({k}): expected at least 1 message")
        super().__init__(order)
        self.k = k
        self.most = k

    def turns(self, dims: Shape, dtype: np.dtype, key: int) -> Turns:
        return FirstMessages(self.k, dims, dtype)
