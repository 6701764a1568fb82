"""The stages of a superstep: what a layer is made of, apart from how it is run."""

from __future__ import annotations

from typing import Any

from .module import Module


class Stages(Module):
    """The four stages of NN-TGAR as methods and settings; ``Layer`` runs them.

    Attributes:
        sum: Name of the aggregator ("sum", "mean", "max", "min", "var", "std"), an aggregator,
            several of them, several by the name of their total, or None for a decoder that makes
            one value per edge.
        direction: "in" (messages run along the edges), "out" (against them) or "both".
        self_loops: Whether the layer is published for graphs in which every node has a self loop;
            by default a job adds the missing ones.
    """

    sum: Any = "sum"
    direction = "in"
    self_loops = False

    def transform(self, node: Any) -> dict[str, Any]:
        """NN-Transform: node columns that gather may read, by name."""
        return {"h": node.h}

    def gather(self, edge: Any) -> Any:
        """NN-Gather: the message of an edge, a dict of messages by name of the total, or (message,
        {name: new edge value}).
        """
        return edge.src.h

    def apply(self, node: Any, total: Any) -> Any:
        """NN-Apply: new node values from the node's columns and the total of its messages."""
        return total
