"""``gt.recompute``: values of some layers are made again in backward instead of being kept.

A network of L layers cut into about sqrt(L) pieces keeps what stands between the pieces and the inside of one of them,
and so memory grows with the root of its depth. The price is a second forward pass, with its messages.

Source: https://arxiv.org/abs/1604.06174
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphtheta.errors import UserFunctionError

from ...ops.autodiff.checkpoint import run_segment
from ...ops.autodiff.tape import Var, current
from .context import ActiveGraph


def recompute(piece: Callable[..., Any], graph: ActiveGraph, *values: Any, **named: Any) -> Any:
    """Run a piece of ``forward`` without keeping its inside for backward, which runs it again.

    Args:
        piece: A layer, or a function (graph, ...) that runs layers. It must do the same when it is called again, and hand
            out values by returning them only; new edge values of its layers are there afterwards as ever.
        graph: What ``forward`` was given.
        *values, **named: Further arguments of the piece.

    Returns:
        What the piece returns: a value, or a tuple, list or dict of values. All numbers and gradients are those of
        ``piece(graph, *values, **named)``. Without a backward pass to come it is just that.

    Raises:
        UserFunctionError: The second argument is not the graph, or the piece returns something else.

    Collective: all ranks of the view's partition, here and in backward.
    """
    if not isinstance(graph, ActiveGraph):
        raise UserFunctionError(f"gt.recompute(function, graph, ...): the graph is of type {type(graph).__name__}; expected the graph that "
                                "forward was given, which the function gets as its first argument")
    if not current().record:
        return piece(graph, *values, **named)
    result: Any = None
    begin = graph.progress

    def run() -> list[Var]:
        nonlocal result
        result = piece(graph, *values, **named)
        return [*_values(result), *graph.carried_since(begin)]

    def again() -> list[Var]:
        end, graph.progress = graph.progress, begin
        try:
            made = piece(graph, *values, **named)
            return [*_values(made), *graph.carried_since(begin)]
        finally:
            graph.progress = end

    run_segment(run, again)
    return result


def _values(made: Any) -> list[Var]:
    """The variables in what a piece returned."""
    if isinstance(made, dict):
        made = list(made.values())
    if isinstance(made, (list, tuple)):
        return [x for part in made for x in _values(part)]
    if made is None or isinstance(made, (int, float)):
        return []
    if not isinstance(made, Var):
        raise UserFunctionError(f"a function given to gt.recompute returned {type(made).__name__}; expected node or edge values, or a "
                                "tuple, list or dict of them")
    return [made]
