"""``gt.recompute``: gradient checkpointing, recomputation in backward instead of stored values.

A network of L layers in about sqrt(L) segments stores the values between the segments and, in
backward, the intermediate values of one of them, so its memory is proportional to the square root
of its depth. The price is a second forward pass, with its messages.

Source: https://arxiv.org/abs/1604.06174
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphtheta.errors import UserFunctionError

from ...ops.autodiff.checkpoint import run_segment
from ...ops.autodiff.tape import Var, current
from .context import ActiveGraph


def recompute(function: Callable[..., Any], graph: ActiveGraph, *values: Any, **named: Any) -> Any:
    """Run a segment of ``forward``; backward recomputes its intermediate values.

    Args:
        function: The segment: a layer, or a function (graph, ...) that runs layers. It must be
            deterministic, and pass values on only by returning them; new edge values of its layers
            are carried to later layers as usual.
        graph: The argument of ``forward``.
        *values, **named: Further arguments of the function.

    Returns:
        The result of ``function(graph, *values, **named)``: a value, or a tuple, list or dict of
        values. Values and gradients are the same as without checkpointing.

    Raises:
        UserFunctionError: The second argument is not the graph, or the function returns something
            else.

    Collective: all ranks of the view's partition, here and in backward.
    """
    if not isinstance(graph, ActiveGraph):
        raise UserFunctionError(
            f"gt.recompute(function, graph, ...): the graph is of type {type(graph).__name__};"
            " expected the graph that forward was given, which the function gets as its first"
            " argument"
        )
    if not current().record:
        return function(graph, *values, **named)
    result: Any = None
    begin = graph.progress

    def run() -> list[Var]:
        nonlocal result
        result = function(graph, *values, **named)
        return [*_values(result), *graph.carried_since(begin)]

    def again() -> list[Var]:
        end = graph.progress
        graph.progress = begin
        try:
            result = function(graph, *values, **named)
            return [*_values(result), *graph.carried_since(begin)]
        finally:
            graph.progress = end

    run_segment(run, again)
    return result


def _values(values: Any) -> list[Var]:
    """The variables in the result of a segment."""
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return [x for part in values for x in _values(part)]
    if values is None or isinstance(values, (int, float)):
        return []
    if not isinstance(values, Var):
        raise UserFunctionError(
            f"a function given to gt.recompute returned {type(values).__name__}; expected node or"
            " edge values, or a tuple, list or dict of them"
        )
    return [values]
