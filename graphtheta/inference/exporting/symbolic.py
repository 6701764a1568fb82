"""The dense parts of a model as expressions: what its functions compute for each row, traced once
with symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.layer.module import Module
from graphtheta.engine.layer.opened import Totals
from graphtheta.engine.layer.settings import pass_settings
from graphtheta.errors import ColumnError, ConfigError, UserFunctionError
from graphtheta.models.mlp import Dense
from graphtheta.models.network import Network
from graphtheta.models.norm import BatchNorm
from graphtheta.ops.autodiff.expr import Expr, Tracer
from graphtheta.ops.autodiff.tape import Tape
from graphtheta.ops.functions.elementwise import add, mul

Shape = tuple[int, ...]
STAGES = ("transform", "apply")


class Affine(Module):
    """What batch norm computes in evaluation: a scale and a shift by its running statistics.

    Args:
        norm: The trained norm.
        eps: Added to the variance, as ``batch_norm`` does.
    """

    def __init__(self, norm: BatchNorm, eps: float = 1e-5):
        gamma = np.asarray(norm.gamma.value)
        beta = np.asarray(norm.beta.value)
        self.scale = (gamma / np.sqrt(norm.stats.var + eps)).astype(gamma.dtype)
        self.shift = (beta - norm.stats.mean * self.scale).astype(gamma.dtype)

    def __call__(self, x: Any) -> Any:
        return add(mul(x, self.scale), self.shift)


class SymbolColumns:
    """``node`` of a stage: symbols by name.

    Args:
        owner: Name of the layer, for messages.
        columns: The symbols.
    """

    precomputed = False

    def __init__(self, owner: str, columns: Mapping[str, Any]):
        self._owner = owner
        self._columns = columns

    def product_first(self, weight: Any, column: str = "h") -> bool:
        """An export has one order: the product is in transform."""
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._columns:
            raise ColumnError(
                f"{self._owner} reads {name}, whose width is not given; give it, widths={{...,"
                f" {name!r}: width}}"
            )
        return self._columns[name]


def trace(
    part: Any, widths: int | Mapping[str, int | Shape], stage: str, dtype: Any
) -> tuple[Tracer, dict[str, Expr], dict[str, Expr]]:
    """Inputs and outputs of a part of a model by name, and the scope that has its parameters.

    Args:
        part: As for ``to_onnx``.
        widths: As for ``to_onnx``.
        stage: "transform" or "apply" of a layer; "" otherwise.
        dtype: Float type of the inputs.

    Raises:
        ConfigError: The part is not dense, or the stage does not fit it.
        ColumnError: It reads a column whose width is not given.
    """
    width_of = {"x": widths} if isinstance(widths, int) else dict(widths)
    run = _function(_frozen(part), stage)
    with Tape(record=False, training=False), Tracer() as tracer:
        inputs = {
            name: tracer.leaf("node", name, _shape(width), dtype)
            for name, width in width_of.items()
        }
        try:
            result = run(inputs)
        except UserFunctionError as error:
            raise ConfigError(
                f"{type(part).__name__} has an operation that reads other rows, or chooses a matrix"
                " for each row, which has no counterpart in ONNX; compute it outside of the"
                f" exported part ({error})"
            ) from error
    outputs = result if isinstance(result, dict) else {"out": result}
    for name, e in outputs.items():
        if not isinstance(e, Expr) or not e.rows:
            raise ConfigError(
                f"{type(part).__name__} returns {name} = {type(e).__name__}; expected a value for"
                " each row that depends on the inputs"
            )
    return tracer, inputs, outputs


def _shape(width: int | Shape) -> Shape:
    return (width,) if isinstance(width, int) else tuple(width)


def _function(part: Any, stage: str) -> Callable[[dict[str, Any]], Any]:
    """What computes the outputs from symbols by name."""
    owner = type(part).__name__
    if stage and (stage not in STAGES or not isinstance(part, Layer)):
        raise ConfigError(
            f"stage={stage!r} of {owner}: layers have the dense stages {', '.join(STAGES)}; leave"
            " it out for other parts"
        )
    if stage == "transform":
        return lambda given: part.transform(SymbolColumns(owner, given))
    if stage == "apply":
        return lambda given: part.apply(SymbolColumns(owner, given), _total(owner, given))
    if isinstance(part, Layer):
        if part.sum is not None:
            raise ConfigError(
                f"{owner} sums over edges, which ONNX has no operator for; export its stages,"
                " stage='transform' and stage='apply', or use gt.to_torch"
            )
        return lambda given: _decoded(part, given)
    if isinstance(part, Network):
        layers = [
            layer
            for layer in (*part.layers, part.readout, part.decoder)
            if layer is not None and not isinstance(layer, Dense)
        ]
        if layers:
            raise ConfigError(
                f"the network has {type(layers[0]).__name__}, which reads edges; export its parts:"
                " .embed, .head, .decoder, and stages of its layers"
            )

        def forward(given: Any) -> Any:
            graph = SimpleNamespace(x=SymbolColumns(owner, given).x, settings=pass_settings())
            return part.forward(graph)  # type: ignore[arg-type]

        return forward
    if not (isinstance(part, Module) and callable(part)):
        raise ConfigError(
            f"to_onnx: {shown(part)} is no part of a model; give a gt.Module, such as an MLP or the"
            " head of a network"
        )
    return lambda given: part(SymbolColumns(owner, given).x)


def _decoded(decoder: Layer, given: dict[str, Any]) -> Any:
    """The value of a pair, from columns of its ends, "src.h" and "dst.h", and edge values,
    "edge.attr".
    """
    owner = type(decoder).__name__
    ends = {}
    for end in ("src", "dst"):
        columns = {
            name.partition(".")[2]: x for name, x in given.items() if name.startswith(f"{end}.")
        }
        ends[end] = SymbolColumns(
            owner, {**columns, **decoder.transform(SymbolColumns(owner, columns))}
        )
    values = {name.partition(".")[2]: x for name, x in given.items() if name.startswith("edge.")}
    scores = decoder.gather(SymbolColumns(owner, {**ends, **values}))
    return scores[0] if isinstance(scores, tuple) else scores


def _total(owner: str, given: dict[str, Any]) -> Any:
    """The total, or several by name, "total.mean"."""
    several = {name.partition(".")[2]: x for name, x in given.items() if name.startswith("total.")}
    if not several and "total" not in given:
        raise ColumnError(
            f"apply of {owner} reads its total; give its width, widths={{..., 'total': width}}, or"
            " 'total.NAME' of several"
        )
    return Totals(owner, several) if several else given["total"]


def _frozen(part: Any) -> Any:
    """A copy of a module in which batch norm is the affine map of its evaluation."""
    if isinstance(part, BatchNorm):
        return Affine(part)
    if isinstance(part, (list, tuple)):
        return type(part)(_frozen(x) for x in part)
    if isinstance(part, dict):
        return {name: _frozen(x) for name, x in part.items()}
    if not isinstance(part, Module):
        return part
    frozen = copy(part)
    for name, x in list(vars(part).items()):
        if isinstance(x, (Module, list, tuple, dict)):
            object.__setattr__(frozen, name, _frozen(x))
    return frozen
