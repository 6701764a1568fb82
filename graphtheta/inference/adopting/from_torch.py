"""``gt.from_torch``: layers and weights of PyTorch Geometric, DGL and torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.engine.layer.module import Module
from graphtheta.errors import ConfigError
from graphtheta.inference.adopting.layers import MAKERS
from graphtheta.inference.adopting.states import Arrays, fill, within
from graphtheta.ops.autodiff.init import dtype_scope


@checked
def from_torch(
    source: Any, into: Module | None = None, names: Mapping[str, str] | None = None
) -> Any:
    """A layer of PyTorch Geometric, DGL or torch as one of ours; or weights for one that exists.

    Args:
        source: A layer, from which ours is made with its options and weights; or, with ``into``, a
            layer or state dict, whose values are tensors or arrays.
        into: A layer or model of ours that is given the weights. Its options are its own.
        names: For a model: by the path of each layer that is given weights, such as "layers.0",
            the prefix of its weights in the state dict, such as "conv1".

    Returns:
        The layer, or ``into``.

    Raises:
        ConfigError: There is no layer of ours that computes the same, the weights do not fit, or a
            path or prefix is not known.
    """
    if names is not None:
        if into is None:
            raise ConfigError("gt.from_torch: names are those of a model; give it as into")
        return _into_parts(_arrays(source), into, names)
    if into is None:
        layer = _layer_like(source)
        fill(layer, _arrays(source), type(source).__name__)
        return layer
    fill(into, _arrays(source), type(into).__name__)
    return into


def _layer_like(source: Any) -> Module:
    """Our layer with the options of another, and the float type of its weights."""
    # a class that is derived from a published one may compute something else
    key = type(source).__module__.partition(".")[0], type(source).__name__
    if key not in MAKERS:
        if isinstance(source, Mapping):
            raise ConfigError(
                "gt.from_torch: a state dict does not say what its layer computes; give the layer,"
                " or a layer of ours as into"
            )
        raise ConfigError(
            f"gt.from_torch: {key[1]} has no counterpart among our layers; those with one are"
            f" {', '.join(f'{library}.{name}' for library, name in MAKERS)}"
        )
    floats = {x.dtype for x in _arrays(source).values() if x.dtype.kind == "f"}
    dtype = str(max(floats, key=lambda d: d.itemsize)) if floats else "float32"
    with dtype_scope(dtype):
        return MAKERS[key](source)


def _into_parts(arrays: Arrays, model: Module, names: Mapping[str, str]) -> Module:
    """Give weights to layers of a model.

    Raises:
        ConfigError: A path leads to no module, or no weights begin with a prefix.
    """
    modules = dict(model.named_modules())
    for path, prefix in names.items():
        if path not in modules or not path:
            raise ConfigError(
                f"gt.from_torch: {type(model).__name__} has no module {path!r}; it has"
                f" {', '.join(filter(None, modules))}"
            )
        weights = within(arrays, f"{prefix}.")
        if not weights and list(modules[path].named_parameters()):
            raise ConfigError(
                f"gt.from_torch: no weight begins with {prefix!r}; there are {', '.join(arrays)}"
            )
        fill(modules[path], weights, f"{type(modules[path]).__name__} at {prefix}")
    return model


def _arrays(source: Any) -> Arrays:
    """The arrays of a layer or state dict."""
    state = source if isinstance(source, Mapping) else source.state_dict()
    return {str(name): _array(str(name), x) for name, x in state.items()}


def _array(name: str, x: Any) -> np.ndarray:
    """A tensor or array as an array of its own; floats of 16 bits in 32.

    Raises:
        ConfigError: The tensor has no values yet.
    """
    if hasattr(x, "materialize"):
        raise ConfigError(
            f"gt.from_torch: {name} has no values yet; call the layer once, which gives it a width"
        )
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        short = x.is_floating_point() and x.element_size() < 4
        x = (x.float() if short else x).numpy()
    values = np.array(x)
    return values.astype(np.float32) if values.dtype == np.float16 else values
