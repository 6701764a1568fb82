"""Components described by text: ``NAME:field=value,...`` names a class and sets arguments of its
constructor.
"""

from __future__ import annotations

from inspect import signature
from math import isfinite
from typing import Any, get_type_hints

from graphtheta.base.wording import shown
from graphtheta.errors import ConfigError

# arrays of integers hold no larger ones
LARGEST = 2**63 - 1


def name_and_options(text: str) -> tuple[str, dict[str, str]]:
    """The name, which may be ``FILE.py:NAME``, and the options as they are written."""
    if not isinstance(text, str):
        raise ConfigError(
            f"got {shown(text)} as a name; give a text such as 'NAME' or 'NAME:option=value'"
        )
    name, colon, rest = text.rpartition(":")
    if not colon or "=" not in rest:
        return text, {}
    return name, {
        option: value
        for option, _, value in (item.partition("=") for item in rest.split(",") if item)
    }


def options_of(
    made: type, text: str, key: str, written: dict[str, str], elsewhere: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Arguments for the constructor of a class, each read as the type of its annotation.

    Args:
        made: The class.
        text: The whole description, for messages.
        key: The key of the job that the description is the value of, for messages.
        written: Options as they are written.
        elsewhere: Arguments that other keys of the job set.

    Raises:
        ConfigError: Unknown option, or a value of another type.
    """
    hints = get_type_hints(made.__init__)  # type: ignore[misc]
    known = {
        name: hints.get(name, str)
        for name in list(signature(made).parameters)
        if name not in elsewhere
    }
    values: dict[str, Any] = {}
    for option, value in written.items():
        if option not in known:
            options = {
                name: kind for name, kind in known.items() if kind in (bool, int, float, str)
            }
            raise ConfigError(
                f"{key}={text}: there is no option {option!r}; there is"
                f" {', '.join(options) or 'none'}"
            )
        kind = known[option]
        try:
            values[option] = {"yes": True, "no": False}[value] if kind is bool else kind(value)
            if kind is float and not isfinite(values[option]):
                raise ValueError
            if kind is int and abs(values[option]) > LARGEST:
                raise ValueError
        except (KeyError, ValueError):
            expected = {bool: "yes or no", float: "a finite number of type float"}.get(
                kind, f"a value of type {kind.__name__}"
            )
            raise ConfigError(f"{key}={text}: {option} is {value!r}; expected {expected}") from None
    return values
