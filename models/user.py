"""Loads a user's model from a Python file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import create_model

from graphtheta.base.userfile import load_module
from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer, Model
from .design import Design, Options


def load_user(path: str) -> type[Model] | Design:
    """The model that "FILE.py:NAME" names: a class of models, or the design of one.

    Raises:
        ConfigError: There is nothing of that name, the file cannot be imported, or it is not a
            model.
    """
    file, colon, name = path.rpartition(":")
    if not colon or not name.isidentifier() or not file.endswith(".py"):
        raise ConfigError(
            f"model {path!r} is not of the form FILE.py:Class, such as my_layers.py:MyModel"
        )
    module = load_module(Path(file), "model")
    attribute = getattr(module, name, None)
    if isinstance(attribute, Design):
        return attribute
    if not inspect.isclass(attribute):
        raise ConfigError(
            f"{file} has no class {name}; it has {', '.join(_models(module)) or 'no model at all'}"
        )
    if not issubclass(attribute, Model):
        is_layer = issubclass(attribute, Layer)
        hint = (
            "a layer runs inside a model: write a Model whose forward calls it"
            if is_layer
            else "derive it from graphtheta.Model"
        )
        raise ConfigError(f"{path} is not a model; {hint}")
    return attribute


def declared(model: Design | Callable[..., Any]) -> type[Options]:
    """The options of a model.

    They are those of its design, or the parameters of the class or function that makes it whose
    default is a number, a text or a bool.

    Args:
        model: The design, the class, or a function that makes the model.
    """
    if isinstance(model, Design):
        return model.options
    wanted = inspect.signature(model).parameters.values()
    usable = [p for p in wanted if not p.name.startswith("_") and not hasattr(Options, p.name)]
    scalars: dict[str, Any] = {
        p.name: (type(p.default), p.default)
        for p in usable
        if type(p.default) in (bool, int, float, str)
    }
    return create_model("Parameters", __base__=Options, **scalars)


def _models(module: ModuleType) -> list[str]:
    return [
        n
        for n, c in vars(module).items()
        if isinstance(c, Design)
        or (inspect.isclass(c) and issubclass(c, Model) and c.__module__ == module.__name__)
    ]
