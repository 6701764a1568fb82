"""Layers and models: what a user writes.

A layer has one method per stage of NN-TGAR. A model runs layers over a graph. It does not depend
on ranks, partitions or batches, so the same source serves every strategy.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache, partial
from inspect import signature
from typing import Any

from graphtheta.base.html import html_table
from graphtheta.errors import UserFunctionError

from ...ops.autodiff.naming import naming
from ...ops.autodiff.tape import Var, current
from ...ops.edge.aggregator import Accumulator
from ...ops.functions.rows import prefix
from ..view.view import GraphView
from .checkpointing import recompute
from .context import ActiveGraph
from .module import Module
from .stages import Stages
from .superstep import run_superstep

DIRECTIONS = ("in", "out", "both")
STAGES = ("transform", "gather", "apply")
# names that other systems give to the stages
FOREIGN = {
    "message": "gather",
    "message_func": "gather",
    "edge_update": "gather",
    "scatter": "gather",
    "update": "apply",
    "update_all": "apply",
    "apply_node_func": "apply",
    "forward": "apply",
    "aggregate": "sum",
    "reduce": "sum",
    "reduce_func": "sum",
}


class Layer(Stages):
    """One superstep. Override the methods and settings of ``Stages`` that differ from passing ``h``
    along.
    """

    def __call__(self, graph: ActiveGraph, h: Any = None, **columns: Any) -> Any:
        if not isinstance(graph, ActiveGraph):
            raise UserFunctionError(
                f"{type(self).__name__} must be called as layer(graph, h), with the graph that is"
                " the argument of forward of a gt.Model; outside of one, gt.forward(model, graph)"
                " computes its values"
            )
        if self.direction not in DIRECTIONS:
            raise UserFunctionError(
                f"{type(self).__name__}.direction = {self.direction!r}; choose from"
                f" {', '.join(DIRECTIONS)}"
            )
        if callable(self.sum) and not isinstance(self.sum, Accumulator):
            raise UserFunctionError(
                f"{type(self).__name__}.sum is a function; expected the name of an aggregator, such"
                " as sum = 'mean', several names, or None for a decoder of edges"
            )
        # a class is hashable, which mypy does not see
        if (mistake := _mistaken(type(self))) is not None:  # type: ignore[arg-type]
            raise UserFunctionError(mistake)
        with naming(type(self).__name__):
            number = len(graph.supersteps)
            run = partial(run_superstep, self)
            if (result := graph.ready_result(self)) is not None:
                return result
            out = (
                recompute(run, graph, h, columns)
                if id(self) in graph.settings.recomputed
                else run(graph, h, columns)
            )
        if self.sum is not None and graph.view.revise is not None:
            out = graph.view.revise(len(graph.directions) - 1, out)
        graph.record_result(number, out)
        return out


@cache
def _mistaken(layer: type) -> str | None:
    """Error about a method that looks like a missing stage and is never called."""
    overridden = {
        name: value
        for cls in layer.__mro__[: layer.__mro__.index(Layer)]
        for name, value in vars(cls).items()
    }
    called = {
        name
        for value in overridden.values()
        if hasattr(value, "__code__")
        for name in value.__code__.co_names
    }
    for name, value in overridden.items():
        if not callable(value) or name in called or name in STAGES:
            continue
        stage = FOREIGN.get(name) or next(
            iter(get_close_matches(name.lower(), STAGES, 1, 0.8)), None
        )
        if stage is not None and stage not in overridden:
            return (
                f"{layer.__name__} defines {name}, which is never called; did you mean {stage}? A"
                " layer has transform(self, node), gather(self, edge), apply(self, node, total),"
                " and sum, the name of an aggregator"
                + (
                    "; forward belongs to a gt.Model, which calls layers"
                    if name == "forward"
                    else ""
                )
            )
    return None


@cache
def _needed(model: type[Model]) -> str:
    """Names of the arguments that ``forward`` needs besides the graph; empty if there are none."""
    parameters = list(signature(model.forward).parameters.values())[2:]
    return ", ".join(
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    )


def _size(model: Module) -> str:
    # no method, whose name an attribute of a user's model might have
    return f"{sum(p.value.size for _, p in model.named_parameters()):,} parameters"


class Model(Module):
    """A network: ``forward`` runs layers over the graph it is given and returns node values or edge
    values.
    """

    as_argument = "a gt.Model (whose forward calls layers)"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_size(self)})"

    def _repr_html_(self) -> str:
        rows = [
            (name, " x ".join(map(str, p.shape)) or "1", str(p.dtype))
            for name, p in self.named_parameters()
        ]
        title = f"{type(self).__name__}, {_size(self)}"
        return html_table(title, ("parameter", "shape", "dtype"), rows)

    def forward(self, graph: ActiveGraph) -> Var:
        """Compute the outputs of the view's targets.

        Raises:
            UserFunctionError: Not overridden.
        """
        raise UserFunctionError(
            f"forward of {type(self).__name__} is missing; define forward(self, graph), which calls"
            " layers and returns node or edge values"
        )

    def run(self, graph: ActiveGraph) -> Var:
        """``forward``, with its errors named and its result checked.

        Raises:
            UserFunctionError: It returned neither node nor edge values.
        """
        tape = current()
        tape.dtype = graph.dtype
        with tape.storing(graph.short), naming(f"forward of {type(self).__name__}"):
            # a class is hashable, which mypy does not see
            if needed := _needed(type(self)):  # type: ignore[arg-type]
                raise UserFunctionError(
                    f"it needs {needed}, and is given the graph alone; define forward(self, graph),"
                    " which reads features as graph.x and calls layers as"
                    " self.layer(graph, graph.x)"
                )
            out = self.forward(graph)
        if not isinstance(out, Var) or out.space is None:
            raise UserFunctionError(
                f"forward of {type(self).__name__} returned {type(out).__name__}; expected node or"
                " edge values"
            )
        return out

    def checkpoint_segments(self) -> list[Module]:
        """The modules that a run with ``recompute`` recomputes in backward: each layer."""
        # backward begins with a decoder, whose values are still in memory then
        return [
            module
            for module in self.modules()
            if isinstance(module, Layer) and module.sum is not None
        ]

    def __call__(self, graph: GraphView | ActiveGraph, **inputs: Any) -> Var:
        """Compute the outputs of a view or, in ``forward`` of another model, of its graph."""
        if isinstance(graph, ActiveGraph):
            return self.run(graph)
        if not isinstance(graph, GraphView):
            name = type(self).__name__
            raise UserFunctionError(
                f"{name} was called with a value of type {type(graph).__name__}; to compute its"
                f" values on a graph, use gt.Trainer({name}, graph).predict(); inside forward, call"
                " it as self.inner(graph), with the graph that is the argument of forward"
            )
        out = self.run(ActiveGraph(graph, **inputs))
        n = graph.n_targets
        assert out.space is not None
        # values that a later layer reads have more rows than the targets
        return prefix(out, n) if out.space.kind == "node" and out.space.n > n else out
