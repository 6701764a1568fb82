"""A module of PyTorch Geometric, DGL or torch: its class, the arguments of its constructor, and its
weights by name.

Only NumPy is needed. ``Counterpart.make`` imports the other library.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from graphtheta.engine.layer.module import Module
from graphtheta.errors import ConfigError
from graphtheta.ops.autodiff.tape import Parameter

LIBRARIES = {"pyg": "torch_geometric.nn", "dgl": "dgl.nn"}
State = dict[str, np.ndarray]


@dataclass(frozen=True)
class Counterpart:
    """A module of another library.

    Attributes:
        library: "pyg", "dgl" or "torch".
        name: Its class in ``torch_geometric.nn``, ``dgl.nn`` or ``torch.nn``.
        options: Arguments of its constructor; counterparts, and those in a dict, are made first.
            "*" has those without names.
        state: Its weights by name, as ``load_state_dict`` takes them.
    """

    library: str
    name: str
    options: dict[str, Any]
    state: State

    def make(self) -> Any:
        """The module with its weights, in evaluation mode.

        Raises:
            ConfigError: The library is not installed.
        """
        try:
            torch = import_module("torch")
            home = import_module(LIBRARIES.get(self.library, "torch.nn"))
        except ImportError as error:
            raise ConfigError(
                f"{self.name} is a layer of a library that cannot be imported ({error}); install"
                " it, or read the weights from .state"
            ) from None
        first = self.options.get("*", ())
        module = getattr(home, self.name)(
            *map(_argument, first),
            **{name: _argument(x) for name, x in self.options.items() if name != "*"},
        )
        module = module.to(
            torch.float64
            if any(x.dtype == np.float64 for x in self.state.values())
            else torch.float32
        ).eval()
        module.load_state_dict(
            {name: torch.from_numpy(np.array(x)) for name, x in self.state.items()}
        )
        return module


def _argument(x: Any) -> Any:
    """An argument of a constructor."""
    if isinstance(x, dict):
        return {key: _argument(part) for key, part in x.items()}
    if isinstance(x, np.ndarray):
        return import_module("torch").from_numpy(x)
    return x.make() if isinstance(x, Counterpart) else x


def array_of(p: Any) -> np.ndarray:
    """The value of a parameter."""
    return np.asarray(p.value)


def linear(prefix: str, weight: Parameter, bias: Parameter | None = None) -> State:
    """The state of a linear map of torch, whose weight is [d_out, d_in]; further axes of the output
    are joined.
    """
    of = {f"{prefix}weight": array_of(weight).reshape(weight.shape[0], -1).T}
    return of if bias is None else of | {f"{prefix}bias": array_of(bias).reshape(-1)}


def filled(prefix: str, weight: Parameter, bias: Parameter | None, wanted: bool) -> State:
    """The state of a linear map, whose bias is 0 where the module has one and the layer none."""
    state = linear(prefix, weight, bias)
    if wanted and bias is None:
        name = f"{prefix}weight"
        state[f"{prefix}bias"] = np.zeros(len(state[name]), state[name].dtype)
    return state


def refusal(layer: Module, what: str, library: str) -> ConfigError:
    """The error for a form of a layer that a library lacks."""
    return ConfigError(f"{type(layer).__name__} with {what} has no counterpart in {library}")
