"""A user's own model from a Python file."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from graphtheta.errors import ConfigError
from graphtheta.userfile import load_module

from ..engine.layer.layer import Layer, Model


def load_user_model(path: str, d_in: int, d_out: int, d_edge: int = 0, **options: Any) -> Model:
    """Make the model that a user wrote.

    Args:
        path: "FILE.py:Class"; the class is a subclass of ``Model``.
        d_in, d_out, d_edge: Widths of node features, outputs and edge attributes; the class gets those of them, and of the
            options, that its constructor names.
        **options: Further settings by name.

    Raises:
        ConfigError: There is no such file or class, it cannot be imported, it is not a model, or its constructor asks
            for something else.
    """
    found = load_user_class(path)
    return found(**accepted(path, found, {**options, "d_in": d_in, "d_out": d_out, "d_edge": d_edge}))


def load_user_class(path: str) -> type[Model]:
    """The class that "FILE.py:Class" names.

    Raises:
        ConfigError: There is no such file or class, it cannot be imported, or it is not a model.
    """
    file, colon, name = path.rpartition(":")
    if not colon or not name.isidentifier() or not file.endswith(".py"):
        raise ConfigError(f"model {path!r} is not of the form FILE.py:Class, such as my_layers.py:MyModel")
    module = load_module(Path(file), "model")
    found = getattr(module, name, None)
    if not inspect.isclass(found):
        raise ConfigError(f"{file} has no class {name}; it has {', '.join(_models(module)) or 'no model at all'}")
    if not issubclass(found, Model):
        is_layer = issubclass(found, Layer)
        hint = "a layer runs inside a model: write a Model whose forward calls it" if is_layer else "derive it from graphtheta.Model"
        raise ConfigError(f"{path} is not a model; {hint}")
    return found


def accepted(name: str, function: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """What a function that makes a model, or a class, is given of what a job offers: that which it names.

    Args:
        name: What the user calls it, for messages.
        function: The function or class.
        offered: Values by name.

    Raises:
        ConfigError: It needs something else.
    """
    wanted = list(inspect.signature(function).parameters.values())
    named = [p for p in wanted if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = [p for p in wanted if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unknown = [p.name for p in needed if p not in named or p.name not in offered]
    if unknown:
        raise ConfigError(f"the constructor of {name} needs {', '.join(unknown)}, which a job does not set; it may take "
                          f"{', '.join(sorted(offered))}, and anything that has a default")
    takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted)
    return offered if takes_all else {p.name: offered[p.name] for p in named if p.name in offered}


def _models(module: ModuleType) -> list[str]:
    return [n for n, c in vars(module).items() if inspect.isclass(c) and issubclass(c, Model) and c.__module__ == module.__name__]
