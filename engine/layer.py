"""Layers and models: what a user writes.

A layer has one method per stage of NN-TGAR. A model runs layers over a graph; it sees neither ranks nor partitions
nor batches, and the same source serves every strategy.
"""
from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from graphtheta.errors import ConfigError, UserFunctionError

from ..ops.norm import RunningStats
from ..ops.program import naming
from ..ops.tape import Parameter, Var
from .active import ActiveGraph
from .recompute import recompute
from .superstep import run_superstep
from .view import GraphView

DIRECTIONS = ("in", "out", "both")


class Module:
    """Anything with parameters, found through its attributes, lists and dicts."""

    def named_parameters(self, path: str = "") -> Iterator[tuple[str, Parameter]]:
        """Parameters with their paths, each once, in the order of the attributes."""
        yield from _walk(self, path, Parameter, set())

    def modules(self) -> Iterator[Module]:
        """This module and all inside it."""
        found: list[Module] = []
        _collect(self, found, set())
        yield from found

    def parameters(self) -> list[Parameter]:
        """Parameters in order; also gives each its name."""
        found = []
        for name, p in self.named_parameters():
            p.name = name
            found.append(p)
        return found

    def state(self) -> dict[str, np.ndarray]:
        """Parameters and running statistics by path."""
        arrays = {name: p.value for name, p in self.named_parameters()}
        for name, s in _walk(self, "", RunningStats, set()):
            arrays[f"{name}.mean"], arrays[f"{name}.var"] = s.mean, s.var
        return arrays

    def load_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Take values from ``state()`` of an equal model.

        Raises:
            ConfigError: A name is missing or unknown, or a shape differs.
        """
        mine = self.state()
        missing, unknown = sorted(set(mine) - set(arrays)), sorted(set(arrays) - set(mine))
        if missing or unknown:
            raise ConfigError(f"the weights do not fit the model: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}; "
                              "use the model options the weights were trained with")
        for name, x in mine.items():
            if x.shape != arrays[name].shape:
                raise ConfigError(f"the weight {name} has shape {list(arrays[name].shape)}, the model needs {list(x.shape)}; "
                                  "use the model options the weights were trained with")
        for name, p in self.named_parameters():
            p.value = np.array(arrays[name], p.value.dtype)
        for name, s in _walk(self, "", RunningStats, set()):
            s.mean, s.var = np.array(arrays[f"{name}.mean"], s.mean.dtype), np.array(arrays[f"{name}.var"], s.var.dtype)


def _walk(x: Any, path: str, wanted: type, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(x) in seen:
        return
    if isinstance(x, wanted):
        seen.add(id(x))
        yield path, x
    elif isinstance(x, Module):
        seen.add(id(x))
        for name, value in vars(x).items():
            if not name.startswith("_"):
                yield from _walk(value, f"{path}.{name}" if path else name, wanted, seen)
    elif isinstance(x, (list, tuple)):
        for i, value in enumerate(x):
            yield from _walk(value, f"{path}.{i}", wanted, seen)
    elif isinstance(x, dict):
        for name, value in x.items():
            yield from _walk(value, f"{path}.{name}", wanted, seen)


def _collect(x: Any, found: list[Module], seen: set[int]) -> None:
    if id(x) in seen:
        return
    seen.add(id(x))
    if isinstance(x, Module):
        found.append(x)
        for name, value in vars(x).items():
            if not name.startswith("_"):
                _collect(value, found, seen)
    elif isinstance(x, (list, tuple)):
        for value in x:
            _collect(value, found, seen)
    elif isinstance(x, dict):
        for value in x.values():
            _collect(value, found, seen)


class Layer(Module):
    """One superstep. Override the methods that differ from passing ``h`` along.

    Attributes:
        sum: Name of the aggregator ("sum", "mean", "max", "min"), a tuple of names, or None for a decoder that
            makes one value per edge.
        direction: "in" (messages run along the edges), "out" (against them) or "both".
        self_loops: Whether the layer is published for graphs in which every node has a self loop; a job adds the
            missing ones unless told otherwise.
        precomputed: Whether the total of its messages was computed beforehand (``engine.precompute``). A layer that may
            multiply by its weights before or after the sum then does so after.
        recomputed: Whether its inside is made again in backward instead of being kept.
    """

    sum: str | tuple[str, ...] | None = "sum"
    direction = "in"
    self_loops = False
    precomputed = False
    recomputed = False

    def transform(self, node: Any) -> dict[str, Any]:
        """NN-Transform: node columns that gather may read, by name."""
        return {"h": node.h}

    def gather(self, edge: Any) -> Any:
        """NN-Gather: the message of an edge, or (message, {name: new edge value})."""
        return edge.src.h

    def apply(self, node: Any, total: Any) -> Any:
        """NN-Apply: new node values from the node's columns and the total of its messages."""
        return total

    def __call__(self, graph: ActiveGraph, h: Any = None, **columns: Any) -> Any:
        if not isinstance(graph, ActiveGraph):
            raise UserFunctionError(f"{type(self).__name__} is called as layer(graph, h), with the graph that forward was given")
        if self.direction not in DIRECTIONS:
            raise UserFunctionError(f"{type(self).__name__}.direction = {self.direction!r}; choose from {', '.join(DIRECTIONS)}")
        if callable(self.sum):
            raise UserFunctionError(f"{type(self).__name__}.sum is a function; expected the name of an aggregator, such as sum = 'mean', "
                                    "several names, or None for a decoder of edges")
        with naming(type(self).__name__):
            if self.recomputed:
                return recompute(partial(run_superstep, self), graph, h, columns)
            return run_superstep(self, graph, h, columns)


class Model(Module):
    """A network: ``forward`` runs layers over the graph it is given and returns node values or edge values."""

    def forward(self, graph: ActiveGraph) -> Var:
        """Compute the outputs of the view's targets.

        Raises:
            UserFunctionError: Not overridden.
        """
        raise UserFunctionError(f"forward of {type(self).__name__} is missing; define forward(self, graph), which calls layers and returns "
                                "node or edge values")

    def run(self, graph: ActiveGraph) -> Var:
        """``forward``, with its errors named and its result checked.

        Raises:
            UserFunctionError: It returned neither node nor edge values.
        """
        with naming(f"forward of {type(self).__name__}"):
            out = self.forward(graph)
        if not isinstance(out, Var) or out.space is None:
            raise UserFunctionError(f"forward of {type(self).__name__} returned {type(out).__name__}; expected node or edge values")
        return out

    def recompute_layers(self, on: bool) -> None:
        """Choose what a training step makes again in backward instead of keeping it: every layer by itself, or nothing."""
        for module in self.modules():
            if isinstance(module, Layer):
                # a decoder is walked back as soon as it has run
                module.recomputed = on and module.sum is not None

    def __call__(self, view: GraphView, **inputs: Any) -> Var:
        return self.run(ActiveGraph(view, **inputs))
