"""Layers, modules and functions one after another."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from graphtheta.errors import ConfigError

from ..engine.layer.context import ActiveGraph
from ..engine.layer.layer import Layer, Model
from ..engine.layer.module import Module


class Sequential(Module):
    """Parts that are called one after another, each with the result of the one before.

    Called as ``sequential(graph, h)``, or as ``sequential(h)`` if no part reads the graph. A part
    whose first argument is named ``graph``, as that of every layer, is called as ``part(graph, h)``
    and others as ``part(h)``::

        gt.Sequential(GCN(8, 16), gt.relu, gt.BatchNorm(16), GCN(16, 3))

    Args:
        *parts: Layers, modules and functions, such as ``gt.relu``.

    Attributes:
        parts: The parts.

    Raises:
        ConfigError: There are none, or one cannot be called with a value.
    """

    def __init__(self, *parts: Callable[..., Any]):
        for i, part in enumerate(parts):
            if isinstance(part, (type, Model)) or not callable(part):
                name = part.__name__ if isinstance(part, type) else type(part).__name__
                raise ConfigError(
                    f"gt.Sequential: part {i + 1} is {name}; expected an object that is called"
                    " with node values: a layer, a module, or a function such as gt.relu"
                )
        if not parts:
            raise ConfigError("gt.Sequential: there are no parts; give at least one")
        self.parts = list(parts)

    def __call__(self, graph: Any, h: Any = None) -> Any:
        """The result of the last part.

        Raises:
            ConfigError: A part reads the graph, which was not given.
        """
        given = isinstance(graph, ActiveGraph)
        h = h if given else graph
        for part in self.parts:
            reads = _reads_graph(part)
            if reads and not given:
                raise ConfigError(
                    f"gt.Sequential: {type(part).__name__} reads the graph; call it as"
                    " sequential(graph, h)"
                )
            h = part(graph, h) if reads else part(h)
        return h


def _reads_graph(part: Callable[..., Any]) -> bool:
    """Whether a part is called with the graph."""
    if isinstance(part, Layer):
        return True
    if isinstance(part, Sequential):
        return any(map(_reads_graph, part.parts))
    try:
        names = list(signature(part).parameters)
    except (TypeError, ValueError):
        return False
    return names[:1] == ["graph"]
