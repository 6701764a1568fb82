"""Components described by text: ``NAME:field=value,...`` names a class and sets arguments of its
constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from math import isfinite
from typing import Any, Literal, get_args, get_origin, get_type_hints

from graphtheta.base.wording import shown
from graphtheta.errors import ConfigError

# arrays of integers hold no larger ones
LARGEST = 2**63 - 1
# largest value of a key or flag that counts something; rows are counted in 32 bits
LARGEST_NUMBER = 2**31 - 1


def name_and_options(text: str) -> tuple[str, dict[str, str]]:
    """The name, which may be ``FILE.py:NAME``, and the options as they are written.

    Raises:
        ConfigError: It is no text, or has an option twice.
    """
    if not isinstance(text, str):
        raise ConfigError(
            f"got {shown(text)} as a name; give a text such as 'NAME' or 'NAME:option=value'"
        )
    name, colon, rest = text.rpartition(":")
    if not colon or "=" not in rest:
        return text, {}
    items = [item.partition("=")[::2] for item in rest.split(",") if item]
    return name, each_once(items, f"{text}: the option {{}} is given twice; drop one of them")


def each_once(pairs: Sequence[tuple[str, str]], message: str) -> dict[str, str]:
    """Pairs of a name and a value, by name.

    Args:
        pairs: The pairs.
        message: The error about a name that is there twice, with {} for the name.

    Raises:
        ConfigError: Several pairs have the same name.
    """
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise ConfigError(message.replace("{}", name))
        values[name] = value
    return values


def options_of(
    described: type, text: str, key: str, written: dict[str, str], elsewhere: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Arguments for the constructor of a class, each read as the type of its annotation, which may
    allow words in its place, as ``int | Literal["auto"]``.

    Args:
        described: The class.
        text: The whole description, for messages.
        key: The key of the job that the description is the value of, for messages.
        written: Options as they are written.
        elsewhere: Arguments that other keys of the job set.

    Raises:
        ConfigError: Unknown option, or a value of another type.
    """
    hints = get_type_hints(described.__init__)  # type: ignore[misc]
    forms = {
        name: _kind_and_words(hints.get(name, str))
        for name in list(signature(described).parameters)
        if name not in elsewhere
    }
    values: dict[str, Any] = {}
    for option, value in written.items():
        if option not in forms:
            options = [name for name, (kind, _) in forms.items() if kind in (bool, int, float, str)]
            raise ConfigError(
                f"{key}={text}: there is no option {option!r}; there is"
                f" {', '.join(options) or 'none'}"
            )
        kind, words = forms[option]
        if value in words:
            values[option] = value
            continue
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
            raise ConfigError(
                f"{key}={text}: {option} is {value!r}; expected {' or '.join((expected, *words))}"
            ) from None
    return values


def accepted(
    name: str, function: Callable[..., Any], offered: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The values of a job that a class or function accepts, by name.

    Args:
        name: Name of the function or class, for messages.
        function: The function or class.
        offered: Values of the job by name.

    Raises:
        ConfigError: It requires a parameter that the job does not offer.
    """
    wanted = list(signature(function).parameters.values())
    named = [p for p in wanted if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = [
        p
        for p in wanted
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    unknown = [p.name for p in needed if p not in named or p.name not in offered]
    if unknown:
        raise ConfigError(
            f"the constructor of {name} needs {', '.join(unknown)}, which a job does not set; a"
            f" constructor may take {', '.join(sorted(offered))}, and parameters with a default; a"
            " default that is a number, text or truth value makes it a key of the job"
        )
    takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted)
    return offered if takes_all else {p.name: offered[p.name] for p in named if p.name in offered}


def _kind_and_words(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """The type of an option by its annotation, and the words that may stand in its place."""
    words = [part for part in get_args(hint) if get_origin(part) is Literal]
    if not words:
        return hint, ()
    (kind,) = (part for part in get_args(hint) if part not in words)
    return kind, tuple(word for part in words for word in get_args(part))
